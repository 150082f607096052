"""The skorch nets whose training step is the criterion, their callbacks, and inference.

The callbacks of an estimator's net are always there. Each call of the net's ``partial_fit`` sets
them first, so that an estimator that continues training may change its parameters. Their pickles
hold no state of a training.
"""

import copy
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import (
    Callback,
    EpochScoring,
    EpochTimer,
    LRScheduler,
    PassthroughScoring,
    PrintLog,
)
from skorch.dataset import get_len, unpack_data
from skorch.utils import to_tensor
from torch import Tensor

from mixupe_sklearn._data.batches import (
    Batches,
    BatchNumbers,
    rows_in_memory,
    split_weight,
    targets_of,
    with_weight,
)
from mixupe_sklearn._data.dataloader import Loader
from mixupe_sklearn._data.rows import centred_block, in_chunks
from mixupe_sklearn._engine.network import is_plain, run_stacked
from mixupe_sklearn._engine.trainer import restore_parameters, run_by_hand, why_not_by_hand
from mixupe_sklearn._method.criterion import LossParts, MixupELoss
from mixupe_sklearn._method.forward import as_logits, set_to_predict
from mixupe_sklearn._runtime.device import threads_for
from mixupe_sklearn._utils.atomic_files import replacing

# The records of a step: its loss, the parts of the loss, and its scale.
RECORDED = ("train_loss", "train_mixup_loss", "train_penalty", "loss_scale")
# Methods that a subclass may override to see or to change each step.
_STEP_METHODS = (
    *("fit_loop", "run_single_epoch", "train_step", "train_step_single", "get_loss", "infer"),
    *("notify", "_step_optimizer", "_zero_grad_optimizer"),
)
# Their modules in a plain net: other classes of skorch (AccelerateMixin) change the step.
_PLAIN = {"skorch.net", "skorch.classifier", "skorch.regressor", __name__}
_PLAIN |= {"mixupe_sklearn._distributed.net"}
# Arguments of Batches; any other argument of an iterator is for a DataLoader.
_BATCHES_ONLY = {"random_state", "min_rows"}
_BATCHES = {"batch_size", "shuffle", "drop_last"} | _BATCHES_ONLY
# The events that skorch reports for each batch.
BATCH_EVENTS = ("on_batch_begin", "on_batch_end", "on_grad_computed")
# A mixin: its methods find skorch's through the net's other classes.
_Net: Any = object


def is_callback(item: Any) -> bool:
    """Return whether skorch accepts this as a callback: one, its class, or a named pair."""
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        item = item[1]
    return isinstance(item, Callback) or (isinstance(item, type) and issubclass(item, Callback))


def check_schedule(settings: Mapping[str, Any]) -> None:
    """Raise one sentence where both a parameter and a callback change the learning rate."""
    callbacks = settings["callbacks"] or []
    if settings["lr_schedule"] != "constant" and any(map(is_schedule, callbacks)):
        raise ValueError(
            f"Got lr_schedule={settings['lr_schedule']!r} and a schedule among the callbacks, but "
            f"expected one of them: set lr_schedule='constant'."
        )


def is_schedule(item: Any) -> bool:
    """Return whether a callback changes the learning rate."""
    item = item[1] if isinstance(item, tuple) else item
    kind = item if isinstance(item, type) else type(item)
    return issubclass(kind, LRScheduler)


def hears_batches(callback: Any, net: Any) -> bool:
    """Return whether a callback acts on each training batch.

    Examples
    --------
    >>> from skorch.callbacks import EpochTimer, ProgressBar
    >>> hears_batches(EpochTimer(), None), hears_batches(ProgressBar(), None)
    (False, True)
    """
    kind = type(callback)
    # Two callbacks of skorch define batch events, and mostly do nothing in them.
    if kind is EpochScoring:
        is_cached = callback.use_caching if net.use_caching == "auto" else net.use_caching
        return bool(callback.on_train and is_cached)
    if kind is LRScheduler:
        return callback.step_every == "batch"
    return any(getattr(kind, name, None) is not getattr(Callback, name) for name in BATCH_EVENTS)


