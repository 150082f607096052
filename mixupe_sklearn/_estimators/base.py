"""The scikit-learn protocol that all estimators share."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mixupe_sklearn._data.rows import (
    OutOfRangeError,
    Rows,
    Tensors,
    ValidationFolds,
    as_tensors,
    mean_of_rows,
)
from mixupe_sklearn._estimators.ensemble import train_members
from mixupe_sklearn._estimators.fit_monitor import (
    CallbackSupportMixin,
    EpochMonitor,
    FitTasks,
    add_history,
)
from mixupe_sklearn._estimators.validation import InputValidationMixin, check_finite
from mixupe_sklearn._net.build import make_net, readable, set_head, train_net, update_net
from mixupe_sklearn._net.net import check_schedule, float_type, n_module_outputs, predicted
from mixupe_sklearn._runtime.device import gradients_on, resolve_device
from mixupe_sklearn._runtime.seeding import alone, new_seed, remember_streams, seeded, streams_of
from mixupe_sklearn._training.config import (
    FIXED,
    MODULES,
    check_settings,
    n_epochs_for,
    of_member,
)
from mixupe_sklearn._utils.parameter_rules import is_same
from mixupe_sklearn._utils.warnings import warn_user

# A training with fewer steps gets a warning.
FEW_STEPS = 100


def restore(estimator, before: dict[str, Any]) -> None:
    """Restore the attributes of an estimator, so that it is not half fitted."""
    for name in set(vars(estimator)) - set(before):
        # scikit-learn still needs its own attributes to end its callbacks.
        if not name.startswith(("_callback_", "_skl_")):
            delattr(estimator, name)
    vars(estimator).update(before)


@contextmanager
def all_or_nothing(estimator) -> Iterator[None]:
    """Run a block; if it fails, leave the estimator as it was."""
    before = dict(vars(estimator))
    restore_streams = remember_streams(before.get("_streams", ()))
    try:
        yield
    except BaseException:
        restore(estimator, before)
        restore_streams()
        raise


class BaseMixupE(InputValidationMixin, CallbackSupportMixin, BaseEstimator):
    """Parameters, input validation, training and prediction; the subclasses define the targets."""

    _net_class: Any
    # A search may set this for one fit: called with the estimator after each epoch, it returns
    # whether to stop. It is no parameter, since a clone must not copy it.
    _epoch_hook: Callable[[Any], bool] | None = None
    # A search sets this to False: an interrupted fit is no result.
    _keeps_interrupted = True
    # Modules by name, and the parameters that cannot change while training continues.
    _modules: Mapping[str, Any] = MODULES
    _fixed_names: Sequence[str] = FIXED
    # The parameters that raise the number of steps.
    _more_steps = "max_epochs or min_steps"

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        penalty_order=1,
        alpha=0.2,
        beta=None,
        eta=0.01,
        penalty_fraction=1.0,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        n_members=1,
        module="mlp",
        module_params=None,
        optimizer="adam",
        optimizer_params=None,
        lr=0.001,
        lr_schedule="constant",
        weight_decay=0.0,
        max_epochs=25,
        min_steps=0,
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
        self.penalty_order = penalty_order
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.penalty_fraction = penalty_fraction
        self.lam_per = lam_per
        self.mix_at = mix_at
        self.single_pass = single_pass
        self.n_members = n_members
        self.module = module
        self.module_params = module_params
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.min_steps = min_steps
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

    def _settings(self) -> Mapping[str, Any]:
        """Return all settings of the training by name."""
        return vars(self)

    def _fit(self, X, y, sample_weight, X_val, y_val, sample_weight_val, original=None):
        """Validate, encode, hold out samples, build the nets, train.

        scikit-learn's callbacks see X and y, or the ``original`` ones from before reading.
        """
        validation = {"X_val": X_val, "y_val": y_val, "sample_weight_val": sample_weight_val}
        given = [name for name, value in validation.items() if value is not None]
        missing = [name for name in ("X_val", "y_val") if name not in given]
        if given and missing:
            raise ValueError(f"Got {given[0]} without {missing[0]}, but expected both or neither.")
        is_new = not (self.warm_start and hasattr(self, "net_"))
        train = self._begin(X, y, sample_weight, is_new=is_new, learn=is_new)
        valid = folds = None
        if given:
            valid = self._rows(X_val, y_val, sample_weight_val, suffix="_val")
            folds = ValidationFolds(valid, [np.arange(valid.n_rows)] * self.n_members)
        elif self.early_stopping and self.n_members == 1:
            train, valid = self._hold_out(train)
        elif self.early_stopping:
            folds = self._hold_out_folds(train)
        n_own = train.n_rows - (len(folds.index[0]) if folds and folds.rows is train else 0)
        epochs = self._n_epochs(n_own)
        self._warn_of_few(n_own, epochs)
        X, y = (X, y) if original is None else original
        tasks = FitTasks(self, X, y, sample_weight, epochs)
        held_out = valid if self.n_members == 1 else folds
        self._train(train, held_out, tasks, epochs=epochs, is_new=is_new)
        tasks.end()
        return self

    def _partial_fit(self, X, y, sample_weight, *, learn):
        """Run one epoch over the given samples, from the current weights."""
        is_new = not hasattr(self, "net_")
        train = self._begin(X, y, sample_weight, is_new=is_new, learn=learn)
        self._train(train, None, None, epochs=1, is_new=is_new)
        return self

    def _begin(self, X, y, sample_weight, *, is_new, learn) -> Rows:
        """Check parameters and samples; new nets get new generators."""
        check_settings(self._settings(), self._modules)
        check_schedule(self._settings())
        train = self._rows(X, y, sample_weight, is_new=is_new, learn=learn)
        if is_new:
            self._spawn_generators()
        return train

    def _n_epochs(self, n_rows: int) -> int:
        return n_epochs_for(self.max_epochs, self.min_steps, n_rows, self.batch_size)

    def _warn_of_few(self, n_rows: int, epochs: int) -> None:
        if n_rows < self.batch_size and self.min_steps < epochs < FEW_STEPS:
            warn_user(
                f"Got {n_rows} training samples, fewer than batch_size={self.batch_size}: an epoch "
                f"is a single step, so {epochs} epochs are {epochs} steps; lower batch_size, or "
                f"raise {self._more_steps}."
            )

    def _spawn_generators(self) -> None:
        """Make independent streams: methods that draw less still see the same batches."""
        seed = self._fresh_seed()
        if self.random_state is not None:
            try:
                seed = check_random_state(self.random_state).randint(2**31 - 1)
            except ValueError as error:
                raise ValueError(
                    f"Got random_state={self.random_state!r}, but expected an integer from 0 to "
                    f"2**32 - 1, a RandomState or None."
                ) from error
        self._streams = streams_of(seed, self.n_members)
        # One seed, not a stream: a warm start with the same samples holds out the same ones.
        self._split_seed = new_seed(self._streams[0].split)

    def _fresh_seed(self) -> int | None:
        return None  # fresh entropy: numpy's global generator is left as found

    def _resolved_device(self) -> torch.device:
        return resolve_device(self.device)

    def _train(self, train, held_out, tasks, *, epochs, is_new) -> None:
        """Build the nets if they are new, then train them with their own seed."""
        device = self._resolved_device()
        seed = new_seed(self._streams[0].torch)
        # partial_fit does not know its last step.
        schedule = self.lr_schedule if tasks else "constant"
        with gradients_on(), seeded(seed, device):
            if is_new:
                self._start(train, seed, device)
            else:
                self._continue_training()
            run = self._train_one if self.n_members == 1 else self._train_several
            with EpochMonitor(self, tasks, epochs) as monitor:
                is_complete = run(train, held_out, epochs, schedule, monitor)
        if not is_complete:
            if not self._keeps_interrupted:
                raise KeyboardInterrupt
            warn_user(
                f"Training was interrupted after {self.n_iter_} epochs; the model keeps what it "
                f"learned so far.",
                ConvergenceWarning,
            )

    def _train_one(self, train, valid, epochs, schedule, monitor) -> bool:
        tensors, valid_tensors = self._tensors(self.net_, train), None
        if valid is not None and valid.index is None:  # else a part of the training samples
            valid_tensors = self._tensors(self.net_, valid)
        is_complete = train_net(
            self.net_,
            train,
            tensors,
            valid,
            valid_tensors,
            self._settings(),
            epochs=epochs,
            schedule=schedule,
            monitor=monitor,
        )
        self._keep_history()
        return is_complete

    def _train_several(self, train, folds, epochs, schedule, monitor) -> bool:
        weights, is_complete = train_members(
            self.nets_,
            train,
            folds,
            self.X_mean_,
            self._settings(),
            epochs=epochs,
            schedule=schedule,
            monitor=monitor,
        )
        if folds is not None and self.early_stopping:  # else they only measured the loss
            self.member_weights_ = weights
        return is_complete

    def _start(self, train: Rows, seed: int, device) -> None:
        """Make untrained nets, with initial weights from their seeds."""
        self._learn_inputs(train)
        self.nets_ = []
        for number, streams in enumerate(self._streams):
            with alone(seed if number == 0 else new_seed(streams.torch), device):
                self.nets_.append(self._new_net(train, device, number))
        self.net_ = self.nets_[0]
        self.member_weights_ = np.full(self.n_members, 1 / self.n_members)
        # Shallow copies: a user may write into a dict or list that is a parameter.
        self._fixed = {name: copy.copy(getattr(self, name)) for name in self._fixed_names}
        self.history_: list[dict[str, Any]] = []
        self.loss_curve_: list[float] = []
        self.n_iter_ = 0

    def _keep_history(self) -> None:
        """Add the records that the net has made since the last call."""
        add_history(self, [readable(row) for row in self.net_.history[len(self.history_) :]])

    def _new_net(self, train: Rows, device, number: int):
        net = make_net(
            self._net_class,
            of_member(self._settings(), number),
            self._modules,
            widths=self._widths(train),
            order_rng=self._streams[number].order,
            mixing_rng=self._streams[number].mixing,
            device=device,
        )
        n_outputs = self._try_out(net, train)
        head = self._head_for(n_outputs)
        if head is None:
            raise ValueError(
                f"Got a module with {n_outputs} outputs, but expected {self._n_outputs()} for "
                f"these targets; set their number in module_params."
            )
        set_head(net, head)
        return net

    def _continue_training(self) -> None:
        """Apply parameters that changed since the last call, where a trained net allows it."""
        for name, value in self._fixed.items():
            if not is_same(getattr(self, name), value):
                raise ValueError(
                    f"Got a new value of {name}, but expected that of the first fit, since "
                    f"training continues: fit anew, with warm_start=False."
                )
        for number, net in enumerate(self.nets_):
            update_net(net, of_member(self._settings(), number))

    def _learn_inputs(self, train: Rows) -> None:
        """Learn from the first training samples how to prepare inputs for the module."""
        self.X_mean_ = mean_of_rows(train)

    def _widths(self, train: Rows) -> dict[str, Any]:
        """Return the arguments that a module gets if it has parameters of these names."""
        return {"n_features": train.X.shape[1], "n_outputs": self._n_outputs()}

    def _try_out(self, net: Any, train: Rows) -> int:
        """Run a new module on two samples; return the width of its output."""
        return n_module_outputs(net, train.X, self.X_mean_)

    def _tensors(self, net: Any, rows: Rows) -> Tensors:
        """Return inputs, targets and weights as the source of batches."""
        place = float_type(net), torch.device(net.device)
        return as_tensors(rows, self.X_mean_, *place, by_batch=True)

    def _predicted(self, X, finish) -> Any:
        """Return what ``finish`` makes of the logits of a user's samples, chunk by chunk."""
        if not hasattr(self, "net_"):
            check_is_fitted(self, "net_")  # it raises; it is slow for a fitted estimator
        X = self._validate_rows(X, reset=False)
        try:
            return predicted(self.nets_, X, self.X_mean_, finish, self._n_outputs())
        except OutOfRangeError:
            # Only now: samples that are finite after centring hold neither NaN nor infinity.
            check_finite(X, getattr(self, "feature_names_in_", None))
            raise

    def _member_means(self, logits) -> np.ndarray:
        """Return the predictions of each member, (n_members, n_rows, n_outputs)."""
        pairs = zip(self.nets_, logits, strict=True)
        return np.stack([net.criterion_.predicted_mean(own).numpy() for net, own in pairs])

    def _mean(self, logits) -> np.ndarray:
        """Return the weighted mean of the members' predictions, (n_rows, n_outputs)."""
        if len(self.nets_) == 1:
            return self.net_.criterion_.predicted_mean(logits[0]).numpy()
        means = self._member_means(logits)
        # A loop: the last bits of a matrix product would depend on the number of rows.
        return sum(weight * own for weight, own in zip(self.member_weights_, means, strict=True))
