"""The skorch nets whose training step is the criterion: built, trained by autograd, and run.

A net of known layers trains with the engine, any other by autograd, one step after the other.
"""

import copy
import inspect
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import PassthroughScoring
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
from mixupe_sklearn._data.rows import Standardisation, centred_block, in_chunks
from mixupe_sklearn._engine.network import n_outputs_of, predict_stacked
from mixupe_sklearn._engine.trainer import Member, Trainer, why_not
from mixupe_sklearn._method.criterion import METHOD_RULES, LossParts, MixupELoss
from mixupe_sklearn._method.formulas import share_size
from mixupe_sklearn._method.forward import as_logits, set_to_predict
from mixupe_sklearn._net.callbacks import (
    BATCH_EVENTS,
    QuietLog,
    SteadyTimer,
    hears_batches,
    hears_validation,
    is_callback,
    user_callbacks,
)
from mixupe_sklearn._net.weight_average import MovingAverage
from mixupe_sklearn._runtime.torch_state import threads_for
from mixupe_sklearn._training.config import OPTIMIZERS
from mixupe_sklearn._training.loop import RECORDED
from mixupe_sklearn._utils.atomic_files import replacing
from mixupe_sklearn._utils.parameter_rules import is_same
from mixupe_sklearn._utils.warnings import warn_user

# Methods that a subclass may override to see or to change each step.
_STEP_METHODS = (
    *("fit_loop", "run_single_epoch", "train_step", "train_step_single", "get_loss", "infer"),
    *("notify", "_step_optimizer", "_zero_grad_optimizer", "get_train_step_accumulator"),
)
# Their modules in a plain net: other classes of skorch (AccelerateMixin) change the step.
_PLAIN = {"skorch.net", "skorch.classifier", "skorch.regressor", __name__}
_PLAIN |= {"mixupe_sklearn._distributed.net"}
# Arguments of Batches; any other argument of an iterator is for a DataLoader.
_BATCHES_ONLY = {"random_state", "min_rows"}
_BATCHES = {"batch_size", "shuffle", "drop_last"} | _BATCHES_ONLY
# Layers that return probabilities or their logarithms.
_PROBABILITIES = (torch.nn.Softmax, torch.nn.LogSoftmax, torch.nn.Sigmoid)
# A mixin: its methods find skorch's through the net's other classes.
_Net: Any = object


def listens(net: Any) -> bool:
    """Return whether a callback or a method of a subclass acts on each batch."""
    is_own = any(overrides(net, name) for name in (*_STEP_METHODS, *BATCH_EVENTS))
    return is_own or any(hears_batches(callback, net) for _, callback in net.callbacks_)


def why_not_engine(net: Any, iterator: Any) -> str | None:
    """Return why the engine cannot run an epoch of these batches, or None if it can."""
    if type(iterator) is not Batches:
        return "the data is not in memory"
    inputs, weight = split_weight(iterator.X)
    return why_not(net, inputs, iterator.y, weight)


def _until(batches: Any, deadline: float) -> Iterator[Any]:
    """Yield batches until a time of ``time.perf_counter``, and one at least."""
    for number, batch in enumerate(batches):
        if number and time.perf_counter() > deadline:
            return
        yield batch


def overrides(net: Any, name: str) -> bool:
    """Return whether a subclass of the user, or the net itself, replaces a method."""
    owner = next(c for c in type(net).__mro__ if name in vars(c))
    return name in vars(net) or owner.__module__ not in _PLAIN


def _check_criterion(criterion: Any) -> None:
    """Raise one sentence for a criterion, or the class of one, that is not a ``MixupELoss``."""
    criterion = getattr(criterion, "_orig_mod", criterion)  # of a compiled one
    kind = criterion if isinstance(criterion, type) else type(criterion)
    if not issubclass(kind, MixupELoss):
        raise TypeError(
            f"Got criterion={kind.__name__}, but expected MixupELoss or a subclass, since the "
            f"training step mixes samples and runs the module itself."
        )


class _OwnInfer:
    """The ``infer`` of a user's subclass in the place of the module, for the criterion."""

    def __init__(self, net: Any, fit_params: dict):
        self.net, self.fit_params = net, fit_params

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        if inputs:
            return self.net.infer(*inputs, **keywords)
        # The criterion passes a dict of inputs as keywords.
        X = {name: value for name, value in keywords.items() if name not in self.fit_params}
        return self.net.infer(X, **self.fit_params)

    def modules(self) -> Iterator[torch.nn.Module]:
        """The parts of all modules of the net."""
        parts = (getattr(self.net, f"{name}_").modules() for name in self.net._modules)
        return itertools.chain.from_iterable(parts)