class QuietLog(PrintLog):
    """skorch's table of epochs, built only where it is shown."""

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Print a line if the net is verbose."""
        if net.verbose or self.sink is not print:
            super().on_epoch_end(net, **kwargs)


class SteadyTimer(EpochTimer):
    """skorch's duration of an epoch, by a monotonic clock."""

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self.epoch_start_time_ = time.perf_counter()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Record the seconds since the start."""
        net.history.record("dur", time.perf_counter() - self.epoch_start_time_)


class EpochHook(Callback):
    """Calls an estimator's monitor around each epoch; stops training if one is asked to.

    It is the last callback, so that all others have seen the epoch when it stops. skorch stops at a
    ``KeyboardInterrupt``.
    """

    def __init__(self):
        self.reset()

    def reset(self, monitor: Any = None, stopper: Any = None) -> None:
        """Set the monitor and the early stopping of the next training."""
        self.monitor = monitor
        self.stopper = stopper
        self.has_stopped_ = False

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        """Report that an epoch begins."""
        if self.monitor is not None:
            self.monitor.begin_epoch()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Report that it has ended, and stop where the monitor or the stopper asks for it."""
        if self.monitor is None:
            return
        wants_stop = self.monitor.end_epoch(net.history[-1])  # also in the last epoch
        if wants_stop or (self.stopper is not None and self.stopper.wants_stop):
            self.has_stopped_ = True
            raise KeyboardInterrupt

    def __getstate__(self) -> dict[str, Any]:
        return {"monitor": None, "stopper": None, "has_stopped_": False}


class Stopper(Callback):
    """Early stopping of one net: follows the validation loss and keeps the best weights.

    As in scikit-learn's MLPs, the best epoch is the one with the lowest loss. Only a decrease of
    more than ``tol`` below the lowest loss so far counts as progress.
    """

    def __init__(self):
        self.reset(is_active=False)

    def reset(self, *, is_active: bool, patience: int = 1, tol: float = 0.0) -> None:
        """Forget the last training, and set the parameters of the next."""
        self.is_active = is_active
        self.patience = patience
        self.tol = tol
        self.best_loss_ = float("inf")
        self.best_weights_: dict[str, Any] | None = None
        self.n_misses_ = 0

    @property
    def wants_stop(self) -> bool:
        """True if the loss did not improve for ``patience`` epochs."""
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
        """Restore the weights of the best epoch."""
        if self.best_weights_ is not None:
            net.module_.load_state_dict(self.best_weights_)
            self.best_weights_ = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "best_weights_": None}


