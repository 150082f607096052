import numpy as np
import pytest
import torch
from scipy import stats

from mixupe_sklearn._method.formulas import mix, sample_lam, sample_partner


@pytest.mark.parametrize("per_sample", [False, True])
def test_distinct_labels_mix_into_two_entries_that_sum_to_one(per_sample):
    # n samples of n classes: any mismatch between lam, partner and targets shows at once.
    n = 50
    rng = np.random.default_rng(0)
    lam = sample_lam(1.0, 1.0, rng, n if per_sample else None)
    partner = sample_partner(n, rng)
    mixed = mix(torch.eye(n, dtype=torch.float64), lam, partner)
    assert torch.allclose(mixed.sum(dim=1), torch.ones(n, dtype=torch.float64))
    expected = np.where(partner == np.arange(n), 1, 2)
    assert (mixed > 0).sum(dim=1).tolist() == expected.tolist()
    assert torch.allclose(
        mixed.diagonal(),
        torch.as_tensor(np.where(partner == np.arange(n), 1.0, lam)),
    )


def test_inputs_and_targets_see_the_same_partner():
    n = 20
    rng = np.random.default_rng(1)
    lam, partner = sample_lam(0.3, 0.3, rng), sample_partner(n, rng)
    labels = torch.arange(n, dtype=torch.float64)
    images = labels.reshape(n, 1, 1, 1).expand(n, 3, 4, 4)
    assert torch.allclose(mix(images, lam, partner)[:, 0, 0, 0], mix(labels, lam, partner))


@pytest.mark.parametrize(("alpha", "beta"), [(0.2, 0.2), (1.0, 3.0), (5.0, 0.5)])
def test_lam_follows_the_beta_distribution(alpha, beta):
    lam = sample_lam(alpha, beta, np.random.default_rng(0), size=20_000)
    assert stats.kstest(lam, stats.beta(alpha, beta).cdf).pvalue > 1e-3


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_a_zero_parameter_means_no_mixing(alpha, beta):
    assert sample_lam(alpha, beta, np.random.default_rng(0)) == 1.0


@pytest.mark.parametrize("alpha", [1e-300, 1e-8, 1e8])
def test_extreme_parameters_give_finite_weights(alpha):
    lam = sample_lam(alpha, alpha, np.random.default_rng(0), size=1000)
    assert np.isfinite(lam).all()
    assert ((lam >= 0) & (lam <= 1)).all()


def test_mix_does_not_change_its_input():
    values = torch.arange(6.0).reshape(3, 2)
    before = values.clone()
    mix(values, 0.3, np.array([2, 0, 1]))
    assert torch.equal(values, before)


def test_partners_are_a_permutation():
    partner = sample_partner(100, np.random.default_rng(0))
    assert sorted(partner) == list(range(100))
