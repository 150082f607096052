"""
The loss in a plain torch loop
==============================

What changes in your own training loop, and how do the parts of the loss develop?
:class:`~mixupe_sklearn.MixupELoss` takes a module and a batch, and returns the loss and its parts.
The rest of the loop stays the same.
"""

# %%
# The loop
# --------
# Any module works. The penalty assumes centred inputs. The estimators of this package centre them;
# in a plain loop you do it yourself.

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
    """A standard loop; only the two lines with the criterion are new."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.003)
    criterion = MixupELoss(alpha=0.5, eta=eta, random_state=0)  # replaces the loss function
    steps = []
    for epoch in range(n_epochs):
        for index in torch.randperm(len(X_train)).split(100):
            parts = criterion(module, X_train[index], y_train[index])  # runs the module
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
# Thin lines show single steps, thick lines means over an epoch. The Mixup loss varies from step to
# step, because each step draws its own ``lam``. ``loss_scale`` rescales ``mixup_loss + eta *
# penalty_term`` to the size of the Mixup loss, so a learning rate that suits Mixup suits MixupE.

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
print(f"last step: loss {last['loss']:.4f}, mixup_loss {last['mixup_loss']:.4f}")

# %%
# What to take from it
# --------------------
# One object replaces the loss function and returns the parts for logging. With ``eta=0.01`` the
# penalty has little influence. With ``eta=1`` it is lower, at the same Mixup loss. With
# ``eta=10``, ten times the end of the paper's grid, the network learns nothing: penalty and
# accuracy are both near zero. The penalty of a sample is zero where the logit of its class equals
# the mean of all logits under the predicted probabilities, and that mean lies below the largest
# logit. Monitor ``penalty_term`` and ``mixup_loss`` together: a penalty near zero with a loss that
# does not fall means that ``eta`` is too large.
