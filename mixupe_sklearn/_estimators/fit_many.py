"""Fits many estimators together: the networks of all of them train as one.

A step of one small network is mostly overhead. Networks of one architecture that differ in their
seed and in numbers (``alpha``, ``eta``, ``lr``, ...) share it here. Each has its own batches, draws
and loss, and ends as its own ``fit`` would leave it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scipy import sparse

from mixupe_sklearn._estimators.base import BaseMixupE, restore, run_fits
from mixupe_sklearn._training.config import MODULES
from mixupe_sklearn._training.loop import Fit
from mixupe_sklearn._utils.parameter_rules import Choice, check_rules

# Parameters that must be equal: those of the samples that all share, and of the machine.
SHARED = ("class_weight", "n_threads")
OnEpoch = Callable[[int, list[Any]], Iterable[Any] | None]


def why_not_many(
    estimators: Sequence[Any], X: Any, fit_params: Mapping[str, Any] | None = None
) -> str | None:
    """Return why these estimators cannot be fitted together, or None if they can.

    Parameters
    ----------
    estimators : sequence of MixupEClassifier, or of MixupERegressor
        The estimators to fit.
    X : array-like or sparse matrix
        The training samples.
    fit_params : dict or None, default=None
        Further arguments of ``fit``.

    Returns
    -------
    reason : str or None
        One reason.

    Examples
    --------
    >>> import numpy as np
    >>> from mixupe_sklearn import MixupEClassifier, preset
    >>> estimators = [MixupEClassifier(**preset("paper", eta=eta)) for eta in (0.0, 1.0)]
    >>> why_not_many(estimators, np.eye(3))
    >>> why_not_many([MixupEClassifier(compile=True)], np.eye(3))
    'compile is on'
    """
    if not all(isinstance(estimator, BaseMixupE) for estimator in estimators):
        return "not all are estimators of mixupe_sklearn"
    if len({type(estimator) for estimator in estimators}) > 1:
        return "they are of different classes"
    if len({id(estimator) for estimator in estimators}) < len(estimators):
        return "an estimator is given twice"
    if sparse.issparse(X):
        return "X is sparse"
    for name, value in (fit_params or {}).items():
        if value is not None and name != "sample_weight":
            return f"{name} is given"
    reasons = (reason for estimator in estimators for reason in _obstacles(estimator))
    return next(reasons, None)


def _obstacles(estimator: Any) -> Iterable[str]:
    params = estimator.module_params if isinstance(estimator.module_params, Mapping) else {}
    has_penalty = estimator.method in ("mixupe", "erm+penalty")
    found = {
        "they are not for tables": estimator._modules is not MODULES,
        "module is not given by name": not isinstance(estimator.module, str),
        "batch_norm is on": params.get("batch_norm"),
        "optimizer is not given by name": not isinstance(estimator.optimizer, str),
        "callbacks are given": estimator.callbacks or getattr(estimator, "_skl_callbacks", None),
        "warm_start continues with a net": estimator.warm_start and hasattr(estimator, "net_"),
        "device is not the cpu": not _is_on_cpu(estimator),
        "compile is on": estimator.compile,
        "time_limit is given": estimator.time_limit is not None,
        "penalty is 'directional'": estimator.penalty == "directional" and has_penalty,
        "penalty_order is not 1": estimator.penalty_order != 1 and has_penalty,
    }
    return (reason for reason, is_so in found.items() if is_so)


def _is_on_cpu(estimator: Any) -> bool:
    try:
        return estimator._resolved_device().type == "cpu"
    except ValueError:
        return True  # fit itself raises the error


def fit_many(
    estimators: Sequence[Any],
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    on_epoch: OnEpoch | None = None,
    on_error: str = "raise",
) -> list[Any]:
    """Fit estimators together, faster than one by one.

    Each ends as its own ``fit(X, y, sample_weight)`` would leave it, to the bit: weights, history,
    optimizer and generators. Estimators may be ensembles, with early stopping. Those that differ in
    architecture or batch size train in separate groups. ``verbose`` has no effect. An interrupt
    leaves all estimators as they were.

    Parameters
    ----------
    estimators : sequence of MixupEClassifier, or of MixupERegressor
        Estimators for tables with modules and optimizers given by name, and neither callbacks,
        ``time_limit``, BatchNorm nor a penalty that needs autograd.
    X : array-like of shape (n_samples, n_features)
        Training samples.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Targets.
    sample_weight : array-like of shape (n_samples,) or None, default=None
        Weight of each sample.
    on_epoch : callable or None, default=None
        Called as ``on_epoch(epoch, members)`` after each epoch, with the number of epochs so far
        and the estimators that currently train together; each of them can predict. The members
        that it returns (None: none) stop and keep their current weights.
    on_error : {"raise", "return"}, default="raise"
        How to handle an error of one estimator, such as a loss that becomes non-finite.
        ``"raise"`` raises it and leaves all estimators as they were. ``"return"`` leaves this one
        as it was, returns the error in its place, and continues with the others.

    Returns
    -------
    fitted : list
        The fitted estimators in their order.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, fit_many, preset
    >>> X, y = load_iris(return_X_y=True)
    >>> params = [preset("paper", alpha=alpha, random_state=0) for alpha in (0.1, 0.4)]
    >>> estimators = [MixupEClassifier(**own) for own in params]
    >>> [bool(fitted.score(X, y) > 0.8) for fitted in fit_many(estimators, X, y)]
    [True, True]
    """
    check_rules({"on_error": on_error}, {"on_error": Choice(("raise", "return"))})
    reason = why_not_many(estimators, X, {"sample_weight": sample_weight})
    if reason is not None:
        raise ValueError(f"Got estimators that cannot be fitted together: {reason}.")
    before = [dict(vars(estimator)) for estimator in estimators]
    errors: dict[int, Exception] = {}
    fits: dict[int, Fit] = {}
    shared: list[Any] = []  # samples of estimators with the same class weights
    try:
        for number, estimator in enumerate(estimators):
            try:
                fits[number] = estimator._join_fit(X, y, sample_weight, shared)
            except Exception as error:
                if on_error == "raise":
                    raise
                errors[number] = error
        if fits:
            _train(estimators, fits, on_epoch, on_error)
        for number, fit in fits.items():
            if fit.error is not None:
                errors[number] = fit.error
            elif fit.ends_by == "interrupt":
                raise KeyboardInterrupt
            else:
                estimators[number]._end_fit(fit)
    except BaseException:
        for estimator, values in zip(estimators, before, strict=True):
            restore(estimator, values)
        raise
    for number in errors:
        restore(estimators[number], before[number])
    return [errors.get(number, estimator) for number, estimator in enumerate(estimators)]


def _train(
    estimators: Sequence[Any], fits: dict[int, Fit], on_epoch: OnEpoch | None, on_error: str
) -> None:
    by_estimator = {id(estimators[number]): fit for number, fit in fits.items()}

    def on_epoch_of_fits(epoch: int, running: list[Fit]) -> list[Fit]:
        assert on_epoch is not None
        named = on_epoch(epoch, [fit.monitor.estimator for fit in running]) or ()
        return [by_estimator[id(estimator)] for estimator in named]

    hook = None if on_epoch is None else on_epoch_of_fits
    first = [estimators[number] for number in fits]
    run_fits(first, list(fits.values()), is_new=True, on_epoch=hook, on_error=on_error)
