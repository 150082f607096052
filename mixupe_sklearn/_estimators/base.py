"""The scikit-learn protocol that every estimator of ours shares."""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from mixupe_sklearn._data.rows import OutOfRangeError, Rows, check_finite, mean_of_rows
from mixupe_sklearn._distributed.process_group import is_main
from mixupe_sklearn._estimators.ensemble import ValidationFolds, train_members
from mixupe_sklearn._estimators.sklearn_callbacks import CallbackSupportMixin, FitTasks
from mixupe_sklearn._estimators.validation import CheckedRows
from mixupe_sklearn._net.build import (
    Tensors,
    as_tensors,
    make_net,
    readable,
    set_head,
    train_net,
    update_net,
)
from mixupe_sklearn._net.callbacks import Progress
from mixupe_sklearn._net.inference import n_module_outputs, predicted
from mixupe_sklearn._runtime.device import gradients_on, resolve_device
from mixupe_sklearn._runtime.seeding import alone, new_seed, remember_streams, seeded, streams_of
from mixupe_sklearn._training.config import FIXED, MODULES, check_settings, of_member
from mixupe_sklearn._training.lr_schedule import n_epochs_for
from mixupe_sklearn._utils.parameter_rules import is_same
from mixupe_sklearn._utils.warnings import warn_user

# Fewer steps than this are hardly a training.
FEW_STEPS = 100


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
        take_back = remember_streams(before.get("_streams", ()))
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            restore(self, before)
            take_back()
            raise

    return guarded


