"""Methods equal each other in their special cases, bit for bit, in the estimator."""

import numpy as np
import pytest
import skorch
import torch
from paper import paper_classifier, paper_regressor

from mixupe_sklearn import MixupENet
from mixupe_sklearn.modules import MLP


def proba(data, **params):
    X, y = data
    params = {"max_epochs": 4, "random_state": 0, "alpha": 1.0, "eta": 0.5, **params}
    return paper_classifier(**params).fit(X, y).predict_proba(X)


def same(first, second):
    return np.array_equal(first, second)


@pytest.mark.parametrize("mix_at", ["input", "hidden"])
@pytest.mark.parametrize("penalty", ["logit", "directional"])
def test_eta_zero_equals_plain_mixup(small_digits, mix_at, penalty):
    mixupe = proba(small_digits, eta=0.0, mix_at=mix_at, penalty=penalty)
    assert same(mixupe, proba(small_digits, method="mixup", mix_at=mix_at))


@pytest.mark.parametrize("method", ["mixupe", "mixup", "erm+penalty"])
def test_alpha_zero_equals_erm(small_digits, method):
    assert same(proba(small_digits, alpha=0.0, method=method), proba(small_digits, method="erm"))


def test_eta_zero_without_mixing_equals_erm(small_digits):
    without = proba(small_digits, method="erm+penalty", eta=0.0)
    assert same(without, proba(small_digits, method="erm"))


def test_the_four_methods_differ(small_digits):
    # Negative control of all tests above.
    results = [proba(small_digits, method=m) for m in ("mixupe", "mixup", "erm", "erm+penalty")]
    for i, one in enumerate(results):
        assert not any(same(one, other) for other in results[i + 1 :])
    assert not same(results[0], proba(small_digits, penalty="directional"))
    assert not same(results[0], proba(small_digits, mix_at="hidden"))
    assert not same(results[0], proba(small_digits, lam_per="sample"))


def test_beta_none_means_alpha(small_digits):
    assert same(proba(small_digits, beta=None), proba(small_digits, beta=1.0))
    assert not same(proba(small_digits, beta=None), proba(small_digits, beta=3.0))


def test_a_plain_skorch_net_equals_erm(digits):
    X, y = digits[0].astype("float32"), digits[1]
    nets = []
    for net_class, settings in (
        (skorch.NeuralNetClassifier, {"criterion": torch.nn.CrossEntropyLoss}),
        (MixupENet, {"criterion__method": "erm", "iterator_train__shuffle": False}),
    ):
        torch.manual_seed(0)
        net = net_class(
            MLP,
            module__n_features=64,
            module__n_outputs=10,
            optimizer=torch.optim.Adam,
            lr=0.001,
            max_epochs=3,
            batch_size=100,
            verbose=0,
            **settings,
        )
        nets.append(net.fit(X, y))
    plain, ours = nets
    for one, other in zip(plain.module_.parameters(), ours.module_.parameters(), strict=True):
        assert (one - other).abs().max() < 1e-6
    for name in ("train_loss", "valid_loss", "valid_acc"):
        assert np.allclose(plain.history[:, name], ours.history[:, name], atol=1e-6)


def test_one_logit_resembles_two(cancer):
    X, y = cancer
    two = paper_classifier(random_state=0).fit(X, y)
    one = paper_classifier(random_state=0, module_params={"n_outputs": 1}).fit(X, y)
    assert one.net_.criterion_.head == "sigmoid"
    assert two.net_.criterion_.head == "softmax"
    assert one.predict_proba(X).shape == (len(X), 2)
    assert np.mean(one.predict(X) == two.predict(X)) > 0.97


def test_a_shift_of_the_inputs_does_not_matter(small_digits):
    # The estimator subtracts the training mean itself; eighths keep the shift exact.
    X, y = np.round(small_digits[0] * 8) / 8, small_digits[1]
    for penalty in ("logit", "directional"):
        plain = paper_classifier(random_state=0, max_epochs=3, penalty=penalty).fit(X, y)
        moved = paper_classifier(random_state=0, max_epochs=3, penalty=penalty).fit(X + 64, y)
        assert np.allclose(plain.predict_proba(X), moved.predict_proba(X + 64), atol=1e-5)
        assert np.allclose(moved.X_mean_, X.mean(axis=0) + 64)


def test_the_scale_of_targets_does_not_matter_for_the_regressor(diabetes):
    X, y = diabetes
    plain = paper_regressor(random_state=0, max_epochs=3).fit(X, y).predict(X)
    scaled = paper_regressor(random_state=0, max_epochs=3).fit(X, 4 * y + 1024).predict(X)
    assert np.allclose(4 * plain + 1024, scaled, rtol=1e-5)
