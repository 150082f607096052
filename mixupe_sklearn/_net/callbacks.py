"""Callbacks of skorch that the estimators put into their nets.

They are always there and are told what to do before each call of the net's ``partial_fit``, so that
an estimator that goes on may change its mind. None of them is pickled with what it held meanwhile.
"""

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

from skorch.callbacks import Callback, EpochScoring, EpochTimer, LRScheduler, PrintLog
from skorch.utils import noop
from tqdm.auto import tqdm


def is_callback(item: Any) -> bool:
    """Whether skorch would take this as a callback: one, its class, or a pair with a name."""
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        item = item[1]
    return isinstance(item, Callback) or (isinstance(item, type) and issubclass(item, Callback))


def is_schedule(item: Any) -> bool:
    """Whether a callback moves the learning rate."""
    item = item[1] if isinstance(item, tuple) else item
    kind = item if isinstance(item, type) else type(item)
    return issubclass(kind, LRScheduler)


# What skorch tells of each batch.
BATCH_EVENTS = ("on_batch_begin", "on_batch_end", "on_grad_computed")


def hears_batches(callback: Any, net: Any) -> bool:
    """Whether a callback does something for each batch of training.

    Examples
    --------
    >>> from skorch.callbacks import EpochTimer, ProgressBar
    >>> hears_batches(EpochTimer(), None), hears_batches(ProgressBar(), None)
    (False, True)
    """
    kind = type(callback)
    # Two of skorch's listen always, and mostly do nothing.
    if kind is EpochScoring:
        is_cached = callback.use_caching if net.use_caching == "auto" else net.use_caching
        return bool(callback.on_train and is_cached)
    if kind is LRScheduler:
        return callback.step_every == "batch"
    return any(getattr(kind, name, None) is not getattr(Callback, name) for name in BATCH_EVENTS)


class QuietLog(PrintLog):
    """skorch's table of epochs, which is not even made where it is not shown."""

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Print a line, if the net is to be verbose."""
        if net.verbose or self.sink is not print:
            super().on_epoch_end(net, **kwargs)


class SteadyTimer(EpochTimer):
    """skorch's duration of an epoch, by a clock that nobody sets."""

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Look at the clock."""
        self.epoch_start_time_ = time.perf_counter()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Record the seconds since."""
        net.history.record("dur", time.perf_counter() - self.epoch_start_time_)


class EpochHook(Callback):
    """Call two functions around each epoch; stop training (the skorch way) if the last says so.

    It stands behind all other callbacks, so that those have seen the epoch when it stops.
    """

    def __init__(self):
        self.reset()

    def reset(self, begin: Callable[[], Any] = noop, end: Callable[[], Any] = noop) -> None:
        """Set the functions for the next training."""
        self.begin = begin
        self.end = end
        self.has_stopped_ = False

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Call ``begin``."""
        self.begin()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Call ``end``."""
        if self.end():
            self.has_stopped_ = True
            raise KeyboardInterrupt

    def __getstate__(self) -> dict[str, Any]:
        return {"begin": noop, "end": noop, "has_stopped_": False}


class Stopper(Callback):
    """Watch the validation loss, keep the weights of the best epoch, and say when to stop.

    As in scikit-learn's MLPs, the best epoch is the one with the lowest loss, while only a fall of
    ``tol`` or more below the lowest so far counts as progress.
    """

    def __init__(self):
        self.reset(is_active=False)

    def reset(self, *, is_active: bool, patience: int = 1, tol: float = 0.0) -> None:
        """Forget the last training, and set the rules for the next."""
        self.is_active = is_active
        self.patience = patience
        self.tol = tol
        self.best_loss_ = float("inf")
        self.best_weights_: dict[str, Any] | None = None
        self.n_misses_ = 0

    @property
    def wants_stop(self) -> bool:
        """Whether there was no progress for as many epochs as one is patient."""
        return self.is_active and self.n_misses_ >= self.patience

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Compare this epoch with the best one."""
        if not self.is_active:
            return
        loss = net.history[-1]["valid_loss"]
        self.n_misses_ = 0 if loss < self.best_loss_ - self.tol else self.n_misses_ + 1
        if loss < self.best_loss_:
            self.best_loss_ = loss
            self.best_weights_ = copy.deepcopy(net.module_.state_dict())

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Go back to the best epoch."""
        if self.best_weights_ is not None:
            net.module_.load_state_dict(self.best_weights_)
            self.best_weights_ = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "best_weights_": None}


class EpochBar(Callback):
    """A progress bar over epochs with the losses and the time left."""

    def __init__(self):
        self.bar_: Any = None

    def show(self, n_epochs: int) -> None:
        """Show an empty bar."""
        self.bar_ = tqdm(total=n_epochs, unit="epoch")

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Move it by one epoch."""
        self.move(net.history[-1])

    def move(self, row: Mapping[str, Any]) -> None:
        """Move it by one epoch of this record."""
        if self.bar_ is None:
            return
        shown = [name for name in ("train_loss", "valid_loss") if name in row]
        self.bar_.set_postfix({name: f"{row[name]:.4f}" for name in shown})
        self.bar_.update()

    def close(self) -> None:
        """Close it, if there is one."""
        if self.bar_ is not None:
            self.bar_.close()
            self.bar_ = None

    def __getstate__(self) -> dict[str, Any]:
        return {"bar_": None}


class Progress:
    """Shows the epochs of members: a bar, a line for each, or nothing.

    Parameters
    ----------
    n_epochs : int
        How many there may be.
    verbose : int
        1 is a bar, more are lines.
    """

    def __init__(self, n_epochs: int, verbose: int):
        self.verbose = verbose
        self.bar = EpochBar()
        if verbose == 1:
            self.bar.show(n_epochs)

    def show(self, row: dict[str, Any]) -> None:
        """Show an epoch."""
        self.bar.move(row)
        if self.verbose > 1:
            names = [name for name in ("train_loss", "valid_loss", "dur") if name in row]
            print(f"epoch {row['epoch']}:", *(f"{name} {row[name]:.4f}" for name in names))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> None:
        self.bar.close()
