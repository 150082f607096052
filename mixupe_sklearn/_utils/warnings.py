"""Warnings that point at the user's line, and warning filters that threads do not share."""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_one_at_a_time = threading.RLock()
# Ours, skorch's, and scikit-learn's wrapper around fit of every estimator that takes callbacks.
_NOT_THE_USERS = ("mixupe_sklearn.", "skorch.", "sklearn.callback.")


@contextmanager
def own_filters(**how: Any) -> Iterator[Any]:
    """Run a block within ``warnings.catch_warnings``, one thread at a time.

    Filters belong to the process. Two threads inside at once would catch each other's warnings,
    and the last one to leave would restore the filters of the other.
    """
    with _one_at_a_time, warnings.catch_warnings(**how) as caught:
        yield caught


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn and point at the line of the user's code that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(_NOT_THE_USERS) and frame.f_back:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
