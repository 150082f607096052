"""
Images, mixed images, and the errors
====================================

What does a convolutional network see when it trains with MixupE, and what does it predict for a
blend of two images? :class:`~mixupe_sklearn.MixupEImageClassifier` takes arrays of images. This
example trains a very small residual network on scikit-learn's digits.
"""

# %%
# Images and blends
# -----------------
# The data are 1,797 images of 8 x 8 pixels with values from 0 to 16. A blend is ``lam`` times one
# image plus ``1 - lam`` times its partner, and its target has the same shares. As in training,
# ``lam`` is drawn from Beta(1, 1), the uniform distribution.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mixupe_sklearn import MixupEImageClassifier

digits = load_digits()
X_train, X_test, y_train, y_test = train_test_split(
    digits.images, digits.target, train_size=800, stratify=digits.target, random_state=0
)

rng = np.random.default_rng(1)
figure, panels = plt.subplots(3, 7, figsize=(10, 4.6), layout="constrained")
for column in panels.T:
    first, partner = rng.choice(len(X_train), size=2, replace=False)
    lam = rng.beta(1.0, 1.0)
    blend = lam * X_train[first] + (1 - lam) * X_train[partner]
    shown = (X_train[first], X_train[partner], blend)
    shares = f"{lam:.0%} {y_train[first]}, {1 - lam:.0%} {y_train[partner]}"
    titles = (y_train[first], y_train[partner], shares)
    for axes, image, title in zip(column, shown, titles, strict=True):
        axes.imshow(image, cmap="gray_r", vmin=0, vmax=16)
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()

# %%
# Training
# --------
# The network is a small PreActResNet-18: two groups of one block, the first with eight channels.
# ``value_range`` defines black and white.

classifier = MixupEImageClassifier(
    module_params={"width": 8, "blocks": (1, 1)},
    value_range=(0, 16),
    lr=0.01,
    batch_size=40,
    max_epochs=12,
    random_state=0,
)
classifier.fit(X_train, y_train)
n_weights = sum(weight.numel() for weight in classifier.net_.module_.parameters())
print(f"{n_weights:,} weights, test accuracy {classifier.score(X_test, y_test):.3f}")

# %%
# Predictions for blends
# ----------------------
# A network trained on blends should predict the shares of a blend. Here 60 pairs of test images,
# each a three and a seven, are blended with weights from 0 to 1. The line shows the mean over the
# pairs, the band the interquartile range.

lams = np.linspace(0, 1, 21)
threes, sevens = X_test[y_test == 3][:60], X_test[y_test == 7][:60]
probabilities = np.stack(
    [classifier.predict_proba(lam * threes + (1 - lam) * sevens)[:, [3, 7]] for lam in lams]
)
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for number, (label, colour) in enumerate({"three": "#b45309", "seven": "#0b5394"}.items()):
    low, high = np.quantile(probabilities[..., number], [0.25, 0.75], axis=1)
    axes.fill_between(lams, low, high, color=colour, alpha=0.2, lw=0)
    axes.plot(lams, probabilities[..., number].mean(axis=1), color=colour, label=label)
axes.plot([0, 1], [0, 1], ":", color="black", label="shares")
axes.plot([0, 1], [1, 0], ":", color="black")
axes.set(xlabel="lam (share of the three)", ylabel="probability")
axes.legend()

# %%
# Errors
# ------
# These are the errors on test images with the highest confidence:

probability = classifier.predict_proba(X_test)
predicted = classifier.classes_[probability.argmax(axis=1)]
wrong = np.flatnonzero(predicted != y_test)
wrong = wrong[np.argsort(-probability.max(axis=1)[wrong])]
print(f"{len(wrong)} errors in {len(y_test)} images")

figure, panels = plt.subplots(1, 7, figsize=(10, 2), layout="constrained")
for axes, index in zip(panels, wrong, strict=False):
    axes.imshow(X_test[index], cmap="gray_r", vmin=0, vmax=16)
    prediction = f"{predicted[index]} ({probability[index].max():.0%})"
    axes.set_title(f"a {y_test[index]}, read as\n{prediction}", fontsize=9)
for axes in panels:
    axes.set_axis_off()

# %%
# What to take from it
# --------------------
# The network has learned to interpolate: as one image fades into the other, the prediction
# follows, faster than the shares in the middle. The same figure shows the price. Even for a clean
# image, at either end of the axis, the network is not fully confident. This is the intended effect
# of ``alpha=1``. For real photographs use a larger network and a GPU. The
# :doc:`images benchmark </benchmarks/images>` has results of short training runs on a CPU.
