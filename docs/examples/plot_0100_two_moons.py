"""
What mixing and the penalty do to a decision boundary
=====================================================

How does the function that a network learns change, if it is trained on blends of rows (Mixup),
and if a penalty on the derivative of the loss comes on top (MixupE)? Two features are enough to
see all of it: here are two moons with noise, and one small network trained in three ways.
"""

# %%
# Data and networks
# -----------------
# The training set is small on purpose, so that there is something to overfit. All three networks
# begin with the same weights; ``alpha=1`` draws every mixing weight with equal likelihood, which
# is much stronger than the defaults of :class:`~mixupe_sklearn.MixupEClassifier`.

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
# Colours are the probability of the second class, the line is where it is a half.

figure, panels = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained", sharey=True)
for axes, (label, classifier) in zip(panels, fitted.items(), strict=True):
    common = {"ax": axes, "grid_resolution": 150, "response_method": "predict_proba", "eps": 0.5}
    display = DecisionBoundaryDisplay.from_estimator(
        classifier, X_train, plot_method="pcolormesh", cmap="RdBu_r", vmin=0, vmax=1, **common
    )
    DecisionBoundaryDisplay.from_estimator(
        classifier, X_train, plot_method="contour", levels=[0.5], colors="black", **common
    )
    for own, colour in ((0, "#1f4e9c"), (1, "#a8201a")):
        axes.scatter(*X_train[y_train == own].T, s=18, color=colour, edgecolor="white", lw=0.6)
    axes.set(xlabel="first feature", ylabel="second feature")
    axes.set_title(f"{label}: test error {1 - classifier.score(X_test, y_test):.1%}")
    axes.label_outer()
figure.colorbar(display.surface_, ax=panels, label="probability of the second class", pad=0.01)

# %%
# In numbers
# ----------
# How sure are the networks, and what does that cost on 5,000 fresh rows? The log loss charges a
# wrong answer by the certainty with which it was given.

print("          test error   log loss   mean certainty")
for label, classifier in fitted.items():
    probability = classifier.predict_proba(X_test)
    error = np.mean(classifier.predict(X_test) != y_test)
    loss = log_loss(y_test, probability)
    print(f"{label:7}  {error:10.1%}  {loss:9.3f}  {probability.max(axis=1).mean():15.1%}")

# %%
# What to take from it
# --------------------
# Trained without mixing, the network bends around single rows and is sure of itself nearly
# everywhere, also where it is wrong. Mixing makes the boundary smoother and the change from one
# class to the other wider: the errors are about as many, and the log loss is less than half. The
# penalty moves the boundary a little further; its numbers are close to those of Mixup. This is
# one training set with one seed: it shows the kind of change, and does not tell which method is
# better on your data. For that, compare them by cross-validation, as in
# :ref:`sphx_glr_gallery_plot_0300_search.py`.
