"""Theorem 2 of the paper: the complexity of a class of generalised linear models."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.utils import check_array, check_X_y

from mixupe_sklearn._utils.parameter_rules import Kind, Number, Rule, check_rules

_RULES: dict[str, Rule] = {
    "lipschitz": Number("a number > 0", open_low=True),
    "gamma": Number("a number >= 0, or None for the largest |q_hat| of the samples", or_none=True),
    "xi": Number("a number >= 0, or None for the squared norm of coef", or_none=True),
    "eta": Number("a number >= 0"),
    "loss_scale": Number("a number >= 0"),
    "mean": Kind("a function, or None", (Callable,), or_none=True),  # type: ignore[arg-type]
}


class GLMComplexity(NamedTuple):
    """Complexity terms of the two methods, and the values that they are computed from.

    ``mixupe`` and ``mixup`` are the terms. ``mixupe_is_smaller`` is whether the first is at most
    the second. ``condition_holds`` is the paper's condition for that with ``eta * loss_scale = 1``,
    ``gamma * sqrt(max_norm) <= (1 + lipschitz) * sqrt(xi)``. ``gamma`` bounds ``|q_hat|``, ``xi``
    the squared norm of the weights, ``max_norm`` the squared norm of the samples.
    ``largest_score`` is the largest ``|coef'x|`` of the samples, and ``score_bound`` the bound that
    the proof of the theorem assumes for it.

    Examples
    --------
    >>> glm_complexity([[1.0], [-1.0]], [1, 0], [2.0])._asdict()["max_norm"]
    1.0
    """

    mixupe: float
    mixup: float
    mixupe_is_smaller: bool
    condition_holds: bool
    gamma: float
    xi: float
    max_norm: float
    largest_score: float
    score_bound: float


def glm_complexity(
    X: Any,
    y: Any,
    coef: Any,
    *,
    lipschitz: float = 1.0,
    gamma: float | None = None,
    xi: float | None = None,
    eta: float = 1.0,
    loss_scale: float = 1.0,
    mean: Callable[[np.ndarray], np.ndarray] | None = None,
) -> GLMComplexity:
    """Compute the complexity terms of MixupE and Mixup from Theorem 2 of the paper.

    For a generalised linear model ``h(f(x)) = A(coef'x)`` with ``A`` Lipschitz and n samples::

        mixupe = 2 * loss_scale * eta * lipschitz * gamma * max_norm / (sqrt(n) * (1 + lipschitz))
        mixup  = 2 * lipschitz * sqrt(xi * max_norm / n)

    The first is the second term of the bound, equation (12). The second is the bound of the
    paper's appendix for Mixup, with the factor of the same lemma.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Samples.
    y : array-like of shape (n_samples,)
        Targets, 0 or 1.
    coef : array-like of shape (n_features,)
        Weights of the model, which has no intercept.
    lipschitz : float, default=1.0
        Lipschitz constant of ``A``; 1 is that of the logistic loss.
    gamma : float or None, default=None
        Bound of ``|q_hat|``; None takes the largest of the samples.
    xi : float or None, default=None
        Bound of the squared norm of the weights; None takes that of ``coef``.
    eta : float, default=1.0
        Weight of the penalty.
    loss_scale : float, default=1.0
        The factor that keeps the loss at the scale of the Mixup loss, equation (9).
    mean : callable or None, default=None
        The derivative of ``A``; None is that of the logistic loss.

    Returns
    -------
    complexity : GLMComplexity
        Both terms, the condition, and the values behind them.

    Notes
    -----
    Read the comparison with care. The proof goes from ``|y - A'| * |coef'x| <= gamma`` to
    ``|coef'x| <= gamma / (1 + lipschitz)``. That step would need ``|y - A'| >= 1 + lipschitz``;
    what holds is the opposite, ``|y - A'| <= 1 + lipschitz``. For the logistic loss
    ``|y - A'| < 1``, so the largest score of the samples is above ``score_bound`` whenever
    ``gamma`` is the largest ``|q_hat|`` and not zero: both are returned for comparison. A bound on
    ``q_hat`` does not bound the weights either if all samples are classified correctly: ``q_hat``
    goes to zero as their scores grow.

    References
    ----------
    Zou et al., "MixupE: Understanding and Improving Mixup from Directional Derivative
    Perspective", UAI 2023, Theorem 2 and its appendix.

    Examples
    --------
    >>> from mixupe_sklearn.diagnostics import glm_complexity
    >>> X, y, coef = [[0.6, 0.8], [-1.0, 0.0]], [1, 0], [1.0, 0.0]
    >>> result = glm_complexity(X, y, coef)
    >>> round(result.mixupe, 4), round(result.mixup, 4), result.mixupe_is_smaller
    (0.1902, 1.4142, True)
    >>> result.largest_score > result.score_bound    # the step of the proof that does not hold
    True
    """
    check_rules(locals(), _RULES)
    X, y = check_X_y(X, y, dtype=float)
    coef = check_array(coef, dtype=float, ensure_2d=False, input_name="coef").ravel()
    if coef.shape != X.shape[1:]:
        raise ValueError(f"Got coef of shape {coef.shape}, but expected {X.shape[1:]}.")
    if not np.isin(y, (0, 1)).all():
        raise ValueError(f"Got y={y[~np.isin(y, (0, 1))].tolist()[0]!r}, but expected 0 or 1.")
    score = X @ coef
    q_hat = (y - (mean or expit)(score)) * score
    bound = float(np.abs(q_hat).max()) if gamma is None else float(gamma)
    squared = float(coef @ coef) if xi is None else float(xi)
    max_norm, root = float(np.square(X).sum(axis=1).max()), np.sqrt(len(X))
    score_bound = bound / (1 + lipschitz)
    mixupe = float(2 * loss_scale * eta * lipschitz * score_bound * max_norm / root)
    mixup = float(2 * lipschitz * np.sqrt(squared * max_norm) / root)
    holds = bound * np.sqrt(max_norm) <= (1 + lipschitz) * np.sqrt(squared)
    return GLMComplexity(
        mixupe=mixupe,
        mixup=mixup,
        mixupe_is_smaller=mixupe <= mixup,
        condition_holds=bool(holds),
        gamma=bound,
        xi=squared,
        max_norm=max_norm,
        largest_score=float(np.abs(score).max()),
        score_bound=score_bound,
    )
