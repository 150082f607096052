"""
Monitoring the penalty during training
======================================

Mixup trains on blends of two samples. The paper shows that this regularises derivatives of the
loss towards other samples. The first of them, towards the mean, may be pushed in the wrong
direction, because some of its coefficients are negative. How negative are they, how large is the
derivative, and what share of the loss is MixupE's penalty? A monitor records this per epoch.
"""

# %%
# Three methods train the same network on digits, each with a monitor among its callbacks. The
# monitor evaluates some training samples at the end of an epoch and does not change training.

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
# The first plot shows the losses, as in the paper's Figure 1. The training loss of Mixup and MixupE
# is computed on mixed samples, so it cannot reach zero. The validation loss uses clean samples.

plot_loss_curves(trained)
for title, classifier in trained.items():
    print(f"{title}: {100 * (1 - classifier.score(X_test, y_test)):.1f} % test error")

# %%
# The second plot shows the smallest coefficient alpha over samples and classes, as in Figure 2.
# Below zero, minimising the first-order term would increase a derivative.

plot_alpha_min(trained)

# %%
# The third plot shows the mean size of the exact derivative and of its approximation, and the share
# of the penalty in the loss.

plot_penalty(trained["MixupE"])

# %%
# The values are in the history, like all other records.

last = trained["MixupE"].history_[-1]
print({name: round(last[name], 4) for name in ("alpha_min", "q_abs", "q_hat_abs", "penalty_share")})

# %%
# What to take from it
# --------------------
# As in the paper, the coefficients are most negative in the first epochs, here with all three
# methods, and then approach zero. The approximation follows the derivative, although this network
# has biases. The share shows whether ``eta`` has an effect. The :doc:`diagnostics page
# </user_guide/diagnostics>` defines each value.
