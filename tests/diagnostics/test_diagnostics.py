"""Theorem 1 on real data, the coefficients of equation (6), and Theorem 2."""

import numpy as np
import pytest
import torch
from paper import paper_regressor
from scipy.special import expit, roots_jacobi
from scipy.stats import beta as beta_distribution
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import (
    MixupEClassifier,
    MixupEGraphClassifier,
    MixupEImageClassifier,
    MixupENet,
    preset,
)
from mixupe_sklearn._diagnostics.taylor import coefficients, moments, nodes
from mixupe_sklearn._method.formulas import directional_penalty, glm_loss, one_minus_lam_mean
from mixupe_sklearn.diagnostics import directional_derivatives, glm_complexity
from mixupe_sklearn.modules import MLP

ALPHA = 0.5


class Smooth(torch.nn.Sequential):
    """A tanh network."""

    def __init__(self, n_features, n_outputs):
        linear, tanh = torch.nn.Linear, torch.nn.Tanh
        super().__init__(
            linear(n_features, 16), tanh(), linear(16, 16), tanh(), linear(16, n_outputs)
        )


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)[::3]
    return X, y[::3]


@pytest.fixture(scope="module")
def smooth(wine):
    how = preset("paper") | {"module": Smooth, "alpha": ALPHA, "eta": 0.1, "batch_size": 10}
    return MixupEClassifier(**how, random_state=0).fit(*wine)


def mixup_loss(estimator, X, y, alpha):
    """The Mixup loss as the paper defines it: all pairs, labels mixed, lam from the Beta itself."""
    module = estimator.net_.module_
    X = torch.tensor(X - X.mean(axis=0))
    Y = torch.nn.functional.one_hot(torch.as_tensor(y)).double()
    roots, weights = roots_jacobi(60, alpha - 1, alpha - 1)
    own, other = (
        index.ravel() for index in torch.meshgrid(*[torch.arange(len(X))] * 2, indexing="ij")
    )
    copy = Smooth(X.shape[1], Y.shape[1])
    copy.load_state_dict(module.state_dict())
    total = 0.0
    with torch.no_grad():
        for lam, weight in zip((1 + roots) / 2, weights / weights.sum(), strict=True):
            rows, targets = (lam * of[own] + (1 - lam) * of[other] for of in (X, Y))
            total += weight * float(glm_loss(copy.double()(rows), targets)[0].mean())
    return total


def test_mixup_loss_matches_the_definition(smooth, wine):
    """The theorem moves samples and keeps labels; the definition mixes both. They agree."""
    parts = directional_derivatives(smooth, *wine, order=1, n_partners=None)
    assert parts.mixup_loss == pytest.approx(mixup_loss(smooth, *wine, ALPHA), rel=1e-6)
    assert parts.mixup_loss > parts.standard_loss


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_standard_loss_and_terms_add_up_to_the_mixup_loss_minus_the_remainder(smooth, wine, order):
    """After K terms the remainder falls like the (K+1)-th power of the distance to partners."""
    how = {"order": order, "n_partners": None}
    near, nearer = (
        directional_derivatives(smooth, *wine, **how, reach=reach).remainders[-1]
        for reach in (0.1, 0.05)
    )
    assert near / nearer == pytest.approx(2 ** (order + 1), rel=0.2)


def test_the_remainder_shrinks_with_each_order(smooth, wine):
    remainders = directional_derivatives(
        smooth, *wine, order=4, n_partners=None, reach=0.3
    ).remainders
    sizes = np.abs(remainders)
    assert (sizes[1:] < sizes[:-1] / 2).all()
    # And with whole steps, on this data.
    whole = np.abs(directional_derivatives(smooth, *wine, order=4, n_partners=None).remainders)
    assert (np.diff(whole) < 0).all()


def test_the_first_term_is_the_mean_of_q(smooth, wine):
    parts = directional_derivatives(smooth, *wine, order=1, n_partners=None)
    expected = one_minus_lam_mean(ALPHA) * parts.q.mean()
    assert parts.terms[0] == pytest.approx(expected, rel=1e-12)


def test_q_equals_the_directional_penalty(smooth, wine):
    """On the training set, whose mean the estimator subtracts."""
    X, y = wine
    copy = Smooth(13, 3)
    copy.load_state_dict(smooth.net_.module_.state_dict())
    rows = torch.tensor(X - smooth.X_mean_).requires_grad_()
    Y = torch.nn.functional.one_hot(torch.as_tensor(y)).double()
    expected = directional_penalty(copy.double()(rows), rows, Y, 0.0).detach()
    parts = directional_derivatives(smooth, X, y, order=1, n_partners=1)
    np.testing.assert_allclose(parts.q, expected, atol=1e-5)  # the mean is subtracted in float32


