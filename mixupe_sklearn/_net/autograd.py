"""Training of nets one after the other, with any module, device and callback."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters
from torch.utils.data import Dataset, Subset

from mixupe_sklearn._data.batches import make_dataset
from mixupe_sklearn._data.rows import CHUNK, MAX_ROWS, ROW_BLOCK, Gathers, Tensors
from mixupe_sklearn._engine.trainer import Epoch, Member
from mixupe_sklearn._method.formulas import glm_loss
from mixupe_sklearn._method.forward import encode_targets, stages_of
from mixupe_sklearn._net.callbacks import user_callbacks
from mixupe_sklearn._net.net import forward_all
from mixupe_sklearn._net.weight_average import MovingAverage
from mixupe_sklearn._runtime.compile import compile_module
from mixupe_sklearn._runtime.torch_state import drop_compiled
from mixupe_sklearn._training.loop import RECORDED
from mixupe_sklearn._utils.warnings import warn_user


class AutogradTrainer:
    """Trains nets in turn by autograd; it has the methods of the engine's ``Trainer``.

    Parameters
    ----------
    members : sequence of Member
        The nets.
    sets : mapping
        Training and validation samples of each net as skorch's datasets, by ``id(net)``.
    n_epochs : int
        Number of epochs that is planned.
    """

    def __init__(self, members: Sequence[Member], sets: Mapping[int, Any], n_epochs: int):
        self.members, self.sets = list(members), dict(sets)
        self.iterators: dict[int, tuple[Any, Any]] = {}
        self.stack = ExitStack()
        for member in self.members:
            net, (train, valid) = member.net, sets[id(member.net)]
            self.stack.enter_context(net.training(train, valid, n_epochs))
            net.check_data(train, None)
            if member.ema_decay is not None:
                net._average = MovingAverage(net.module_, member.ema_decay)
                if member.average is not None:  # of the engine
                    net._average.resume(net.module_, *member.average)
            if _is_table(member) and not user_callbacks(net):
                valid = None  # nobody needs skorch's own validation
            self.sets[id(net)] = train, valid
            # Once, since workers that read samples stay alive.
            self.iterators[id(net)] = (
                net.get_iterator(train, training=True),
                None if valid is None else net.get_iterator(valid, training=False),
            )
            if not member.has_begun:
                member.has_begun = True
                net.notify("on_train_begin", X=train, y=None)

    def is_current(self) -> bool:
        """Return True: the nets themselves are trained."""
        return True

    def together(self) -> Any:
        """Return a context whose end waits for the other processes that train the net."""
        return self.members[0].net.together()

    def begin_epoch(self) -> None:
        """Report that an epoch begins."""
        for member in self.members:
            train, valid = self.sets[id(member.net)]
            member.net.notify("on_epoch_begin", dataset_train=train, dataset_valid=valid)

    def run_epoch(
        self, epoch: int, due: Any = (), deadline: float | None = None
    ) -> dict[int, Epoch]:
        """Run an epoch of every net; return the results by ``id(net)``."""
        return {id(member.net): self._run(member, epoch, due, deadline) for member in self.members}

    def _run(self, member: Member, epoch: int, due: Any, deadline: float | None) -> Epoch:
        net, (iterator, validation) = member.net, self.iterators[id(member.net)]
        if member.factors is not None:
            n_steps = len(iterator)
            net.set_schedule(member.factors[(epoch - 1) * n_steps : epoch * n_steps])
        if net._average is not None:
            net._average.hide(net.module_)
        net._deadline = deadline
        net.run_single_epoch(iterator, training=True, prefix="train", step_fn=net.train_step)
        net.set_schedule(None)
        if net._average is not None:
            net._average.show(net.module_)
        if validation is not None:
            step = net.validation_step
            net.run_single_epoch(validation, training=False, prefix="valid", step_fn=step)
        losses = None
        if id(net) in due and _is_table(member):
            losses = validation_losses(member)
        elif id(net) in due:
            batches = net.history[-1]["batches"]
            pairs = [(b["valid_loss"], b["valid_batch_size"]) for b in batches if "valid_loss" in b]
            means, sizes = np.array(pairs).T
            losses = np.array([np.average(means, weights=sizes)])
        rows = [row for row in net.history[-1]["batches"] if RECORDED[0] in row]
        values = np.array([[row[name] for name in RECORDED] for row in rows])
        return Epoch(values.reshape(-1, 4), [row["train_batch_size"] for row in rows], losses)

    def end_epoch(self, net: Any, result: Epoch, row: dict[str, Any]) -> bool:
        """Call the callbacks of a net; return whether one of them ends its training."""
        train, valid = self.sets[id(net)]
        try:
            net.notify("on_epoch_end", dataset_train=train, dataset_valid=valid)
        except KeyboardInterrupt:  # callbacks of skorch raise it to stop
            if not user_callbacks(net):
                raise
            return True
        finally:
            net.history[-1].update(row)
            net.history[-1]["batches"] = []
        return False

    def keep(self, nets: Iterable[Any]) -> None:
        """Keep the current weights of some nets as their best."""
        wanted = {id(net) for net in nets}
        for member in self.members:
            if id(member.net) in wanted:
                member.best = copy.deepcopy(member.net.module_.state_dict())

    def restore_best(self, nets: Iterable[Any]) -> None:
        """Restore the best weights of some nets, if they have kept some."""
        wanted = {id(net) for net in nets}
        for member in self.members:
            if id(member.net) in wanted and member.best is not None:
                if member.net._average is not None:
                    member.net._average.show(member.net.module_)
                if isinstance(member.best, Tensor):  # of the engine
                    vector_to_parameters(member.best, member.net.module_.parameters())
                else:
                    member.net.module_.load_state_dict(member.best)

    def remove(self, nets: Iterable[Any]) -> None:
        """Train some nets no longer."""
        ended = {id(net) for net in nets}
        for member in self.members:
            if id(member.net) in ended:
                self._end(member)
        self.members = [member for member in self.members if id(member.net) not in ended]

    def _end(self, member: Member) -> None:
        net = member.net
        if net.history and RECORDED[0] not in net.history[-1]:
            net.history.pop()  # an interrupted epoch leaves no record
        net.set_schedule(None)
        if net._average is not None:
            net._average.show(net.module_)
        for name in ("_average", "_deadline"):
            vars(net).pop(name, None)
        net.notify("on_train_end", X=self.sets[id(net)][0], y=None)
        drop_compiled(net.module_)

    def close(self, is_over: bool = True) -> None:
        """End the training of each net."""
        with self.stack:
            self.remove([member.net for member in self.members])


def datasets_of(member: Member) -> tuple[Any, Any]:
    """Return the training and the validation samples of a net as skorch's datasets."""
    train, valid = make_dataset(*member.tensors), None
    if member.held_out is not None:
        is_part = member.held_out is member.tensors
        valid = train if is_part else make_dataset(*member.held_out)
        # Arrays, though Subset's type asks for a sequence: a list of many integers is large.
        valid = valid if member.fold is None else Subset(valid, cast(Any, member.fold))
    return train if member.rows is None else Subset(train, cast(Any, member.rows)), valid


