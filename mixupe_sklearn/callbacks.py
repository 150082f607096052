"""Callbacks for any skorch net: a moving average of its weights, and warm-up with a cosine."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from skorch.callbacks import Callback, LRScheduler
from torch import Tensor

from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

AVERAGE_RULES: dict[str, Rule] = {"rate": Number("a number >= 0 and below 1", high=1)}
WARMUP_RULES: dict[str, Rule] = {
    "n_steps": Number("a whole number >= 1 or None", low=1, integer=True, or_none=True),
    "n_warmup": Number("a whole number of steps >= 0, or a share of them below 1"),
    "final": Number("a number >= 0"),
}


class PolyakAverage(Callback):
    """A moving average of a module's weights, which it predicts with in the end.

    After each training batch ``average = rate * average + (1 - rate) * weights``, where the weights
    are all parameters and all floating buffers, hence the running statistics of BatchNorm too;
    other buffers, such as counters, are copied. The module is trained with its raw weights, and has
    the averaged ones from the end of an epoch's training part to the start of the next one, and
    after training: validation losses, and callbacks behind this one, see the average.

    Parameters
    ----------
    rate : float, default=0.999
        The share of the average that stays at each step. It forgets over ``1 / (1 - rate)`` steps:
        one of 0.999 is made for trainings of many thousands of them.

    Notes
    -----
    The average starts from the first weights, without a correction: after t steps these have a
    share of ``rate ** t`` in it.

    *Going on* (``partial_fit``, ``warm_start``): training goes on from the raw weights, and the
    average from where it was, as if there had been no break. Where the module's weights are no
    longer the average that was put there, because someone has loaded others or has gone back to
    the best epoch, both start anew from those.

    *Several processes*: at the end of each epoch all take the average of the main one, since the
    statistics of BatchNorm are those of each process's rows.

    *Early stopping*: the losses are those of the averaged weights, so the best epoch is that of the
    best average, and this is what one goes back to. A callback that puts weights back when training
    ends has the last word if it stands behind this one, or if the last epoch was a whole one.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from mixupe_sklearn import MixupEClassifier
    >>> from mixupe_sklearn.callbacks import PolyakAverage
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = MixupEClassifier(callbacks=[PolyakAverage(rate=0.95)], n_members=1,
    ...                               max_epochs=5, min_steps=0, random_state=0)
    >>> bool(classifier.fit(X / 16, y).score(X / 16, y) > 0.9)
    True
    """

    def __init__(self, rate: float = 0.999):
        self.rate = rate

    def initialize(self) -> "PolyakAverage":
        """Forget everything."""
        check_rules(vars(self), AVERAGE_RULES)
        self.average_: list[Tensor] | None = None
        # The raw weights while the module has the averaged ones; None while it has its own.
        self.raw_: list[Tensor] | None = None
        return self

    @property
    def tensors_(self) -> list[Tensor]:
        """All that it keeps, which several processes take from the main one."""
        return [*(self.average_ or ()), *(self.raw_ or ())]

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Go on from the last training, or start from the module's weights."""
        weights = _weights_of(net)
        if self.raw_ is not None and self.average_ is not None and _agree(weights, self.average_):
            pairs = zip(self.average_, weights, strict=True)
            self.average_ = [average.to(weight.device) for average, weight in pairs]
        else:
            self.average_, self.raw_ = [_wide_copy(weight) for weight in weights], None

    def on_batch_begin(self, net: Any, batch: Any = None, training: Any = None, **kwargs: Any):
        """See to it that the raw weights are trained, and the averaged ones validated."""
        if training:
            self._put_raw(net)
        else:
            self._put_average(net)

    def on_batch_end(self, net: Any, batch: Any = None, training: Any = None, **kwargs: Any):
        """Move the average towards the weights after a step."""
        if not training or self.average_ is None:
            return
        with torch.no_grad():
            for average, weight in zip(self.average_, _weights_of(net), strict=True):
                if average.is_floating_point():
                    average.lerp_(weight.to(average.dtype), 1 - self.rate)
                else:
                    average.copy_(weight)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Let the callbacks behind this one see the average, also without validation rows."""
        self._put_average(net)

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Leave the average in the module."""
        self._put_average(net)

    def _put_average(self, net: Any) -> None:
        if self.raw_ is None and self.average_ is not None:
            weights = _weights_of(net)
            self.raw_ = [weight.detach().clone() for weight in weights]
            _fill(weights, self.average_)

    def _put_raw(self, net: Any) -> None:
        if self.raw_ is not None:
            _fill(_weights_of(net), self.raw_)
            self.raw_ = None

    def __getstate__(self) -> dict[str, Any]:
        # On the processor, since a net that was trained elsewhere is loaded there too.
        return {
            name: [tensor.cpu() for tensor in value] if isinstance(value, list) else value
            for name, value in vars(self).items()
        }


