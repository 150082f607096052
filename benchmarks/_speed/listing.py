"""The listing of the paper's appendix in a bare torch loop, with the whole table in memory."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot


def listing_loss(
    module: nn.Module,
    clean: tuple[Tensor, Tensor],
    others: tuple[Tensor, Tensor],
    lam: float,
    alpha: float,
    eta: float,
) -> Tensor:
    """Loss of a step as the listing has it.

    Parameters
    ----------
    module : torch.nn.Module
        Gives logits.
    clean, others : pair of Tensor
        Rows and one-hot targets; those of the partners.
    lam : float
        The mixing weight of this step.
    alpha, eta : float
        Parameter of the Beta distribution, and weight of the penalty.
    """
    X, y = (lam * one + (1.0 - lam) * other for one, other in zip(clean, others, strict=True))
    mixup_loss = cross_entropy(module(X), y)
    logits = module(clean[0])
    q = ((clean[1] - torch.softmax(logits, dim=1)) * logits).sum(dim=1)
    share = 1.0 - (alpha + 1) / (2 * alpha + 1)
    total = mixup_loss + eta * share * q.abs().sum() / len(logits)
    return total * (mixup_loss.detach().abs() / total.detach().abs())


def train_listing(
    module: nn.Module,
    X: Tensor,
    y: Tensor,
    *,
    batch: int,
    epochs: int,
    lr: float,
    alpha: float,
    eta: float,
) -> None:
    """Train with the listing; partners are a permutation of the batch, as in Algorithm 1."""
    optimizer = torch.optim.Adam(module.parameters(), lr=lr)
    targets = one_hot(y).float()
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(batch):
            clean = X[rows], targets[rows]
            partner = torch.randperm(len(rows))
            others = clean[0][partner], clean[1][partner]
            lam = np.random.beta(alpha, alpha)
            loss = listing_loss(module, clean, others, lam, alpha, eta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