def _listens(net: Any) -> bool:
    """Return whether a callback or a method of a subclass acts on each batch."""
    names = (*_STEP_METHODS, *BATCH_EVENTS)
    owners = (next(c for c in type(net).__mro__ if name in vars(c)) for name in names)
    is_plain = all(owner.__module__ in _PLAIN for owner in owners)
    return not is_plain or any(hears_batches(callback, net) for _, callback in net.callbacks_)


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Return whether a module has BatchNorm, which cannot train on a batch of one sample."""
    norm = torch.nn.modules.batchnorm._BatchNorm
    return any(isinstance(layer, norm) for layer in module.modules())


class _MixupEStep(_Net):
    """Shared by both nets: batches, the training step, and its records."""

    # Whether the history of an epoch has a row for each batch; an estimator needs none.
    _keeps_batches = True
    # Factors of the learning rate at the next steps; None for a constant rate.
    _factors: Iterator[float] | None = None
    # The rates to multiply, one for each parameter group of the optimizer.
    _rates: Sequence[float] = ()
    # Prepares a batch of raw inputs for the module, on its device; None changes nothing.
    _prepare: Callable[[Tensor, bool], Tensor] | None = None
    # Multiplications of the module per sample, where known.
    _work: int | None = None
    # Worker processes that read data outside memory; None leaves it to the net's own arguments.
    _n_workers: int | None = None
    # Processes that train this network together.
    _n_processes = 1
    # The low precision of the module's computations, or None; its weights keep theirs.
    _precision: torch.dtype | None = None

    def __init__(
        self,
        module: Any,
        *args: Any,
        criterion: Any = MixupELoss,
        iterator_train: Any = Batches,
        iterator_valid: Any = Batches,
        iterator_train__shuffle: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            module,
            *args,
            criterion=criterion,
            iterator_train=iterator_train,
            iterator_valid=iterator_valid,
            iterator_train__shuffle=iterator_train__shuffle,
            **kwargs,
        )

    @property
    def _default_callbacks(self) -> list:
        parts = [(name, PassthroughScoring(name=name, on_train=True)) for name in RECORDED[1:]]
        (timer, _), *others, (name, _) = super()._default_callbacks
        return [(timer, SteadyTimer()), *parts, *others, (name, QuietLog())]

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **fit_params: Any) -> Any:
        """Initialise and train (see ``skorch.NeuralNet.fit``); weights are mixed like samples."""
        return super().fit(with_weight(X, sample_weight), y, **fit_params)

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, **fit_params
    ) -> Any:
        """Continue training; see ``skorch.NeuralNet.partial_fit``."""
        X = with_weight(X, sample_weight)
        return super().partial_fit(X, y, classes=classes, **fit_params)

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """Return in-memory batches where data and arguments allow, else a DataLoader."""
        name = "iterator_train" if training else "iterator_valid"
        if getattr(self, name) is not Batches:
            return super().get_iterator(dataset, training=training)
        params = {"batch_size": self.batch_size, **self.get_params_for(name)}
        if params["batch_size"] == -1:
            params["batch_size"] = len(dataset)
        rows = rows_in_memory(dataset)
        if training and has_batch_norm(self.module_):
            params.setdefault("min_rows", 2 * self._n_processes)
        if rows is None or not set(params) <= _BATCHES:
            return self._loader(dataset, params)
        X, y, indices = rows
        return Batches(X, y, indices=indices, **params)

    def n_batches(self, dataset: Any) -> int:
        """Return the number of steps of an epoch."""
        return len(self.get_iterator(dataset, training=True))

    def _loader(self, dataset: Any, params: dict[str, Any]) -> Loader:
        """Return a DataLoader; that of an estimator has the batches of in-memory data."""
        plain = {key: params[key] for key in params if key not in _BATCHES_ONLY}
        if self._n_workers is None:
            return Loader(dataset, **plain)
        # Workers persist between epochs and prefetch. Their seeds follow from the seed of the
        # training, without an extra draw from torch's generator.
        own = torch.Generator().manual_seed(torch.initial_seed())
        how: dict[str, Any] = {"num_workers": self._n_workers, "generator": own}
        how["persistent_workers"] = self._n_workers > 0
        how["pin_memory"] = torch.device(self.device).type == "cuda"
        if self._n_processes > 1:  # each reads its own shard of a batch
            return Loader(dataset, **how, **plain)
        return Loader(dataset, batch_sampler=BatchNumbers(len(dataset), **params), **how)

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Run the module on a batch, without its sample weights."""
        inputs = self._prepared(split_weight(x)[0], training=False)
        with self._in_precision():
            return super().infer(inputs, **fit_params)

    def _prepared(self, inputs: Any, training: bool) -> Any:
        if self._prepare is None:
            return inputs
        return self._prepare(to_tensor(inputs, device=self.device), training)

    def _in_precision(self) -> AbstractContextManager[Any]:
        if self._precision is None:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, self._precision)

    def fit_loop(self, X: Any, y: Any = None, epochs: int | None = None, **fit_params: Any) -> Any:
        """Train; the parameters are restored from their views whatever happens."""
        try:
            return super().fit_loop(X, y, epochs, **fit_params)
        finally:
            restore_parameters(self)

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Run an epoch; a training epoch without per-batch events has no per-batch overhead."""
        if iterator is None or not training or _listens(self):
            if training:
                restore_parameters(self)
            super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
            return
        self._set_training(True)
        is_shared = self._n_processes > 1
        if fit_params or is_shared or why_not_by_hand(self, iterator) is not None:
            restore_parameters(self)
            values, sizes = self._run_quietly(iterator, fit_params)
        else:
            sizes = iterator.sizes()
            self.rest_rate()  # a step outside the engine may have changed it
            values = run_by_hand(self, iterator, self.next_factors(len(sizes)))
        self.record_epoch(values, sizes)

    def _run_quietly(self, iterator: Any, fit_params: dict) -> tuple[np.ndarray, list[int]]:
        """Take a step for each batch; its records leave the device at the end of the epoch."""
        values, sizes = [], []
        for batch in iterator:
            steps: list[LossParts] = []

            def closure(batch: Any = batch, steps: list[LossParts] = steps) -> Tensor:
                self._zero_grad_optimizer()
                steps.append(self._backward(batch, fit_params)[0])
                return steps[-1].loss

            self._move_rate()
            self._step_optimizer(closure)
            values.append(torch.stack([part.detach() for part in steps[0][:4]]))
            sizes.append(get_len(batch[0]))
        if not values:
            return np.empty((0, 4)), sizes
        return torch.stack(values).cpu().double().numpy(), sizes

    def _backward(self, batch: Any, fit_params: dict) -> tuple[LossParts, Tensor]:
        """Compute a batch's loss and its gradients: the criterion runs the module itself."""
        Xi, yi = to_tensor(unpack_data(batch), device=self.device)
        inputs, weight = split_weight(Xi)
        inputs = self._prepared(inputs, training=True)
        with self._in_precision():
            parts = self._loss_parts(inputs, yi, weight, fit_params)
        loss = self.get_loss(parts, yi, X=Xi, training=True)
        loss.backward()
        return parts, loss

    def _loss_parts(self, inputs: Any, y: Tensor, weight: Any, fit_params: dict) -> LossParts:
        return self.criterion_(self.module_, inputs, y, weight, **fit_params)

    def set_schedule(self, factors: Sequence[float] | None) -> None:
        """Set the factors of the learning rate at the next steps; None restores the rate."""
        self.rest_rate()
        self._factors = None if factors is None else iter(factors)
        self._rates = [group["lr"] for group in self.optimizer_.param_groups]

    def rest_rate(self) -> None:
        """Reset the learning rate to the one that a schedule multiplies, if there is one."""
        if self._factors is not None:  # else a callback may have changed it on purpose
            self._multiply_rates(1.0)

    def _multiply_rates(self, factor: float) -> None:
        # A parameter group that a callback has added keeps its own rate.
        for group, rate in zip(self.optimizer_.param_groups, self._rates, strict=False):
            group["lr"] = factor * rate

    def next_factors(self, n_steps: int) -> list[float] | None:
        """Return the factors of the next steps."""
        return None if self._factors is None else list(itertools.islice(self._factors, n_steps))

    def _move_rate(self) -> None:
        for factor in self.next_factors(1) or ():
            self._multiply_rates(factor)

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Take a step at its scheduled rate."""
        self._move_rate()
        return super().train_step(batch, **fit_params)

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Compute the loss and its gradients, and record the parts of the loss."""
        self._set_training(True)
        parts, loss = self._backward(batch, fit_params)
        values = [part.item() for part in parts[:4]]
        self._check_finite(values, n_batches=len(self.history[-1]["batches"]))
        for name, value in zip(RECORDED[1:], values[1:], strict=True):
            self.history.record_batch(name, value)
        # Training scores (EpochScoring) use the clean logits where all samples have them.
        is_whole = parts.clean_logits is not None and len(parts.clean_logits) == len(
            parts.mixed_logits
        )
        return {"loss": loss, "y_pred": parts.clean_logits if is_whole else parts.mixed_logits}

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Tensor:
        """Return the loss of a training step; elsewhere the plain, unmixed loss."""
        if isinstance(y_pred, LossParts):
            return y_pred.loss
        weight = split_weight(X)[1]
        if weight is not None:
            weight = to_tensor(weight, device=self.device)
        return self.criterion_.clean_loss(y_pred, to_tensor(y_true, self.device), weight)

    def record_epoch(self, values: np.ndarray, sizes: Sequence[int]) -> None:
        """Record the losses, (n_batches, 4), of an epoch without per-batch events."""
        is_bad = ~np.isfinite(values).all(axis=1)
        if is_bad.any():
            number = int(is_bad.argmax())
            self._check_finite(values[number].tolist(), n_batches=number + 1)
        if not self._keeps_batches and len(values):
            # A single batch of means: skorch's callbacks are slow to average many.
            values, counts = np.average(values, axis=0, weights=sizes, keepdims=True), [sum(sizes)]
        else:
            counts = list(sizes)
        rows = [dict(zip(RECORDED, row, strict=True)) for row in values.tolist()]
        for row, count in zip(rows, counts, strict=True):
            row["train_batch_size"] = count
        self.history[-1]["batches"] = rows
        self.history.record("train_batch_count", len(sizes))

    def _check_finite(self, values: Sequence[float], n_batches: int) -> None:
        if all(math.isfinite(value) for value in values):
            return
        _, mixup_loss, penalty_term, _ = values
        raise FloatingPointError(
            f"The loss became non-finite in epoch {len(self.history)}, batch {n_batches}: "
            f"mixup_loss={mixup_loss}, penalty_term={penalty_term}; lower lr or eta, or scale the "
            f"inputs."
        )

    def save_params(
        self,
        f_params: Any = None,
        f_optimizer: Any = None,
        f_criterion: Any = None,
        f_history: Any = None,
        use_safetensors: bool = False,
        **files: Any,
    ) -> None:
        """Write complete files or none (see ``skorch.NeuralNet.save_params``).

        skorch's ``Checkpoint`` overwrites its files in every epoch; the old ones stay until the new
        ones are complete.
        """
        files |= {"f_params": f_params, "f_optimizer": f_optimizer}
        files |= {"f_criterion": f_criterion, "f_history": f_history}
        with ExitStack() as stack:
            for name, file in files.items():
                if isinstance(file, (str, os.PathLike)):
                    files[name] = stack.enter_context(replacing(file)).name
            super().save_params(**files, use_safetensors=use_safetensors)

    def _get_predict_nonlinearity(self) -> Callable[[Tensor], Tensor]:
        self.check_is_fitted()
        if self.predict_nonlinearity == "auto":
            return self.criterion_.predicted_mean
        return super()._get_predict_nonlinearity()


