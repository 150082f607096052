"""A skorch callback that monitors the directional derivatives while a network trains."""

import math
from typing import Any

import torch
from skorch.callbacks import Callback
from torch import Tensor

from mixupe_sklearn._diagnostics.fitted import (
    batches_of,
    evaluating,
    first_stage,
    logits_from,
    spread,
    state_at,
)
from mixupe_sklearn._diagnostics.taylor import coefficients
from mixupe_sklearn._method.formulas import logit_penalty
from mixupe_sklearn._method.forward import encode_targets
from mixupe_sklearn._net.net import MixupENet, MixupENetRegressor
from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

# What the record of an epoch holds.
MONITORED = ("alpha_min", "q_abs", "q_hat_abs", "penalty_share")
# Overhead of a step and of an evaluation beside their arithmetic, in multiplications, measured with
# small networks on one thread. An evaluation may take this share of an epoch.
_STEP, _EVALUATION, _SHARE = 2e6, 1.2e7, 0.03
_MIN_ROWS, _MAX_ROWS = 16, 64
_RULES: dict[str, Rule] = {
    "n_rows": Number("an integer >= 1, or None", low=1, integer=True, or_none=True),
    "every": Number("an integer >= 1, or None", low=1, integer=True, or_none=True),
}


def n_monitored(n_rows: int, n_outputs: int) -> int:
    """Number of samples to evaluate, so that an evaluation is cheap beside an epoch."""
    affordable = _SHARE / 2 * 3 * n_rows / (1 + n_outputs)
    return int(min(max(affordable, _MIN_ROWS), _MAX_ROWS))


def epochs_between(
    n_rows: int, batch_size: int, n_outputs: int, work: float, n_evaluated: int
) -> int:
    """Number of epochs between evaluations; ``work`` is the multiplications of one sample."""
    # A backward pass costs two forward ones. An evaluation runs one backward pass per output.
    epoch = math.ceil(n_rows / batch_size) * _STEP + 3 * n_rows * work
    evaluation = _EVALUATION + n_evaluated * (1 + n_outputs) * work
    return math.ceil(evaluation / (_SHARE * epoch))


