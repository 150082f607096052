"""Filters of warnings that are ours for a while."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_one_at_a_time = threading.RLock()


@contextmanager
def own_filters(**how: Any) -> Iterator[Any]:
    """Run a block within ``warnings.catch_warnings``, one thread at a time.

    Filters belong to the whole process. Two threads that are within at once would take each
    other's warnings, and who leaves last would put back the filters of the other.

    Parameters
    ----------
    **how
        Arguments of ``warnings.catch_warnings``.

    Yields
    ------
    caught : list or None
        What ``warnings.catch_warnings`` gives.

    Examples
    --------
    >>> import warnings
    >>> with own_filters(record=True, action="always") as caught:
    ...     warnings.warn("mind the gap")
    >>> len(caught)
    1
    """
    with _one_at_a_time, warnings.catch_warnings(**how) as caught:
        yield caught
