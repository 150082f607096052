"""Linear warm-up and cosine decay of the learning rate, as a skorch callback."""

import math
from typing import Any

import numpy as np
from skorch.callbacks import LRScheduler

from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

WARMUP_RULES: dict[str, Rule] = {
    "n_steps": Number("an integer >= 1 or None", low=1, integer=True, or_none=True),
    "n_warmup": Number("an integer number of steps >= 0, or a fraction of them below 1"),
    "final": Number("a number >= 0"),
}


def warmup_cosine(step: int, n_steps: int, n_warmup: int, final: float = 0.001) -> float:
    """Return the factor of the learning rate at a step.

    Parameters
    ----------
    step : int
        Number of the step, from 0.
    n_steps : int
        Number of steps; later ones keep the last factor.
    n_warmup : int
        Number of warm-up steps: the factor rises linearly from 0 to 1 at the first step after them.
    final : float, default=0.001
        Factor of the last step, at the end of half a cosine.

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


# A subclass, so that checks for schedules recognise it; it uses nothing else of the parent.
class WarmupCosine(LRScheduler):
    """Learning rate that rises linearly from 0 to its peak and falls along half a cosine.

    The peak is the net's ``lr``, or the rate of each parameter group of the optimizer. The first
    step has the rate 0, the step after ``n_warmup`` steps the peak, and the last step ``final``
    times the peak, which later steps keep (see :func:`warmup_cosine`). After training, the rate is
    the peak again. In an estimator of this package it needs ``lr_schedule="constant"``.

    Parameters
    ----------
    n_steps : int, default=None
        Number of steps. None means all steps of a training: ``max_epochs`` of the net times the
        batches of an epoch, counted when training begins.
    n_warmup : int or float, default=0.1
        Length of the warm-up: an integer number of steps, or a fraction of all steps below 1.
    final : float, default=0.001
        Factor of the peak at the last step.

    Notes
    -----
    *Continued training* (``partial_fit``, ``warm_start``): the step count continues, so that a
    training in pieces has the rates of a single one. With ``n_steps=None``, a training that begins
    after the last step starts a new cycle.

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
        # Peak and current rate of each parameter group.
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
        """Return the number of warm-up steps."""
        if not isinstance(self.n_warmup, (int, np.integer)):
            # The last step never belongs to the warm-up.
            return min(round(self.n_warmup * n_steps), n_steps - 1)
        if self.n_warmup >= n_steps:
            raise ValueError(
                f"Got n_warmup={self.n_warmup}, but expected fewer steps than the {n_steps} of the "
                f"whole training, or a fraction of them below 1."
            )
        return int(self.n_warmup)

    def simulate(self, steps: int, initial_lr: float, step_args: Any = None) -> np.ndarray:
        """Return the rates of the first steps; without ``n_steps``, these are all steps."""
        n_steps = steps if self.n_steps is None else self.n_steps
        n_warmup = self._n_warmup_of(n_steps)
        factors = [warmup_cosine(step, n_steps, n_warmup, self.final) for step in range(steps)]
        return initial_lr * np.array(factors)

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Take the current rates as peaks, unless an interrupted training has left them."""
        rates = [group["lr"] for group in net.optimizer_.param_groups]
        if rates != self.rates_:
            self.peaks_ = rates
        if self.n_steps is None and self.n_steps_ is not None and self.step_ >= self.n_steps_:
            self.n_steps_, self.step_ = None, 0

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, **kwargs: Any) -> None:
        """Count the steps of the training before the first one."""
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
        """Do nothing: the rate changes with each batch."""

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Reset the rate to the peak, from which the next training starts."""
        self._set_rates(net, self.peaks_)

    def _set_rates(self, net: Any, rates: list[float]) -> None:
        self.rates_ = list(rates)
        # A parameter group that a callback has added keeps its own rate.
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
