"""The terms of the paper's first theorem for a fitted model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixupe_sklearn._diagnostics.fitted import Sample, fitted_net, sample_of
from mixupe_sklearn._diagnostics.taylor import expand, factorials, moments
from mixupe_sklearn._method.penalties import directional_penalty, logit_penalty, one_minus_lam_mean
from mixupe_sklearn._runtime.device import gradients_on
from mixupe_sklearn._utils.parameter_rules import Number, Rule, check_rules

_RULES: dict[str, Rule] = {
    "order": Number("a whole number from 1 to 8", low=1, high=9, integer=True),
    "n_partners": Number(
        "a whole number >= 1, or None for all rows", low=1, integer=True, or_none=True
    ),
    "alpha": Number("a number >= 0, or None for the estimator's", or_none=True),
    "reach": Number("a number above 0 and up to 1", high=np.nextafter(1.0, 2.0), open_low=True),
    "stage": Number("a whole number >= 0, or None", integer=True, or_none=True),
    "member": Number("a whole number >= 0", integer=True),
    "random_state": Number("a whole number >= 0", integer=True),
}
# Pairs of rows that are expanded at once.
_AT_ONCE = 4096


@dataclass(frozen=True)
class DirectionalDerivatives:
    """What the Mixup loss of a fitted model is made of; see :func:`directional_derivatives`.

    Attributes
    ----------
    standard_loss : float
        Mean loss of the clean rows.
    mixup_loss : float
        Mean loss of mixed rows, over partners and ``lam``.
    terms : ndarray of shape (order,)
        The theorem's term of each order.
    shares : ndarray of shape (order,)
        Each term over ``mixup_loss``.
    remainders : ndarray of shape (order,)
        What is missing after the terms up to each order: ``mixup_loss`` minus ``standard_loss``
        minus ``label_term`` minus their sum.
    label_term : float
        What mixed targets take off a squared error, whatever the network: a constant, and zero for
        classes.
    q, q_hat : ndarray of shape (n_samples,)
        First directional derivative of each row towards the mean of all, and its approximation
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
        """What is missing after the terms up to each order."""
        return self.mixup_loss - self.standard_loss - self.label_term - np.cumsum(self.terms)

    @property
    def error(self) -> np.ndarray:
        """Error of the approximation, ``q_hat - q``, of each row."""
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
    """Take the Mixup loss of a fitted model apart into directional derivatives, order by order.

    The paper's first theorem: the Mixup loss is the loss of the clean rows, plus for each order k
    the mean of the k-th derivative of the loss along the way to another row, times
    ``E[(1-lam)**k] / k!``, plus a remainder. The first term is ``E[1-lam]`` times the mean of
    ``q``, which MixupE strengthens. Derivatives are exact, in double precision.

    Parameters
    ----------
    estimator : estimator of this package, a pipeline that ends with one, or MixupENet
        The fitted model.
    X, y : array-like
        Rows and their targets, as for ``fit``: the training rows, or a sample of them. They are
        their own partners, and their mean is the ``E[x']`` of ``q``. Weights are left aside.
    order : int, default=3
        How many terms. Each one more takes two to three times as long.
    n_partners : int or None, default=16
        With how many others, drawn at random, each row is paired; None pairs all with all. Then
        the terms are exact, the first is ``E[1-lam]`` times the mean of ``q``, and ``mixup_loss``
        is exact up to a quadrature over ``lam`` of 16 points.
    alpha : float or None, default=None
        Parameter of the Beta distribution of ``lam``; None means the estimator's ``alpha`` and
        ``beta``.
    reach : float, default=1.0
        Where below one, partners are moved this close to their rows. The remainder after K terms
        then falls at least like ``reach ** (K + 1)``, if the network is smooth.
    stage : int or None, default=None
        How many stages of the module run before rows are mixed. None means none (inputs), or one
        where inputs cannot be mixed (graphs).
    member : int, default=0
        Which network of an estimator with several.
    random_state : int, default=0
        Seed of the partners.

    Returns
    -------
    derivatives : DirectionalDerivatives
        Losses, terms, remainders, and ``q`` and ``q_hat`` of each row.

    Notes
    -----
    The network is in evaluation mode: nothing is dropped, and rows do not see each other. The
    theorem wants a smooth network. Where activations have kinks, as ReLU has, the derivatives are
    those between kinks, and the remainder holds what happens at them; the series need not come
    nearer to the loss with more terms. Of a smooth network it does so for steps within its radius
    of convergence only: try a smaller ``reach``.

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
    standard, mixup, label, derivatives, n_pairs = 0.0, 0.0, 0.0, np.zeros(order), 0
    for rows, others in _pairs(len(sample.X), n_partners, random_state):
        X_own, y_own = sample.X[rows], sample.targets[rows]
        other = X_own + reach * (sample.X[others] - X_own)
        part = expand(sample.run, X_own, other, y_own, order, *mixing, criterion.head)
        standard, mixup = standard + part.standard, mixup + part.mixup
        derivatives, n_pairs = derivatives + part.derivatives, n_pairs + len(rows)
        if criterion.head == "squared":
            # Half the variance of mixed targets, lam (1 - lam) |y - y'|^2, with E[a] / 2 its mean.
            apart = (sample.targets[others] - y_own).square().sum()
            label -= one_minus_lam_mean(*mixing) / 4 * float(apart)
    terms = moments(order, *mixing) / factorials(order) * derivatives / n_pairs
    losses = standard / n_pairs, (mixup + label) / n_pairs
    return DirectionalDerivatives(*losses, terms, *_first_order(sample, reach), label / n_pairs)


def _pairs(
    n_rows: int, n_partners: int | None, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of rows and of their partners, some thousand pairs at a time."""
    rng, at_once = np.random.default_rng(seed), max(1, _AT_ONCE // n_rows)
    n_turns = n_rows if n_partners is None else min(n_partners, n_rows)
    # Each turn moves all partners on by one and the same number of places: rows meet no one twice.
    shifts = rng.permutation(n_rows)[:n_turns] if n_turns < n_rows else np.arange(n_rows)
    order, rows = rng.permutation(n_rows), np.arange(n_rows)
    for start in range(0, n_turns, at_once):
        places = rows + shifts[start : start + at_once, None]
        yield np.tile(order, len(places)), order[places % n_rows].ravel()


def _first_order(sample: Sample, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """``q`` and ``q_hat`` of all rows; the way to the mean is cut as all ways are."""
    head = sample.criterion.head
    X = sample.X.clone().requires_grad_()
    logits = sample.run(X)
    q = directional_penalty(logits, X, sample.targets, X.detach().mean(dim=0), head)
    q_hat, _ = logit_penalty(logits.detach(), sample.targets, head)
    return reach * q.detach().numpy(), reach * q_hat.numpy()
