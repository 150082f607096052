"""
Rare classes and sample weights
===============================

What do ``class_weight`` and ``sample_weight`` change when one class is rare, and what do they not
change? In a mixed sample each part keeps its own weight (:doc:`/user_guide/method`), so both work
as in any scikit-learn estimator.
"""

# %%
# A rare digit
# ------------
# The data are images of digits. The network sees only the upper half of each image, which makes
# the task hard. The rare class is the eight: the training set keeps a fifth of them.

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
print(f"{y_train.sum()} eights among {len(y_train)} training samples, ", end="")
print(f"{y_test.sum()} among {len(y_test)} test samples")

# %%
# Three kinds of weights
# ----------------------
# ``class_weight="balanced"`` gives both classes the same total weight. ``sample_weight`` can
# express the same, or any other knowledge about single samples. Only ratios matter.

settings = {"max_epochs": 30, "random_state": 0}
weights = np.where(y_train == 1, 5.0, 1.0)
fitted = {
    "no weights": MixupEClassifier(**settings).fit(X_train, y_train),
    "eights weighted 5x": MixupEClassifier(**settings).fit(X_train, y_train, sample_weight=weights),
    "balanced": MixupEClassifier(**settings, class_weight="balanced").fit(X_train, y_train),
}
balanced_weights = len(y_train) / (2 * np.bincount(y_train)[y_train])
same = MixupEClassifier(**settings).fit(X_train, y_train, sample_weight=balanced_weights)
difference = same.predict_proba(X_test) - fitted["balanced"].predict_proba(X_test)
print(f"class_weight against sample_weight: largest difference {abs(difference).max():.1e}")

# %%
# Precision and recall
# --------------------
# The curves cover all thresholds. The dots mark the threshold of one half, which ``predict`` uses.

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
right.set(xlabel="probability of an eight", ylabel="eights in the test set")
right.set_title("Predictions for eights")

# %%
# Weights of zero
# ---------------
# Samples of weight zero are dropped before training, so the result equals their removal.

partly_zero = weights * (np.arange(len(weights)) % 4 > 0)
dropped = MixupEClassifier(**settings).fit(X_train, y_train, sample_weight=partly_zero)
is_kept = partly_zero > 0
removed = MixupEClassifier(**settings).fit(
    X_train[is_kept], y_train[is_kept], sample_weight=partly_zero[is_kept]
)
print(np.array_equal(dropped.predict_proba(X_test), removed.predict_proba(X_test)))

# %%
# What to take from it
# --------------------
# Weights shift the decision threshold: ``predict`` finds most of the eights, at the price of false
# alarms. They add no information. The curves, which do not depend on a threshold, do not improve
# with weights, and in this split they are worse; we did not test why. If you can choose the
# threshold, train without weights and move it. Use weights if ``predict`` itself must find the
# rare class, or if samples truly differ in importance.
