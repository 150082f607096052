"""
What the penalty acts on, while it trains
=========================================

Mixup trains on blends of two rows. The paper shows that this regularises derivatives of the loss
along the way to other rows, and that the first of them, towards the mean of all rows, may be
pushed in the wrong direction: some of its coefficients are negative. How negative are they, how
large is the derivative, and what share of the loss is the penalty that MixupE puts on it? A
monitor tells, epoch by epoch.
"""

# %%
# The same network is trained by three methods, on digits, each with a monitor among its
# callbacks. It looks at some training rows at the end of an epoch and changes nothing in the
# training.

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from mixupe_sklearn import MixupEClassifier, preset
from mixupe_sklearn.diagnostics import (
    DerivativeMonitor,
    plot_alpha_min,
    plot_loss_curves,
    plot_penalty,
)

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, train_size=600, random_state=0)

settings = preset("paper") | {"alpha": 1.0, "eta": 1.0, "batch_size": 50, "max_epochs": 60}
settings |= {"callbacks": [DerivativeMonitor(every=1)], "random_state": 0}
trained = {
    title: MixupEClassifier(**settings | {"method": method}).fit(
        X_train, y_train, X_val=X_test, y_val=y_test
    )
    for title, method in {"ERM": "erm", "Mixup": "mixup", "MixupE": "mixupe"}.items()
}

# %%
# The losses first, as in the paper's first figure. The training loss of Mixup and MixupE is that
# of mixed rows, so it cannot fall to zero; the validation loss is that of clean rows.

plot_loss_curves(trained)
for title, classifier in trained.items():
    print(f"{title}: {100 * (1 - classifier.score(X_test, y_test)):.1f} % wrong")

# %%
# The least coefficient alpha over rows and classes, as in the second figure. Below zero,
# minimising the first-order term would enlarge a derivative.

plot_alpha_min(trained)

# %%
# What is penalised: the mean size of the exact derivative, of the approximation that the method
# uses, and the share of the penalty in the loss.

plot_penalty(trained["MixupE"])

# %%
# The numbers are in the history, like everything else that was recorded.

last = trained["MixupE"].history_[-1]
print({name: round(last[name], 4) for name in ("alpha_min", "q_abs", "q_hat_abs", "penalty_share")})

# %%
# What to take from it
# --------------------
# Here too the coefficients are most negative in the first epochs, and with all three methods, not
# with Mixup alone; then they come close to zero. The approximation follows the derivative, though
# this network has biases. And the share tells whether ``eta`` does anything. See :doc:`the page
# on diagnostics </diagnostics>` for what each number is.
