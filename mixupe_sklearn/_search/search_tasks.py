"""What scikit-learn's callbacks see of a search: splits of candidates, and the refit."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from mixupe_sklearn._estimators.fit_monitor import HAS_CALLBACKS


class SearchTasks:
    """Reports the parts of a search to callbacks as ``GridSearchCV`` does.

    Does nothing in versions of scikit-learn without callbacks.
    """

    def __init__(self, search: Any, X: Any, y: Any, metadata: Mapping[str, Any]):
        self.search = search
        self.data = _data(X, y, metadata)
        self.root = None
        if HAS_CALLBACKS:
            self.root = search._init_callback_context(max_subtasks=1 + (search.refit is not False))
            self.root.call_on_fit_task_begin(estimator=search, **self.data)

    @contextmanager
    def trials(self, n_fits: float) -> Iterator["FitTasks | None"]:
        """Report the search while a block runs; the block reports single fits."""
        if self.root is None or not self.root._callbacks:
            yield None
            return
        largest = int(n_fits) if n_fits < float("inf") else None
        context = self.root.subcontext(
            task_name="search", max_subtasks=largest, sequential_subtasks=False
        )
        context.call_on_fit_task_begin(estimator=self.search)
        yield FitTasks(self.search, context)
        context.call_on_fit_task_end(estimator=self.search)

    @contextmanager
    def refit(self, model: Any) -> Iterator[None]:
        """Report the refit while a block runs."""
        if self.root is None:
            yield
            return
        context = self.root.subcontext(task_name="refit-with-best-params")
        with context.propagate_callback_context(model):
            context.call_on_fit_task_begin(estimator=self.search, **self.data)
            yield
        context.call_on_fit_task_end(estimator=self.search, **self.data)

    def end(self) -> None:
        """Report that the search has ended."""
        if self.root is not None:
            self.root.call_on_fit_task_end(estimator=self.search, **self.data)


class FitTasks:
    """Reports the fits of trials; it is sent to other processes, each of which reports its own."""

    def __init__(self, search: Any, context: Any):
        self.search = search
        self.context = context

    @property
    def are_passed_on(self) -> bool:
        """Whether a callback of the search is also called within each fit."""
        return any(hasattr(one, "max_propagation_depth") for one in self.context._callbacks)

    @contextmanager
    def fit(
        self, number: int, model: Any, X: Any, y: Any, metadata: Mapping[str, Any]
    ) -> Iterator[None]:
        """Report one fit and its score while a block runs; ``model`` None is not reached."""
        context, data = self.context, _data(X, y, metadata)
        if context.max_subtasks is not None and len(context._children_map) >= context.max_subtasks:
            context.max_subtasks = None  # trials that are run again are more than planned
        context = context.subcontext(task_name="candidate-split-evaluation", task_id=number)
        with nullcontext() if model is None else context.propagate_callback_context(model):
            context.call_on_fit_task_begin(estimator=self.search, **data)
            try:
                yield
            finally:
                context.call_on_fit_task_end(estimator=self.search, **data)


def _data(X: Any, y: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
    weight = metadata.get("sample_weight")
    known = None if weight is None else {"sample_weight": weight}
    return {"X": X, "y": y, "metadata": known}