def _weights_of(net: Any) -> list[Tensor]:
    # In their order, not by name: a wrapper for several devices changes the names.
    return [*net.module_.parameters(), *net.module_.buffers()]


def _wide_copy(weight: Tensor) -> Tensor:
    """A copy that is fine enough for small moves."""
    copy = weight.detach().clone()
    if not copy.is_floating_point():
        return copy
    return copy.to(torch.promote_types(copy.dtype, torch.float32))


def _agree(weights: list[Tensor], others: list[Tensor]) -> bool:
    return len(weights) == len(others) and all(
        weight.shape == other.shape and torch.equal(weight, other.to(weight))
        for weight, other in zip(weights, others, strict=True)
    )


def _fill(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    with torch.no_grad():
        for weight, value in zip(weights, values, strict=True):
            weight.copy_(value)


def warmup_cosine(step: int, n_steps: int, n_warmup: int, final: float = 0.001) -> float:
    """What the learning rate is multiplied with at a step.

    Parameters
    ----------
    step : int
        Its number, from 0.
    n_steps : int
        How many there are; later ones stay at the last factor.
    n_warmup : int
        How many rise, from 0, along a line that reaches 1 at the first step behind them.
    final : float, default=0.001
        The factor of the last step, to which half a cosine leads.

    Returns
    -------
    factor : float

    Examples
    --------
    >>> [round(warmup_cosine(step, 7, n_warmup=2), 4) for step in range(8)]
    [0.0, 0.5, 1.0, 0.8537, 0.5005, 0.1473, 0.001, 0.001]
    """
    if step < n_warmup:
        return step / n_warmup
    n_falling = n_steps - 1 - n_warmup
    share = min((step - n_warmup) / n_falling, 1.0) if n_falling > 0 else 1.0
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * share))


