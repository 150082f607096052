"""Callbacks of skorch that the estimators put into their nets."""

from collections.abc import Callable
from typing import Any

from skorch.callbacks import Callback, EarlyStopping
from skorch.utils import noop
from tqdm.auto import tqdm


class EpochHook(Callback):
    """Call two functions around each epoch; they live as long as a fit and are never pickled."""

    def __init__(self, begin: Callable[[], Any] = noop, end: Callable[[], Any] = noop):
        self.begin = begin
        self.end = end
        self.has_stopped_ = False

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Call ``begin``."""
        self.begin()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Call ``end``, and stop training (the skorch way) if it returns true."""
        if self.end():
            self.has_stopped_ = True
            raise KeyboardInterrupt

    def __getstate__(self) -> dict[str, Any]:
        return {"begin": noop, "end": noop, "has_stopped_": self.has_stopped_}


class Stopper(EarlyStopping):
    """Stop when the validation loss no longer falls, and go back to the best weights.

    Unlike its parent it rests in epochs without validation rows (``partial_fit``), and remembers
    whether it was the one who stopped.
    """

    def __init__(self, patience: int, tol: float):
        super().__init__(
            patience=patience, threshold=tol, threshold_mode="abs", load_best=True, sink=noop
        )
        self.has_stopped_ = False

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Compare this epoch with the best one."""
        if self.monitor not in net.history[-1]:
            return
        try:
            super().on_epoch_end(net, **kwargs)
        except KeyboardInterrupt:
            self.has_stopped_ = True
            raise


class EpochBar(Callback):
    """A progress bar over epochs with the losses and the time left."""

    def __init__(self, n_epochs: int):
        self.n_epochs = n_epochs
        self.bar_: Any = None

    def on_train_begin(self, net: Any, **kwargs: Any) -> None:
        """Show the empty bar."""
        self.bar_ = tqdm(total=self.n_epochs, unit="epoch")

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Move it by one epoch."""
        row = net.history[-1]
        shown = [name for name in ("train_loss", "valid_loss") if name in row]
        self.bar_.set_postfix({name: f"{row[name]:.4f}" for name in shown})
        self.bar_.update()

    def on_train_end(self, net: Any, **kwargs: Any) -> None:
        """Close it."""
        self.bar_.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"n_epochs": self.n_epochs, "bar_": None}
