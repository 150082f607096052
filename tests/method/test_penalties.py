"""The formulas against sampling, against autograd in float64, and by hand."""

import math

import numpy as np
import pytest
import torch
from torch.func import jacrev, vmap

from mixupe_sklearn._method.formulas import (
    HEADS,
    directional_penalty,
    glm_loss,
    logit_penalty,
    loss_scale,
    one_minus_lam_mean,
)
from mixupe_sklearn.modules import MLP

HEAD_NAMES = tuple(HEADS)


def make_batch(head, n=12, k=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, k, generator=generator, dtype=torch.float64)
    if head == "softmax":
        target = torch.rand(n, k, generator=generator, dtype=torch.float64)
        target = target / target.sum(dim=1, keepdim=True)
    elif head == "sigmoid":
        target = torch.rand(n, k, generator=generator, dtype=torch.float64)
    else:
        target = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return logits, target, torch.rand(n, generator=generator, dtype=torch.float64) + 0.1


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.2, 0.2), (1.0, 3.0), (4.0, 0.5)])
def test_mean_of_one_minus_lam_matches_sampling_of_the_mixture(alpha, beta):
    rng = np.random.default_rng(0)
    n = 400_000
    first = rng.random(n) < alpha / (alpha + beta)
    lam = np.where(first, rng.beta(alpha + 1, beta, n), rng.beta(beta + 1, alpha, n))
    error = (1 - lam).std() / math.sqrt(n)
    assert abs((1 - lam).mean() - one_minus_lam_mean(alpha, beta)) < 5 * error


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 5.0])
def test_mean_of_one_minus_lam_equals_that_of_the_paper_for_equal_parameters(alpha):
    assert one_minus_lam_mean(alpha) == pytest.approx(1 - (alpha + 1) / (2 * alpha + 1), rel=1e-12)
    assert one_minus_lam_mean(alpha, alpha) == one_minus_lam_mean(alpha)


def test_mean_of_one_minus_lam_is_symmetric_and_vanishes_at_zero():
    assert one_minus_lam_mean(0.3, 2.0) == pytest.approx(one_minus_lam_mean(2.0, 0.3))
    assert one_minus_lam_mean(0.0) == 0.0
    assert one_minus_lam_mean(1e-9) < 1e-8


def test_losses_equal_those_of_torch():
    for head, reference in (
        ("softmax", torch.nn.functional.cross_entropy),
        ("sigmoid", torch.nn.functional.binary_cross_entropy_with_logits),
        ("squared", torch.nn.functional.mse_loss),
    ):
        logits, target, _ = make_batch(head)
        factor = {"softmax": 1, "sigmoid": logits.shape[1], "squared": logits.shape[1] / 2}[head]
        loss = glm_loss(logits, target, head=head)[0].mean()
        assert loss.item() == pytest.approx(factor * reference(logits, target).item(), rel=1e-12)


