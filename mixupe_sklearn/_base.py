"""The scikit-learn protocol that every estimator of ours shares."""

import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import assert_all_finite, check_array, check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from mixupe_sklearn._checks import is_same, warn_user
from mixupe_sklearn._hardware import gradients_on, resolve_device
from mixupe_sklearn._inputs import (
    CURE,
    Rows,
    check_finite,
    check_weight,
    first_odd_column,
    mean_of_rows,
    normalise,
    to_numpy,
    types_of_rows,
)
from mixupe_sklearn._random import alone, new_seed, seeded
from mixupe_sklearn._tasks import CallbackSupportMixin, FitTasks
from mixupe_sklearn._training import (
    FIXED,
    check_settings,
    make_net,
    n_module_outputs,
    predicted,
    readable,
    set_head,
    train_net,
    update_net,
)


def restore(estimator, before: dict[str, Any]) -> None:
    """Take an estimator back to the attributes that it had: it is not to be half fitted."""
    for name in set(vars(estimator)) - set(before):
        # scikit-learn still needs what it has put there to end its callbacks.
        if not name.startswith(("_callback_", "_skl_")):
            delattr(estimator, name)
    vars(estimator).update(before)


def all_or_nothing(method):
    """Let a method that fails leave the estimator as it was."""

    @functools.wraps(method)
    def guarded(self, *args, **kwargs):
        before = dict(vars(self))
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            restore(self, before)
            raise

    return guarded


