"""The experimental second-order term: exact, absolute, rescaled, and off by default."""

import numpy as np
import pytest
import torch
from paper import paper_regressor
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import Draw, MixupEClassifier, MixupELoss, MixupENet, preset
from mixupe_sklearn._method.formulas import HEADS, one_minus_lam_moment
from mixupe_sklearn._method.second_order import second_derivative, step_toward
from mixupe_sklearn.modules import MLP

ALPHA = 0.7


def network(activation, n_features=13, n_outputs=3):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(n_features, 8), activation(), torch.nn.Linear(8, n_outputs)]
    return torch.nn.Sequential(*layers).double()


def wine(n_rows=12):
    X, y = load_wine(return_X_y=True)
    rows = np.linspace(0, len(X) - 1, n_rows).astype(int)
    X = StandardScaler().fit_transform(X)[rows]
    return torch.tensor(X), torch.tensor(y[rows])


def onehot(y):
    return torch.nn.functional.one_hot(y).double()


def loss_at(module, x, y, head):
    logits = module(x[None])
    return (HEADS[head].potential(logits) - (y * logits).sum(dim=-1))[0]


@pytest.mark.parametrize("head", sorted(HEADS))
def test_it_is_the_second_derivative_toward_the_other_sample(head):
    """Compare with a full Hessian, which the package never computes."""
    module, (X, y) = network(torch.nn.Tanh), wine()
    others, targets = np.roll(np.arange(len(X)), 3), onehot(y)
    rows, step = step_toward(X, X, others)
    q2 = second_derivative(module(rows), targets, step, head).detach()
    for number, value in enumerate(q2):
        x, target = X[number], targets[number]
        hessian = torch.autograd.functional.hessian(
            lambda x, target=target: loss_at(module, x, target, head), x
        )
        way = X[others[number]] - x
        torch.testing.assert_close(value, way @ hessian @ way, atol=1e-12, rtol=1e-10)


def test_it_is_the_curvature_of_the_loss_for_a_relu_network():
    """``q2 = (J d)' (diag(p) - p p') (J d)``, which is never negative."""
    module, (X, y) = network(torch.nn.ReLU), wine()
    others = np.roll(np.arange(len(X)), 5)
    rows, step = step_toward(X, X, others)
    q2 = second_derivative(module(rows), onehot(y), step).detach()
    _, along = torch.func.jvp(module, (X,), (X[others] - X,))
    p = module(X).softmax(dim=-1).detach()
    expected = (p * along.square()).sum(dim=-1) - (p * along).sum(dim=-1).square()
    torch.testing.assert_close(q2, expected.detach())
    assert q2.min() > 0


@pytest.mark.parametrize("penalty", ["logit", "directional"])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_it_is_added_to_the_first_order_with_its_moment(penalty, fraction):
    module, (X, y) = network(torch.nn.Tanh), wine()
    how = {"alpha": ALPHA, "eta": 0.5, "penalty": penalty, "penalty_fraction": fraction}
    draw = MixupELoss(**how, random_state=1).draw(len(X))
    first = MixupELoss(**how)(module, X, y, draw=draw)
    both = MixupELoss(**how, penalty_order=2)(module, X, y, draw=draw)
    seen = np.arange(len(X)) if draw.clean is None else draw.clean
    rows, step = step_toward(X[seen], X, draw.partner[seen])
    q2 = second_derivative(module(rows), onehot(y)[seen], step)
    expected = one_minus_lam_moment(2, ALPHA) / 2 * q2.abs().mean()
    torch.testing.assert_close(both.penalty_term - first.penalty_term, expected.detach())
    torch.testing.assert_close(both.mixup_loss, first.mixup_loss)
    # The same rescaling: the value remains that of Mixup.
    torch.testing.assert_close(both.loss.detach(), both.mixup_loss)
    assert both.loss_scale < first.loss_scale