@pytest.mark.parametrize("head", HEAD_NAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_closed_form_loss_gradient_equals_autograd(head, weighted):
    logits, target, weight = make_batch(head)
    mass = weight if weighted else None
    target = weight[:, None] * target if weighted else target
    logits.requires_grad_()
    loss, gradient = glm_loss(logits, target, mass, head)
    (expected,) = torch.autograd.grad(loss.sum(), logits)
    assert (gradient - expected).abs().max() < 1e-10


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_closed_form_penalty_gradient_equals_autograd(head):
    logits, target, _ = make_batch(head)
    logits.requires_grad_()
    q_hat, gradient = logit_penalty(logits, target, head)
    (expected,) = torch.autograd.grad(q_hat.sum(), logits)
    assert (gradient - expected).abs().max() < 1e-10


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_a_loss_is_never_negative_and_a_weight_scales_it(head):
    logits, target, weight = make_batch(head)
    loss = glm_loss(logits, target, head=head)[0]
    weighted = glm_loss(logits, weight[:, None] * target, weight, head)[0]
    assert (loss >= 0).all()
    assert torch.allclose(weighted, weight * loss)


def test_a_sample_of_zero_mass_has_no_loss():
    zero = torch.zeros(1, dtype=torch.float64)
    loss, gradient = glm_loss(torch.ones(1, 2), torch.zeros(1, 2), zero, "squared")
    assert loss.item() == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_directional_penalty_equals_the_full_jacobian(head):
    module = MLP(5, 4, d_hidden=(8,), activation="tanh").double()
    _, target, _ = make_batch(head, n=6)
    X = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    X_mean = torch.randn(5, dtype=torch.float64)
    logits = module(X)
    q = directional_penalty(logits, X, target, X_mean, head)
    jacobian = vmap(jacrev(lambda x: module(x[None])[0]))(X.detach())
    residual = HEADS[head].mean(logits) - target
    expected = torch.einsum("nk,nkd,nd->n", residual, jacobian, X_mean - X)
    assert (q - expected).abs().max() < 1e-12


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_directional_penalty_gradient_passes_through_residual_and_jacobian(head):
    _, target, _ = make_batch(head, n=3)
    X = torch.randn(3, 5, dtype=torch.float64)

    def total(weight, bias):
        inputs = X.clone().requires_grad_()
        logits = torch.tanh(inputs @ weight.T + bias)
        return directional_penalty(logits, inputs, target, 0.5, head).abs().mean()

    weight = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(total, (weight, bias))


@pytest.mark.parametrize("head", HEAD_NAMES)
def test_both_penalties_are_equal_for_a_bias_free_relu_net_on_centred_data(head):
    X = torch.randn(40, 7, dtype=torch.float64)
    X = (X - X.mean(dim=0)).requires_grad_()
    _, target, _ = make_batch(head, n=40)
    module = MLP(7, 4, d_hidden=(16, 16), bias=False).double()
    logits = module(X)
    q = directional_penalty(logits, X, target, 0.0, head)
    q_hat, _ = logit_penalty(logits, target, head)
    assert (q - q_hat).abs().max() < 1e-10
    assert q.abs().max() > 1e-3


def test_both_penalties_differ_with_biases_or_another_mean():
    X = torch.randn(40, 7, dtype=torch.float64, requires_grad=True)
    _, target, _ = make_batch("softmax", n=40)
    for bias, X_mean in ((True, 0.0), (False, 1.0)):
        logits = MLP(7, 4, bias=bias).double()(X)
        q = directional_penalty(logits, X, target, X_mean)
        q_hat, _ = logit_penalty(logits, target)
        assert (q - q_hat).abs().max() > 1e-3


def test_the_sign_by_hand():
    # Two classes, p = (3/4, 1/4). True class first: y - p = (1/4, -1/4), q_hat = log(3)/4 > 0.
    # True class second: y - p = (-3/4, 3/4), q_hat = -3 log(3)/4 < 0.
    logits = torch.tensor([[math.log(3.0), 0.0]] * 2, dtype=torch.float64)
    q_hat, _ = logit_penalty(logits, torch.eye(2, dtype=torch.float64))
    assert q_hat.tolist() == pytest.approx([math.log(3) / 4, -3 * math.log(3) / 4])


def test_loss_scale_rescales_the_total_to_the_mixup_loss():
    mixup_loss, total = torch.tensor(0.7), torch.tensor(1.3)
    assert (loss_scale(mixup_loss, total) * total).item() == pytest.approx(0.7)
    assert loss_scale(torch.tensor(0.0), torch.tensor(0.0)) == 1
    assert loss_scale(torch.tensor(0.0), torch.tensor(2.0)) == 0


@pytest.mark.parametrize("total", [0.0, 0.7, 2.0, float("inf"), float("nan")])
def test_loss_scale_of_floats_equals_that_of_tensors(total):
    of_tensors = loss_scale(*torch.tensor([0.7, total], dtype=torch.float64)).item()
    np.testing.assert_array_equal(loss_scale(0.7, total), of_tensors)
