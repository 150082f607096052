"""One network, trained by several processes that ``torchrun`` has started.

Each process runs its portion of every batch (``_portions.py``), and torch's DistributedDataParallel
takes the mean of their gradients, set up by accelerate through skorch's own mixin. Where the data
lie in memory, all processes hold all rows and make the same draws, so that the weights are those of
one process up to rounding. A DataLoader reads each process's rows only; ``lam`` is then the same in
all, and partners are found within a portion, as they are for ``mix_at="hidden"``.

What differs from one process: BatchNorm sees the rows of its own process, and its running
statistics are those of the main one; dropout draws are each process's own.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from skorch.hf import AccelerateMixin
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.data import DataLoader

from mixupe_sklearn._data.batches import Batches
from mixupe_sklearn._distributed.preflight import (
    check_batch_norm,
    check_together,
    data_of,
    settings_of,
)
from mixupe_sklearn._distributed.process_group import (
    Launched,
    agreed,
    check_same,
    clear_loss,
    is_distributed,
    join,
    total_over_all,
)
from mixupe_sklearn._distributed.sharding import Shard
from mixupe_sklearn._method.criterion import LossParts
from mixupe_sklearn._net.net import EpochHook, MixupENet, MixupENetRegressor, has_batch_norm
from mixupe_sklearn._net.weight_average import PolyakAverage
from mixupe_sklearn._runtime.seeding import new_seed

# A mixin before a net of ours: its methods find the net's through the classes below.
_Mixin: Any = AccelerateMixin
# What happens in each process by itself: callbacks are told, and rows are validated.
AGREED = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_end")


class _Step(nn.Module):
    """Module and criterion as one: whatever the criterion does is then one pass to torch."""

    def __init__(self, module: nn.Module, criterion: nn.Module):
        super().__init__()
        self.module = module
        self.criterion = criterion
        self.shard: Shard | None = None

    def forward(self, *args: Any, **kwargs: Any) -> LossParts:
        return self.criterion(self.module, *args, shard=self.shard, **kwargs)


class _Company:
    """The processes that train a network together, while they do."""

    def __init__(self, accelerator: Any, module: nn.Module, criterion: nn.Module, seed: int):
        self.place = Shard(accelerator.process_index, accelerator.num_processes, total_over_all)
        self.step = _Step(module, criterion)
        self.shared_step = accelerator.prepare(self.step)  # averages gradients
        # Whether a batch holds the rows of all processes.
        self.has_whole_batches = True
        # Draws for the rows of a process alone, such as dropout's, are its own.
        self.rng = np.random.default_rng([seed, self.place.rank])
        self.n_steps = 0

    def loss_parts(self, inputs: Any, y: Tensor, weight: Any, fit_params: dict) -> LossParts:
        """Run this process's portion of a batch."""
        self.step.shard = self.place
        if not self.has_whole_batches:
            sizes = torch.zeros(self.place.n_shards, dtype=torch.long, device=y.device)
            sizes[self.place.rank] = len(y)
            self.step.shard = self.place._replace(sizes=tuple(total_over_all(sizes).tolist()))
        with self.own_draws(y.device):
            return self.shared_step(inputs, y, weight, **fit_params)

    @contextmanager
    def own_draws(self, device: torch.device) -> Iterator[None]:
        """Leave the generators as found: portions of unequal size draw unequally often."""
        seed, is_cuda = new_seed(self.rng), device.type == "cuda"
        with torch.random.fork_rng(devices=[device] if is_cuda else []):
            torch.default_generator.manual_seed(seed)
            if is_cuda:
                torch.cuda.manual_seed(seed)
            yield

    def check_first(self) -> None:
        """Raise one sentence where a step leaves a weight alone: torch would wait for it."""
        self.n_steps += 1
        if self.n_steps > 1:
            return
        named = self.step.module.named_parameters()
        idle = [name for name, weight in named if weight.requires_grad and weight.grad is None]
        if idle:
            raise ValueError(
                f"Got a module whose weights {idle} have no part in its output, but expected all "
                f"to, where several processes train it; freeze them by requires_grad_(False)."
            )


