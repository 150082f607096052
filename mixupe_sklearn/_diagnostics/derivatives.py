"""The terms of Theorem 1 of the paper for a fitted model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import factorial
from torch import Tensor

from mixupe_sklearn._diagnostics.fitted import Sample, fitted_net, sample_of
from mixupe_sklearn._diagnostics.taylor import derivatives_at_zero, moments, nodes
from mixupe_sklearn._method.formulas import (
    directional_penalty,
    glm_loss,
    logit_penalty,
    one_minus_lam_mean,
)
from mixupe_sklearn._runtime.torch_state import gradients_on
from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

_RULES: dict[str, Rule] = {
    "order": Number("an integer from 1 to 8", low=1, high=9, integer=True),
    "n_partners": Number(
        "an integer >= 1, or None for all samples", low=1, integer=True, or_none=True
    ),
    "alpha": Number("a number >= 0, or None for the estimator's", or_none=True),
    "reach": Number("a number above 0 and up to 1", high=np.nextafter(1.0, 2.0), open_low=True),
    "stage": Number("an integer >= 0, or None", integer=True, or_none=True),
    "member": Number("an integer >= 0", integer=True),
    "random_state": Number("an integer >= 0", integer=True),
}
# Pairs of samples that are expanded at once.
_AT_ONCE = 4096


@dataclass(frozen=True)
class DirectionalDerivatives:
    """The Mixup loss of a fitted model by order; see :func:`directional_derivatives`.

    Attributes
    ----------
    standard_loss : float
        Mean loss of the clean samples.
    mixup_loss : float
        Mean loss of mixed samples, over partners and ``lam``.
    terms : ndarray of shape (order,)
        The theorem's term of each order.
    shares : ndarray of shape (order,)
        Each term over ``mixup_loss``.
    remainders : ndarray of shape (order,)
        What the terms up to each order leave out: ``mixup_loss`` minus ``standard_loss`` minus
        ``label_term`` minus their sum.
    label_term : float
        What mixed targets subtract from a squared error, for any network: a constant, and zero for
        classes.
    q, q_hat : ndarray of shape (n_samples,)
        First directional derivative of each sample toward the mean of all, and its approximation
        from the logits.
    error : ndarray of shape (n_samples,)
        ``q_hat - q``.

    Examples
    --------
    >>> import numpy as np
    >>> parts = DirectionalDerivatives(
    ...     standard_loss=0.25, mixup_loss=1.0, terms=np.array([0.25, 0.125]),
    ...     q=np.array([1.0]), q_hat=np.array([1.5]),
    ... )
    >>> parts.shares, parts.remainders, parts.error
    (array([0.25 , 0.125]), array([0.5  , 0.375]), array([0.5]))
    """

    standard_loss: float
    mixup_loss: float
    terms: np.ndarray
    q: np.ndarray
    q_hat: np.ndarray
    label_term: float = 0.0

    @property
    def shares(self) -> np.ndarray:
        """Each term over the Mixup loss."""
        return self.terms / self.mixup_loss

    @property
    def remainders(self) -> np.ndarray:
        """What the terms up to each order leave out."""
        return self.mixup_loss - self.standard_loss - self.label_term - np.cumsum(self.terms)

    @property
    def error(self) -> np.ndarray:
        """Error of the approximation, ``q_hat - q``, of each sample."""
        return self.q_hat - self.q


@gradients_on()
def directional_derivatives(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    order: int = 3,
    n_partners: int | None = 16,
    alpha: float | None = None,
    reach: float = 1.0,
    stage: int | None = None,
    member: int = 0,
    random_state: int = 0,
) -> DirectionalDerivatives:
    """Decompose the Mixup loss of a fitted model into directional derivatives, order by order.

    Theorem 1 of the paper: the Mixup loss is the loss of the clean samples, plus for each order k
    the mean of the k-th derivative of the loss toward another sample, times
    ``E[(1-lam)**k] / k!``, plus a remainder. The first term is ``E[1-lam]`` times the mean of
    ``q``, which MixupE strengthens. Derivatives are exact, in double precision.

    Parameters
    ----------
    estimator : estimator of this package, a pipeline that ends with one, or MixupENet
        The fitted model.
    X, y : array-like
        Samples and their targets, as for ``fit``: the training set, or a subset of it. They are
        their own partners, and their mean is the ``E[x']`` of ``q``. Weights are ignored.
    order : int, default=3
        Number of terms. Each additional one takes two to three times as long.
    n_partners : int or None, default=16
        Number of random partners of each sample; None pairs all with all. Then the terms are
        exact, the first is ``E[1-lam]`` times the mean of ``q``, and ``mixup_loss`` is exact up to
        a quadrature over ``lam`` with 16 nodes.
    alpha : float or None, default=None
        Parameter of the Beta distribution of ``lam``; None means the estimator's ``alpha`` and
        ``beta``.
    reach : float, default=1.0
        Fraction of the distance to its partners that each sample moves. The remainder after K
        terms falls at least like ``reach ** (K + 1)``, if the network is smooth.
    stage : int or None, default=None
        Number of stages of the module that run before samples are mixed. None means none (inputs),
        or one if inputs cannot be mixed (graphs).
    member : int, default=0
        Index of the network of an estimator with several.
    random_state : int, default=0
        Seed of the partners.

    Returns
    -------
    derivatives : DirectionalDerivatives
        Losses, terms, remainders, and ``q`` and ``q_hat`` of each sample.

    Notes
    -----
    The network is in evaluation mode: dropout is off, and samples do not interact. The theorem
    assumes a smooth network. With piecewise linear activations such as ReLU, the derivatives are
    those between the kinks and the remainder holds the effect of the kinks; more terms need not
    bring the series closer to the loss. For a smooth network the series converges for steps within
    its radius of convergence only: try a smaller ``reach``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier
    >>> from mixupe_sklearn.diagnostics import directional_derivatives
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = MixupEClassifier(alpha=0.2, n_members=1, random_state=0).fit(X, y)
    >>> parts = directional_derivatives(classifier, X, y, order=2)
    >>> parts.mixup_loss > parts.standard_loss, parts.terms.shape, parts.q.shape
    (True, (2,), (150,))
    """
    check_rules(locals(), _RULES)
    sample = sample_of(*fitted_net(estimator, X, y, member), stage)
    criterion = sample.criterion
    mixing = (criterion.alpha, criterion.beta) if alpha is None else (alpha, None)
    total, n_pairs = np.zeros(3 + order), 0
    for rows, others in _pairs(len(sample.X), n_partners, random_state):
        total += _sums(sample, rows, others, reach, order, *mixing)
        n_pairs += len(rows)
    standard, mixup, label = (float(value) for value in total[:3])
    factors = moments(order, *mixing) / factorial(np.arange(1, order + 1))
    terms = factors * total[3:] / n_pairs
    losses = standard / n_pairs, (mixup + label) / n_pairs
    return DirectionalDerivatives(*losses, terms, *_first_order(sample, reach), label / n_pairs)


def _sums(
    sample: Sample,
    rows: np.ndarray,
    others: np.ndarray,
    reach: float,
    order: int,
    alpha: float,
    beta: float | None,
) -> np.ndarray:
    """Sums over pairs: the clean loss, the Mixup loss, the label term, each derivative."""
    X, y, head = sample.X[rows], sample.targets[rows], sample.criterion.head
    other = X + reach * (sample.X[others] - X)
    direction = other - X

    def phi(a: Tensor) -> Tensor:
        return glm_loss(sample.run(X + a * direction), y, head=head)[0].sum()

    with torch.no_grad():
        standard, *derivatives = (float(value) for value in derivatives_at_zero(phi, order))
        points, weights = nodes(alpha, beta)
        mixup = sum(w * float(phi(torch.tensor(a))) for a, w in zip(points, weights, strict=True))
    label = 0.0
    if head == "squared":
        # Half the variance of mixed targets, lam (1 - lam) |y - y'|^2, whose factor has the mean
        # E[a] / 2.
        apart = (sample.targets[others] - y).square().sum()
        label = -one_minus_lam_mean(alpha, beta) / 4 * float(apart)
    return np.array([standard, mixup, label, *derivatives])


def _pairs(
    n_rows: int, n_partners: int | None, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices of samples and of their partners, some thousand pairs at a time."""
    rng, at_once = np.random.default_rng(seed), max(1, _AT_ONCE // n_rows)
    n_turns = n_rows if n_partners is None else min(n_partners, n_rows)
    # Each turn shifts all partners by the same number of places, so that no pair occurs twice.
    shifts = rng.permutation(n_rows)[:n_turns] if n_turns < n_rows else np.arange(n_rows)
    order, rows = rng.permutation(n_rows), np.arange(n_rows)
    for start in range(0, n_turns, at_once):
        places = rows + shifts[start : start + at_once, None]
        yield np.tile(order, len(places)), order[places % n_rows].ravel()


def _first_order(sample: Sample, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """``q`` and ``q_hat`` of all samples; ``reach`` scales the step to the mean too."""
    head = sample.criterion.head
    X = sample.X.clone().requires_grad_()
    logits = sample.run(X)
    q = directional_penalty(logits, X, sample.targets, X.detach().mean(dim=0), head)
    q_hat, _ = logit_penalty(logits.detach(), sample.targets, head)
    return reach * q.detach().numpy(), reach * q_hat.numpy()
