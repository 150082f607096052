"""
The loss alone, in a plain torch loop
=====================================

What is added to a training loop of your own, and what do the parts of the loss do while it runs?
:class:`~mixupe_sklearn.MixupELoss` takes a module and a batch, and returns the loss and what it
is made of. Everything else stays as it was.
"""

# %%
# The loop
# --------
# Any module will do. The inputs are centred, which the derivation of the penalty asks for; the
# estimators of this package do that by themselves, a plain loop has to.

import matplotlib.pyplot as plt
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from mixupe_sklearn import MixupELoss

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = (
    torch.as_tensor(part) for part in train_test_split(X / 16, y, test_size=0.4, random_state=0)
)
centre = X_train.mean(dim=0)
X_train, X_test = (X_train - centre).float(), (X_test - centre).float()


def train(eta, n_epochs=40):
    """A usual loop; the two lines that are new are those with the criterion."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003)
    criterion = MixupELoss(alpha=0.5, eta=eta, random_state=0)  # in the place of a loss
    steps = []
    for epoch in range(n_epochs):
        for rows in torch.randperm(len(X_train)).split(100):
            parts = criterion(module, X_train[rows], y_train[rows])  # it runs the module itself
            optimizer.zero_grad()
            parts.loss.backward()
            optimizer.step()
            steps.append(
                {
                    "epoch": epoch,
                    "mixup_loss": parts.mixup_loss.item(),
                    "penalty_term": parts.penalty_term.item(),
                    "loss_scale": parts.loss_scale.item(),
                    "loss": parts.loss.item(),
                }
            )
    with torch.no_grad():
        logits = module(X_test)
    accuracy = (logits.argmax(dim=1) == y_test).double().mean().item()
    return pd.DataFrame(steps), accuracy, nn.functional.cross_entropy(logits, y_test).item()


runs = {}
for eta in (0.01, 1.0, 10.0):
    runs[eta], accuracy, loss = train(eta)
    print(f"eta={eta:<5}: test accuracy {accuracy:.3f}, log loss {loss:.3f}")

# %%
# The parts of the loss
# ---------------------
# Thin lines are single steps, thick ones means over an epoch. The Mixup loss jumps from step to
# step, since each step has a ``lam`` of its own. ``loss_scale`` brings ``mixup_loss + eta *
# penalty_term`` back to the size of the Mixup loss, so that a learning rate that suits Mixup
# suits MixupE: the loss that is differentiated is always as large as ``mixup_loss``.

figure, panels = plt.subplots(1, 3, figsize=(12, 3.7), layout="constrained")
for (eta, steps), colour in zip(runs.items(), ("#6b7280", "#b45309", "#7c3aed"), strict=True):
    means = steps.groupby("epoch").mean()
    middle = steps.reset_index().groupby("epoch")["index"].mean()
    for axes, name in zip(panels, ("mixup_loss", "penalty_term", "loss_scale"), strict=True):
        axes.plot(steps[name], color=colour, alpha=0.2, lw=0.7)
        axes.plot(middle, means[name], color=colour, lw=2, label=f"eta = {eta:g}")
        axes.set(xlabel="step")
        axes.set_title(name)
        axes.grid(alpha=0.25)
panels[1].legend()

last = runs[1.0].iloc[-1]
print(f"of the last step: loss {last['loss']:.4f}, mixup_loss {last['mixup_loss']:.4f}")

# %%
# What to take from it
# --------------------
# One object takes the place of the loss, and returns the parts to be logged. With ``eta=0.01``
# the penalty is there and counts for little; with ``eta=1`` it is lower, at the same Mixup loss.
# With ``eta=10``, ten times the end of the paper's grid, nothing is learned: the penalty is all
# but zero, and so is the accuracy. Both go together. The penalty of a row is zero where the logit
# of its class equals the mean of all logits under the predicted probabilities, and such a mean
# lies below the largest logit. So watch ``penalty_term`` beside ``mixup_loss``: a penalty near
# zero beside a loss that does not fall means that ``eta`` is too large.