class BaseMixupE(CallbackSupportMixin, BaseEstimator, ABC):
    """Parameters, data checks, training and prediction; the subclasses know about targets."""

    _net_class: Any
    _y_is_numeric: bool
    # A search may set this for one fit: called with the estimator after each epoch, it says whether
    # training is to stop. No parameter, since a clone must not take it along.
    _epoch_hook: Callable[[Any], bool] | None = None
    # A search also says that a fit which is interrupted is no result.
    _keeps_interrupted = True

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        alpha=0.2,
        beta=None,
        eta=0.01,
        penalty_fraction=1.0,
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
        n_threads=None,
        compile=False,
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.penalty = penalty
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.penalty_fraction = penalty_fraction
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
        self.n_threads = n_threads
        self.compile = compile
        self.random_state = random_state
        self.verbose = verbose

    # What a subclass knows of its targets.

    @abstractmethod
    def _learn_targets(self, y, weight) -> None:
        """Learn from the first training rows what the targets are."""

    def _learn_weights(self, y, weight) -> None:
        """Learn from the training rows of each call what their targets weigh."""

    @abstractmethod
    def _encode(self, y, weight, name: str) -> tuple[np.ndarray, Any]:
        """Targets as the module wants them, and the rows' final weights."""

    @abstractmethod
    def _n_outputs(self) -> int:
        """How wide the module's output is to be."""

    @abstractmethod
    def _head_for(self, n_outputs: int) -> str | None:
        """The criterion's head for an output of this width; None where the width does not fit."""

    def _strata(self, targets: np.ndarray) -> np.ndarray | None:
        """Classes to keep in equal shares when rows are set aside."""
        return None

    def _fit(self, X, y, sample_weight, X_val, y_val, sample_weight_val):
        """Validate, encode, set rows aside, build the net, train."""
        validation = {"X_val": X_val, "y_val": y_val, "sample_weight_val": sample_weight_val}
        given = [name for name, value in validation.items() if value is not None]
        missing = [name for name in ("X_val", "y_val") if name not in given]
        if given and missing:
            raise ValueError(f"Got {given[0]} without {missing[0]}, but expected both or neither.")
        is_new = not (self.warm_start and hasattr(self, "net_"))
        train = self._begin(X, y, sample_weight, is_new=is_new, learn=is_new)
        valid = None
        if given:
            valid = self._rows(X_val, y_val, sample_weight_val, suffix="_val")
        elif self.early_stopping:
            train, valid = self._set_aside(train)
        self._warn_of_few(train)
        tasks = FitTasks(self, X, y, sample_weight, self.max_epochs)
        self._train(train, valid, tasks, epochs=self.max_epochs, is_new=is_new)
        tasks.end()
        return self

    def _partial_fit(self, X, y, sample_weight, *, learn):
        """Run one epoch over the given rows, from where the net is."""
        is_new = not hasattr(self, "net_")
        train = self._begin(X, y, sample_weight, is_new=is_new, learn=learn)
        self._train(train, None, None, epochs=1, is_new=is_new)
        return self

    def _begin(self, X, y, sample_weight, *, is_new, learn) -> Rows:
        """Check parameters and rows; a new net gets new generators."""
        check_settings(vars(self))
        train = self._rows(X, y, sample_weight, is_new=is_new, learn=learn)
        if is_new:
            self._spawn_generators()
        return train

    def _warn_of_few(self, train: Rows) -> None:
        if train.n_rows < self.batch_size:
            warn_user(
                f"Got {train.n_rows} training rows, fewer than batch_size={self.batch_size}: an "
                f"epoch is a single step, so {self.max_epochs} epochs are {self.max_epochs} steps; "
                f"lower batch_size or raise max_epochs."
            )

    def _rows(self, X, y, sample_weight, *, is_new=False, learn=False, suffix="") -> Rows:
        """Checked rows with weights above zero, of mean one, and encoded targets."""
        X = self._validate_rows(X, reset=is_new, name=f"X{suffix}")
        y = self._validate_targets(X, y, f"y{suffix}")
        weight = check_weight(sample_weight, X.shape[0], f"sample_weight{suffix}")
        if weight is not None and not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        check_finite(X, getattr(self, "feature_names_in_", None), f"X{suffix}")
        assert_all_finite(y, input_name=f"y{suffix}")
        if learn:
            self._learn_targets(y, weight)
        if not suffix:
            self._learn_weights(y, weight)
        targets, weight = self._encode(y, weight, f"y{suffix}")
        if weight is not None and not weight.all():  # a class of weight zero
            check_weight(weight, X.shape[0], "class_weight times sample_weight")
            X, targets, weight = X[weight > 0], targets[weight > 0], weight[weight > 0]
        return Rows(X, targets, normalise(weight))

    def _validate_rows(self, X, *, reset, name="X"):
        """scikit-learn's own checks, with our words for text."""
        try:
            return validate_data(
                self,
                to_numpy(X),
                accept_sparse="csr",
                dtype=types_of_rows(X),
                ensure_all_finite=False,
                reset=reset,
            )
        except (TypeError, ValueError) as error:
            column = first_odd_column(X)
            if column is not None:
                raise ValueError(
                    f"Column {column!r} of {name} holds {X[column].dtype}, but expected numbers; "
                    f"encode it first, {CURE}."
                ) from error
            if "could not convert string" in str(error):
                value = str(error).split(":", 1)[1].strip()
                raise ValueError(
                    f"Input {name} holds the text {value}, but expected numbers; encode it first, "
                    f"{CURE}."
                ) from error
            if name == "X" or isinstance(error, TypeError):
                raise
            raise ValueError(f"{name} does not fit: {error}") from error

    def _validate_targets(self, X, y, name):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target {name} is None."
            )
        y = check_array(
            to_numpy(y),
            accept_sparse=False if self._y_is_numeric else "csr",
            ensure_2d=False,
            dtype="numeric" if self._y_is_numeric else None,
            ensure_all_finite=False,
            input_name=name,
        )
        check_consistent_length(X, y)
        return y

    def _spawn_generators(self) -> None:
        """Independent streams, so that methods which draw less still see the same batches."""
        seed = None  # fresh entropy: numpy's global generator is left as found
        if self.random_state is not None:
            try:
                seed = check_random_state(self.random_state).randint(2**31 - 1)
            except ValueError as error:
                raise ValueError(
                    f"Got random_state={self.random_state!r}, but expected a whole number from 0 "
                    f"to 2**32 - 1, a RandomState or None."
                ) from error
        streams = np.random.default_rng(seed).spawn(4)
        self._order_rng, self._mixing_rng, self._torch_rng, split_rng = streams
        # One seed, not a stream: going on with the same rows sets the same ones aside.
        self._split_seed = new_seed(split_rng)

    def _set_aside(self, rows: Rows) -> list[Rows]:
        """Part the rows for early stopping, each class in its share where that can be done."""
        if rows.n_rows < 2:
            raise ValueError(
                f"Got n_samples={rows.n_rows} with early_stopping=True, but expected at least 2: "
                f"some rows are set aside."
            )
        size = min(rows.n_rows - 1, max(1, round(self.validation_fraction * rows.n_rows)))
        split = functools.partial(
            train_test_split,
            np.arange(rows.n_rows),
            test_size=size,
            random_state=self._split_seed,
        )
        try:
            parts = split(stratify=self._strata(rows.targets))
        except ValueError:  # a class of one row, or more classes than rows to set aside
            parts = split()
        return rows.parts(*(np.sort(part) for part in parts))

    def _train(self, train, valid, tasks, *, epochs, is_new) -> None:
        """Build the net if it is to be new, then train it within its own seed."""
        device = resolve_device(self.device)
        seed = new_seed(self._torch_rng)
        with gradients_on(), seeded(seed, device):
            if is_new:
                self._start(train, seed, device)
            else:
                self._go_on()
            is_complete = train_net(
                self.net_,
                train,
                valid,
                self.X_mean_,
                vars(self),
                epochs=epochs,
                begin=tasks.begin_epoch if tasks else lambda: None,
                end=functools.partial(self._end_epoch, tasks),
                show_bar=tasks is not None and self.verbose == 1,
            )
        self._keep_history()
        if not is_complete:
            if not self._keeps_interrupted:
                raise KeyboardInterrupt
            warn_user(
                f"Training was interrupted after {self.n_iter_} epochs; what was learned so far is "
                f"kept.",
                ConvergenceWarning,
            )

    def _start(self, train: Rows, seed: int, device) -> None:
        """Make a net that has not been trained, its first weights from the seed."""
        self.X_mean_ = mean_of_rows(train)
        with alone(seed, device):
            self.net_ = self._new_net(train, device)
        self.history_: list[dict[str, Any]] = []
        self.loss_curve_: list[float] = []

    def _keep_history(self) -> None:
        """Take over what the net has recorded since the last call."""
        new_rows = [readable(row) for row in self.net_.history[len(self.history_) :]]
        self.history_ = self.history_ + new_rows
        self.loss_curve_ = self.loss_curve_ + [row["train_loss"] for row in new_rows]
        self.n_iter_ = len(self.history_)

    def _end_epoch(self, tasks) -> bool:
        """Tell all who listen that an epoch has ended; return whether one of them wants to stop."""
        wants = [tasks.end_epoch() if tasks else False]
        if self._epoch_hook is not None:
            wants.append(self._epoch_hook(self))
        return any(wants)

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
        # Copies, though not of what is inside: a user may write into a dict or list of ours.
        self._fixed = {name: copy.copy(getattr(self, name)) for name in FIXED}
        return net

    def _go_on(self) -> None:
        """Take over parameters that were changed since the last call, where a net can."""
        for name, value in self._fixed.items():
            if not is_same(getattr(self, name), value):
                raise ValueError(
                    f"Got a new value of {name}, but expected that of the first fit, since "
                    f"training goes on: fit anew, with warm_start=False."
                )
        update_net(self.net_, vars(self))

    def _predicted(self, X, finish) -> Any:
        """What ``finish`` makes of the logits of a user's rows, a chunk of them at a time."""
        check_is_fitted(self, "net_")
        X = self._validate_rows(X, reset=False)
        check_finite(X, getattr(self, "feature_names_in_", None))
        return predicted(self.net_, X, self.X_mean_, finish)