class BaseMixupE(CheckedRows, CallbackSupportMixin, BaseEstimator):
    """Parameters, data checks, training and prediction; the subclasses know about targets."""

    _net_class: Any
    # A search may set this for one fit: called with the estimator after each epoch, it says whether
    # training is to stop. No parameter, since a clone must not take it along.
    _epoch_hook: Callable[[Any], bool] | None = None
    # A search also says that a fit which is interrupted is no result.
    _keeps_interrupted = True
    # The modules that go by a name, and the parameters that a net cannot change while it goes on.
    _modules: Mapping[str, Any] = MODULES
    _fixed_names: Sequence[str] = FIXED
    # The parameters that make for more steps.
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
        """All that training asks for, by name."""
        return vars(self)

    def _fit(self, X, y, sample_weight, X_val, y_val, sample_weight_val, told=None):
        """Validate, encode, set rows aside, build the net, train.

        scikit-learn's callbacks are told of X and y, or of what these were before they were read.
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
        X, y = (X, y) if told is None else told
        tasks = FitTasks(self, X, y, sample_weight, epochs)
        held_out = valid if self.n_members == 1 else folds
        self._train(train, held_out, tasks, epochs=epochs, is_new=is_new)
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
        check_settings(self._settings(), self._modules)
        train = self._rows(X, y, sample_weight, is_new=is_new, learn=learn)
        if is_new:
            self._spawn_generators()
        return train

    def _n_epochs(self, n_rows: int) -> int:
        return n_epochs_for(self.max_epochs, self.min_steps, n_rows, self.batch_size)

    def _warn_of_few(self, n_rows: int, epochs: int) -> None:
        if n_rows < self.batch_size and self.min_steps < epochs < FEW_STEPS:
            warn_user(
                f"Got {n_rows} training rows, fewer than batch_size={self.batch_size}: an epoch is "
                f"a single step, so {epochs} epochs are {epochs} steps; lower batch_size, or raise "
                f"{self._more_steps}."
            )

    def _spawn_generators(self) -> None:
        """Independent streams, so that methods which draw less still see the same batches."""
        seed = self._fresh_seed()
        if self.random_state is not None:
            try:
                seed = check_random_state(self.random_state).randint(2**31 - 1)
            except ValueError as error:
                raise ValueError(
                    f"Got random_state={self.random_state!r}, but expected a whole number from 0 "
                    f"to 2**32 - 1, a RandomState or None."
                ) from error
        self._streams = streams_of(seed, self.n_members)
        # One seed, not a stream: going on with the same rows sets the same ones aside.
        self._split_seed = new_seed(self._streams[0].split)

    def _fresh_seed(self) -> int | None:
        return None  # fresh entropy: numpy's global generator is left as found

    def _resolved_device(self) -> torch.device:
        return resolve_device(self.device)

    def _train(self, train, held_out, tasks, *, epochs, is_new) -> None:
        """Build the nets if they are to be new, then train them within their own seed."""
        device = self._resolved_device()
        seed = new_seed(self._streams[0].torch)
        how = {"epochs": epochs, "begin": tasks.begin_epoch if tasks else lambda: None}
        # One epoch alone does not know when the last will be.
        how["schedule"] = self.lr_schedule if tasks else "constant"
        with gradients_on(), seeded(seed, device):
            if is_new:
                self._start(train, seed, device)
            else:
                self._go_on()
            run = self._train_one if self.n_members == 1 else self._train_several
            is_complete = run(train, held_out, tasks, how)
        if not is_complete:
            if not self._keeps_interrupted:
                raise KeyboardInterrupt
            warn_user(
                f"Training was interrupted after {self.n_iter_} epochs; what was learned so far is "
                f"kept.",
                ConvergenceWarning,
            )

    def _train_one(self, train, valid, tasks, how) -> bool:
        end = functools.partial(self._end_epoch, tasks)
        show_bar = tasks is not None and self.verbose == 1 and is_main()
        tensors = functools.partial(self._tensors, self.net_)
        is_complete = train_net(
            self.net_, train, valid, tensors, self._settings(), end=end, show_bar=show_bar, **how
        )
        self._keep_history()
        return is_complete

    def _train_several(self, train, folds, tasks, how) -> bool:
        progress = Progress(how["epochs"], self.verbose if tasks else 0)

        def end(row) -> bool:
            self._add_history([{**row, "epoch": self.n_iter_ + 1}])
            progress.show(self.history_[-1])
            return self._end_epoch(tasks)

        with progress:
            trained = train_members(
                self.nets_, train, folds, self.X_mean_, self._settings(), end=end, **how
            )
        if folds is not None and self.early_stopping:  # else they were only watched
            self.member_weights_ = trained.weights
        return trained.is_complete

    def _start(self, train: Rows, seed: int, device) -> None:
        """Make nets that have not been trained, their first weights from seeds."""
        self._learn_inputs(train)
        self.nets_ = []
        for number, streams in enumerate(self._streams):
            with alone(seed if number == 0 else new_seed(streams.torch), device):
                self.nets_.append(self._new_net(train, device, number))
        self.net_ = self.nets_[0]
        self.member_weights_ = np.full(self.n_members, 1 / self.n_members)
        # Copies, though not of what is inside: a user may write into a dict or list of ours.
        self._fixed = {name: copy.copy(getattr(self, name)) for name in self._fixed_names}
        self.history_: list[dict[str, Any]] = []
        self.loss_curve_: list[float] = []
        self.n_iter_ = 0

    def _keep_history(self) -> None:
        """Take over what the net has recorded since the last call."""
        self._add_history([readable(row) for row in self.net_.history[len(self.history_) :]])

    def _add_history(self, new_rows: list[dict[str, Any]]) -> None:
        self.history_ = self.history_ + new_rows
        self.loss_curve_ = self.loss_curve_ + [row["train_loss"] for row in new_rows]
        self.n_iter_ = len(self.history_)

    def _end_epoch(self, tasks) -> bool:
        """Tell all who listen that an epoch has ended; return whether one of them wants to stop."""
        wants = [tasks.end_epoch() if tasks else False]
        if self._epoch_hook is not None:
            wants.append(self._epoch_hook(self))
        return any(wants)

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

    def _go_on(self) -> None:
        """Take over parameters that were changed since the last call, where a net can."""
        for name, value in self._fixed.items():
            if not is_same(getattr(self, name), value):
                raise ValueError(
                    f"Got a new value of {name}, but expected that of the first fit, since "
                    f"training goes on: fit anew, with warm_start=False."
                )
        for number, net in enumerate(self.nets_):
            update_net(net, of_member(self._settings(), number))

    def _learn_inputs(self, train: Rows) -> None:
        """Learn from the first training rows how inputs are made ready for the module."""
        self.X_mean_ = mean_of_rows(train)

    def _widths(self, train: Rows) -> dict[str, Any]:
        """What the module is told if it has arguments of these names."""
        return {"n_features": train.X.shape[1], "n_outputs": self._n_outputs()}

    def _try_out(self, net: Any, train: Rows) -> int:
        """Run a new module on two rows: how wide its output is."""
        return n_module_outputs(net, train.X, self.X_mean_)

    def _tensors(self, net: Any, rows: Rows) -> Tensors:
        """Inputs, targets and weights as batches are taken from them."""
        return as_tensors(net, rows, self.X_mean_, by_batch=True)

    def _predicted(self, X, finish) -> Any:
        """What ``finish`` makes of the logits of a user's rows, a chunk of them at a time."""
        if not hasattr(self, "net_"):
            check_is_fitted(self, "net_")  # raises; it is slow where all is well
        X = self._validate_rows(X, reset=False)
        try:
            return predicted(self.nets_, X, self.X_mean_, finish, self._n_outputs())
        except OutOfRangeError:
            # Only now: rows that are finite when centred hold neither NaN nor infinity.
            check_finite(X, getattr(self, "feature_names_in_", None))
            raise

    def _member_means(self, logits) -> np.ndarray:
        """What each member predicts, (n_members, n_rows, n_outputs), from all logits."""
        pairs = zip(self.nets_, logits, strict=True)
        return np.stack([net.criterion_.predicted_mean(own).numpy() for net, own in pairs])

    def _mean(self, logits) -> np.ndarray:
        """What the members predict together, (n_rows, n_outputs)."""
        if len(self.nets_) == 1:
            return self.net_.criterion_.predicted_mean(logits[0]).numpy()
        means = self._member_means(logits)
        # One after the other: a product's last bits would depend on how many rows there are.
        return sum(weight * own for weight, own in zip(self.member_weights_, means, strict=True))