def test_q_hat_equals_q_under_the_conditions_of_the_paper(wine):
    X, y = wine
    how = preset("paper") | {"module_params": {"bias": False, "d_hidden": (8,)}}
    classifier = MixupEClassifier(**how, random_state=0).fit(X, y)
    parts = directional_derivatives(classifier, X, y, order=1, n_partners=1)
    np.testing.assert_allclose(parts.error, 0, atol=1e-5)
    with_bias = MixupEClassifier(**preset("paper"), random_state=0).fit(X, y)
    parts = directional_derivatives(with_bias, X, y, order=1, n_partners=1)
    assert np.abs(parts.error).max() > 0.01


def test_a_sample_of_partners_estimates_all(smooth, wine):
    some = directional_derivatives(smooth, *wine, order=2, n_partners=20)
    every = directional_derivatives(smooth, *wine, order=2, n_partners=None)
    np.testing.assert_allclose(some.terms, every.terms, rtol=0.1)
    assert some.standard_loss == pytest.approx(every.standard_loss)
    again = directional_derivatives(smooth, *wine, order=2, n_partners=20)
    np.testing.assert_array_equal(some.terms, again.terms)


@pytest.mark.parametrize(("alpha", "beta"), [(0.2, 0.2), (1.0, 1.0), (0.5, 2.0), (0.02, 0.02)])
def test_moments_match_the_mixture(alpha, beta):
    shares = (alpha, beta) / np.float64(alpha + beta)
    parts = [beta_distribution(beta, alpha + 1), beta_distribution(alpha, beta + 1)]
    expected = [sum(s * p.moment(k) for s, p in zip(shares, parts, strict=True)) for k in (1, 2, 3)]
    np.testing.assert_allclose(moments(3, alpha, beta), expected)
    points, weights = nodes(alpha, beta)
    np.testing.assert_allclose([weights @ points**k for k in (1, 2, 3)], expected, rtol=1e-6)
    assert moments(1, alpha, beta)[0] == pytest.approx(one_minus_lam_mean(alpha, beta))


def test_without_mixing_all_terms_are_zero(wine):
    classifier = MixupEClassifier(**preset("paper") | {"alpha": 0.0}, random_state=0).fit(*wine)
    parts = directional_derivatives(classifier, *wine, order=2, n_partners=2)
    assert parts.mixup_loss == pytest.approx(parts.standard_loss)
    assert not parts.terms.any()
    assert directional_derivatives(classifier, *wine, order=1, n_partners=2, alpha=1.0).terms.any()


def test_mixed_targets_subtract_a_constant_from_squared_error(wine):
    """Compare with the definition: many draws of lam for all pairs, with mixed targets."""
    X, y = wine[0][:, 1:], wine[0][:, 0]
    how = {"module": Smooth, "alpha": 0.3, "beta": 1.4, "method": "mixup", "max_epochs": 10}
    regressor = paper_regressor(**how, random_state=0).fit(X, y)
    parts = directional_derivatives(regressor, X, y, order=1, n_partners=None)
    copy = Smooth(12, 1)
    copy.load_state_dict(regressor.net_.module_.state_dict())
    rows = torch.tensor(X - regressor.X_mean_)
    targets = torch.tensor((y - regressor.y_mean_) / regressor.y_scale_)[:, None]
    own, other = (index.ravel() for index in np.indices((len(X), len(X))))
    losses = []
    with torch.no_grad():
        for lam in np.random.default_rng(0).beta(0.3, 1.4, size=600):
            x, t = (lam * of[own] + (1 - lam) * of[other] for of in (rows, targets))
            losses.append(float((copy.double()(x) - t).square().mean() / 2))
    spread = np.std(losses) / np.sqrt(len(losses))
    assert abs(parts.mixup_loss - np.mean(losses)) < 4 * spread
    assert parts.label_term < -10 * spread  # it would be seen
    whole = directional_derivatives(regressor, X, y, order=4, n_partners=None, reach=0.1)
    assert abs(whole.remainders[-1]) < 1e-6


def test_it_works_under_no_grad(smooth, wine):
    with torch.no_grad():
        first = directional_derivatives(smooth, *wine, order=1, n_partners=2)
    with torch.inference_mode():
        second = directional_derivatives(smooth, *wine, order=1, n_partners=2)
    np.testing.assert_array_equal(first.q, second.q)


