"""
Are the probabilities calibrated?
=================================

If a classifier predicts 80 %, is it correct in 80 of 100 cases? Networks that overfit are
overconfident, and mixing makes them less confident. This example measures how much, and whether
mixing goes too far.
"""

# %%
# Four classifiers on five datasets
# ---------------------------------
# The datasets are synthetic, because calibration needs many test samples: here 5,000 each. Each
# has 500 training samples, and a tenth of the labels is wrong. Three networks differ only in the
# method. The fourth is :class:`~mixupe_sklearn.MixupEClassifier` with its defaults: eight
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
    """Mean gap between predicted probability and observed frequency, over bins."""
    bins = np.minimum((probability * n_bins).astype(int), n_bins - 1)
    gaps = [abs((y_true - probability)[bins == bin_].sum()) for bin_ in np.unique(bins)]
    return sum(gaps) / len(y_true)


rows, predictions = [], {label: [] for label in candidates}
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
        predictions[label].append((y_test, probability))
        rows.append(
            {
                "method": label,
                "error": np.mean((probability > 0.5) != y_test),
                "log loss": log_loss(y_test, probability),
                "calibration error": calibration_error(y_test, probability),
            }
        )

# %%
# Means over the five datasets. ``flip_y=0.2`` draws the labels of a fifth of the samples at random,
# and half of these are right by chance. The lowest possible error is therefore about 10 %.

results = pd.DataFrame(rows).groupby("method", sort=False)
print(results.mean().round(3).to_string())
print("\nStandard deviations over datasets:")
print(results.std().round(3).to_string())

# %%
# The curves
# ----------
# A calibrated classifier lies on the diagonal. A curve flatter than the diagonal means
# overconfidence, a steeper one underconfidence.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained")
left.plot([0, 1], [0, 1], ":", color="black", label="calibrated")
for label, pairs in predictions.items():
    y_true, probability = (np.concatenate(part) for part in zip(*pairs, strict=True))
    observed, predicted = calibration_curve(y_true, probability, n_bins=10)
    left.plot(predicted, observed, "o-", ms=4, color=COLOURS[label], label=label)
    right.hist(probability, bins=25, histtype="step", lw=1.6, color=COLOURS[label], label=label)
left.set(xlabel="predicted probability", ylabel="observed frequency")
left.set_title("Reliability")
right.set(xlabel="predicted probability", ylabel="test samples")
right.set_title("Distribution of predictions")
left.legend()

# %%
# What to take from it
# --------------------
# Without mixing the network is overconfident: most predictions are near 0 and 1, and errors among
# them raise the log loss. Mixing removes most of this. Mixup and MixupE do not differ beyond the
# standard deviations. The defaults have the lowest error and log loss here, but their curve is
# steeper than the diagonal in the middle, so they are underconfident there. Near 0 and 1 all are
# overconfident, because a tenth of the labels is wrong whatever the features are. If you need the
# probabilities themselves, plot such a curve for your own data. scikit-learn's
# :class:`~sklearn.calibration.CalibratedClassifierCV` accepts all of these classifiers.
