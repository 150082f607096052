"""
Pictures, blended pictures, and the ones that go wrong
======================================================

What does a convolutional network get to see when it is trained with MixupE, and what does it make
of it? :class:`~mixupe_sklearn.MixupEImageClassifier` takes arrays of pictures as they are; this
example trains a very small residual network on the digits of scikit-learn.
"""

# %%
# Pictures and blends
# -------------------
# 1,797 pictures of 8 x 8 pixels with values from 0 to 16. A blend is ``lam`` of one picture and
# ``1 - lam`` of its partner, and its target has the same shares. Below, ``lam`` is drawn as the
# training draws it: from Beta(1, 1), every value equally likely.

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
    for axes, picture, title in zip(column, shown, titles, strict=True):
        axes.imshow(picture, cmap="gray_r", vmin=0, vmax=16)
        axes.set_title(title, fontsize=10)
        axes.set_axis_off()

# %%
# Training
# --------
# The name is that of PreActResNet-18, made small: two groups of one block, the first with eight
# channels. ``value_range`` tells what black and white are.

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
# What it says of blends
# ----------------------
# A network that has learned from blends should answer a blend by its shares. Here pairs of test
# pictures, a three and a seven each, are blended in all proportions; the line is the mean over 60
# pairs, the band reaches from the lower to the upper quartile.

lams = np.linspace(0, 1, 21)
threes, sevens = X_test[y_test == 3][:60], X_test[y_test == 7][:60]
answers = np.stack(
    [classifier.predict_proba(lam * threes + (1 - lam) * sevens)[:, [3, 7]] for lam in lams]
)
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for number, (label, colour) in enumerate({"three": "#b45309", "seven": "#0b5394"}.items()):
    low, high = np.quantile(answers[..., number], [0.25, 0.75], axis=1)
    axes.fill_between(lams, low, high, color=colour, alpha=0.2, lw=0)
    axes.plot(lams, answers[..., number].mean(axis=1), color=colour, label=f"says {label}")
axes.plot([0, 1], [0, 1], ":", color="black", label="the shares")
axes.plot([0, 1], [1, 0], ":", color="black")
axes.set(xlabel="lam, the share of the three", ylabel="probability")
axes.legend()

# %%
# The errors
# ----------
# The test pictures on which it is most sure of a wrong answer:

probability = classifier.predict_proba(X_test)
predicted = classifier.classes_[probability.argmax(axis=1)]
wrong = np.flatnonzero(predicted != y_test)
wrong = wrong[np.argsort(-probability.max(axis=1)[wrong])]
print(f"{len(wrong)} errors in {len(y_test)} pictures")

figure, panels = plt.subplots(1, 7, figsize=(10, 2), layout="constrained")
for axes, row in zip(panels, wrong, strict=False):
    axes.imshow(X_test[row], cmap="gray_r", vmin=0, vmax=16)
    said = f"{predicted[row]} ({probability[row].max():.0%})"
    axes.set_title(f"a {y_test[row]}, read as\n{said}", fontsize=9)
for axes in panels:
    axes.set_axis_off()

# %%
# What to take from it
# --------------------
# Blends look like nothing in particular, and still they teach. The network has learned to answer
# them: as one picture fades into the other, so does the answer, more steeply than the shares in
# the middle. The price is in the same figure: even of a clean picture, at either end of the axis,
# it is not fully sure. With ``alpha=1`` such doubt is what was asked for. For real photographs
# take a larger network and a GPU; what short trainings on a processor gave is on the page about
# :doc:`/images`.
