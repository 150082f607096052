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
    bar = tqdm(total=total, unit="trial", initial=len(_finished(study)))

    def update() -> None:
        trials = _finished(study)
        scores = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
        bar.set_postfix({"best": f"{max(scores):.4f}"} if scores else {}, refresh=False)
        bar.n = len(trials)
        bar.refresh()

    try:
        with repeat_while(0.5, update):
            yield
    finally:
        with suppress(*TRANSIENT_ERRORS):
            update()
        bar.close()


def _finished(study: Any) -> list[Any]:
    return [trial for trial in live_trials(study) if trial.state.is_finished()]
