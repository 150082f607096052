"""Data to try things on: tables, and published sets of other data as they lie on disk.

Nothing is trained here. Loaders of tables return a :class:`Table` and need pandas, and those of
OpenML its client: ``pip install mixupe-sklearn[openml]``. Those of images, speech and graphs are
in :mod:`mixupe_sklearn.datasets.images`, :mod:`mixupe_sklearn.datasets.speech` and
:mod:`mixupe_sklearn.datasets.graphs`.
"""

from importlib import import_module
from typing import Any

__all__ = ["EMBEDDED", "Table", "load_embedded", "read_csv"]
# Loaded when they are first asked for, since images and speech need no pandas.
_TABLES = {
    "EMBEDDED": "mixupe_sklearn.datasets.embedded",
    "Table": "mixupe_sklearn.datasets._dataset",
    "load_embedded": "mixupe_sklearn.datasets.embedded",
    "read_csv": "mixupe_sklearn.datasets.files",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first asked for."""
    if name not in _TABLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(_TABLES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "pandas":
            raise
        raise ImportError(
            f"mixupe_sklearn.datasets.{name} needs pandas: pip install mixupe-sklearn[openml]."
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
