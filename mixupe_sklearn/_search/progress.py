"""A progress bar over the trials of a study, in whichever process they run."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from optuna.trial import TrialState
from tqdm.auto import tqdm

from mixupe_sklearn._search.storage import TRANSIENT_ERRORS, repeat_while
from mixupe_sklearn._search.study import live_trials


@contextmanager
def progress_bar(study: Any, n_trials: float, *, is_shown: bool) -> Iterator[None]:
    """Show finished trials, the best score and the time left while a block runs.

    It queries the study twice a second, since other processes may run the trials.
    """
    if not is_shown:
        yield
        return
    total = int(n_trials) if n_trials < float("inf") else None
    bar = tqdm(total=total, unit="trial", initial=_state_of(study)[0])
    try:
        with repeat_while(0.5, lambda: _update(bar, study)):
            yield
    finally:
        with suppress(*TRANSIENT_ERRORS):
            _update(bar, study)
        bar.close()


def _state_of(study: Any) -> tuple[int, dict[str, Any]]:
    trials = [trial for trial in live_trials(study) if trial.state.is_finished()]
    values = [t.value for t in trials if t.state == TrialState.COMPLETE and t.value is not None]
    shown: dict[str, Any] = {"best": f"{max(values):.4f}"} if values else {}
    for name, state in (("pruned", TrialState.PRUNED), ("failed", TrialState.FAIL)):
        count = sum(trial.state == state for trial in trials)
        if count:
            shown[name] = count
    return len(trials), shown


def _update(bar: Any, study: Any) -> None:
    n_finished, shown = _state_of(study)
    bar.set_postfix(shown, refresh=False)
    bar.n = n_finished
    bar.refresh()