@pytest.mark.parametrize("method", ["mixupe", "erm+penalty"])
def test_its_gradient_matches_finite_differences(method):
    """Of ``scale * (mixup_loss + eta * (R1 + R2))`` with a constant scale."""
    module, (X, y) = network(torch.nn.Tanh), wine()
    criterion = MixupELoss(alpha=ALPHA, eta=0.5, penalty_order=2, method=method, random_state=1)
    draw = criterion.draw(len(X))
    parts = criterion(module, X, y, draw=draw)
    parts.loss.backward()
    weight = module[0].weight
    grad = weight.grad.clone()
    rng = np.random.default_rng(0)
    for place in rng.choice(weight.numel(), 8, replace=False):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight.view(-1)[place] += sign * 1e-6
            moved = criterion(module, X, y, draw=draw)
            values.append(moved.mixup_loss + 0.5 * moved.penalty_term)
            with torch.no_grad():
                weight.view(-1)[place] -= sign * 1e-6
        expected = parts.loss_scale * (values[0] - values[1]) / 2e-6
        torch.testing.assert_close(grad.view(-1)[place], expected, rtol=1e-4, atol=1e-8)


def test_without_mixing_the_other_samples_are_drawn():
    criterion = MixupELoss(method="erm+penalty", penalty_order=2, random_state=0)
    draw = criterion.draw(6)
    assert draw.partner is None
    assert sorted(draw.toward) == list(range(6))
    assert MixupELoss(method="erm+penalty", random_state=0).draw(6).toward is None
    module, (X, y) = network(torch.nn.Tanh), wine(6)
    assert (
        criterion(module, X, y, draw=Draw()).penalty_term > 0
    )  # also for a given draw without others


def test_both_orders_make_the_same_draws():
    one, two = (MixupELoss(penalty_order=order, random_state=3).draw(9) for order in (1, 2))
    assert one.lam == two.lam
    np.testing.assert_array_equal(one.partner, two.partner)


@pytest.mark.parametrize(("eta", "method"), [(0.0, "mixupe"), (1.0, "mixup"), (1.0, "erm")])
def test_without_a_penalty_it_changes_nothing(eta, method):
    X, y = load_iris(return_X_y=True)
    how = preset("paper") | {"max_epochs": 2, "eta": eta, "method": method, "batch_size": 20}
    first, second = (
        MixupEClassifier(**how | {"penalty_order": order}, random_state=0).fit(X, y)
        for order in (1, 2)
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("mix_at", ["input", "hidden"])
@pytest.mark.parametrize("n_members", [1, 3])
def test_an_estimator_trains_with_it(mix_at, n_members):
    X, y = load_iris(return_X_y=True)
    how = preset("paper") | {"batch_size": 20, "mix_at": mix_at, "n_members": n_members}
    first, second = (
        MixupEClassifier(**how | {"penalty_order": order}, random_state=0).fit(X, y)
        for order in (1, 2)
    )
    assert second.score(X, y) > 0.9
    assert second.history_[-1]["train_penalty"] != first.history_[-1]["train_penalty"]
    again = clone(second).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), second.predict_proba(X))


def test_a_regressor_and_a_net_train_with_it():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    how = {"penalty_order": 2, "alpha": 0.2, "eta": 0.1, "max_epochs": 40, "batch_size": 20}
    regressor = paper_regressor(**how, random_state=0).fit(X[:, 1:], X[:, 0])
    assert regressor.score(X[:, 1:], X[:, 0]) > 0.5
    net = MixupENet(
        MLP(13, 3), criterion__penalty_order=2, lr=0.01, optimizer=torch.optim.Adam, verbose=0
    )
    assert net.fit(X.astype(np.float32), y).score(X.astype(np.float32), y) > 0.9


@pytest.mark.parametrize("order", [0, 3, 1.5, "2", None])
def test_other_orders_are_refused(order):
    with pytest.raises(ValueError, match=f"Got penalty_order={order!r}, but expected 1 or 2."):
        MixupELoss(penalty_order=order)
