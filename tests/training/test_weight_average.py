"""The exponential moving average of the weights."""

import numpy as np
import pytest
import torch
from paper import paper_classifier
from skorch.callbacks import Callback

DECAY = 0.3  # the first four steps use (1 + t) / (10 + t), the others this


def flat(net):
    return torch.cat([weight.detach().flatten() for weight in net.module_.parameters()]).clone()


class Record(Callback):
    def on_train_begin(self, net, **kwargs):
        self.weights_ = [flat(net)]

    def on_epoch_end(self, net, **kwargs):
        self.weights_.append(flat(net))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("batch_norm", [False, True], ids=["engine", "autograd"])
def test_the_weights_are_the_average_over_the_steps(iris, batch_norm):
    X, y = iris
    params = {
        "module_params": {"d_hidden": (5,), "batch_norm": batch_norm},
        "batch_size": len(y), "max_epochs": 7, "lr": 0.05, "random_state": 0,
        "callbacks": [Record()],
    }  # fmt: skip
    plain = paper_classifier(**params).fit(X, y)
    raw = dict(plain.net_.callbacks_)["Record"].weights_
    assert len(raw) == 8
    expected = [raw[0]]
    for t, weights in enumerate(raw[1:], start=1):
        decay = min(DECAY, (1 + t) / (10 + t))
        expected.append(decay * expected[-1] + (1 - decay) * weights)
    averaged = paper_classifier(**params, ema_decay=DECAY).fit(X, y)
    # Callbacks, predictions and the kept weights use the average.
    seen = dict(averaged.net_.callbacks_)["Record"].weights_
    for mine, theirs in zip(seen, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(flat(averaged.net_), expected[-1], rtol=1e-9, atol=1e-9)
    assert (flat(plain.net_) - expected[-1]).abs().max() > 1e-3


@pytest.mark.parametrize("batch_norm", [False, True], ids=["engine", "autograd"])
def test_the_held_out_loss_is_that_of_the_average(digits, batch_norm):
    X, y = digits
    classifier = paper_classifier(
        early_stopping=True, max_epochs=4, ema_decay=0.99, random_state=0, n_iter_no_change=10,
        module_params={"batch_norm": batch_norm},
    )  # fmt: skip
    classifier.fit(X[:900], y[:900], X_val=X[900:], y_val=y[900:])
    proba = classifier.predict_proba(X[900:])
    now = -np.log(proba[np.arange(len(proba)), y[900:]]).mean()
    assert now == pytest.approx(min(row["valid_loss"] for row in classifier.history_), rel=1e-4)


@pytest.mark.parametrize("value", [-0.1, 1.0, 2, "0.9", np.nan])
def test_a_bad_decay_gets_a_sentence(iris, value):
    with pytest.raises((ValueError, TypeError), match="ema_decay"):
        paper_classifier(ema_decay=value).fit(*iris)
