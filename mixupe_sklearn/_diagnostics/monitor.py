"""A skorch callback that watches the directional derivatives while a network trains."""

import math
from typing import Any

import torch
from skorch.callbacks import Callback
from torch import Tensor

from mixupe_sklearn._diagnostics.fitted import batches_of, first_stage, spread
from mixupe_sklearn._diagnostics.taylor import coefficients
from mixupe_sklearn._method.forward import as_logits, encode_targets, run_stages
from mixupe_sklearn._method.penalties import logit_penalty
from mixupe_sklearn._net.net import MixupENet, MixupENetRegressor
from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

# What an epoch's record has of a look.
WATCHED = ("alpha_min", "q_abs", "q_hat_abs", "penalty_share")
# What a step and a look take beside their arithmetic, counted in multiplications. Measured with
# small networks on one thread; a look may take this share of an epoch, by this account.
_STEP, _LOOK, _SHARE = 2e6, 1.2e7, 0.03
_LEAST_ROWS, _MOST_ROWS = 16, 64
_RULES: dict[str, Rule] = {
    "n_rows": Number("a whole number >= 1, or None", low=1, integer=True, or_none=True),
    "every": Number("a whole number >= 1, or None", low=1, integer=True, or_none=True),
}


def rows_to_watch(n_rows: int, n_outputs: int) -> int:
    """How many rows a look takes, so that it stays small beside an epoch of ``n_rows``.

    Examples
    --------
    >>> rows_to_watch(16000, 26), rows_to_watch(1437, 10), rows_to_watch(50000, 10)
    (26, 16, 64)
    """
    affordable = _SHARE / 2 * 3 * n_rows / (1 + n_outputs)
    return int(min(max(affordable, _LEAST_ROWS), _MOST_ROWS))


def epochs_a_look(n_rows: int, batch_size: int, n_outputs: int, work: float, n_watched: int) -> int:
    """After how many epochs to look again; ``work`` is what a row costs in multiplications.

    Examples
    --------
    >>> epochs_a_look(16000, 100, 26, 22_000, 26), epochs_a_look(120, 100, 3, 17_000, 16)
    (1, 44)
    """
    # Forward, and backward twice as much; a look goes backward once for each output.
    epoch = math.ceil(n_rows / batch_size) * _STEP + 3 * n_rows * work
    look = _LOOK + n_watched * (1 + n_outputs) * work
    return math.ceil(look / (_SHARE * epoch))


