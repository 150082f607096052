"""Around the epochs of a fit: history, progress, scikit-learn's callbacks, and a search's hook."""

from collections.abc import Iterable, Mapping
from typing import Any

from tqdm.auto import tqdm

from mixupe_sklearn._distributed.process_group import is_main

try:  # scikit-learn 1.9 brought callbacks, as an experiment
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    HAS_CALLBACKS = True
except ImportError:
    HAS_CALLBACKS = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Replaces scikit-learn's mixin in versions without callbacks."""

    def with_callbacks(method):
        """Return the method unchanged."""
        return method


class FitTasks:
    """Reports a fit and its epochs to the callbacks of scikit-learn; does nothing without them.

    Fit is a task and each epoch a subtask. A copy of the estimator in the middle of fit has its net
    and can predict, so callbacks that need a fitted estimator get one without reconstruction.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, sample_weight: Any, n_epochs: int):
        self.context = None
        if not HAS_CALLBACKS:
            return
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self.data = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
        self.context = estimator._init_callback_context(max_subtasks=n_epochs)
        self.context.call_on_fit_task_begin(**self.data)

    def begin_epoch(self) -> None:
        """Report that an epoch begins."""
        if self.context is not None:
            self.epoch = self.context.subcontext(task_name="epoch")
            self.epoch.call_on_fit_task_begin(**self.data)

    def end_epoch(self) -> bool:
        """Report that the epoch has ended; return whether a callback asks to stop."""
        if self.context is None:
            return False
        return self.epoch.call_on_fit_task_end(**self.data, reconstruction_attributes={})

    def end(self) -> None:
        """Report that fit has ended."""
        if self.context is not None:
            self.context.call_on_fit_task_end(**self.data, reconstruction_attributes={})


class EpochMonitor:
    """Called around each epoch: shows progress, and asks the listeners whether to stop.

    The listeners are the callbacks of scikit-learn and the ``_epoch_hook`` of a search.

    Parameters
    ----------
    estimator : BaseMixupE
        The estimator in training.
    tasks : FitTasks or None, default=None
        The tasks of the fit. None (``partial_fit``) shows no progress.
    n_epochs : int, default=1
        Largest number of epochs.
    """

    def __init__(self, estimator: Any, tasks: FitTasks | None = None, n_epochs: int = 1):
        self.estimator, self.tasks = estimator, tasks
        is_shown = tasks is not None and estimator.verbose and is_main()
        self.verbose = estimator.verbose if is_shown else 0
        self.bar = tqdm(total=n_epochs, unit="epoch") if self.verbose == 1 else None

    def __enter__(self) -> "EpochMonitor":
        return self

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.close()

    def begin_epoch(self) -> None:
        """Report that an epoch begins."""
        if self.tasks is not None:
            self.tasks.begin_epoch()

    def end_epoch(self, row: Mapping[str, Any]) -> bool:
        """Add an epoch to the history, and show it; return whether a listener asks to stop."""
        estimator = self.estimator
        estimator.history_ = [*estimator.history_, dict(row)]
        estimator.loss_curve_ = [*estimator.loss_curve_, row["train_loss"]]
        estimator.n_iter_ += 1
        if self.verbose > 1:
            shown = _shown(row, ("train_loss", "valid_loss", "dur"))
            print(f"epoch {row['epoch']}:", *(f"{name} {value}" for name, value in shown.items()))
        if self.bar is not None:
            self.bar.set_postfix(_shown(row, ("train_loss", "valid_loss")))
            self.bar.update()
        # All listeners are asked, so that each of them sees every epoch.
        hook = estimator._epoch_hook
        wants = [
            False if self.tasks is None else self.tasks.end_epoch(),
            False if hook is None else hook(estimator),
        ]
        return any(wants)


def _shown(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    return {name: f"{row[name]:.4f}" for name in names if name in row}