def warn_about_last_layer(net: Any) -> None:
    """Warn if the last layer of a classifier's module computes probabilities."""
    layer = module = getattr(net.module_, "_orig_mod", net.module_)
    while parts := list(layer.children()):
        layer = parts[-1]
    if net.criterion_.head != "squared" and isinstance(layer, _PROBABILITIES):
        log = "log-" if isinstance(layer, torch.nn.LogSoftmax) else ""
        warn_user(
            f"Got module={type(module).__name__}, whose last layer, {type(layer).__name__}, "
            f"returns {log}probabilities, but expected logits: remove this layer, since the loss "
            f"applies the {net.criterion_.head} itself."
        )


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
    # Time of ``time.perf_counter`` at which an epoch ends early.
    _deadline: float | None = None
    # The moving average of the weights in this training, or None.
    _average: MovingAverage | None = None
    # The low precision of the module's computations, or None; its weights keep theirs.
    _precision: torch.dtype | None = None
    # The criterion of a net that is trimmed for prediction, for its predicted mean.
    _trimmed_criterion: MixupELoss | None = None

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

    def initialize_criterion(self) -> Any:
        """Create the criterion, which must be a ``MixupELoss``."""
        if isinstance(self.criterion, (type, torch.nn.Module)):
            _check_criterion(self.criterion)
        super().initialize_criterion()
        _check_criterion(self.criterion_)  # a function may create it
        return self

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
        """Train, after a check of the criterion."""
        self.check_training_readiness()
        _check_criterion(getattr(self, "criterion_", None))  # a subclass may create another one
        if not self.history:
            warn_about_last_layer(self)
        return super().fit_loop(X, y, epochs, **fit_params)

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Run an epoch; a training epoch without per-batch events has no per-batch overhead."""
        if training and self._deadline is not None and iterator is not None:
            iterator = _until(iterator, self._deadline)
        if iterator is None or not training or listens(self):
            super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
            return
        self._set_training(True)
        is_plain = not fit_params and self._n_processes == 1 and self._average is None
        if not is_plain or why_not_engine(self, iterator) is not None:
            values, sizes = self._run_quietly(iterator, fit_params)
        else:
            values, sizes = self._run_by_engine(iterator), iterator.sizes()
        self.record_epoch(values, sizes)

    def _run_by_engine(self, iterator: Batches) -> np.ndarray:
        """Run an epoch of this net alone; return the losses of each step, (n_steps, 4)."""
        inputs, weight = split_weight(iterator.X)
        sizes, order = iterator.sizes(), iterator.order()
        order = np.arange(iterator.n_samples) if order is None else order
        self.rest_rate()  # a step outside the engine may have changed it
        member = Member(
            self,
            (inputs, iterator.y, weight),
            rows=iterator.indices,
            factors=self.next_factors(len(sizes)),
            order=lambda: order,
            sizes=sizes,
        )
        trainer = Trainer([member])
        try:
            return trainer.run_epoch(1)[id(self)].values
        finally:
            trainer.close(is_over=False)

    @contextmanager
    def training(self, train: Any, valid: Any, n_epochs: int) -> Iterator[None]:
        """Run a block that trains this net on these samples."""
        yield

    def together(self) -> AbstractContextManager[Any]:
        """Return a context whose end waits for the other processes that train this net."""
        return nullcontext()

    def begin_quiet_epoch(self, train: Any, valid: Any) -> None:
        """Begin an epoch that the engine runs: a row of the history, and the user's callbacks."""
        if train is not None:
            self.notify("on_epoch_begin", dataset_train=train, dataset_valid=valid)
        else:  # there is no callback of the user
            self.history.new_epoch()
            self.history.record("epoch", len(self.history))

    def end_quiet_epoch(self, row: Mapping[str, Any], train: Any, valid: Any) -> None:
        """End it: the records of the epoch, and the user's callbacks."""
        for name, value in row.items():
            self.history.record(name, value)
            if name in ("train_loss", "valid_loss", "valid_acc") and train is not None:
                sign = -1 if name == "valid_acc" else 1
                rows = (own for own in reversed(self.history) if own.get(f"{name}_best"))
                best = next((sign * own[name] for own in rows), math.inf)
                self.history.record(f"{name}_best", bool(sign * value < best))
        if train is None:
            return
        users = [callback for _, callback in user_callbacks(self)]
        if valid is not None and any(hears_validation(callback) for callback in users):
            self.run_single_epoch(
                self.get_iterator(valid, training=False),
                training=False,
                prefix="valid",
                step_fn=self.validation_step,
            )
        for callback in users:  # the engine did the work of skorch's own
            callback.on_epoch_end(self, dataset_train=train, dataset_valid=valid)
        self.history[-1]["batches"] = []

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
            self._update_average()
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
        loss = self._own_loss(parts, yi, Xi) if overrides(self, "get_loss") else parts.loss
        loss.backward()
        return parts, loss

    def _own_loss(self, parts: LossParts, y: Tensor, X: Any) -> Tensor:
        """Return the loss of a subclass's ``get_loss``, which gets the parts of the loss."""
        found, cause = "no loss with a gradient", None
        try:
            loss = self.get_loss(parts, y, X=X, training=True)
            if isinstance(loss, Tensor) and loss.requires_grad:
                return loss
        except (AttributeError, IndexError, TypeError) as error:  # it expects a tensor
            found, cause = f"{type(error).__name__}: {error}", error
        raise TypeError(
            f"Got {found!r} from {type(self).__name__}.get_loss in a training step, but expected a "
            f"loss based on super().get_loss(y_pred, y_true, X, training), since y_pred is a "
            f"LossParts there, and only its loss has a gradient."
        ) from cause

    def _loss_parts(self, inputs: Any, y: Tensor, weight: Any, fit_params: dict) -> LossParts:
        if not overrides(self, "infer"):
            return self.criterion_(self.module_, inputs, y, weight, **fit_params)
        if len(self.criterion_.stages_of(self.module_)) > 1:
            raise ValueError(
                f"Got mix_at='hidden' with an infer of {type(self).__name__}, but expected "
                f"mix_at='input', since the stages of the module run without infer."
            )
        return self.criterion_(_OwnInfer(self, fit_params), inputs, y, weight, **fit_params)

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
        step = super().train_step(batch, **fit_params)
        self._update_average()
        return step

    def _update_average(self) -> None:
        if self._average is not None:
            self._average.update(self.module_)

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
        if training:
            raise TypeError(
                f"Got y_pred of type {type(y_pred).__name__} in a training step, but expected the "
                f"LossParts of super().train_step_single, which mixes samples."
            )
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

    def trim_for_prediction(self) -> None:
        """Remove what only training needs; see ``skorch.NeuralNet.trim_for_prediction``."""
        self.check_is_fitted()
        if self.criterion_ is not None:  # else it is already trimmed
            # Not by an attribute, which skorch would register as one more criterion.
            self.__dict__["_trimmed_criterion"] = copy.deepcopy(self.criterion_).cpu()
        super().trim_for_prediction()

    @property
    def _fitted_criterion(self) -> MixupELoss:
        return self.criterion_ if self._trimmed_criterion is None else self._trimmed_criterion

    def _get_predict_nonlinearity(self) -> Callable[[Tensor], Tensor]:
        self.check_is_fitted()
        if self.predict_nonlinearity == "auto":
            return self._fitted_criterion.predicted_mean
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
        if self._fitted_criterion.head != "sigmoid":
            return mean_of

        def probabilities(logits: Tensor) -> Tensor:
            mean = mean_of(logits)
            return torch.cat([1 - mean, mean], dim=1) if mean.shape[1] == 1 else mean

        return probabilities

    def predict(self, X: Any) -> Any:
        """Return the most probable class; for multi-label targets, the labels above one half."""
        self.check_is_fitted()
        if self._fitted_criterion.head != "sigmoid":
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


