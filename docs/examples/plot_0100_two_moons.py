"""
What mixing and the penalty do to a decision boundary
=====================================================

How does the learned function change if a network trains on blends of samples (Mixup), and if a
penalty on the derivative of the loss is added (MixupE)? This example trains one small network in
three ways on the two moons dataset, whose two features show the whole function.
"""

# %%
# Data and networks
# -----------------
# The training set is small, so that the network can overfit. All three networks start from the
# same weights. ``alpha=1`` draws mixing weights uniformly, which is much stronger than the
# defaults of :class:`~mixupe_sklearn.MixupEClassifier`.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.metrics import log_loss

from mixupe_sklearn import MixupEClassifier, preset

X_train, y_train = make_moons(120, noise=0.3, random_state=0)
X_test, y_test = make_moons(5000, noise=0.3, random_state=1)

settings = preset("paper") | {
    "alpha": 1.0,
    "eta": 1.0,
    "lr": 0.01,
    "max_epochs": 300,
    "batch_size": 40,
    "random_state": 0,
}
methods = {"ERM": "erm", "Mixup": "mixup", "MixupE": "mixupe"}
fitted = {
    label: MixupEClassifier(**settings | {"method": method}).fit(X_train, y_train)
    for label, method in methods.items()
}

# %%
# The boundaries
# --------------
# Colours show the probability of the second class. The line marks a probability of one half.

figure, panels = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained", sharey=True)
for axes, (label, classifier) in zip(panels, fitted.items(), strict=True):
    common = {"ax": axes, "grid_resolution": 150, "response_method": "predict_proba", "eps": 0.5}
    display = DecisionBoundaryDisplay.from_estimator(
        classifier, X_train, plot_method="pcolormesh", cmap="RdBu_r", vmin=0, vmax=1, **common
    )
    DecisionBoundaryDisplay.from_estimator(
        classifier, X_train, plot_method="contour", levels=[0.5], colors="black", **common
    )
    for target, colour in ((0, "#1f4e9c"), (1, "#a8201a")):
        axes.scatter(*X_train[y_train == target].T, s=18, color=colour, edgecolor="white", lw=0.6)
    axes.set(xlabel="first feature", ylabel="second feature")
    axes.set_title(f"{label}: test error {1 - classifier.score(X_test, y_test):.1%}")
    axes.label_outer()
figure.colorbar(display.surface_, ax=panels, label="probability of the second class", pad=0.01)

# %%
# In numbers
# ----------
# How confident are the networks on 5,000 test samples, and what does that cost? The log loss
# penalises confident errors.

print("          test error   log loss  mean confidence")
for label, classifier in fitted.items():
    probability = classifier.predict_proba(X_test)
    error = np.mean(classifier.predict(X_test) != y_test)
    loss = log_loss(y_test, probability)
    print(f"{label:7}  {error:10.1%}  {loss:9.3f}  {probability.max(axis=1).mean():15.1%}")

# %%
# What to take from it
# --------------------
# Without mixing, the network bends around single samples and is confident nearly everywhere, even
# where it is wrong. Mixing smooths the boundary and widens the transition between the classes:
# the number of errors is similar, and the log loss is less than half. The penalty moves the
# boundary a little further, with results close to those of Mixup. This is one dataset and one
# seed. It illustrates the effect and does not rank the methods. To compare them on your data, use
# cross-validation as in :ref:`sphx_glr_gallery_plot_0300_search.py`.
