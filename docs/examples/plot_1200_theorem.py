"""
The Mixup loss, order by order
==============================

The paper's first theorem writes the Mixup loss as the loss of clean samples plus directional
derivatives of all orders. How large is each of them for a trained network?
"""

# %%
# The theorem assumes a smooth network, so this one uses tanh. Any estimator of this package works,
# and so does a pipeline that ends with one.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import MixupEClassifier, preset
from mixupe_sklearn.diagnostics import directional_derivatives


class Tanh(torch.nn.Sequential):
    def __init__(self, n_features, n_outputs):
        hidden, out = torch.nn.Linear(n_features, 32), torch.nn.Linear(32, n_outputs)
        super().__init__(hidden, torch.nn.Tanh(), out)


X, y = load_wine(return_X_y=True)
settings = preset("paper") | {"module": Tanh, "alpha": 0.5, "batch_size": 20, "random_state": 0}
model = make_pipeline(StandardScaler(), MixupEClassifier(**settings)).fit(X, y)

# %%
# The bars show the terms and the remainder. ``reach`` below one moves the partner of each sample
# closer, and the series converges quickly. With full steps it does not, at these orders.

orders = np.arange(1, 6)
figure, axes = plt.subplots(1, 2, figsize=(10.4, 3.8), layout="constrained")
for ax, reach in zip(axes, (1.0, 0.25), strict=True):
    parts = directional_derivatives(model, X, y, order=5, reach=reach)
    ax.bar(orders - 0.2, parts.terms, width=0.4, color="#0072b2", label="term")
    ax.bar(orders + 0.2, parts.remainders, width=0.4, color="#e69f00", label="remainder")
    ax.axhline(0, color="#b0b0b0", linewidth=1)
    ax.set(xlabel="order", title=f"reach {reach:g}", xticks=orders)
    print(f"reach {reach:g}: clean loss {parts.standard_loss:.3f}, Mixup {parts.mixup_loss:.3f}")
axes[0].set_ylabel("part of the Mixup loss")
axes[0].legend(frameon=False)

# %%
# The first term is the mean of ``q`` times E[1 - lam]. The method replaces ``q`` by ``q_hat``,
# which needs no derivative. The plot compares them per sample.

parts = directional_derivatives(model, X, y, order=1)
figure, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
ax.scatter(parts.q, parts.q_hat, s=16, color="#0072b2", alpha=0.6)
ends = np.array([min(parts.q.min(), parts.q_hat.min()), max(parts.q.max(), parts.q_hat.max())])
ax.plot(ends, ends, color="#b0b0b0", linewidth=1)
ax.set(xlabel="q (exact derivative)", ylabel="q_hat (from the logits)")
print(f"correlation {np.corrcoef(parts.q, parts.q_hat)[0, 1]:.2f}")

# %%
# What to take from it
# --------------------
# The expansion holds, and its terms decay for a small reach. For full steps, which Mixup takes, the
# first term is not the largest here. With tanh and biases ``q_hat`` exceeds ``q`` for most
# samples. The two are equal only for a ReLU network without biases.
