"""From the trials of a study to the columns of ``cv_results_``."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from mixupe_sklearn._search.storage import quiet
from mixupe_sklearn._search.study import ERROR, RESULT, has_own_note, live_trials

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


def finished_trials(study: Any) -> list[FrozenTrial]:
    """Finished trials in the order of their numbers."""
    trials = [trial for trial in live_trials(study) if trial.state in STATES and trial.params]
    return sorted(trials, key=lambda trial: trial.number)


def error_of(trial: FrozenTrial) -> str | None:
    """The error of a failed trial, or None."""
    if trial.state != TrialState.FAIL:
        return None
    has_note = has_own_note(trial, ERROR)
    return trial.user_attrs[ERROR][1] if has_note else "Its worker died each time."


def fit_errors_of(trial: FrozenTrial) -> list[str]:
    """The errors of fits that got the ``error_score``."""
    return trial.user_attrs.get(RESULT, {}).get("fit_errors", [])


def why_no_result(trials: Sequence[FrozenTrial], timeout: float | None) -> str:
    """The message for a search without a complete trial, with the first error if there is one."""
    errors = [error for error in map(error_of, trials) if error]
    if errors:
        last = errors[0].strip().splitlines()[-1]
        return f"All {len(trials)} trials failed, the first with {last}\n\n{errors[0]}"
    if trials:
        return f"All {len(trials)} trials were pruned; use a milder pruner."
    return f"No trial was finished (timeout={timeout})."


def metrics_of(trials: Sequence[FrozenTrial]) -> list[str]:
    """Names of the metrics, from the first trial with scores; none if all fits failed."""
    scores = (trial.user_attrs.get(RESULT, {}).get("scores") for trial in trials)
    return list(next(filter(None, scores), {}))


def fits_of(
    trial: FrozenTrial, names: Sequence[str], n_fits: int, error_score: Any
) -> list[dict[str, Any]]:
    """One dict per fit, as scikit-learn's searches collect them; NaN for a fit that was not run."""
    result = trial.user_attrs.get(RESULT, {})
    scores, failed = result.get("scores", {}), [error_score] * n_fits
    train_scores = result.get("train_scores", {})

    def at(values: list[float], number: int) -> float:
        is_there = number < len(values) and trial.state == TrialState.COMPLETE
        return values[number] if is_there else np.nan

    return [
        {
            "test_scores": {name: at(scores.get(name, failed), n) for name in names},
            "train_scores": {name: at(train_scores.get(name, failed), n) for name in names},
            "fit_time": at(result.get("fit_time", []), n),
            "score_time": at(result.get("score_time", []), n),
        }
        for n in range(n_fits)
    ]


def extra_columns(trials: Sequence[FrozenTrial]) -> dict[str, list[Any]]:
    """Columns that scikit-learn's searches do not have."""
    return {
        "trial": [trial.number for trial in trials],
        "state": [STATES[trial.state] for trial in trials],
        "n_epochs": [trial.user_attrs.get(RESULT, {}).get("n_epochs", 0) for trial in trials],
    }


# Attributes of a trial besides its state and times.
_PLAIN = ["values", "params", "distributions", "user_attrs", "system_attrs", "intermediate_values"]
_TIMES = ["datetime_start", "datetime_complete"]


def in_memory(study: Any) -> Any:
    """An in-memory copy of a study."""
    return study_of(plain_study(study))


def plain_study(study: Any) -> dict[str, Any]:
    """A study as plain values and distributions; :func:`study_of` is the inverse."""
    trials = []
    for trial in study.get_trials(deepcopy=False):
        plain = {name: getattr(trial, name) for name in _PLAIN} | {"state": trial.state.name}
        times = ((name, getattr(trial, name)) for name in _TIMES)
        trials.append(plain | {name: time and time.isoformat() for name, time in times})
    return {
        "name": study.study_name,
        "direction": study.direction.name,
        "user_attrs": dict(study.user_attrs),
        "trials": trials,
    }


def study_of(plain: dict[str, Any]) -> Any:
    """The study of :func:`plain_study`, in memory."""
    with quiet():
        study = optuna.create_study(study_name=plain["name"], direction=plain["direction"].lower())
        for number, trial in enumerate(plain["trials"]):
            times = {name: trial[name] and datetime.fromisoformat(trial[name]) for name in _TIMES}
            own = {name: trial[name] for name in _PLAIN} | times
            state = TrialState[trial["state"]]
            study.add_trial(FrozenTrial(number, state, value=None, trial_id=number, **own))
        for name, note in plain["user_attrs"].items():
            study.set_user_attr(name, note)
    return study