def n_module_outputs(net: Any, X: Any, how: Standardisation) -> int:
    """Return the width of a new module's output; one of unknown layers runs on two samples."""
    known = n_outputs_of(net.module_)
    if known is not None:
        return known
    with torch.no_grad():  # not in inference mode: a lazy module creates its weights here
        return int(_logits([net], X[:2], how).shape[2])


def logits_in_chunks(
    nets: Sequence[Any], X: Any, how: Standardisation, n_outputs: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of raw samples with their logits, (n_members, n_rows, n_outputs)."""
    width = max(X.shape[1], len(nets) * n_outputs)
    first, *others = in_chunks(X.shape[0], width, len(nets))
    with torch.inference_mode(), threads_for(nets[0].module_, first.stop):
        for part in (first, *others):
            yield part, _logits(nets, X[part], how)


def _logits(nets: Sequence[Any], X: Any, how: Standardisation) -> Tensor:
    rows = centred_block(X, how, float_type(nets[0]))
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
    if len(nets) > 1:
        stacked = predict_stacked(modules, X.to(torch.device(nets[0].device)))
        if stacked is not None:
            return stacked.cpu().double()
    outputs = []
    for number, module in enumerate(modules):
        set_to_predict(module)
        rows = X if X.ndim == 2 else X[number]
        # To the CPU before double precision, which some devices lack.
        outputs.append(as_logits(module(rows.to(torch.device(nets[number].device)))).cpu().double())
    return torch.stack(outputs) if len(outputs) > 1 else outputs[0][None]


def _accepts(function: Callable[..., Any], name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def module_arguments(
    module: Callable[..., Any], widths: Mapping[str, Any], module_params: Any
) -> dict:
    """Return the arguments of a module: the user's, and the widths that it has parameters for."""
    known = {name: width for name, width in widths.items() if _accepts(module, name)}
    given = module_params or {}
    _check_names(module, given, "module_params")
    n_features = widths.get("n_features")
    if n_features is not None and not is_same(given.get("n_features", n_features), n_features):
        raise ValueError(
            f"Got n_features={given['n_features']!r} in module_params, but expected "
            f"{n_features}, as in X: leave it out, since it is filled in."
        )
    return {**known, **given}


def _check_names(function: Callable[..., Any], given: Mapping[str, Any], name: str) -> None:
    """Raise one sentence where the signature of a function lacks an argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    known = [one.name for one in parameters]
    unknown = [key for key in given if key not in known]
    if unknown and not any(one.kind is one.VAR_KEYWORD for one in parameters):
        raise ValueError(
            f"Got {name} with {unknown[0]!r}, but expected arguments of {_name_of(function)}: "
            f"{', '.join(known)}."
        )


def _name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; for a partial, that of the function inside."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", repr(function))


def _optimizer_arguments(optimizer: Any, settings: Mapping[str, Any]) -> dict:
    decay = {"weight_decay": settings["weight_decay"]}
    if not _accepts(optimizer, "weight_decay"):
        if settings["weight_decay"]:
            raise ValueError(
                f"Got weight_decay={settings['weight_decay']} with {optimizer.__name__}, but "
                f"expected 0, since that optimizer has none."
            )
        decay = {}
    given = settings["optimizer_params"] or {}
    own = {name: given[name] for name in given if name != "param_groups"}  # skorch reads these
    _check_names(optimizer, own, "optimizer_params")
    try:
        _take_a_step(optimizer, own)
    except Exception as error:  # torch fails on wrong values in many ways
        raise ValueError(
            f"Got optimizer_params={given!r}, but expected what {_name_of(optimizer)} takes: "
            f"{error}."
        ) from error
    return {**decay, **given}


def _take_a_step(optimizer: Any, arguments: Mapping[str, Any]) -> None:
    """Check the arguments of an optimizer by a step: some of them are only used there."""
    if not arguments or not issubclass(optimizer, tuple(OPTIMIZERS.values())):
        return  # other optimizers may need more than this step
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer([parameter], **arguments).step()


def make_net(
    net_class: Any,
    settings: Mapping[str, Any],
    modules: Mapping[str, Callable[..., torch.nn.Module]],
    *,
    widths: Mapping[str, Any],
    order_rng: np.random.Generator,
    mixing_rng: np.random.Generator,
    device: torch.device,
) -> Any:
    """Build and initialise the skorch net; its initial weights come from torch's generator."""
    module, optimizer = settings["module"], settings["optimizer"]
    module = modules[module] if isinstance(module, str) else module
    optimizer = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
    parts = {
        "module": module_arguments(module, widths, settings["module_params"]),
        "criterion": {name: settings[name] for name in METHOD_RULES} | {"random_state": mixing_rng},
        "optimizer": _optimizer_arguments(optimizer, settings),
        "iterator_train": {"random_state": order_rng},
    }
    dunder = {f"{part}__{key}": value for part in parts for key, value in parts[part].items()}
    net = net_class(
        module,
        optimizer=optimizer,
        lr=settings["lr"],
        max_epochs=settings["max_epochs"],
        batch_size=settings["batch_size"],
        train_split=None,
        callbacks=_make_callbacks(settings["callbacks"]),
        verbose=0,
        device=str(device),
        **dunder,
    )
    net._keeps_batches = False
    try:
        return net.initialize()
    except (TypeError, ValueError, RuntimeError) as error:
        if "empty parameter list" in str(error):
            raise ValueError(
                f"Got module={settings['module']!r}, which has no parameters to train."
            ) from error
        if "allocate memory" in str(error):  # torch has no class for it on the CPU
            raise MemoryError(
                f"Got module_params={settings['module_params']!r}, whose weights do not fit into "
                f"the memory of this machine: lower d_hidden or the number of features."
            ) from error
        if not isinstance(settings["module"], str) or str(error).startswith("Got "):
            raise
        raise ValueError(
            f"Got module_params={settings['module_params']!r}, but expected what "
            f"{_name_of(module)} takes: {error}."
        ) from error


def _make_callbacks(callbacks: Any) -> list[Any]:
    for callback in callbacks or []:
        if not is_callback(callback):
            raise ValueError(
                f"Got {callback!r} among the callbacks, but expected skorch callbacks, or pairs of "
                f"a name and a callback."
            )
    # Copies: skorch writes into callbacks, and parameters belong to the user.
    return [_copy_of(callback) for callback in callbacks or []]


def _copy_of(callback: Any) -> Any:
    try:
        return copy.deepcopy(callback)
    except TypeError as error:  # an open file, a thread, a connection
        name = type(callback[1] if isinstance(callback, tuple) else callback).__name__
        raise ValueError(
            f"Got a {name} among the callbacks that cannot be copied ({error}), but expected one "
            f"that opens what it needs in on_train_begin, since an estimator trains with copies."
        ) from error


def update_net(net: Any, settings: Mapping[str, Any]) -> None:
    """Apply parameters that changed since the last training of a net."""
    for name in METHOD_RULES:
        setattr(net.criterion_, name, settings[name])
        setattr(net, f"criterion__{name}", settings[name])
    net.batch_size = settings["batch_size"]
    changed = {}
    if settings["lr"] != net.lr:  # else a schedule may have changed it on purpose
        net.lr = changed["lr"] = settings["lr"]
    arguments = _optimizer_arguments(type(net.optimizer_), settings)
    if "weight_decay" in arguments:
        changed["weight_decay"] = arguments["weight_decay"]
    for group in net.optimizer_.param_groups:
        group.update(changed)


def set_head(net: Any, head: str) -> None:
    """Set the head of the criterion without a new criterion."""
    net.criterion__head = net.criterion_.head = head


def check_batches(net: Any, n_rows: int) -> None:
    """Raise one sentence where BatchNorm would have to train on single samples."""
    if has_batch_norm(net.module_) and min(n_rows, net.batch_size) < 2:
        raise ValueError(
            f"Got batches of one sample (n_samples={n_rows}, batch_size={net.batch_size}), but "
            f"expected at least two samples per batch for a module with BatchNorm."
        )


def remember(net: Any, *, is_new: bool = False) -> Callable[[], None]:
    """Return a function that restores the current state of a net."""
    if is_new:
        return lambda: None  # a failed fit discards it
    parts = (net.module_, net.optimizer_)
    states = [copy.deepcopy(part.state_dict()) for part in parts]
    n_epochs = len(net.history)
    users = [callback for _, callback in net.callbacks_]
    values = [_copied(vars(callback)) for callback in users]

    def undo() -> None:
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
        for callback, before in zip(users, values, strict=True):
            vars(callback).clear()
            vars(callback).update(before)
        del net.history[n_epochs:]

    return undo


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the attributes of a callback, with their tensors, which training writes into."""

    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(item) for item in value]
        return value.clone() if isinstance(value, Tensor) else value

    return {name: copied(value) for name, value in values.items()}


def check_weights(net: Any) -> None:
    """Raise one sentence where training has left a weight that is not finite."""
    for name, parameter in net.module_.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise FloatingPointError(
                f"The weights of {name} became non-finite in the last step; lower lr or eta, or "
                f"scale the inputs."
            )


def rows_a_pass(net: Any, n_rows: int) -> int:
    """Return the rows of a full batch in one pass, the clean ones of the penalty included."""
    criterion, n_mixed = net.criterion_, min(net.batch_size, n_rows)
    if not (criterion.has_mixing and criterion.has_penalty and criterion.single_pass):
        return n_mixed
    return n_mixed + share_size(n_mixed, criterion.penalty_fraction)
