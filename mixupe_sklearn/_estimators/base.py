"""The scikit-learn protocol that all estimators share."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
    Standardisation,
    Tensors,
    ValidationFolds,
    as_tensors,
    mean_of_rows,
    scale_of_rows,
)
from mixupe_sklearn._engine.trainer import Member, Trainer, sizes_of, why_not
from mixupe_sklearn._estimators.fit_monitor import CallbackSupportMixin, EpochMonitor, FitTasks
from mixupe_sklearn._estimators.inputs import InputValidationMixin, check_finite
from mixupe_sklearn._method.formulas import HEADS
from mixupe_sklearn._net.autograd import AutogradTrainer, compile_net, datasets_of
from mixupe_sklearn._net.callbacks import check_schedule
from mixupe_sklearn._net.net import (
    check_batches,
    check_weights,
    float_type,
    listens,
    logits_in_chunks,
    make_net,
    n_module_outputs,
    remember,
    rows_a_pass,
    set_head,
    update_net,
    warn_about_last_layer,
)
from mixupe_sklearn._runtime.torch_state import (
    alone,
    gradients_on,
    new_seed,
    remember_streams,
    resolve_device,
    seeded,
    streams_of,
    threads_for,
)
from mixupe_sklearn._training.config import (
    FIXED,
    MODULES,
    check_settings,
    n_epochs_for,
    n_groups,
    of_member,
)
from mixupe_sklearn._training.loop import EarlyStopping, Fit, n_epochs_per_evaluation, train
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


def dropout_rng(module: torch.nn.Module, rng: np.random.Generator) -> Any:
    """Return a fast generator for the dropout of a module, with a seed of its own; else None."""
    if not any(isinstance(part, torch.nn.Dropout) for part in module.modules()):
        return None
    return np.random.Generator(np.random.SFC64(new_seed(rng)))


def why_not_together(member: Member, settings: Mapping[str, Any]) -> str | None:
    """Return why a net trains by autograd, one after the other; None if the engine trains it."""
    if settings["compile"]:
        return "the module is compiled"
    if member.net._n_processes > 1 or not isinstance(member.tensors[1], torch.Tensor):
        return "the data is not in memory"
    if settings["callbacks"] and listens(member.net):
        return "a callback or a method of a subclass acts on each batch"
    return why_not(member.net, *member.tensors)


def run_fits(estimators: Sequence[Any], fits: Sequence[Fit], *, is_new: bool, **how: Any) -> None:
    """Train fits as one; the one place that decides who trains where, with how many threads.

    If an error is raised, nets that are not new are left as they were. ``how`` goes to ``train``.
    """
    settings, net = estimators[0]._settings(), fits[0].nets[0]
    members = [member for fit in fits for member in fit.members]
    undo = [] if is_new else [remember(member.net) for member in members]
    is_fast = all(why_not_together(member, settings) is None for member in members)
    n_rows, n_together = rows_a_pass(net, members[0].n_rows), len(members) if is_fast else 1
    threads = threads_for(net.module_, n_rows, settings["n_threads"], net._work, n_together)
    with gradients_on(), threads as n_free:

        def make_trainer(members: list[Member], is_fast: bool | None = None) -> Any:
            if is_fast is None:
                is_fast = all(why_not_together(member, settings) is None for member in members)
            sets = {}
            if settings["callbacks"] or not is_fast:
                sets = {id(member.net): datasets_of(member) for member in members}
            for fit in fits:
                fit.set_factors([_n_steps(member, sets, is_fast) for member in fit.members])
            if is_fast:
                return Trainer(members, n_free, sets or None)
            for member in members if settings["compile"] else ():
                compile_net(member.net, member.tensors)
            return AutogradTrainer(members, sets, fits[0].n_epochs)

        try:
            train(fits, make_trainer(members, is_fast), make_trainer, **how)
            for fit in fits:
                _check_fit(fit, how.get("on_error", "raise"))
        except BaseException:
            for undo_one in undo:
                undo_one()
            raise


def _check_fit(fit: Fit, on_error: str) -> None:
    """Check the weights that a training has left."""
    try:
        for net in fit.nets if fit.error is None else ():
            check_weights(net)
    except FloatingPointError as error:
        if on_error == "raise":
            raise
        fit.error = error


def _n_steps(member: Member, sets: Mapping[int, Any], is_fast: bool) -> int:
    """Return the number of steps of an epoch."""
    if is_fast:
        return len(sizes_of(member.n_rows, member.net.batch_size))
    return member.net.n_batches(sets[id(member.net)][0]) if id(member.net) in sets else 1


class BaseMixupE(InputValidationMixin, CallbackSupportMixin, BaseEstimator):
    """Parameters, input validation, training and prediction; the subclasses define the targets."""

    # Metadata routing: weights that are passed on are for the network, unless a user declines them.
    __metadata_request__fit = {"sample_weight": True}  # noqa: RUF012
    __metadata_request__partial_fit = __metadata_request__fit
    __metadata_request__score = __metadata_request__fit
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
        alpha=(0.0, 0.2),
        beta=None,
        eta=1.0,
        penalty_fraction=0.25,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        n_members=8,
        module="mlp-tabular",
        module_params=None,
        scale_inputs=True,
        optimizer="adam",
        optimizer_params=None,
        lr=0.01,
        lr_schedule="cosine",
        weight_decay=0.0,
        max_epochs=50,
        min_steps=1000,
        batch_size=100,
        early_stopping=True,
        validation_fraction=0.25,
        n_iter_no_change=10,
        tol=1e-4,
        ema_decay=0.99,
        time_limit=None,
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
        self.scale_inputs = scale_inputs
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
        self.ema_decay = ema_decay
        self.time_limit = time_limit
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
        folds = None
        if given:
            valid = self._rows(X_val, y_val, sample_weight_val, suffix="_val")
            folds = ValidationFolds(valid, [np.arange(valid.n_rows)] * self.n_members)
        elif self.early_stopping:
            folds = self._hold_out(train, n_groups(self._settings()))
        epochs = self._n_epochs(train, folds)
        X, y = (X, y) if original is None else original
        tasks = FitTasks(self, X, y, sample_weight, epochs)
        if not is_new:
            self.n_iter_ = 0
        self._train(train, folds, tasks, epochs=epochs, is_new=is_new)
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
        if self.callbacks:
            check_schedule(self._settings())
        train = self._rows(X, y, sample_weight, is_new=is_new, learn=learn)
        if is_new:
            self._spawn_generators()
        return train

    def _n_epochs(self, train: Rows, folds: ValidationFolds | None) -> int:
        """Return the number of epochs; warn where they are few steps."""
        is_part = folds is not None and folds.rows is train
        n_rows = train.n_rows - (len(folds.index[0]) if folds is not None and is_part else 0)
        epochs = n_epochs_for(self.max_epochs, self.min_steps, n_rows, self.batch_size)
        if n_rows < self.batch_size and self.min_steps < epochs < FEW_STEPS:
            warn_user(
                f"Got {n_rows} training samples, fewer than batch_size={self.batch_size}: an epoch "
                f"is a single step, so {epochs} epochs are {epochs} steps; lower batch_size, or "
                f"raise {self._more_steps}."
            )
        return epochs

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

    def _train(self, train, folds, tasks, *, epochs, is_new) -> None:
        """Build the nets if they are new, then train them with their own seed."""
        device = self._resolved_device()
        seed = new_seed(self._streams[0].torch)
        with gradients_on(), seeded(seed, device):
            fit = self._make_fit(train, folds, epochs, seed, device, is_new, tasks=tasks)
            if tasks is None:  # partial_fit does not know its last step
                fit.schedule, fit.time_limit = "constant", None
            with fit.monitor:
                run_fits([self], [fit], is_new=is_new)
        self._end_fit(fit)

    def _make_fit(
        self, train, folds, epochs, seed, device, is_new, *, tasks=None, tensors=None
    ) -> Fit:
        """Build the nets if they are new; return their training."""
        n_rows = train.n_rows
        own: list[Any] = [None] * self.n_members
        if folds is not None and folds.rows is train:
            whole = np.arange(n_rows)
            own = [np.setdiff1d(whole, fold, assume_unique=True) for fold in folds.index]
        if is_new:
            # Samples that no member trains on must not leak into what is learned from inputs.
            few = train if self.n_members > 1 else replace(train, index=own[0])
            self._start(few, seed, device)
        else:
            self._continue_training()
        settings = self._settings()
        check_batches(self.net_, n_rows if own[0] is None else len(own[0]))
        tensors = self._tensors(self.net_, train) if tensors is None else tensors
        held_out = stopping = None
        if folds is not None:
            held_out = tensors if folds.rows is train else self._tensors(self.net_, folds.rows)
            weight = folds.rows.weight
            weight = None if weight is None else weight[np.stack(folds.index)]
            stopping = EarlyStopping(self.nets_, n_groups(settings), settings, weight)
        members = [
            Member(
                net,
                tensors,
                rows=rows,
                held_out=held_out,
                fold=None if folds is None else folds.index[number],
                rng=dropout_rng(net.module_, self._streams[number].torch),
                ema_decay=settings["ema_decay"],
            )
            for number, (net, rows) in enumerate(zip(self.nets_, own, strict=True))
        ]
        monitor = EpochMonitor(self, tasks, epochs)
        pause = n_epochs_per_evaluation(epochs, self.n_members)
        limit, schedule = settings["time_limit"], settings["lr_schedule"]
        return Fit(members, epochs, monitor, stopping, pause, limit, schedule)

    def _join_fit(self, X, y, sample_weight, shared: list[tuple[Any, Rows, Tensors]]) -> Fit:
        """Do what ``fit`` does before it trains; estimators of equal class weights share samples.

        ``shared`` holds the estimators before this one, with their samples.
        """
        train = self._begin(X, y, sample_weight, is_new=True, learn=True)
        # A single network that holds samples out is centred at the mean of the others.
        is_shared, tensors = not self.early_stopping or self.n_members > 1, None
        for other, rows, found in shared if is_shared else ():
            if is_same(getattr(other, "class_weight", None), getattr(self, "class_weight", None)):
                train, tensors = rows, found
        folds = self._hold_out(train, n_groups(self._settings())) if self.early_stopping else None
        epochs = self._n_epochs(train, folds)
        device, seed = self._resolved_device(), new_seed(self._streams[0].torch)
        with gradients_on(), seeded(seed, device):
            fit = self._make_fit(train, folds, epochs, seed, device, True, tensors=tensors)
        if is_shared and tensors is None:
            shared.append((self, train, fit.members[0].tensors))
        return fit

    def _end_fit(self, fit: Fit) -> None:
        """Take the weights of the members, and report an early end."""
        if fit.stopping is not None and self.early_stopping:  # else they only measured the loss
            self.member_weights_ = fit.stopping.member_weights(self.net_.criterion_.head)
        if fit.ends_by == "interrupt" and not self._keeps_interrupted:
            raise KeyboardInterrupt
        if fit.ends_by:
            limit = f"the time limit of {self._settings()['time_limit']} s"
            cause = "was interrupted" if fit.ends_by == "interrupt" else f"reached {limit}"
            warn_user(
                f"Training {cause} after {self.n_iter_} epochs; the model keeps what it learned so "
                f"far.",
                ConvergenceWarning,
            )

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

    def _new_net(self, train: Rows, device, number: int):
        net = make_net(
            self._net_class,
            of_member(self._settings(), number),
            self._modules,
            widths=self._widths(),
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
        if number == 0:
            warn_about_last_layer(net)
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
        is_scaled = self._settings()["scale_inputs"]
        self.X_scale_ = scale_of_rows(train, self.X_mean_) if is_scaled else None

    def _standardisation(self) -> Standardisation:
        """Return what is done to inputs before the module gets them."""
        return Standardisation(self.X_mean_, self.X_scale_)

    def _widths(self) -> dict[str, Any]:
        """Return the arguments that a module gets if it has parameters of these names."""
        return {"n_features": self.n_features_in_, "n_outputs": self._n_outputs()}

    def _try_out(self, net: Any, train: Rows) -> int:
        """Run a new module on two samples; return the width of its output."""
        return n_module_outputs(net, train.X, self._standardisation())

    def _tensors(self, net: Any, rows: Rows) -> Tensors:
        """Return inputs, targets and weights as the source of batches."""
        place = float_type(net), torch.device(net.device)
        return as_tensors(rows, self._standardisation(), *place, by_batch=True)

    def _predicted(self, X, *steps, by_member=False) -> Any:
        """Return predictions after some steps, chunk by chunk; with the members first if asked."""
        if not hasattr(self, "net_"):
            check_is_fitted(self, "net_")  # it raises; it is slow for a fitted estimator
        X = self._validate_rows(X, reset=False)
        whole: Any = None
        try:
            how = self._standardisation()
            for part, logits in logits_in_chunks(self.nets_, X, how, self._n_outputs()):
                values = self._member_means(logits) if by_member else self._mean(logits)
                for step in steps:
                    values = step(values)
                values = values.swapaxes(0, 1) if by_member else values  # samples first
                if whole is None and part.stop == X.shape[0]:
                    whole = values
                    continue
                # One array for all: small arrays between the chunks would keep freed chunks from
                # being reused, and memory would grow with the number of samples.
                if whole is None:
                    whole = np.empty((X.shape[0], *values.shape[1:]), dtype=values.dtype)
                whole[part] = values
        except OutOfRangeError:
            # Only now: samples that are finite after centring hold neither NaN nor infinity.
            check_finite(X, getattr(self, "feature_names_in_", None))
            raise
        return whole.swapaxes(0, 1) if by_member else whole

    def _member_means(self, logits) -> np.ndarray:
        """Return the predictions of each member, (n_members, n_rows, n_outputs)."""
        pairs = zip(self.nets_, logits, strict=True)
        return np.stack([HEADS[net.criterion_.head].mean(own).numpy() for net, own in pairs])

    def _mean(self, logits) -> np.ndarray:
        """Return the weighted mean of the members' predictions, (n_rows, n_outputs)."""
        means = self._member_means(logits)
        if len(means) == 1:
            return means[0]
        # A loop: the last bits of a matrix product would depend on the number of rows.
        return sum(weight * own for weight, own in zip(self.member_weights_, means, strict=True))
