"""scikit-learn's callbacks: fit is a task, each epoch a subtask."""

from typing import Any

try:  # scikit-learn 1.9 brought callbacks, as an experiment
    from sklearn.callback import CallbackSupportMixin, with_callbacks

    HAS_CALLBACKS = True
except ImportError:
    HAS_CALLBACKS = False

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method):
        """Leave the method as it is."""
        return method


class FitTasks:
    """The tasks of one fit, told to the callbacks of an estimator; does nothing without them.

    A copy of the estimator in the middle of fit has its net and so can predict: no attribute needs
    to be reconstructed for a callback that wants a fitted estimator.
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
        """Say that an epoch begins."""
        if self.context is not None:
            self.epoch = self.context.subcontext(task_name="epoch")
            self.epoch.call_on_fit_task_begin(**self.data)

    def end_epoch(self) -> bool:
        """Say that it has ended; return whether a callback wants to stop."""
        if self.context is None:
            return False
        return self.epoch.call_on_fit_task_end(**self.data, reconstruction_attributes={})

    def end(self) -> None:
        """Say that fit has ended."""
        if self.context is not None:
            self.context.call_on_fit_task_end(**self.data, reconstruction_attributes={})