class DerivativeMonitor(Callback):
    """Record what Mixup and its penalty do to the directional derivatives, epoch by epoch.

    At the end of an epoch, a fixed subset of the training samples runs clean, in evaluation mode.
    These values go into the history (``net_.history``, and ``history_`` of an estimator of one
    network):

    - ``alpha_min``: minimum of the coefficient alpha of the paper's equation (6), over samples and
      outputs. If it is negative, Mixup alone enlarges a derivative (the paper's Figure 2).
    - ``q_abs``: mean ``|q|``, the first directional derivative of the loss toward the mean.
    - ``q_hat_abs``: mean ``|q_hat|``, its approximation from the logits.
    - ``penalty_share``: share of ``eta`` times the penalty in the training loss before it is
      rescaled, ``1 - loss_scale``.

    Epochs without an evaluation have NaN for the first three.

    Parameters
    ----------
    n_rows : int or None, default=None
        Number of samples to evaluate, evenly spaced over the training set. None takes 16 to 64,
        fewer for a small table with many outputs.
    every : int or None, default=None
        Number of epochs between evaluations; the first and the last epoch are always evaluated.
        None chooses by the number of samples, the batch size and the network, so that evaluations
        take a few percent of the training time. For a small table that means few epochs.

    Notes
    -----
    The monitor does not change training, to the bit: it draws nothing at random. It keeps the
    samples in memory while training lasts. With several members, which still train together, each
    net has its own history (``nets_[i].history``).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> from mixupe_sklearn.diagnostics import DerivativeMonitor
    >>> X, y = load_digits(return_X_y=True)
    >>> monitor = DerivativeMonitor(every=1)
    >>> settings = preset("paper") | {"max_epochs": 3, "callbacks": [monitor]}
    >>> classifier = MixupEClassifier(**settings, random_state=0)
    >>> history = classifier.fit(X / 16, y).history_
    >>> history[0]["alpha_min"] < 0 < history[0]["q_abs"]
    True
    """

    # The samples and the number of epochs between evaluations, while training lasts.
    rows_: Any = None

    def __init__(self, n_rows: int | None = None, every: int | None = None):
        self.n_rows = n_rows
        self.every = every

    def initialize(self) -> "DerivativeMonitor":
        """Check the parameters, and drop the samples of an earlier training."""
        check_rules(vars(self), _RULES)
        self.rows_ = None
        return self

    def on_epoch_end(self, net: Any, dataset_train: Any = None, **kwargs: Any) -> None:
        """Evaluate if it is due, and record."""
        if self.rows_ is None:
            self.rows_ = self._choose(net, dataset_train)
        rows, every = self.rows_
        n_done = len(net.history)
        is_due = (n_done - 1) % every == 0 or n_done == net.max_epochs
        values = evaluate(net, rows) if is_due else [math.nan] * 3
        # Before rescaling, the loss was 1 / loss_scale times as large.
        share = 1 - net.history[-1]["loss_scale"]
        for name, value in zip(MONITORED, [*values, share], strict=True):
            net.history.record(name, float(value))

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Release the samples."""
        self.rows_ = None

    def _choose(self, net: Any, dataset: Any) -> tuple[list[tuple[Any, Any]], int]:
        """The samples to evaluate, as batches, and the number of epochs between evaluations."""
        if not isinstance(net, (MixupENet, MixupENetRegressor)):
            raise TypeError(
                f"Got a {type(net).__name__} to monitor, but expected a MixupENet, or an estimator "
                f"of mixupe_sklearn."
            )
        n_all, n_outputs = len(dataset), _n_outputs(net, dataset)
        n_rows = self.n_rows or n_monitored(n_all, n_outputs)
        # Each weight of a dense layer is one multiplication per sample.
        work = net._work or sum(parameter.numel() for parameter in net.module_.parameters())
        batch_size = n_all if net.batch_size == -1 else net.batch_size
        every = self.every or epochs_between(n_all, batch_size, n_outputs, work, n_rows)
        return batches_of(net, dataset, spread(n_all, n_rows)), every

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "rows_"}


def _n_outputs(net: Any, dataset: Any) -> int:
    with evaluating(net.module_), torch.no_grad():
        inputs = batches_of(net, dataset, spread(len(dataset), 1))[0][0]
        return int(logits_from(net.module_, 0, inputs).shape[1])


def evaluate(net: Any, batches: list[tuple[Any, Any]]) -> list[float]:
    """Minimum alpha, mean ``|q|`` and mean ``|q_hat|`` of a net over batches of samples."""
    with evaluating(net.module_), torch.enable_grad():
        parts = [_evaluate(net, inputs, y) for inputs, y in batches]
    alpha, q, q_hat = (torch.cat(values) for values in zip(*parts, strict=True))
    return [float(alpha.min()), float(q.abs().mean()), float(q_hat.abs().mean())]


def _evaluate(net: Any, inputs: Any, y: Any) -> tuple[Tensor, Tensor, Tensor]:
    module, criterion, stage = net.module_, net.criterion_, first_stage(net)
    with torch.no_grad():
        state = state_at(module, stage, inputs)
    state = state.to(net.device).detach().requires_grad_()
    logits = logits_from(module, stage, state)
    targets = encode_targets(torch.as_tensor(y).to(net.device), logits, criterion.head)
    # As in the criterion: the mean of a hidden state is known for these samples only.
    X_mean = state.detach().mean(dim=0) if stage else criterion.X_mean.to(state)
    q_hat, _ = logit_penalty(logits.detach(), targets, criterion.head)
    return *coefficients(logits, state, targets, X_mean, criterion.head), q_hat