class DerivativeMonitor(Callback):
    """Record what Mixup and its penalty do to the directional derivatives, epoch by epoch.

    At the end of an epoch some training rows, always the same, are run clean, in evaluation mode,
    and these go into the history (``net_.history``, and ``history_`` of an estimator of one
    network):

    - ``alpha_min``: least coefficient alpha of the paper's equation (6), over rows and outputs.
      Where it is negative Mixup alone would enlarge a derivative (the paper's second figure).
    - ``q_abs``: mean ``|q|``, the first directional derivative of the loss towards the mean.
    - ``q_hat_abs``: mean ``|q_hat|``, its approximation from the logits.
    - ``penalty_share``: what the penalty, times ``eta``, has of the training loss before it is
      rescaled, ``1 - loss_scale``.

    Epochs without a look have NaN for the first three.

    Parameters
    ----------
    n_rows : int or None, default=None
        How many rows are watched, evenly over the training set. None takes 16 to 64, fewer where
        the table is small and outputs are many.
    every : int or None, default=None
        Look after every so many epochs, and after the first and the last one. None chooses by the
        sizes of rows, batches and network, so that looks take a few percent of the training; of a
        small table few epochs are looked at.

    Notes
    -----
    Training is not changed by it, to the bit: nothing is drawn at random. The rows that are watched
    are kept while the training lasts. With several members each net has a history of its own
    (``nets_[i].history``); and any callback, this one too, lets members train one after the other,
    which takes several times as long as all as one. Watch a single network (``n_members=1``).

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

    def __init__(self, n_rows: int | None = None, every: int | None = None):
        self.n_rows = n_rows
        self.every = every

    def initialize(self) -> "DerivativeMonitor":
        """Check the parameters, and forget the rows of another training."""
        check_rules(vars(self), _RULES)
        self.rows_: Any = None
        return self

    def on_epoch_end(self, net: Any, dataset_train: Any = None, **kwargs: Any) -> None:
        """Look, if it is time, and record."""
        if self.rows_ is None:
            self.rows_ = self._choose(net, dataset_train)
        rows, every = self.rows_
        n_done = len(net.history)
        is_time = (n_done - 1) % every == 0 or n_done == net.max_epochs
        values = look(net, rows) if is_time else [math.nan] * 3
        # Before it was rescaled the loss was 1 / loss_scale times as large.
        share = 1 - net.history[-1]["loss_scale"]
        for name, value in zip(WATCHED, [*values, share], strict=True):
            net.history.record(name, float(value))

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Let the rows go."""
        self.rows_ = None

    def _choose(self, net: Any, dataset: Any) -> tuple[list[tuple[Any, Any]], int]:
        """The rows to watch, as batches, and after how many epochs to look."""
        if not isinstance(net, (MixupENet, MixupENetRegressor)):
            raise TypeError(
                f"Got a {type(net).__name__} to watch, but expected a MixupENet, or an estimator "
                f"of mixupe_sklearn."
            )
        n_all, n_outputs = len(dataset), _n_outputs(net, dataset)
        n_rows = self.n_rows or rows_to_watch(n_all, n_outputs)
        # Of dense layers each weight is one multiplication a row.
        work = net._work or sum(parameter.numel() for parameter in net.module_.parameters())
        batch_size = n_all if net.batch_size == -1 else net.batch_size
        every = self.every or epochs_a_look(n_all, batch_size, n_outputs, work, n_rows)
        return batches_of(net, dataset, spread(n_all, n_rows)), every

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "rows_": None} if hasattr(self, "rows_") else dict(vars(self))


def _n_outputs(net: Any, dataset: Any) -> int:
    was_training = net.module_.training
    net.module_.eval()
    try:
        with torch.no_grad():
            inputs = batches_of(net, dataset, spread(len(dataset), 1))[0][0]
            return int(as_logits(run_stages([net.module_], inputs, {})).shape[1])
    finally:
        net.module_.train(was_training)


def look(net: Any, rows: list[tuple[Any, Any]]) -> list[float]:
    """Least alpha, mean ``|q|`` and mean ``|q_hat|`` of a net over batches of rows."""
    module, criterion = net.module_, net.criterion_
    was_training = module.training
    module.eval()
    stages, stage = first_stage(net, None)
    try:
        with torch.enable_grad():
            parts = [_look_at(net, stages, stage, inputs, y, criterion) for inputs, y in rows]
    finally:
        module.train(was_training)
    least = min(float(alpha.min()) for alpha, _, _ in parts)
    q, q_hat = (torch.cat([part[place] for part in parts]).abs().mean() for place in (1, 2))
    return [least, float(q), float(q_hat)]


def _look_at(
    net: Any, stages: list[Any], stage: int, inputs: Any, y: Any, criterion: Any
) -> tuple[Tensor, Tensor, Tensor]:
    with torch.no_grad():
        state = run_stages(stages[:stage], inputs, {}) if stage else inputs
    state = state.to(net.device).detach().requires_grad_()
    logits = as_logits(run_stages(stages[stage:] if stage else [net.module_], state, {}))
    targets = encode_targets(torch.as_tensor(y).to(net.device), logits, criterion.head)
    # As the criterion has it: a hidden state's mean is known from the rows at hand alone.
    X_mean = state.detach().mean(dim=0) if stage else criterion.X_mean.to(state)
    parts = coefficients(logits, state, targets, X_mean, criterion.head)
    q_hat, _ = logit_penalty(logits.detach(), targets, criterion.head)
    return parts.alpha, parts.q, q_hat
