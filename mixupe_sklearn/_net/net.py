"""The skorch nets whose training step is the criterion."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from skorch import NeuralNetClassifier, NeuralNetRegressor
from skorch.callbacks import PassthroughScoring
from skorch.dataset import get_len, unpack_data
from skorch.utils import to_tensor
from torch import Tensor

from mixupe_sklearn._data.batches import Batches, BatchNumbers
from mixupe_sklearn._data.dataloader import Loader
from mixupe_sklearn._data.skorch_datasets import (
    rows_in_memory,
    split_weight,
    targets_of,
    with_weight,
)
from mixupe_sklearn._engine.eligibility import restore_parameters, run_by_hand, why_not_by_hand
from mixupe_sklearn._method.criterion import LossParts, MixupELoss
from mixupe_sklearn._method.forward import as_logits
from mixupe_sklearn._net.atomic_params import WholeFiles
from mixupe_sklearn._net.callbacks import BATCH_EVENTS, QuietLog, SteadyTimer, hears_batches

# What a step records: its loss, the parts of it, and its scale.
RECORDED = ("train_loss", "train_mixup_loss", "train_penalty", "loss_scale")
# Methods that a subclass may override to see, or to change, each step.
_STEP_METHODS = (
    *("fit_loop", "run_single_epoch", "train_step", "train_step_single", "get_loss", "infer"),
    *("notify", "_step_optimizer", "_zero_grad_optimizer"),
)
# Where they may come from: other classes of skorch's (AccelerateMixin) change the step as well.
_PLAIN = {"skorch.net", "skorch.classifier", "skorch.regressor", __name__}
_PLAIN |= {"mixupe_sklearn._distributed.net"}
# What Batches knows; any other argument of an iterator is for a DataLoader.
_BATCHES_ONLY = {"random_state", "min_rows"}
_BATCHES = {"batch_size", "shuffle", "drop_last"} | _BATCHES_ONLY


def _listens(net: Any) -> bool:
    """Whether someone wants to know of each batch: a callback, or a method of a subclass."""
    names = (*_STEP_METHODS, *BATCH_EVENTS)
    owners = (next(c for c in type(net).__mro__ if name in vars(c)) for name in names)
    is_plain = all(owner.__module__ in _PLAIN for owner in owners)
    return not is_plain or any(hears_batches(callback, net) for _, callback in net.callbacks_)


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Whether training on a batch of one row would fail for want of a variance."""
    norm = torch.nn.modules.batchnorm._BatchNorm
    return any(isinstance(layer, norm) for layer in module.modules())


