"""
When training stops, and where members disagree
===============================================

How long does a fit go on, and which of its predictions deserve doubt?
:class:`~mixupe_sklearn.MixupEClassifier` trains eight networks as one and stops when rows that
were set aside no longer profit. What it recorded on the way answers both questions.
"""

# %%
# The course of a training
# ------------------------
# 600 of scikit-learn's digits are trained on. The eight members form two teams, one that mixes
# weakly and one that mixes strongly, and each member sets another part of the rows aside.
# ``history_`` has a line for each epoch.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mixupe_sklearn import MixupEClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X / 16, y, train_size=600, stratify=y, random_state=0
)
classifier = MixupEClassifier(max_epochs=200, random_state=0).fit(X_train, y_train)
history = pd.DataFrame(classifier.history_)
print(f"{classifier.n_iter_} of 200 epochs were run")
print(f"test accuracy {classifier.score(X_test, y_test):.3f}")
print("weights of the members:", classifier.member_weights_.round(3))

# %%
# The training loss is that of mixed rows, the validation loss that of plain rows: they are not on
# one scale, and the first may well lie above the second.

looks = history["valid_loss"].dropna()
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
left.plot(history["epoch"], history["train_loss"], color="#9aa5b1", label="training, mixed rows")
left.plot(history["epoch"][looks.index], looks, color="#0b5394", label="validation, plain rows")
left.plot(history["epoch"][looks.idxmin()], looks.min(), "o", color="crimson", label="lowest")
left.set(xlabel="epoch", ylabel="loss", yscale="log")
left.set_yticks([0.2, 0.5, 1, 2], [0.2, 0.5, 1, 2])
left.minorticks_off()
left.legend()
right.plot(history["epoch"], history["train_penalty"], color="#7c3aed")
right.set(xlabel="epoch", ylabel="penalty, before eta")
for axes, title in ((left, "Losses"), (right, "The penalty of MixupE")):
    axes.set_title(title)
    axes.grid(alpha=0.25)

# %%
# The members' opinions
# ---------------------
# ``predict_proba`` is the weighted mean of the members; ``predict_proba_members`` keeps them
# apart. The spread of a row is how far its members lie from each other.

members = classifier.predict_proba_members(X_test)
spread = members.std(axis=0).max(axis=1)
is_wrong = classifier.predict(X_test) != y_test
print("shape: members, rows, classes =", members.shape)

order = np.argsort(spread)
for label, rows in {
    "the half with the least spread": order[: len(order) // 2],
    "the rest": order[len(order) // 2 : -60],
    "the 60 with the most spread": order[-60:],
}.items():
    print(f"{label:31} {is_wrong[rows].sum():3} errors in {len(rows)} rows")

# %%
# These are the six rows on which the members disagree most. Each line is one member's
# probabilities.

figure, panels = plt.subplots(
    2, 6, figsize=(11, 4.2), layout="constrained", height_ratios=(1.2, 1), sharey="row"
)
for column, row in enumerate(order[-6:][::-1]):
    picture, opinions = panels[:, column]
    picture.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    picture.set_title(f"a {y_test[row]}, read as {classifier.predict(X_test[row : row + 1])[0]}")
    picture.set_axis_off()
    opinions.plot(members[:, row].T, color="#0b5394", alpha=0.5, lw=1.2)
    opinions.set_xticks(range(0, 10, 3))
    opinions.set(xlabel="digit", ylim=(-0.03, 1.03))
panels[1, 0].set_ylabel("probability")

# %%
# What to take from it
# --------------------
# ``max_epochs`` is an upper bound: set it high and let the rows that are set aside decide, where
# they can. The spread of the members is a cheap sign of doubt that needs no further training. The
# errors lie as unevenly as the lines above show: hardly any where the members agree, many among
# the 60 rows on which they agree least. It is a sign and no proof: members can agree on a
# mistake.