class MixupENet(_MixupEStep, NeuralNetClassifier):
    """A ``skorch.NeuralNetClassifier`` that trains with MixupE.

    Takes all arguments of ``skorch.NeuralNetClassifier``; those of the method are the criterion's
    (``criterion__alpha``, ``criterion__eta``, ...: see :class:`MixupELoss`). The module returns
    logits. Two things differ from skorch: batches of in-memory data take one indexing operation
    instead of one per sample, and training samples are shuffled by default.

    Weights go to ``fit(X, y, sample_weight=...)``, or into ``{"X": X, "sample_weight": w}``; their
    mean should be one. Each epoch records ``train_mixup_loss``, ``train_penalty`` and
    ``loss_scale`` beside skorch's ``train_loss`` and ``valid_loss``; the latter is the plain loss
    on unmixed samples.

    Parameters
    ----------
    module : torch.nn.Module class or instance
        Network that returns logits.
    *args, **kwargs
        As for ``skorch.NeuralNetClassifier``.
    criterion : class, default=MixupELoss
        The training loss.
    iterator_train, iterator_valid : class
        In-memory batches by default; other datasets use a torch DataLoader.
    iterator_train__shuffle : bool, default=True
        Whether training samples are shuffled in each epoch.

    See Also
    --------
    MixupELoss : The criterion of this net.
    skorch.classifier.NeuralNetClassifier : The parent class.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_digits
    >>> from mixupe_sklearn import MixupENet
    >>> from mixupe_sklearn.modules import MLP
    >>> X, y = load_digits(return_X_y=True)
    >>> X = ((X - X.mean(axis=0)) / 16).astype("float32")
    >>> _ = torch.manual_seed(0)
    >>> net = MixupENet(MLP, module__n_features=64, module__n_outputs=10, criterion__alpha=0.2,
    ...                 optimizer=torch.optim.Adam, lr=0.001, max_epochs=15, verbose=0)
    >>> bool(net.fit(X, y).score(X, y) > 0.9)
    True
    """

    def check_data(self, X: Any, y: Any = None) -> None:
        """Learn the classes; reads only the targets of an in-memory dataset."""
        super().check_data(X, targets_of(X) if y is None else y)

    def _get_predict_nonlinearity(self) -> Callable[[Tensor], Tensor]:
        mean_of = super()._get_predict_nonlinearity()
        if self.criterion_.head != "sigmoid":
            return mean_of

        def probabilities(logits: Tensor) -> Tensor:
            mean = mean_of(logits)
            return torch.cat([1 - mean, mean], dim=1) if mean.shape[1] == 1 else mean

        return probabilities

    def predict(self, X: Any) -> Any:
        """Return the most probable class; for multi-label targets, the labels above one half."""
        self.check_is_fitted()
        if self.criterion_.head != "sigmoid":
            return super().predict(X)
        is_on = (as_logits(self.forward(X)) > 0).long().numpy()
        return is_on[:, 0] if is_on.shape[1] == 1 else is_on


