"""
Are the probabilities honest?
=============================

If a classifier says 80 %, is it right in 80 of 100 cases? Networks that overfit are too sure of
themselves, and mixing makes them less sure. This example measures how far that goes, and whether
it goes too far.
"""

# %%
# Four classifiers on five tables
# -------------------------------
# The tables are made, so that there can be 5,000 test rows: reliability is a matter of many rows.
# Each has 500 training rows, and a tenth of the labels is wrong. Three networks differ in the
# method only. The fourth is :class:`~mixupe_sklearn.MixupEClassifier` as it comes: eight
# networks, weak mixing in half of them, and early stopping.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from mixupe_sklearn import MixupEClassifier, preset

settings = preset("paper") | {"alpha": 1.0, "eta": 1.0, "max_epochs": 60}
candidates = {
    "ERM": settings | {"method": "erm"},
    "Mixup": settings | {"method": "mixup"},
    "MixupE": settings | {"method": "mixupe"},
    "defaults": {},
}
COLOURS = {"ERM": "#6b7280", "Mixup": "#b45309", "MixupE": "#7c3aed", "defaults": "#0b5394"}


def calibration_error(y_true, probability, n_bins=10):
    """The mean gap between what was said and what was so, over bins of what was said."""
    bins = np.minimum((probability * n_bins).astype(int), n_bins - 1)
    gaps = [abs((y_true - probability)[bins == own].sum()) for own in np.unique(bins)]
    return sum(gaps) / len(y_true)


rows, said = [], {label: [] for label in candidates}
for seed in range(5):
    X, y = make_classification(
        5500, n_features=20, n_informative=8, flip_y=0.2, class_sep=1.0, random_state=seed
    )
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, train_size=500, stratify=y, random_state=seed
    )
    for label, params in candidates.items():
        classifier = MixupEClassifier(**params, random_state=seed).fit(X_train, y_train)
        probability = classifier.predict_proba(X_test)[:, 1]
        said[label].append((y_test, probability))
        rows.append(
            {
                "method": label,
                "error": np.mean((probability > 0.5) != y_test),
                "log loss": log_loss(y_test, probability),
                "calibration error": calibration_error(y_test, probability),
            }
        )

# %%
# The means over the five tables; ``flip_y=0.2`` gives a fifth of the rows a label by chance, half
# of which happen to be right, so that on average no classifier gets below an error of a tenth.

results = pd.DataFrame(rows).groupby("method", sort=False)
print(results.mean().round(3).to_string())
print("\nDeviations over tables:")
print(results.std().round(3).to_string())

# %%
# The curves
# ----------
# On the diagonal what is said is so. A curve that is flatter than the diagonal belongs to a
# network that is too sure of itself, a steeper one to a network that is not sure enough.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
left.plot([0, 1], [0, 1], ":", color="black", label="honest")
for label, pairs in said.items():
    y_true, probability = (np.concatenate(part) for part in zip(*pairs, strict=True))
    is_so, is_said = calibration_curve(y_true, probability, n_bins=10)
    left.plot(is_said, is_so, "o-", ms=4, color=COLOURS[label], label=label)
    right.hist(probability, bins=25, histtype="step", lw=1.6, color=COLOURS[label], label=label)
left.set(xlabel="probability that is said", ylabel="share that is so")
left.set_title("Reliability")
right.set(xlabel="probability that is said", ylabel="test rows")
right.set_title("How often it is said")
left.legend()

# %%
# What to take from it
# --------------------
# Without mixing the network is far too sure: most of its answers are near 0 and 1, and it pays
# for the wrong ones in log loss. Mixing removes most of that. Between Mixup and MixupE there is
# no difference beyond the deviations. The defaults have the lowest error and log loss here, and
# their curve shows the price: in the middle it is steeper than the diagonal, so that they are not
# sure enough. Near 0 and 1 all are too sure, as a tenth of the labels is wrong whatever the
# features say. If the probabilities themselves are what you need, look at such a curve on your
# own data; :class:`~sklearn.calibration.CalibratedClassifierCV` of scikit-learn takes any of
# these classifiers.
