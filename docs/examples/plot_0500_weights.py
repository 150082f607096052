"""
Rare classes and unequal rows
=============================

What do ``class_weight`` and ``sample_weight`` change where one class is rare, and what do they
not change? In a mixed row each part brings its own weight (:doc:`/method`), so both can be used
as with any estimator of scikit-learn.
"""

# %%
# A rare digit
# ------------
# Real pictures of digits, of which only the upper half is shown to the network, to make it hard.
# The rare class is the eight: of those in the training rows all but a fifth are left out.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import (
    PrecisionRecallDisplay,
    average_precision_score,
    precision_score,
    recall_score,
)
from sklearn.model_selection import train_test_split

from mixupe_sklearn import MixupEClassifier

X, y = load_digits(return_X_y=True)
X, is_eight = X[:, :32] / 16, (y == 8).astype(int)
X_train, X_test, y_train, y_test = train_test_split(
    X, is_eight, test_size=0.5, stratify=is_eight, random_state=0
)
rng = np.random.default_rng(0)
keep = (y_train == 0) | (rng.random(len(y_train)) < 0.2)
X_train, y_train = X_train[keep], y_train[keep]
print(f"{y_train.sum()} eights among {len(y_train)} training rows, ", end="")
print(f"{y_test.sum()} among {len(y_test)} test rows")

# %%
# Three ways to weigh
# -------------------
# ``class_weight="balanced"`` gives both classes the same total weight. ``sample_weight`` says the
# same by hand, or whatever else is known of single rows: only ratios count.

settings = {"max_epochs": 30, "random_state": 0}
weights = np.where(y_train == 1, 5.0, 1.0)
fitted = {
    "no weights": MixupEClassifier(**settings).fit(X_train, y_train),
    "eights count five times": MixupEClassifier(**settings).fit(
        X_train, y_train, sample_weight=weights
    ),
    "balanced": MixupEClassifier(**settings, class_weight="balanced").fit(X_train, y_train),
}
by_hand = len(y_train) / (2 * np.bincount(y_train)[y_train])
same = MixupEClassifier(**settings).fit(X_train, y_train, sample_weight=by_hand)
difference = same.predict_proba(X_test) - fitted["balanced"].predict_proba(X_test)
print(f"balanced, by hand and by name: largest difference {abs(difference).max():.1e}")

# %%
# Precision and recall
# --------------------
# The curves go through all thresholds; the dots are the threshold of a half, which ``predict``
# uses.

COLOURS = ("#6b7280", "#b45309", "#0b5394")
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
for (label, classifier), colour in zip(fitted.items(), COLOURS, strict=True):
    probability = classifier.predict_proba(X_test)[:, 1]
    PrecisionRecallDisplay.from_predictions(
        y_test, probability, ax=left, name=label, curve_kwargs={"color": colour}
    )
    predicted = classifier.predict(X_test)
    precision = precision_score(y_test, predicted)
    recall = recall_score(y_test, predicted)
    left.plot(recall, precision, "o", color=colour, ms=9)
    right.hist(
        probability[y_test == 1], bins=20, range=(0, 1), histtype="step", color=colour, lw=1.8
    )
    print(
        f"{label:24} precision {precision:.2f}  recall {recall:.2f}  "
        f"average precision {average_precision_score(y_test, probability):.3f}"
    )
left.set_title("Precision and recall")
left.legend(loc="lower left", fontsize=9)
right.axvline(0.5, color="black", ls=":")
right.set(xlabel="probability of an eight", ylabel="eights of the test rows")
right.set_title("What the eights get")

# %%
# Weights of zero
# ---------------
# A row of weight zero is no row: it is dropped before anything else happens.

some = weights * (np.arange(len(weights)) % 4 > 0)
dropped = MixupEClassifier(**settings).fit(X_train, y_train, sample_weight=some)
removed = MixupEClassifier(**settings).fit(
    X_train[some > 0], y_train[some > 0], sample_weight=some[some > 0]
)
print(np.array_equal(dropped.predict_proba(X_test), removed.predict_proba(X_test)))

# %%
# What to take from it
# --------------------
# Weights move the threshold: with them ``predict`` finds most of the eights, at the price of
# false alarms. They add no knowledge. The curves, which do not depend on a threshold, are not
# better with weights, and in this split they are worse; why was not tested, and one split is no
# rule. If you can choose a threshold yourself, train without weights and move it; if ``predict``
# has to be right, or rows truly count differently, weigh.