class MixupENetRegressor(_MixupEStep, NeuralNetRegressor):
    """A ``skorch.NeuralNetRegressor`` that trains with MixupE.

    As in skorch, ``y`` is two-dimensional and of the module's floating type.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> from mixupe_sklearn import MixupENetRegressor
    >>> X, y = load_diabetes(return_X_y=True, scaled=True)
    >>> X, y = (20 * X).astype("float32"), ((y - y.mean()) / y.std()).astype("float32")[:, None]
    >>> _ = torch.manual_seed(0)
    >>> net = MixupENetRegressor(torch.nn.Linear(10, 1), max_epochs=20, lr=0.05, verbose=0)
    >>> bool(net.fit(X, y).score(X, y) > 0.4)
    True
    """

    def __init__(self, module: Any, *args: Any, criterion__head: str = "squared", **kwargs: Any):
        super().__init__(module, *args, criterion__head=criterion__head, **kwargs)


def float_type(net: Any) -> torch.dtype:
    """Return the floating type of the module: float32, unless the user's module differs."""
    return _float_type(net.module_) or torch.float32


def _float_type(module: torch.nn.Module) -> torch.dtype | None:
    # In the order of ``parameters()``, which takes as long as a layer for one sample.
    for parameter in module._parameters.values():
        if parameter is not None and parameter.is_floating_point():
            return parameter.dtype
    types = (_float_type(part) for part in module._modules.values() if part is not None)
    return next((dtype for dtype in types if dtype is not None), None)


