"""Callbacks of the skorch nets: what they hear, and two of skorch's with less work."""

import time
from collections.abc import Mapping
from typing import Any

from skorch.callbacks import Callback, EpochScoring, EpochTimer, LRScheduler, PrintLog

# The events that skorch reports for each batch.
BATCH_EVENTS = ("on_batch_begin", "on_batch_end", "on_grad_computed")


def is_callback(item: Any) -> bool:
    """Return whether skorch accepts this as a callback: one, its class, or a named pair."""
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        item = item[1]
    return isinstance(item, Callback) or (isinstance(item, type) and issubclass(item, Callback))


def check_schedule(settings: Mapping[str, Any]) -> None:
    """Raise one sentence where both a parameter and a callback change the learning rate."""
    callbacks = settings["callbacks"] or []
    if settings["lr_schedule"] != "constant" and any(map(is_schedule, callbacks)):
        raise ValueError(
            f"Got lr_schedule={settings['lr_schedule']!r} and a schedule among the callbacks, but "
            f"expected one of them: set lr_schedule='constant'."
        )


def is_schedule(item: Any) -> bool:
    """Return whether a callback changes the learning rate."""
    item = item[1] if isinstance(item, tuple) else item
    kind = item if isinstance(item, type) else type(item)
    return issubclass(kind, LRScheduler)


def hears_batches(callback: Any, net: Any) -> bool:
    """Return whether a callback acts on each training batch.

    Examples
    --------
    >>> from skorch.callbacks import EpochTimer, ProgressBar
    >>> hears_batches(EpochTimer(), None), hears_batches(ProgressBar(), None)
    (False, True)
    """
    kind = type(callback)
    # Two callbacks of skorch define batch events, and mostly do nothing in them.
    if kind is EpochScoring:
        is_cached = callback.use_caching if net.use_caching == "auto" else net.use_caching
        return bool(callback.on_train and is_cached)
    if kind is LRScheduler:
        return callback.step_every == "batch"
    return any(getattr(kind, name, None) is not getattr(Callback, name) for name in BATCH_EVENTS)


def hears_validation(callback: Any) -> bool:
    """Return whether a callback acts on batches, and so on those of the validation samples."""
    kind = type(callback)
    is_schedule = issubclass(kind, LRScheduler)
    return not is_schedule and any(
        getattr(kind, name, None) is not getattr(Callback, name) for name in BATCH_EVENTS
    )


class QuietLog(PrintLog):
    """skorch's table of epochs, built only where it is shown."""

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Print a line if the net is verbose."""
        if net.verbose or self.sink is not print:
            super().on_epoch_end(net, **kwargs)


class SteadyTimer(EpochTimer):
    """skorch's duration of an epoch, by a monotonic clock."""

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.epoch_start_time_ = time.perf_counter()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Record the seconds since the start."""
        net.history.record("dur", time.perf_counter() - self.epoch_start_time_)


def user_callbacks(net: Any) -> list[tuple[str, Any]]:
    """Return the callbacks that the user added to a net, with their names."""
    ours = {name for name, _ in net._default_callbacks}
    return [pair for pair in net.callbacks_ if pair[0] not in ours]