# One of skorch's, so that it is known for a schedule; nothing else of that class is used.
class WarmupCosine(LRScheduler):
    """The learning rate rises from 0 to its peak, and falls along half a cosine, step by step.

    The peak is the net's ``lr``, for each group of the optimizer its own. The first step is taken
    at 0, the one after ``n_warmup`` steps at the peak, and the last at ``final`` times the peak,
    where later steps stay (see :func:`warmup_cosine`). When training ends, the rate itself goes
    back to the peak. In an estimator of this package it needs ``lr_schedule="constant"``.

    Parameters
    ----------
    n_steps : int, default=None
        How many steps the whole takes. None takes all of a training: ``max_epochs`` of the net
        times the batches of an epoch, which are counted when it begins.
    n_warmup : int or float, default=0.1
        How many of them rise: a whole number of steps, or a share below 1 of all.
    final : float, default=0.001
        What is left of the peak in the end.

    Notes
    -----
    *Going on* (``partial_fit``, ``warm_start``): steps are counted on, so that a training in pieces
    has the rates of one in a single piece. With ``n_steps=None``, a training that begins when all
    steps were taken begins a new rise and fall.

    Examples
    --------
    >>> from mixupe_sklearn.callbacks import WarmupCosine
    >>> WarmupCosine(n_warmup=2, final=0.0).simulate(6, initial_lr=1.0).round(2).tolist()
    [0.0, 0.5, 1.0, 0.75, 0.25, 0.0]
    """

    event_name = "event_lr"
    step_every = "batch"

    def __init__(
        self, n_steps: int | None = None, n_warmup: int | float = 0.1, final: float = 0.001
    ):
        self.n_steps = n_steps
        self.n_warmup = n_warmup
        self.final = final

    def initialize(self) -> "WarmupCosine":
        """Start from the first step."""
        check_rules(vars(self), WARMUP_RULES)
        self._check_warmup()
        self.step_ = 0
        self.n_steps_: int | None = None
        # The rates of the groups: their peaks, and what they were set to last.
        self.peaks_: list[float] = []
        self.rates_: list[float] = []
        return self

    def _check_warmup(self) -> None:
        if not isinstance(self.n_warmup, (int, np.integer)) and self.n_warmup >= 1:
            rule = WARMUP_RULES["n_warmup"]
            raise ValueError(f"Got n_warmup={self.n_warmup!r}, but expected {rule.expected}.")
        if self.n_steps is not None:
            self._n_warmup_of(self.n_steps)

    def _n_warmup_of(self, n_steps: int) -> int:
        """How many steps rise."""
        if not isinstance(self.n_warmup, (int, np.integer)):
            # The last step is never one of them.
            return min(round(self.n_warmup * n_steps), n_steps - 1)
        if self.n_warmup >= n_steps:
            raise ValueError(
                f"Got n_warmup={self.n_warmup}, but expected fewer steps than the {n_steps} of the "
                f"whole training, or a share of them below 1."
            )
        return int(self.n_warmup)

    def simulate(self, steps: int, initial_lr: float, step_args: Any = None) -> np.ndarray:
        """The rates of the first steps; without ``n_steps``, these are all that there are."""
        n_steps = steps if self.n_steps is None else self.n_steps
        n_warmup = self._n_warmup_of(n_steps)
        factors = [warmup_cosine(step, n_steps, n_warmup, self.final) for step in range(steps)]
        return initial_lr * np.array(factors)

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Take the rates as peaks, unless they are those that a broken training has left."""
        rates = [group["lr"] for group in net.optimizer_.param_groups]
        if rates != self.rates_:
            self.peaks_ = rates
        if self.n_steps is None and self.n_steps_ is not None and self.step_ >= self.n_steps_:
            self.n_steps_, self.step_ = None, 0

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, **kwargs: Any) -> None:
        """Count the steps of the training before its first one."""
        if self.n_steps_ is None:
            self.n_steps_ = self.n_steps or max(net.max_epochs * _n_batches(net, dataset_train), 1)
            self.n_warmup_ = self._n_warmup_of(self.n_steps_)

    def on_batch_begin(self, net: Any, batch: Any = None, training: Any = None, **kwargs: Any):
        """Set the rate of a step."""
        if training:
            factor = warmup_cosine(self.step_, self.n_steps_ or 1, self.n_warmup_, self.final)
            self._set_rates(net, [factor * peak for peak in self.peaks_])

    def on_batch_end(self, net: Any, training: Any, **kwargs: Any) -> None:
        """Record the rate, and count the step."""
        if training:
            net.history.record_batch(self.event_name, self.rates_[0])
            self.step_ += 1

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Do nothing: the rate moves with each batch."""

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Go back to the peak, from which a next training starts."""
        self._set_rates(net, self.peaks_)

    def _set_rates(self, net: Any, rates: list[float]) -> None:
        self.rates_ = list(rates)
        # A group that a callback has added meanwhile keeps its own rate.
        for group, rate in zip(net.optimizer_.param_groups, rates, strict=False):
            group["lr"] = rate


def _n_batches(net: Any, dataset: Any) -> int:
    try:
        return len(net.get_iterator(dataset, training=True))
    except TypeError as error:
        raise ValueError(
            "Got n_steps=None with batches that cannot be counted, but expected a number of steps: "
            "set n_steps."
        ) from error