class _Together(_Mixin):
    """Lets a net of ours train in several processes; outside of training it is as it was."""

    accelerator: Any
    verbose: int
    _n_processes: int
    # The processes of the training that goes on.
    _company: _Company | None = None

    def __init__(
        self,
        module: Any,
        *args: Any,
        accelerator: Any = None,
        device: Any = "cpu",
        callbacks__print_log__sink: Any = print,
        **kwargs: Any,
    ):
        super().__init__(
            module,
            *args,
            accelerator=Launched() if accelerator is None else accelerator,
            device=device,
            callbacks__print_log__sink=callbacks__print_log__sink,
            **kwargs,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "accelerator": Launched()}

    def initialize(self) -> Any:
        """Initialise; the processes meet before, which settles the GPU of each."""
        self._met()
        return super().initialize()

    def _met(self) -> Any:
        if is_distributed() and isinstance(self.accelerator, Launched):
            return join(torch.device(self.device).type)
        return self.accelerator

    def _initialize_accelerator(self) -> Any:
        return self  # the module is wrapped while it trains, and only then

    def _validate_params(self) -> None:
        super(AccelerateMixin, self)._validate_params()  # a device may be given

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, **fit_params
    ) -> Any:
        """Train on with the other processes; see ``MixupENet.partial_fit``."""
        if not self.initialized_:
            self.initialize()
        found, verbose = self.accelerator, self.verbose
        self.accelerator = self._met()
        try:
            if self.accelerator.num_processes == 1:
                return super().partial_fit(X, y, classes, sample_weight, **fit_params)
            self.verbose = verbose if self.accelerator.is_main_process else 0
            epochs = fit_params.get("epochs")
            with self._accompanied(self.max_epochs if epochs is None else epochs):
                super().partial_fit(X, y, classes, sample_weight, **fit_params)
                self._take_from_main(*self.module_.parameters(), *self._statistics())
            return self
        finally:
            self.accelerator, self.verbose = found, verbose

    @contextmanager
    def _accompanied(self, n_epochs: int) -> Iterator[None]:
        try:
            with clear_loss(self._moment):
                check_same(settings_of(self, n_epochs))
                check_together(self)
                seed = self._same_draws()
                self._company = _Company(self.accelerator, self.module_, self.criterion_, seed)
                self._n_processes = self.accelerator.num_processes
                yield
        finally:
            self._n_processes, self._company = 1, None
            self.accelerator.free_memory()

    def _moment(self) -> str:
        return f"in epoch {len(self.history)}" if self.history else "before training"

    def _same_draws(self) -> int:
        """Take the main process's generators, for joint draws; return a seed that follows them."""
        order = self.get_params_for("iterator_train").get("random_state")
        own = (getattr(self.criterion_, "rng", None), order)
        rngs = [rng for rng in own if isinstance(rng, np.random.Generator)]
        is_cuda = torch.device(self.device).type == "cuda"
        on_device = torch.cuda.get_rng_state(self.device) if is_cuda else None
        states = [rng.bit_generator.state for rng in rngs]
        found: list[Any] = [states, torch.get_rng_state(), on_device]
        dist.broadcast_object_list(found, src=0)
        states, on_processor, on_device = found
        for rng, state in zip(rngs, states, strict=True):
            rng.bit_generator.state = state
        torch.set_rng_state(on_processor)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, self.device)
        return zlib.crc32(on_processor.numpy().tobytes())

    def _take_from_main(self, *tensors: Tensor) -> None:
        with torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def _statistics(self) -> list[Tensor]:
        """Tensors that processes learn from their own rows, and take from the main one."""
        callbacks = [callback for _, callback in self.callbacks_]
        averages = [item for item in callbacks if isinstance(item, PolyakAverage)]
        return [*self.module_.buffers(), *(tensor for item in averages for tensor in item.tensors_)]

    def _prepared(self, inputs: Any, training: bool) -> Any:
        if not training or self._company is None or self._company.has_whole_batches:
            return super()._prepared(inputs, training)
        with self._company.own_draws(torch.device(self.device)):
            return super()._prepared(inputs, training)

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """All rows of each batch where they lie in memory, else those of this process."""
        iterator = super(AccelerateMixin, self).get_iterator(dataset, training=training)
        if not training or self._company is None:
            return iterator
        self._company.has_whole_batches = not isinstance(iterator, DataLoader)
        if self._company.has_whole_batches:
            if isinstance(iterator, Batches) and has_batch_norm(self.module_):
                check_batch_norm(self.criterion_, min(iterator.sizes()), self._n_processes)
            return iterator
        if iterator.batch_size is not None and iterator.batch_size % self._n_processes:
            raise ValueError(
                f"Got batch_size={iterator.batch_size} for {self._n_processes} processes that "
                f"read their own rows, but expected a multiple of {self._n_processes}."
            )
        return self.accelerator.prepare(iterator)

    def n_batches(self, dataset: Any) -> int:
        """How many steps an epoch takes of the processes that will share them."""
        found = self._n_processes
        try:
            self._n_processes = self._met().num_processes
            return super().n_batches(dataset)
        finally:
            self._n_processes = found

    def get_split_datasets(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Rows to train on and rows to validate with, the same in all processes."""
        train, valid = super().get_split_datasets(X, y, **fit_params)
        if self._company is not None:
            check_same(data_of(train, valid))
        return train, valid

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Run an epoch; after one of training, all go on with the main process's statistics."""
        run = super().run_single_epoch
        if self._company is None:
            run(iterator, training, prefix, step_fn, **fit_params)
        elif training:
            run(iterator, training, prefix, step_fn, **fit_params)
            self._take_from_main(*self._statistics())
        else:
            with agreed(self._moment):
                run(iterator, training, prefix, step_fn, **fit_params)

    def notify(self, method_name: str, **cb_kwargs: Any) -> None:
        """Tell the callbacks; between epochs, all processes go on or stop as the main one does."""
        if self._company is None or method_name not in AGREED:
            super().notify(method_name, **cb_kwargs)
            return
        try:
            with agreed(self._moment):
                super().notify(method_name, **cb_kwargs)
        except KeyboardInterrupt:
            self._stop_as_planned()
            raise

    def _stop_as_planned(self) -> None:
        """Let a process whose own callbacks would have gone on know that it was told to stop."""
        for _, callback in self.callbacks_:
            if isinstance(callback, EpochHook) and not self.accelerator.is_main_process:
                callback.has_stopped_ = True

    def save_params(self, *args: Any, **kwargs: Any) -> None:
        """Write in the main process; no process waits, so that one alone may call this."""
        if self.accelerator.is_main_process:
            super(AccelerateMixin, self).save_params(*args, **kwargs)

    def train_step(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Take a step, as without accelerate."""
        return super(AccelerateMixin, self).train_step(batch, **fit_params)

    def train_step_single(self, batch: Any, **fit_params: Any) -> dict[str, Any]:
        """Compute a step's loss and gradients, as without accelerate."""
        return super(AccelerateMixin, self).train_step_single(batch, **fit_params)

    def _step_optimizer(self, step_fn: Any) -> Any:
        return super(AccelerateMixin, self)._step_optimizer(step_fn)

    def evaluation_step(self, batch: Any, training: bool = False) -> Any:
        """Predict a batch: every process has all its rows."""
        return super(AccelerateMixin, self).evaluation_step(batch, training=training)

    def _backward(self, batch: Any, fit_params: dict) -> tuple[LossParts, Tensor]:
        parts, loss = super()._backward(batch, fit_params)
        if self._company is not None:
            self._company.check_first()
        return parts, loss

    def _loss_parts(self, inputs: Any, y: Tensor, weight: Any, fit_params: dict) -> LossParts:
        if self._company is None:
            return super()._loss_parts(inputs, y, weight, fit_params)
        return self._company.loss_parts(inputs, y, weight, fit_params)


class DistributedNet(_Together, MixupENet):
    """``MixupENet`` for programs that ``torchrun`` starts several times.

    Started once, it is a ``MixupENet``. Every process makes the same net, calls ``fit`` with the
    same data, and ends with the same weights. ``batch_size`` counts the rows of all processes.

    Parameters
    ----------
    module : torch.nn.Module class or instance
        As for ``MixupENet``; all its weights take part in its output.
    *args, **kwargs
        As for ``MixupENet``.
    accelerator : accelerate.Accelerator or None, default=None
        None makes one: gloo on the processor, each process its own GPU otherwise.
    device : str, default="cpu"
        Where to compute.
    callbacks__print_log__sink : callable, default=print
        What prints the table of epochs, in the main process.

    Notes
    -----
    What a DataLoader reads is parted by accelerate, which repeats some rows so that all portions
    are of one size; ``batch_size`` is then a multiple of the number of processes. BatchNorm over
    all rows of a batch is torch's ``SyncBatchNorm``, for GPUs, in a module of one's own.

    A process that is lost ends the others within seconds; one that hangs, in ten minutes. Between
    the training parts of epochs all stop where the main process does, and where any one fails.

    Callbacks run in every process. ``save_params`` (skorch's ``Checkpoint``) writes in the main one
    only; a callback that writes by itself should ask ``net.accelerator.is_main_process``.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from mixupe_sklearn._distributed.net import DistributedNet
    >>> X, y = np.eye(10, dtype="float32"), np.arange(10) % 2
    >>> net = DistributedNet(torch.nn.Linear(10, 2), max_epochs=2, verbose=0).fit(X, y)
    >>> net.predict_proba(X).shape
    (10, 2)
    """


class DistributedNetRegressor(_Together, MixupENetRegressor):
    """The same for numbers: ``MixupENetRegressor`` in several processes."""


def distributed_class(net_class: Any) -> Any:
    """The net for several processes that takes the place of one for a single process.

    Examples
    --------
    >>> from mixupe_sklearn import MixupENet
    >>> distributed_class(MixupENet).__name__
    'DistributedNet'
    """
    return DistributedNetRegressor if net_class is MixupENetRegressor else DistributedNet
