"""Random input: the formulas against plain versions of them."""

import itertools

import numpy as np
import torch
from fuzz import matrices, plain_numbers
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from mixupe_sklearn import Draw, MixupELoss
from mixupe_sklearn._method.formulas import (
    glm_loss,
    logit_penalty,
    mix,
    one_minus_lam_mean,
    one_minus_lam_moment,
    penalty_weights,
    sample_lam,
    sample_partner,
    sample_share,
)

numbers = st.floats(-20, 20)
heads = st.sampled_from(["softmax", "sigmoid", "squared"])
shapes = st.floats(0, 50)


def potential(head, logits):
    if head == "softmax":
        return logsumexp(logits, axis=1)
    return np.logaddexp(0, logits).sum(axis=1) if head == "sigmoid" else (logits**2).sum(axis=1) / 2


@given(matrices(numbers), st.floats(0, 1) | st.none(), st.randoms(use_true_random=False), st.data())
def test_mixing_is_a_weighted_mean_of_two_samples(X, lam, random, data):
    n = len(X)
    partner = np.array(random.sample(range(n), n))
    lam = np.array([random.random() for _ in range(n)]) if lam is None else lam
    rows = data.draw(st.none() | st.lists(st.integers(0, n - 1), min_size=1).map(np.array))
    before = X.copy()
    mixed = mix(torch.from_numpy(X), lam, partner, rows).numpy()
    share = np.broadcast_to(lam, n)[:, None]
    expected = share * X + (1 - share) * X[partner]
    np.testing.assert_allclose(mixed, expected if rows is None else expected[rows], atol=1e-12)
    assert np.array_equal(X, before)


@given(matrices(numbers, columns=(2, 4)), heads, st.data())
def test_the_loss_and_its_gradient_match_the_formula(logits, head, data):
    target = data.draw(
        matrices(st.floats(0, 1), rows=(len(logits),) * 2, columns=(logits.shape[1],) * 2)
    )
    mass = np.array(
        data.draw(st.lists(st.floats(0.1, 3), min_size=len(logits), max_size=len(logits)))
    )
    f = torch.tensor(logits, requires_grad=True)
    loss, gradient = glm_loss(f, torch.from_numpy(target), torch.from_numpy(mass), head)
    expected = mass * potential(head, logits) - (target * logits).sum(axis=1)
    if head == "squared":
        expected = expected + (target**2).sum(axis=1) / (2 * mass)
    np.testing.assert_allclose(loss.detach(), expected, rtol=1e-9, atol=1e-9)
    (grad,) = torch.autograd.grad(loss.sum(), f)
    np.testing.assert_allclose(gradient.detach(), grad, atol=1e-9)


@given(matrices(numbers, columns=(2, 4)), heads, st.data())
def test_the_penalty_and_its_gradient_match_the_formula(logits, head, data):
    y = data.draw(
        matrices(st.integers(0, 1), rows=(len(logits),) * 2, columns=(logits.shape[1],) * 2)
    )
    f = torch.tensor(logits, requires_grad=True)
    penalty, gradient = logit_penalty(f, torch.from_numpy(y), head)
    mean = {"softmax": f.softmax(1), "sigmoid": f.sigmoid(), "squared": f}[head].detach().numpy()
    np.testing.assert_allclose(penalty.detach(), ((y - mean) * logits).sum(axis=1), atol=1e-9)
    (grad,) = torch.autograd.grad(penalty.sum(), f)
    np.testing.assert_allclose(gradient.detach(), grad, atol=1e-9)


@given(shapes, shapes, st.integers(1, 5))
def test_moments_of_the_mixture_decrease_and_stay_within_bounds(alpha, beta, order):
    moments = [one_minus_lam_moment(k, alpha, beta) for k in range(1, order + 2)]
    assert all(
        0 <= later <= earlier <= 0.5 + 1e-12 for earlier, later in itertools.pairwise(moments)
    )
    np.testing.assert_allclose(one_minus_lam_mean(alpha, beta), moments[0], rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(
        one_minus_lam_moment(order, beta, alpha), moments[order - 1], rtol=1e-9, atol=1e-300
    )


@given(shapes, shapes, st.integers(1, 30), st.floats(0, 1, exclude_min=True), st.integers(0, 2**32))
def test_draws_are_a_permutation_and_a_fraction_of_it(alpha, beta, n, fraction, seed):
    rng = np.random.default_rng(seed)
    lam = sample_lam(alpha, beta, rng, n)
    assert np.shape(lam) in ((n,), ())
    assert ((np.asarray(lam) >= 0) & (np.asarray(lam) <= 1)).all()
    partner = sample_partner(n, rng)
    assert sorted(partner.tolist()) == list(range(n))
    for share in (sample_share(n, fraction, rng), sample_share(n, fraction, rng, partner=partner)):
        assert (
            share is None
            or len(set(share.tolist())) == len(share) == max(1, round(fraction * n)) < n
        )


@given(
    matrices(plain_numbers, rows=(1, 6), columns=(2, 3)),
    st.integers(2, 4),
    heads,
    st.floats(0, 1),
    st.data(),
)
def test_eta_zero_is_mixup_and_the_order_of_samples_does_not_matter(X, n_outputs, head, lam, data):
    n = len(X)
    torch.manual_seed(n)
    module, rows = torch.nn.Linear(X.shape[1], n_outputs).double(), torch.from_numpy(X)
    y = np.array(data.draw(st.lists(st.integers(0, n_outputs - 1), min_size=n, max_size=n)))
    y = torch.from_numpy(y if head == "softmax" else np.eye(n_outputs)[y])
    partner, order = (np.array(data.draw(st.permutations(range(n)))) for _ in range(2))
    draw = Draw(lam=lam, partner=partner)
    parts = {
        eta: MixupELoss(eta=eta, alpha=1.0, head=head)(module, rows, y, draw=draw)
        for eta in (0.0, 0.5)
    }
    plain = MixupELoss(method="mixup", alpha=1.0, head=head)(module, rows, y, draw=draw)
    torch.testing.assert_close(parts[0.0].loss, plain.loss)
    again = Draw(lam=lam, partner=np.argsort(order)[partner[order]])
    moved = MixupELoss(eta=0.5, alpha=1.0, head=head)(
        module, rows[order.copy()], y[order.copy()], draw=again
    )
    torch.testing.assert_close(moved.loss, parts[0.5].loss)
    assert bool(torch.isfinite(moved.loss))


@given(st.floats(0, 1), st.lists(st.floats(0, 9), min_size=1, max_size=9), st.data())
def test_penalty_weights_give_the_weighted_mean_of_the_selected_samples(total, weight, data):
    seen = data.draw(st.none() | st.lists(st.integers(0, len(weight) - 1), min_size=1, unique=True))
    shares = penalty_weights(
        total, torch.tensor(weight, dtype=torch.float64), None if seen is None else np.array(seen)
    )
    expected = total * np.mean(weight if seen is None else np.take(weight, seen))
    np.testing.assert_allclose(shares.sum(), expected, atol=1e-12)
