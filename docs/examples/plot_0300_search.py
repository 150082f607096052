"""
A search, and the map of alpha and eta
======================================

Which ``alpha`` (strength of mixing) and ``eta`` (weight of the penalty) suit a dataset, and how
much do they matter? :class:`~mixupe_sklearn.MixupESearchCV` tries a grid of both, and
:func:`~mixupe_sklearn.plot_search` plots the result.
"""

# %%
# The grid
# --------
# The data are 569 tumours, benign or malignant, with 30 measurements each. Each of the 20 pairs
# trains on three folds with two seeds. The search trains one network per configuration, with the
# settings of the paper, and trains networks of equal shape as one batched model.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedKFold, train_test_split

from mixupe_sklearn import MixupESearchCV, make_mixupe_pipeline, plot_search, preset
from mixupe_sklearn.datasets import load_embedded

table = load_embedded("breast-cancer")
X_train, X_test, y_train, y_test = train_test_split(
    table.X, table.y, test_size=0.3, stratify=table.y, random_state=0
)

single = make_mixupe_pipeline(**preset("paper") | {"batch_size": 32, "max_epochs": 20})
space = {
    "classifier__alpha": [0.01, 0.05, 0.2, 1.0, 5.0],
    "classifier__eta": [0.001, 0.01, 0.1, 1.0],
}
search = MixupESearchCV(
    single,
    space,
    cv=StratifiedKFold(3, shuffle=True, random_state=0),
    scoring="neg_log_loss",
    n_repeats=2,
    random_state=0,
)
search.fit(X_train, y_train)
print(search.best_params_)
print(f"validation log loss {-search.best_score_:.4f}", end=", ")
print(f"test log loss {-search.score(X_test, y_test):.4f}")

# %%
# The map
# -------
# Scores are negative log losses, so higher is better. ``plot_search`` returns a matplotlib figure;
# ``plt.figure`` shows it here, ``figure.savefig("search.png")`` would save it.

figure = plt.figure(plot_search(search, kind=["map", "importances"]))

# %%
# Is it more than noise?
# ----------------------
# The best of 20 wins partly by chance, and its test score is usually lower, as it is above. The
# scores of single fits show how large a difference has to be.

results = pd.DataFrame(search.cv_results_)
splits = [name for name in results if name.startswith("split") and name.endswith("test_score")]
between_pairs = results["mean_test_score"].std()
within_a_pair = results[splits].std(axis=1).mean()
print(f"deviation between the means of pairs:    {between_pairs:.4f}")
print(f"deviation between the fits of one pair:  {within_a_pair:.4f}")

by_alpha = -results.groupby("param_classifier__alpha")["mean_test_score"].mean()
by_eta = -results.groupby("param_classifier__eta")["mean_test_score"].mean()
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
for axes, (name, means) in zip(panels, {"alpha": by_alpha, "eta": by_eta}.items(), strict=True):
    axes.plot(np.asarray(means.index, dtype=float), means, "o-", color="#0b5394")
    axes.set(xscale="log", xlabel=name, ylabel="mean validation log loss")
    axes.grid(alpha=0.25)
    axes.label_outer()

# %%
# What to take from it
# --------------------
# Read the map by regions, not by its best cell. Here ``alpha`` matters: from left to right the
# loss doubles, far more than the variation between folds and seeds. ``eta`` matters little. The
# two columns on the left differ by less than the fits of one pair do, so both are good choices.
# When neighbours are that close, more repeats (``n_repeats``) help more than more pairs. The page
# on :doc:`search </user_guide/searching>` covers samplers, pruning, storage and several processes.
