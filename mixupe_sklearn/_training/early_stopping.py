"""Early stopping of an ensemble: the best epoch of each group, and the weight of each group."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixupe_sklearn._data.rows import CHUNK, MAX_ROWS, ROW_BLOCK, Tensors, ValidationFolds
from mixupe_sklearn._method.forward import encode_targets
from mixupe_sklearn._method.glm import glm_loss
from mixupe_sklearn._training.config import n_groups


class GroupEarlyStopping:
    """Evaluates the members on their validation folds and keeps the best weights of each group.

    Members of one ``alpha`` and ``eta`` form a group. Each group has its own best epoch, since
    strong mixing needs more epochs than weak mixing.

    Parameters
    ----------
    nets : list of MixupENet
        The members; member ``i`` belongs to group ``i % n_groups``.
    folds : ValidationFolds
        The validation samples of each member.
    tensors : tuple
        Inputs, targets and weights of the folds' samples.
    settings : mapping
        Parameters of the estimator. Without ``early_stopping``, losses are measured and no weights
        are kept.
    forward : callable
        ``forward(nets, X)`` returns the logits of all members, (n_members, n_rows, n_outputs).
    """

    def __init__(
        self,
        nets: list[Any],
        folds: ValidationFolds,
        tensors: Tensors,
        settings: Mapping[str, Any],
        forward: Callable[[list[Any], Tensor], Tensor],
    ):
        self.nets, self.n_groups, self.forward = nets, n_groups(settings), forward
        self.is_active = settings["early_stopping"]
        self.patience, self.tol = settings["n_iter_no_change"], settings["tol"]
        self.X, self.y, weight = tensors
        self.index = torch.from_numpy(np.stack(folds.index))
        self.weight = None if weight is None else weight.cpu()[self.index].double().numpy()
        with torch.inference_mode():
            one = forward(nets[:1], self.X[self.index[0, :1]])
        self.width = max(1, self.X.shape[1], one.shape[2])  # the wider of inputs and outputs
        self.best_loss = np.full(self.n_groups, np.inf)
        self.best_losses = np.zeros(tuple(self.index.shape))
        self.best_states: list[Any] = [None] * len(nets)
        self.n_misses = 0

    @property
    def wants_stop(self) -> bool:
        """True if no group improved for ``n_iter_no_change`` evaluations."""
        return self.is_active and self.n_misses >= self.patience

    def evaluate(self) -> float:
        """Measure the validation loss of all members; keep the weights of groups at their best."""
        losses, weight = self._losses(), self.weight
        has_progress = False
        for group in range(self.n_groups if self.is_active else 0):
            own = slice(group, None, self.n_groups)
            loss = np.average(losses[own], weights=None if weight is None else weight[own])
            has_progress |= loss < self.best_loss[group] - self.tol
            if loss < self.best_loss[group]:
                self.best_loss[group], self.best_losses[own] = loss, losses[own]
                self.best_states[own] = [_copied_state(net.module_) for net in self.nets[own]]
        self.n_misses = 0 if has_progress else self.n_misses + 1
        return float(np.average(losses, weights=weight))

    def _losses(self) -> np.ndarray:
        """Loss of each validation sample of each member, (n_members, n_rows), in chunks."""
        head, parts = self.nets[0].criterion_.head, []
        most = min(MAX_ROWS, CHUNK // self.width)  # of all members together
        size = max(ROW_BLOCK, most // len(self.nets))
        with torch.inference_mode():
            for index in self.index.split(size, dim=1):
                rows = index.flatten()
                logits = self.forward(self.nets, self.X[rows].view(*index.shape, -1))
                target = encode_targets(self.y[rows].cpu(), logits.flatten(0, 1), head)
                parts.append(glm_loss(logits, target.view_as(logits), None, head)[0])
        return torch.cat(parts, dim=1).numpy()

    def finish(self) -> np.ndarray:
        """Restore the best weights of all members; return the members' weights, which sum to 1."""
        for net, state in zip(self.nets, self.best_states, strict=True):
            if state is not None:
                net.module_.load_state_dict(state)
        # All groups share the samples of a fold; the last fold may lack some groups.
        n_whole = len(self.nets) // self.n_groups * self.n_groups
        n_rows = self.best_losses.shape[1]
        by_fold = self.best_losses[:n_whole].reshape(-1, self.n_groups, n_rows)
        losses = by_fold.swapaxes(0, 1).reshape(self.n_groups, -1)
        if self.nets[0].criterion_.head == "squared":  # of a normal distribution
            losses = losses / max(2 * losses.mean(axis=1).min(), np.finfo(float).tiny)
        weight = None if self.weight is None else self.weight[: n_whole : self.n_groups].ravel()
        group = np.arange(len(self.nets)) % self.n_groups
        return (stacking_weights(losses, weight) / np.bincount(group))[group]


def _copied_state(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def stacking_weights(losses: np.ndarray, weight: Any = None, n_rounds: int = 50) -> np.ndarray:
    """Weights of a mixture of groups that make the held-out samples likely.

    Each round of expectation maximisation raises the likelihood. The rounds start from equal
    weights and stop early, which keeps groups that are nearly as good as the best: on few samples,
    small differences are chance.

    Parameters
    ----------
    losses : array of shape (n_groups, n_samples)
        Negative log-likelihood of each sample under each group.
    weight : array of shape (n_samples,) or None, default=None
        Weights of the samples.
    n_rounds : int, default=50
        Number of rounds.

    Examples
    --------
    >>> import numpy as np
    >>> stacking_weights(np.array([[0.1, 0.1, 3.0], [2.0, 2.0, 2.9]])).round(1)
    array([1., 0.])
    """
    likelihood = np.exp(losses.min(axis=0) - losses)
    weights = np.full(len(losses), 1 / len(losses))
    for _ in range(n_rounds if len(losses) > 1 else 0):
        share = weights[:, None] * likelihood
        weights = np.average(share / share.sum(axis=0), axis=1, weights=weight)
    return weights