def n_module_outputs(net: Any, X: Any, X_mean: np.ndarray) -> int:
    """Run a new module on two samples; return the width of its output."""
    with torch.no_grad():  # not in inference mode: a lazy module creates its weights here
        return int(_logits([net], X[:2], X_mean).shape[2])


def predicted(
    nets: Sequence[Any],
    X: Any,
    X_mean: np.ndarray,
    finish: Callable[[Tensor], np.ndarray],
    n_outputs: int,
) -> np.ndarray:
    """Return ``finish(logits)`` of raw samples, in chunks, as an array with samples first.

    ``finish`` gets logits of shape (n_members, n_rows, n_outputs).
    """
    width = max(X.shape[1], len(nets) * n_outputs)
    first, *others = in_chunks(X.shape[0], width, len(nets))
    with torch.inference_mode(), threads_for(nets[0].module_, first.stop):
        values = finish(_logits(nets, X[first], X_mean))
        if not others:
            return values
        # One array for all: small arrays between the chunks would keep freed chunks from being
        # reused, and memory would grow with the number of samples.
        whole = np.empty((X.shape[0], *values.shape[1:]), dtype=values.dtype)
        whole[first] = values
        for part in others:
            whole[part] = finish(_logits(nets, X[part], X_mean))
        return whole


def _logits(nets: Sequence[Any], X: Any, X_mean: np.ndarray) -> Tensor:
    rows = centred_block(X, X_mean, float_type(nets[0]))
    return forward_all(nets, rows)[:, : X.shape[0]]


def forward_all(nets: Sequence[Any], X: Tensor) -> Tensor:
    """Return the logits of centred samples by each net, in double precision.

    Parameters
    ----------
    nets : sequence of MixupENet
        The members.
    X : Tensor of shape (n_rows, n_features) or (n_members, n_rows, n_features)
        The same samples for all members, or different ones.

    Returns
    -------
    logits : Tensor of shape (n_members, n_rows, n_outputs)
    """
    modules = [net.module_ for net in nets]
    if len(nets) > 1 and all(is_plain(module) for module in modules):
        return run_stacked(modules, X.to(torch.device(nets[0].device))).cpu().double()
    outputs = []
    for number, module in enumerate(modules):
        set_to_predict(module)
        rows = X if X.ndim == 2 else X[number]
        # To the CPU before double precision, which some devices lack.
        outputs.append(as_logits(module(rows.to(torch.device(nets[number].device)))).cpu().double())
    return torch.stack(outputs) if len(outputs) > 1 else outputs[0][None]
