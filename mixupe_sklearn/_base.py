"""The scikit-learn protocol that every estimator of ours shares."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mixupe_sklearn._hardware import resolve_device
from mixupe_sklearn._inputs import (
    CURE,
    Rows,
    check_finite,
    check_weight,
    mean_of_rows,
    normalise,
    to_numpy,
)
from mixupe_sklearn._random import new_seed, seeded
from mixupe_sklearn._training import (
    check_settings,
    logits_of,
    make_net,
    n_module_outputs,
    set_head,
    train_net,
)

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


class BaseMixupE(CallbackSupportMixin, BaseEstimator):
    """Parameters, data checks, training and prediction; the subclasses know about targets."""

    _net_class: Any
    _y_is_numeric: bool

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        alpha=0.2,
        beta=None,
        eta=0.01,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        module="mlp",
        module_params=None,
        optimizer="adam",
        optimizer_params=None,
        lr=0.001,
        weight_decay=0.0,
        max_epochs=25,
        batch_size=100,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        callbacks=None,
        device="auto",
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.penalty = penalty
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.lam_per = lam_per
        self.mix_at = mix_at
        self.single_pass = single_pass
        self.module = module
        self.module_params = module_params
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.lr = lr
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # What a subclass knows of its targets.

    def _learn_targets(self, y, weight) -> None:
        """Learn from the first training rows what the targets are."""
        raise NotImplementedError

    def _encode(self, y, weight, name: str) -> tuple[np.ndarray, Any]:
        """Targets as the module wants them, and the rows' final weights."""
        raise NotImplementedError

    def _n_outputs(self) -> int:
        """How wide the module's output is to be."""
        raise NotImplementedError

    def _head_for(self, n_outputs: int) -> str | None:
        """The criterion's head for an output of this width; None where the width does not fit."""
        raise NotImplementedError

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        """Classes to keep in equal shares when rows are set aside."""
        return None

    def _fit(self, X, y, sample_weight, X_val, y_val, sample_weight_val):
        """Validate, encode, set rows aside, build the net, train."""
        check_settings(vars(self))
        if (X_val is None) != (y_val is None):
            given, missing = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(f"Got {given} without {missing}, but expected both or neither.")
        is_new = not (self.warm_start and hasattr(self, "net_"))
        train, valid = self._rows(X, y, sample_weight, reset=is_new, learn=is_new), None
        if is_new:
            self._spawn_generators()
        if X_val is not None:
            valid = self._rows(X_val, y_val, sample_weight_val, suffix="_val")
        elif self.early_stopping:
            train, valid = self._set_aside(train)
        if train.X.shape[0] < self.batch_size:
            warnings.warn(
                f"Got {train.X.shape[0]} training rows, fewer than batch_size={self.batch_size}: "
                f"an epoch is a single step, so {self.max_epochs} epochs are {self.max_epochs} "
                f"steps; lower batch_size or raise max_epochs.",
                stacklevel=3,
            )
        context = self._begin_callbacks(X, y, sample_weight)
        self._train(train, valid, context, epochs=self.max_epochs, is_new=is_new)
        self._end_callbacks(context)
        return self

    def _partial_fit(self, X, y, sample_weight, *, learn):
        """Run one epoch over the given rows, from where the net is."""
        check_settings(vars(self))
        is_new = not hasattr(self, "net_")
        train = self._rows(X, y, sample_weight, reset=is_new, learn=learn)
        if is_new:
            self._spawn_generators()
        self._train(train, None, None, epochs=1, is_new=is_new)
        return self

    def _rows(self, X, y, sample_weight, *, reset=False, learn=False, suffix="") -> Rows:
        """Checked rows with weights above zero, of mean one, and encoded targets."""
        X, y = self._validate(X, y, reset=reset)
        weight = check_weight(sample_weight, X.shape[0], f"sample_weight{suffix}")
        if weight is not None and not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        if learn:
            self._learn_targets(y, weight)
        rows = Rows(X, *self._encode(y, weight, f"y{suffix}"))
        if rows.weight is not None and not rows.weight.all():  # a class of weight zero
            check_weight(rows.weight, X.shape[0], "class_weight times sample_weight")
            rows = rows.take(rows.weight > 0)
        return rows._replace(weight=normalise(rows.weight))

    def _validate(self, X, y="no_validation", *, reset):
        """scikit-learn's own checks, with our words for holes and for text."""
        has_y = not (isinstance(y, str) and y == "no_validation")
        options = {"multi_output": True, "y_numeric": self._y_is_numeric} if has_y else {}
        try:
            checked = validate_data(
                self,
                to_numpy(X),
                to_numpy(y),
                accept_sparse="csr",
                dtype=(np.float64, np.float32),
                ensure_all_finite=False,
                reset=reset,
                **options,
            )
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            value = str(error).split(":", 1)[1].strip()
            raise ValueError(
                f"Input X holds the text {value}, but expected numbers; encode it first, {CURE}."
            ) from error
        names = getattr(self, "feature_names_in_", None)
        check_finite(checked[0] if has_y else checked, names)
        return checked

    def _spawn_generators(self) -> None:
        """Independent streams, so that methods which draw less still see the same batches."""
        if self.random_state is None:
            root = np.random.default_rng()  # numpy's global generator is left as found
        else:
            root = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        self._order_rng, self._mixing_rng, self._torch_rng, self._split_rng = root.spawn(4)

    def _set_aside(self, rows: Rows) -> tuple[Rows, Rows]:
        """Part the rows for early stopping, each class in its share where that can be done."""
        n_samples = rows.X.shape[0]
        if n_samples < 2:
            raise ValueError(
                f"Got n_samples={n_samples} with early_stopping=True, but expected at least 2: "
                f"some rows are set aside."
            )
        index, seed = np.arange(n_samples), new_seed(self._split_rng)
        size = min(n_samples - 1, max(1, round(self.validation_fraction * n_samples)))
        try:
            strata = self._strata(rows.targets)
            parts = train_test_split(index, test_size=size, random_state=seed, stratify=strata)
        except ValueError:  # a class of one row, or more classes than rows to set aside
            parts = train_test_split(index, test_size=size, random_state=seed)
        train, valid = (rows.take(np.sort(part)) for part in parts)
        train = train._replace(weight=normalise(train.weight))
        return train, valid._replace(weight=normalise(valid.weight))

    def _train(self, train, valid, context, *, epochs, is_new) -> None:
        """Build the net if there is none, then train it within its own seed."""
        device = resolve_device(self.device)
        begin, end = self._epoch_functions(context)
        with seeded(new_seed(self._torch_rng), device):
            if is_new:
                self.X_mean_ = mean_of_rows(train.X, train.weight)
                self.net_ = self._new_net(train, device)
            try:
                is_complete = train_net(
                    self.net_, train, valid, self.X_mean_, epochs=epochs, begin=begin, end=end
                )
            except BaseException:
                if is_new:  # a broken fit must not look like a fitted estimator
                    del self.net_
                raise
        self.history_ = [
            {key: value for key, value in row.items() if key != "batches"}
            for row in self.net_.history
        ]
        self.loss_curve_ = [row["train_loss"] for row in self.history_]
        self.n_iter_ = len(self.history_)
        if not is_complete and not self.callbacks:
            warnings.warn(
                f"Training was interrupted after {self.n_iter_} epochs; the weights are those of "
                f"the last step.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _new_net(self, train: Rows, device):
        net = make_net(
            self._net_class,
            vars(self),
            n_features=train.X.shape[1],
            n_outputs=self._n_outputs(),
            order_rng=self._order_rng,
            mixing_rng=self._mixing_rng,
            device=device,
        )
        n_outputs = n_module_outputs(net, train.X, self.X_mean_)
        head = self._head_for(n_outputs)
        if head is None:
            raise ValueError(
                f"Got a module with {n_outputs} outputs, but expected {self._n_outputs()} for "
                f"these targets."
            )
        set_head(net, head)
        return net

    def _logits(self, X) -> Any:
        """The module's raw output for rows that a user passes in."""
        check_is_fitted(self)
        return logits_of(self.net_, self._validate(X, reset=False), self.X_mean_)

    # scikit-learn's callbacks: fit is a task, each epoch a subtask. A copy of this estimator in the
    # middle of fit has its net and so can predict: no attribute needs to be reconstructed.

    def _begin_callbacks(self, X, y, sample_weight) -> Any:
        if not HAS_CALLBACKS:
            return None
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self._callback_data = {"X": X, "y": y, "metadata": metadata}
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        return context.call_on_fit_task_begin(estimator=self, **self._callback_data)

    def _epoch_functions(self, context) -> tuple[Callable[[], Any], Callable[[], Any]]:
        if context is None:
            return (lambda: None), (lambda: None)
        epochs: list[Any] = []

        def begin() -> None:
            epochs.append(context.subcontext(task_name="epoch"))
            epochs[-1].call_on_fit_task_begin(estimator=self, **self._callback_data)

        def end() -> bool:
            return epochs[-1].call_on_fit_task_end(
                estimator=self, reconstruction_attributes={}, **self._callback_data
            )

        return begin, end

    def _end_callbacks(self, context) -> None:
        if context is not None:
            context.call_on_fit_task_end(
                estimator=self, reconstruction_attributes={}, **self._callback_data
            )
            del self._callback_data