class _MixupEStep(WholeFiles):
    """What both nets share: batches, the training step, and what is recorded of it.

    A mixin: its methods find skorch's own through the classes below.
    """

    # Whether the history of an epoch has a row for each batch; an estimator does without.
    _keeps_batches = True
    # What the learning rate is multiplied with at each step to come; None leaves it as it is.
    _factors: Iterator[float] | None = None
    # The rates that are multiplied, one for each group of the optimizer.
    _rates: Sequence[float] = ()
    # Makes a batch of raw inputs ready for the module, on its device; None leaves them as they are.
    _prepare: Callable[[Tensor, bool], Tensor] | None = None
    # Multiplications that the module makes for a row, where they are known.
    _work: int | None = None
    # Processes that read what does not lie in memory; None leaves that to the net's own arguments.
    _n_workers: int | None = None
    # Processes that train this network together.
    _n_processes = 1
    # The low precision that the module computes in while its weights stay as they are, or None.
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
        """Initialise and train; see ``skorch.NeuralNet.fit``. Weights are mixed with their rows."""
        return super().fit(with_weight(X, sample_weight), y, **fit_params)

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, **fit_params
    ) -> Any:
        """Train on from where the net is; see ``skorch.NeuralNet.partial_fit``."""
        X = with_weight(X, sample_weight)
        return super().partial_fit(X, y, classes=classes, **fit_params)

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """In-memory batches where data and arguments allow, a DataLoader otherwise."""
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
        """How many steps an epoch takes."""
        return len(self.get_iterator(dataset, training=True))

    def _loader(self, dataset: Any, params: dict[str, Any]) -> Loader:
        """A DataLoader; that of an estimator has the batches that rows in memory would have."""
        plain = {key: params[key] for key in params if key not in _BATCHES_ONLY}
        if self._n_workers is None:
            return Loader(dataset, **plain)
        # Workers stay from epoch to epoch, and read ahead. Their seeds follow from the seed that
        # training has, without a draw that rows in memory would not make.
        own = torch.Generator().manual_seed(torch.initial_seed())
        how: dict[str, Any] = {"num_workers": self._n_workers, "generator": own}
        how["persistent_workers"] = self._n_workers > 0
        how["pin_memory"] = torch.device(self.device).type == "cuda"
        if self._n_processes > 1:  # each reads its own portion of a batch
            return Loader(dataset, **how, **plain)
        return Loader(dataset, batch_sampler=BatchNumbers(len(dataset), **params), **how)

    def infer(self, x: Any, **fit_params: Any) -> Any:
        """Run the module on a batch, without its weights."""
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
        """Train; weights that were borrowed for it are given back whatever happens."""
        try:
            return super().fit_loop(X, y, epochs, **fit_params)
        finally:
            restore_parameters(self)

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Run an epoch; one of training without work for each batch, where none listens to them."""
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
            values, sizes = run_by_hand(self, iterator), iterator.sizes()
        self.record_epoch(values, sizes)

    def _run_quietly(self, iterator: Any, fit_params: dict) -> tuple[np.ndarray, list[int]]:
        """Take a step for each batch; what it records leaves the device when the epoch is over."""
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
        """Multiply the learning rate at each step to come; None ends that, at the rate itself."""
        self.rest_rate()
        self._factors = None if factors is None else iter(factors)
        self._rates = [group["lr"] for group in self.optimizer_.param_groups]

    def rest_rate(self) -> None:
        """Bring the learning rate back to what a schedule multiplies, if there is one."""
        if self._factors is not None:  # else a callback may have moved it on purpose
            self._multiply_rates(1.0)

    def _multiply_rates(self, factor: float) -> None:
        # A group that a callback has added meanwhile keeps its own rate.
        for group, rate in zip(self.optimizer_.param_groups, self._rates, strict=False):
            group["lr"] = factor * rate

    def next_factors(self, n_steps: int) -> list[float] | None:
        """The factors of the next steps, which are taken elsewhere."""
        return None if self._factors is None else list(itertools.islice(self._factors, n_steps))

    def _move_rate(self) -> None:
        for factor in self.next_factors(1) or ():
            self._multiply_rates(factor)

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Take a step, at the rate that the schedule has for it."""
        self._move_rate()
        return super().train_step(batch, **fit_params)

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Compute the step's loss and its gradients, and record its parts."""
        self._set_training(True)
        parts, loss = self._backward(batch, fit_params)
        values = [part.item() for part in parts[:4]]
        self._check_finite(values, n_batches=len(self.history[-1]["batches"]))
        for name, value in zip(RECORDED[1:], values[1:], strict=True):
            self.history.record_batch(name, value)
        # Scores of the training rows (EpochScoring) are those of clean rows where all were run.
        is_whole = parts.clean_logits is not None and len(parts.clean_logits) == len(
            parts.mixed_logits
        )
        return {"loss": loss, "y_pred": parts.clean_logits if is_whole else parts.mixed_logits}

    def get_loss(self, y_pred: Any, y_true: Any, X: Any = None, training: bool = False) -> Tensor:
        """The step's loss in training; the plain, unmixed loss elsewhere."""
        if isinstance(y_pred, LossParts):
            return y_pred.loss
        weight = split_weight(X)[1]
        if weight is not None:
            weight = to_tensor(weight, device=self.device)
        return self.criterion_.clean_loss(y_pred, to_tensor(y_true, self.device), weight)

    def record_epoch(self, values: np.ndarray, sizes: Sequence[int]) -> None:
        """Record losses, (n_batches, 4), of an epoch that was run without work for each batch."""
        is_bad = ~np.isfinite(values).all(axis=1)
        if is_bad.any():
            number = int(is_bad.argmax())
            self._check_finite(values[number].tolist(), n_batches=number + 1)
        if not self._keeps_batches and len(values):
            # A single batch with the means: skorch's callbacks take long to average many.
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

    def _get_predict_nonlinearity(self) -> Callable[[Tensor], Tensor]:
        self.check_is_fitted()
        if self.predict_nonlinearity == "auto":
            return self.criterion_.predicted_mean
        return super()._get_predict_nonlinearity()


class MixupENet(_MixupEStep, NeuralNetClassifier):
    """A ``skorch.NeuralNetClassifier`` that trains with MixupE.

    Takes all arguments of ``skorch.NeuralNetClassifier``; those of the method are the criterion's
    (``criterion__alpha``, ``criterion__eta``, ...: see :class:`MixupELoss`). The module returns
    logits. Two things differ from skorch: batches of in-memory data are taken in one indexing
    operation instead of row by row, and training rows are shuffled by default.

    Weights go to ``fit(X, y, sample_weight=...)``, or travel as ``{"X": X, "sample_weight": w}``;
    they should average one. Each epoch records ``train_mixup_loss``, ``train_penalty`` and
    ``loss_scale`` beside skorch's ``train_loss`` and ``valid_loss``; the latter is the plain loss
    on unmixed rows.

    Parameters
    ----------
    module : torch.nn.Module class or instance
        Network that returns logits.
    *args, **kwargs
        As for ``skorch.NeuralNetClassifier``.
    criterion : class, default=MixupELoss
        The training loss.
    iterator_train, iterator_valid : class
        In-memory batches by default; any other data set falls back to a torch DataLoader.
    iterator_train__shuffle : bool, default=True
        Whether training rows are put in a new order each epoch.

    See Also
    --------
    MixupELoss : The criterion inside.
    skorch.classifier.NeuralNetClassifier : What it is a kind of.

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
        """Learn the classes; of a data set of ours only the targets are looked at."""
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
        """The class with the highest probability; for several labels, those above one half."""
        self.check_is_fitted()
        if self.criterion_.head != "sigmoid":
            return super().predict(X)
        is_on = (as_logits(self.forward(X)) > 0).long().numpy()
        return is_on[:, 0] if is_on.shape[1] == 1 else is_on


class MixupENetRegressor(_MixupEStep, NeuralNetRegressor):
    """The same for numbers: a ``skorch.NeuralNetRegressor`` that trains with MixupE.

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
