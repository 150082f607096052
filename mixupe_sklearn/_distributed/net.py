"""One network, trained by several processes that ``torchrun`` started.

Each process runs its shard of every batch (``sharding.py``), and torch's DistributedDataParallel
averages the gradients. accelerate sets it up. With data in memory, all processes hold all samples
and make the same draws, so the weights equal those of one process up to rounding. A DataLoader
reads only the samples of its process. ``lam`` is then the same in all processes, and partners come
from the same shard, as for ``mix_at="hidden"``.

Two things differ from one process. BatchNorm sees the samples of its own process, and its running
statistics are those of the main process. Each process draws its own dropout masks.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.utils.data import DataLoader

from mixupe_sklearn._data.batches import Batches
from mixupe_sklearn._distributed.preflight import (
    check_batch_norm,
    check_supported,
    data_of,
    settings_of,
)
from mixupe_sklearn._distributed.process_group import (
    Launched,
    check_same,
    is_distributed,
    join,
    report_lost_process,
    synchronised,
    total_over_all,
)
from mixupe_sklearn._distributed.sharding import Shard, sharded_loss
from mixupe_sklearn._method.criterion import LossParts
from mixupe_sklearn._net.net import MixupENet, has_batch_norm
from mixupe_sklearn._net.weight_average import PolyakAverage
from mixupe_sklearn._runtime.torch_state import new_seed
from mixupe_sklearn._training.loop import Stop

# Events after which all processes synchronise.
SYNCHRONISED = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_end")


class _Step(nn.Module):
    """Module and criterion as one module, so that torch sees a single forward pass."""

    def __init__(self, module: nn.Module, criterion: nn.Module, shard: Shard):
        super().__init__()
        self.module = module
        self.criterion = criterion
        self.shard = shard

    def forward(self, *args: Any, **kwargs: Any) -> LossParts:
        return sharded_loss(self.criterion, self.shard, self.module, *args, **kwargs)


class _ProcessGroup:
    """The processes that train a network together, during training."""

    def __init__(self, accelerator: Any, module: nn.Module, criterion: nn.Module, seed: int):
        self.shard = Shard(accelerator.process_index, accelerator.num_processes, total_over_all)
        self.step = _Step(module, criterion, self.shard)
        self.shared_step = accelerator.prepare(self.step)  # averages gradients
        # Whether a batch holds the samples of all processes.
        self.has_whole_batches = True
        # For draws that concern the samples of one process alone, such as dropout.
        self.rng = np.random.default_rng([seed, self.shard.rank])

    def loss_parts(self, inputs: Any, y: Tensor, weight: Any, fit_params: dict) -> LossParts:
        """Run the shard of this process."""
        self.step.shard = self.shard
        if not self.has_whole_batches:
            sizes = torch.zeros(self.shard.n_shards, dtype=torch.long, device=y.device)
            sizes[self.shard.rank] = len(y)
            self.step.shard = self.shard._replace(sizes=tuple(total_over_all(sizes).tolist()))
        with self.own_draws(y.device):
            return self.shared_step(inputs, y, weight, **fit_params)

    @contextmanager
    def own_draws(self, device: torch.device) -> Iterator[None]:
        """Draw from an own seed, then restore: shards of unequal size draw unequally often."""
        seed, is_cuda = new_seed(self.rng), device.type == "cuda"
        with torch.random.fork_rng(devices=[device] if is_cuda else []):
            torch.default_generator.manual_seed(seed)
            if is_cuda:
                torch.cuda.manual_seed(seed)
            yield


class DistributedNet(MixupENet):
    """``MixupENet`` for programs that ``torchrun`` starts in several processes.

    In a single process it is a ``MixupENet``. Every process creates the same net, calls ``fit``
    with the same data, and ends with the same weights. ``batch_size`` counts the samples of all
    processes. All weights of the module must affect its output.

    Notes
    -----
    accelerate shards what a DataLoader reads and repeats some samples so that all shards have the
    same size; ``batch_size`` must then be a multiple of the number of processes. For BatchNorm over
    all samples of a batch, use torch's ``SyncBatchNorm`` (GPUs only) in your module.

    A lost process ends the others within seconds, a hanging one within ten minutes. Between the
    training parts of epochs, all processes stop if the main one does, or if any one fails.

    Callbacks run in every process. ``save_params`` (skorch's ``Checkpoint``) writes in the main
    process only. A callback that writes files should check ``net.accelerator.is_main_process``.
    The processes talk by gloo on the CPU; otherwise each has one GPU.
    """

    verbose: int
    # During training, the accelerator of all processes.
    accelerator: Any = Launched()
    # The processes of the current training.
    _group: _ProcessGroup | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "accelerator": Launched()}

    def initialize(self) -> Any:
        """Initialise, after joining the other processes, which decides the GPU of each."""
        self._join()
        return super().initialize()

    def _join(self) -> Any:
        return join(torch.device(self.device).type) if is_distributed() else Launched()

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None, **fit_params
    ) -> Any:
        """Continue training with the other processes; see ``MixupENet.partial_fit``."""
        if not self.initialized_:
            self.initialize()
        epochs = fit_params.get("epochs")
        with self._joined(self.max_epochs if epochs is None else epochs):
            return super().partial_fit(X, y, classes, sample_weight, **fit_params)

    @contextmanager
    def training(self, train: Any, valid: Any, n_epochs: int) -> Iterator[None]:
        """Run a block that trains this net with the other processes."""
        with self._joined(n_epochs):
            if self._group is not None:
                check_same(data_of(train, valid))
            yield

    @contextmanager
    def _joined(self, n_epochs: int) -> Iterator[None]:
        found, verbose = self.accelerator, self.verbose
        self.accelerator = self._join()
        try:
            if self.accelerator.num_processes == 1:
                yield
                return
            self.verbose = verbose if self.accelerator.is_main_process else 0
            with self._grouped(n_epochs):
                yield
                self._copy_from_main(*self.module_.parameters(), *self._statistics())
        finally:
            self.accelerator, self.verbose = found, verbose

    @contextmanager
    def together(self) -> Iterator[None]:
        """Wait for the other processes; all of them continue or stop with the main one."""
        if self._group is None:
            yield
            return
        try:
            with synchronised(self._when):
                yield
        except KeyboardInterrupt as error:
            raise Stop from error

    @contextmanager
    def _grouped(self, n_epochs: int) -> Iterator[None]:
        try:
            with report_lost_process(self._when):
                check_same(settings_of(self, n_epochs))
                check_supported(self)
                seed = self._share_generators()
                self._group = _ProcessGroup(self.accelerator, self.module_, self.criterion_, seed)
                self._n_processes = self.accelerator.num_processes
                yield
        finally:
            self._n_processes, self._group = 1, None
            self.accelerator.free_memory()

    def _when(self) -> str:
        return f"in epoch {len(self.history)}" if self.history else "before training"

    def _share_generators(self) -> int:
        """Copy the generators of the main process for joint draws; return a seed from them."""
        order = self.get_params_for("iterator_train").get("random_state")
        own = (getattr(self.criterion_, "rng", None), order)
        rngs = [rng for rng in own if isinstance(rng, np.random.Generator)]
        is_cuda = torch.device(self.device).type == "cuda"
        on_device = torch.cuda.get_rng_state(self.device) if is_cuda else None
        states = [rng.bit_generator.state for rng in rngs]
        found: list[Any] = [states, torch.get_rng_state(), on_device]
        dist.broadcast_object_list(found, src=0)
        states, on_cpu, on_device = found
        for rng, state in zip(rngs, states, strict=True):
            rng.bit_generator.state = state
        torch.set_rng_state(on_cpu)
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, self.device)
        return zlib.crc32(on_cpu.numpy().tobytes())

    def _copy_from_main(self, *tensors: Tensor) -> None:
        with torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def _statistics(self) -> list[Tensor]:
        """Tensors that each process updates from its own samples; the main process's count."""
        callbacks = [callback for _, callback in self.callbacks_]
        averages = [item for item in callbacks if isinstance(item, PolyakAverage)]
        return [*self.module_.buffers(), *(tensor for item in averages for tensor in item.tensors_)]

    def _prepared(self, inputs: Any, training: bool) -> Any:
        if not training or self._group is None or self._group.has_whole_batches:
            return super()._prepared(inputs, training)
        with self._group.own_draws(torch.device(self.device)):
            return super()._prepared(inputs, training)

    def get_iterator(self, dataset: Any, training: bool = False) -> Any:
        """All samples of each batch if they are in memory, else those of this process."""
        iterator = super().get_iterator(dataset, training=training)
        if not training or self._group is None:
            return iterator
        self._group.has_whole_batches = not isinstance(iterator, DataLoader)
        if self._group.has_whole_batches:
            if isinstance(iterator, Batches) and has_batch_norm(self.module_):
                check_batch_norm(self.criterion_, min(iterator.sizes()), self._n_processes)
            return iterator
        if iterator.batch_size is not None and iterator.batch_size % self._n_processes:
            raise ValueError(
                f"Got batch_size={iterator.batch_size} for {self._n_processes} processes that "
                f"read their own samples, but expected a multiple of {self._n_processes}."
            )
        return self.accelerator.prepare(iterator)

    def n_batches(self, dataset: Any) -> int:
        """Number of steps of an epoch in the processes that will share it."""
        found = self._n_processes
        try:
            self._n_processes = self._join().num_processes
            return super().n_batches(dataset)
        finally:
            self._n_processes = found

    def get_split_datasets(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Training and validation samples, the same in all processes."""
        train, valid = super().get_split_datasets(X, y, **fit_params)
        if self._group is not None:
            check_same(data_of(train, valid))
        return train, valid

    def run_single_epoch(
        self, iterator: Any, training: bool, prefix: str, step_fn: Any, **fit_params: Any
    ) -> None:
        """Run an epoch; after training, all processes copy the statistics of the main one."""
        is_alone = self._group is None or training
        with nullcontext() if is_alone else synchronised(self._when):
            super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
        if training and self._group is not None:
            self._copy_from_main(*self._statistics())

    def notify(self, method_name: str, **cb_kwargs: Any) -> None:
        """Call the callbacks; between epochs, all processes continue or stop with the main one."""
        if self._group is None or method_name not in SYNCHRONISED:
            super().notify(method_name, **cb_kwargs)
            return
        with synchronised(self._when):
            super().notify(method_name, **cb_kwargs)

    def save_params(self, *args: Any, **kwargs: Any) -> None:
        """Write in the main process; no process waits, so one alone may call this."""
        if self.accelerator.is_main_process:
            super().save_params(*args, **kwargs)

    def _loss_parts(self, inputs: Any, y: Tensor, weight: Any, fit_params: dict) -> LossParts:
        if self._group is None:
            return super()._loss_parts(inputs, y, weight, fit_params)
        return self._group.loss_parts(inputs, y, weight, fit_params)