def _is_table(member: Member) -> bool:
    """Return whether the losses of single validation samples can be computed from arrays."""
    X = (member.held_out or member.tensors)[0]
    is_array = isinstance(X, (Tensor, Gathers)) and len(X.shape) == 2
    return is_array and member.net._prepare is None


def validation_losses(member: Member) -> np.ndarray:
    """Return the loss of each validation sample of a net, in chunks."""
    X, y, _ = member.held_out or member.tensors
    fold = np.arange(len(y)) if member.fold is None else member.fold
    head, parts = member.net.criterion_.head, []
    size = max(ROW_BLOCK, min(MAX_ROWS, CHUNK // max(1, X.shape[1])))
    with torch.inference_mode():
        for index in torch.from_numpy(fold).split(size):
            logits = forward_all([member.net], X[index])[0]
            target = encode_targets(y[index].cpu(), logits, head)
            parts.append(glm_loss(logits, target, None, head)[0])
    return torch.cat(parts).numpy()


def compile_net(net: Any, tensors: Tensors) -> None:
    """Compile the modules of a training step, after a trial with the first two samples."""
    module, criterion = net.module_, copy.deepcopy(net.criterion_)  # its draws are for training
    is_exact = criterion.penalty == "directional" or criterion.penalty_order == 2
    if criterion.has_penalty and is_exact:
        named = "penalty='directional'" if criterion.penalty_order == 1 else "penalty_order=2"
        warn_user(
            f"Got compile=True with {named}, whose second derivatives a compiled module does not "
            f"have; the module runs as it is."
        )
        return
    X, y = (few.to(torch.device(net.device)) for few in (first_rows(tensors[0]), tensors[1][:2]))
    X = net._prepared(X, training=True)
    # Mixing between stages calls them one by one.
    parts = stages_of(module) if criterion.mix_at == "hidden" else [module]
    compile_module(
        module,
        [part for part in parts if isinstance(part, torch.nn.Module)],
        lambda: criterion(module.train(), X, y).loss.backward(),
    )


def first_rows(X: Any) -> Any:
    """Return the first two samples, for a trial; those of a Dataset are read and stacked."""
    if not isinstance(X, Dataset):
        return X[:2]
    return torch.stack([X[number] for number in range(min(2, len(X)))])  # type: ignore[arg-type]
