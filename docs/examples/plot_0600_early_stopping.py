"""
Early stopping and disagreement between members
===============================================

When does training stop, and which predictions are uncertain?
:class:`~mixupe_sklearn.MixupEClassifier` trains eight networks as one and stops when the loss on
held-out samples no longer improves. Its records answer both questions.
"""

# %%
# The history of a fit
# --------------------
# The training set has 600 of scikit-learn's digits. The eight members form two groups, one with
# weak and one with strong mixing. The members of a group hold out different validation folds.
# ``history_`` has one entry per epoch.

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
# The training loss is computed on mixed samples, the validation loss on clean samples. They are
# not on one scale, and the training loss may exceed the validation loss.

valid_loss = history["valid_loss"].dropna()
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
left.plot(history["epoch"], history["train_loss"], color="#9aa5b1", label="training, mixed")
left.plot(
    history["epoch"][valid_loss.index], valid_loss, color="#0b5394", label="validation, clean"
)
best = valid_loss.idxmin()
left.plot(history["epoch"][best], valid_loss[best], "o", color="crimson", label="lowest")
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
# Predictions of the members
# --------------------------
# ``predict_proba`` is the weighted mean of the members. ``predict_proba_members`` returns each
# member's probabilities. The spread of a sample is the standard deviation between its members.

members = classifier.predict_proba_members(X_test)
spread = members.std(axis=0).max(axis=1)
is_wrong = classifier.predict(X_test) != y_test
print("shape: members, samples, classes =", members.shape)

order = np.argsort(spread)
for label, index in {
    "the half with the least spread": order[: len(order) // 2],
    "the rest": order[len(order) // 2 : -60],
    "the 60 with the most spread": order[-60:],
}.items():
    print(f"{label:31} {is_wrong[index].sum():3} errors in {len(index)} samples")

# %%
# These are the six samples on which the members disagree most. Each line shows the probabilities
# of one member.

figure, panels = plt.subplots(
    2, 6, figsize=(11, 4.2), layout="constrained", height_ratios=(1.2, 1), sharey="row"
)
for column, index in enumerate(order[-6:][::-1]):
    top, bottom = panels[:, column]
    top.imshow(X_test[index].reshape(8, 8), cmap="gray_r")
    predicted = classifier.predict(X_test[index : index + 1])[0]
    top.set_title(f"a {y_test[index]}, read as {predicted}")
    top.set_axis_off()
    bottom.plot(members[:, index].T, color="#0b5394", alpha=0.5, lw=1.2)
    bottom.set_xticks(range(0, 10, 3))
    bottom.set(xlabel="digit", ylim=(-0.03, 1.03))
panels[1, 0].set_ylabel("probability")

# %%
# What to take from it
# --------------------
# ``max_epochs`` is an upper bound: set it high and let early stopping decide. The spread of the
# members is a cheap measure of uncertainty that needs no further training. Hardly any errors occur
# where the members agree, and many among the 60 samples on which they agree least. The spread is
# an indication only: members can agree on a wrong prediction.
