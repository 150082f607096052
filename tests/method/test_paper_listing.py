"""The listing of the paper's appendix, as an independent reference for MixupELoss.

The listing draws a second loader's batch; here the second batch is the permuted first one, as in
the paper's Algorithm 1, and both sides are fed the same lam and partners.
"""

import copy

import numpy as np
import pytest
import torch

from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn.modules import MLP

ALPHA, ETA, BATCH = 1.0, 0.5, 32


def listing_step(net, optimizer, x1, y1, x2, y2, lam):
    """One step of the listing in plain torch, without code of the package."""
    mean_of_lam = (ALPHA + 1) / (ALPHA + 1 + ALPHA)
    log_p = torch.log_softmax(net(lam * x1 + (1.0 - lam) * x2), dim=1)
    loss = -((lam * y1 + (1.0 - lam) * y2) * log_p).sum(dim=1).mean()
    size_before = loss.detach().abs()
    f = net(x1)
    q = torch.sum(f * (y1 - torch.softmax(f, dim=1)), dim=1)
    loss = loss + ETA * (1.0 - mean_of_lam) * q.abs().sum() / len(x1)
    loss = (size_before / loss.detach().abs()) * loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.parametrize("single_pass", [True, False])
def test_fifty_steps_of_the_listing_give_the_same_losses_and_weights(digits, single_pass):
    X = torch.as_tensor(digits[0] - digits[0].mean(axis=0))
    y = torch.as_tensor(digits[1])
    theirs = MLP(64, 10).double()
    ours = copy.deepcopy(theirs)
    their_optimizer = torch.optim.Adam(theirs.parameters(), lr=0.001)
    our_optimizer = torch.optim.Adam(ours.parameters(), lr=0.001)
    criterion = MixupELoss(alpha=ALPHA, eta=ETA, single_pass=single_pass)
    rng = np.random.default_rng(0)
    for step in range(50):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        lam, partner = rng.beta(ALPHA, ALPHA), rng.permutation(BATCH)
        x1, y1 = X[rows], torch.nn.functional.one_hot(y[rows], 10).double()
        their_loss = listing_step(theirs, their_optimizer, x1, y1, x1[partner], y1[partner], lam)
        our_optimizer.zero_grad()
        parts = criterion(ours, x1, y[rows], draw=Draw(lam, partner))
        parts.loss.backward()
        our_optimizer.step()
        assert abs(parts.loss.item() - their_loss) < 1e-9
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (one - other).abs().max() < 1e-8
