"""
A search, and the map of alpha and eta
======================================

Which ``alpha`` (how strongly rows are mixed) and which ``eta`` (how much the penalty counts) suit
a table, and how much does it matter? :class:`~mixupe_sklearn.MixupESearchCV` tries a grid of
both, and :func:`~mixupe_sklearn.plot_search` draws the answer.
"""

# %%
# The grid
# --------
# The table is real: 569 tumours, benign or malignant, with 30 measurements of each. Each of the
# 20 pairs is trained on three folds with two seeds. A search trains one network a configuration,
# with the settings of the paper, and trains all networks of equal shape as one.

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
print(f"log loss in validation {-search.best_score_:.4f}", end=", ")
print(f"of fresh rows {-search.score(X_test, y_test):.4f}")

# %%
# The map
# -------
# Scores are negative log losses, so higher is better. The figure is an ordinary figure of
# matplotlib; ``plt.figure`` shows it here, ``figure.savefig("search.png")`` would save it.

figure = plt.figure(plot_search(search, kind=["map", "importances"]))

# %%
# Is it more than noise?
# ----------------------
# The best of 20 is better than the others partly by luck, and its score on fresh rows is usually
# lower, as it is above. The scores of single fits tell how large a difference has to be.

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
# Read the map for regions, not for its best cell. Here ``alpha`` matters: from left to right the
# loss doubles, which is far more than a fold and a seed move it. ``eta`` matters little, and the
# two columns on the left differ by less than the fits of one pair do, so either is as good a
# choice. Where neighbours are that close, further repeats (``n_repeats``) buy more than further
# pairs. The page on :doc:`search </searching>` has samplers, pruning, studies that are kept in a
# file, and several processes.