def test_supported_estimators(wine):
    """Pipelines, members, string labels, regressors, nets, images, hidden layers."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    pipeline = make_pipeline(
        StandardScaler(), MixupEClassifier(n_members=2, max_epochs=2, min_steps=0, random_state=0)
    ).fit(X, names)
    first, second = (
        directional_derivatives(pipeline, X, names, order=1, n_partners=2, member=member)
        for member in (0, 1)
    )
    assert first.standard_loss != second.standard_loss
    alone = make_pipeline(MixupEClassifier(**preset("paper") | {"max_epochs": 1})).fit(X, names)
    assert directional_derivatives(alone, X, names, order=1, n_partners=1).q.shape == (150,)
    regressor = paper_regressor(max_epochs=3, random_state=0).fit(X[:, 1:], X[:, 0])
    parts = directional_derivatives(regressor, X[:, 1:], X[:, 0], order=2, n_partners=4)
    assert parts.standard_loss > 0
    net = MixupENet(MLP(4, 3), verbose=0, max_epochs=2).fit(X.astype("float32"), y)
    at_input = directional_derivatives(net, X.astype("float32"), y, order=1, n_partners=2)
    hidden = directional_derivatives(net, X.astype("float32"), y, order=1, n_partners=2, stage=1)
    assert at_input.standard_loss == pytest.approx(hidden.standard_loss, rel=1e-5)
    assert at_input.terms[0] != hidden.terms[0]


def test_images_and_graphs():
    nx = pytest.importorskip("networkx")
    X, y = load_digits(return_X_y=True)
    small = {"width": 4, "blocks": (1, 1)}
    images = MixupEImageClassifier(module_params=small, max_epochs=1, batch_size=40, random_state=0)
    image_data = X[:80].reshape(-1, 8, 8) / 16
    images.fit(image_data, y[:80])
    parts = directional_derivatives(images, image_data, y[:80], order=2, n_partners=2)
    assert np.isfinite(parts.terms).all()
    graphs = [make(n) for n in range(4, 14) for make in (nx.cycle_graph, nx.path_graph)]
    classifier = MixupEGraphClassifier(max_epochs=1, batch_size=10, random_state=0)
    classifier.fit(graphs, ["cycle", "path"] * 10)
    parts = directional_derivatives(classifier, graphs, ["cycle", "path"] * 10, order=2)
    assert parts.q.shape == (20,)  # at the vectors of graphs, the only place there is
    assert np.isfinite(parts.terms).all()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"order": 0}, "Got order=0, but expected an integer from 1 to 8."),
        ({"n_partners": 0}, "Got n_partners=0, but expected an integer >= 1, or None"),
        ({"alpha": -1.0}, "Got alpha=-1.0, but expected a number >= 0"),
        ({"reach": 0.0}, "Got reach=0.0, but expected a number above 0 and up to 1."),
        ({"member": 1}, "Got member=1, but expected 0 to 0, since the estimator has n_members=1."),
        ({"random_state": "a"}, "Got random_state='a', but expected an integer >= 0."),
        ({"stage": 3}, "Got stage=3, but expected 0 to 0, the number of stages of Smooth"),
    ],
)
def test_wrong_parameters(smooth, wine, params, sentence):
    with pytest.raises(ValueError) as caught:
        directional_derivatives(smooth, *wine, **params)
    assert str(caught.value).startswith(sentence)


def test_wrong_estimators(wine):
    with pytest.raises(NotFittedError):
        directional_derivatives(MixupEClassifier(), *wine)
    with pytest.raises(TypeError, match="Got a LogisticRegression, but expected an estimator of"):
        directional_derivatives(LogisticRegression().fit(*wine), *wine)
    fitted = MixupEClassifier(**preset("paper") | {"max_epochs": 1})
    search = GridSearchCV(fitted, {"alpha": [0.1]}, cv=2).fit(*wine)
    with pytest.raises(TypeError, match="Got a GridSearchCV, .*; pass its best_estimator_."):
        directional_derivatives(search, *wine)
    fitted.fit(*wine)
    with pytest.raises(ValueError, match="Got y=None, but expected the targets of the samples."):
        directional_derivatives(fitted.net_, wine[0].astype("float32"), None)
    with pytest.raises(ValueError, match="Got member=1, but expected 0 to 0"):
        directional_derivatives(fitted.net_, *wine, member=1)
    with pytest.raises(ValueError, match="NaN"):
        directional_derivatives(fitted, np.full_like(wine[0], np.nan), wine[1])
    with pytest.raises(ValueError, match="features"):
        directional_derivatives(fitted, wine[0][:, :3], wine[1])


def test_diagnostics_leave_the_estimator_unchanged(smooth, wine):
    before = {name: value.clone() for name, value in smooth.net_.module_.state_dict().items()}
    directional_derivatives(smooth, *wine, order=1, n_partners=2)
    for name, value in smooth.net_.module_.state_dict().items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert all(weight.requires_grad for weight in smooth.net_.module_.parameters())


@pytest.mark.parametrize("head", ["softmax", "sigmoid", "squared"])
def test_coefficients_add_up_to_q(head, wine):
    """Equation (6): q is the sum over outputs of alpha, times gradient norm, times distance."""
    torch.manual_seed(0)
    module, X = Smooth(13, 3).double(), torch.tensor(wine[0]).requires_grad_()
    Y = torch.nn.functional.one_hot(torch.as_tensor(wine[1])).double()
    logits = module(X)
    expected = directional_penalty(logits, X, Y, 0.25, head)
    alpha, q = coefficients(logits, X, Y, 0.25, head)
    torch.testing.assert_close(q, expected)
    # One sample by hand: a full Jacobian, and its cosine with the direction.
    jacobian = torch.autograd.functional.jacobian(lambda x: module(x[None])[0], X[4].detach())
    direction = 0.25 - X[4].detach()
    lengths = jacobian.norm(dim=1) * direction.norm()
    cosine = jacobian @ direction / lengths
    means = {"softmax": lambda f: f.softmax(-1), "sigmoid": torch.sigmoid, "squared": lambda f: f}
    torch.testing.assert_close(alpha[4], ((means[head](logits[4]) - Y[4]) * cosine).detach())
    torch.testing.assert_close((alpha[4] * lengths).sum(), q[4])


def test_a_sample_at_the_mean_has_no_direction():
    X = torch.zeros(1, 2, requires_grad=True)
    alpha, q = coefficients(X @ torch.ones(2, 2), X, torch.tensor([[1.0, 0.0]]), 0.0)
    assert not alpha.any()
    assert not q.any()


def test_complexity_by_hand():
    """Two samples with scores 2 and -1 and y = 1 and 1, computed by hand."""
    X, y, coef = np.array([[2.0, 0.0], [-1.0, 1.0]]), np.array([1, 1]), np.array([1.0, 0.0])
    result = glm_complexity(X, y, coef, lipschitz=1.0, eta=0.5, loss_scale=0.8)
    gamma = max((1 - expit(2.0)) * 2, (1 - expit(-1.0)) * 1)
    assert result.gamma == pytest.approx(gamma)
    assert (result.max_norm, result.xi, result.largest_score) == (4.0, 1.0, 2.0)
    assert result.mixupe == pytest.approx(2 * 0.8 * 0.5 * 1 * gamma * 4 / (np.sqrt(2) * 2))
    assert result.mixup == pytest.approx(2 * np.sqrt(1 * 4 / 2))
    assert result.condition_holds == (gamma * 2 <= 2 * 1)
    assert glm_complexity(X, y, coef[None]) == glm_complexity(X, y, coef)
    given = glm_complexity(X, y, coef, gamma=3.0, xi=1.0)
    assert not given.mixupe_is_smaller
    assert given.mixupe > given.mixup


def test_the_condition_decides_which_term_is_smaller():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.integers(2, size=20)
    for gamma in (0.01, 0.5, 1.0, 2.0, 5.0):
        for xi in (0.05, 0.5, 5.0):
            for lipschitz in (0.5, 1.0, 3.0):
                result = glm_complexity(X, y, np.ones(3), gamma=gamma, xi=xi, lipschitz=lipschitz)
                assert result.condition_holds == (result.mixupe <= result.mixup)
    large = glm_complexity(X, y, np.ones(3), gamma=0.1, eta=1e6)
    assert large.condition_holds
    assert not large.mixupe_is_smaller


def test_a_bound_on_q_hat_does_not_bound_the_weights():
    """The step of the proof that does not hold, on real data: weights grow, q_hat does not."""
    X, y = load_iris(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[y < 2], y[y < 2]
    coef = LogisticRegression(fit_intercept=False).fit(X, y).coef_[0]
    found = [glm_complexity(X, y, factor * coef) for factor in (1, 10, 100)]
    assert found[0].gamma > found[1].gamma > found[2].gamma
    assert found[0].largest_score < found[1].largest_score < found[2].largest_score
    assert all(one.largest_score > one.score_bound for one in found)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"y": [0, 2]}, "Got y=2, but expected 0 or 1."),
        ({"coef": [1.0]}, "Got coef of shape (1,), but expected (2,)."),
        ({"lipschitz": 0.0}, "Got lipschitz=0.0, but expected a number > 0."),
        ({"gamma": -1.0}, "Got gamma=-1.0, but expected a number >= 0"),
        ({"y": ["no", "yes"]}, "Got y='no', but expected 0 or 1."),
        ({"mean": 3}, "Got mean=3, but expected a function, or None."),
        ({"X": [[np.nan, 0.0], [1.0, 1.0]]}, "Input X contains NaN."),
    ],
)
def test_wrong_complexity(params, sentence):
    given = {"X": np.eye(2), "y": [0, 1], "coef": [1.0, 1.0], **params}
    with pytest.raises(ValueError) as caught:
        glm_complexity(**given)
    assert str(caught.value).startswith(sentence)
