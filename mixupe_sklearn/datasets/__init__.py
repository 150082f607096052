"""Loaders of tables, and of published datasets of images, speech and graphs on disk.

Loaders of tables return a :class:`Table` and need pandas. Those of OpenML need its client:
``pip install mixupe-sklearn[openml]``. Loaders of images, speech and graphs are in
:mod:`mixupe_sklearn.datasets.images`, :mod:`mixupe_sklearn.datasets.speech` and
:mod:`mixupe_sklearn.datasets.graphs`.
"""

from importlib import import_module
from typing import Any

__all__ = ["EMBEDDED", "Table", "load_embedded", "read_csv"]
# Imported on first access, because images and speech need no pandas.
_TABLES = {
    "EMBEDDED": "mixupe_sklearn.datasets.embedded",
    "Table": "mixupe_sklearn.datasets._dataset",
    "load_embedded": "mixupe_sklearn.datasets.embedded",
    "read_csv": "mixupe_sklearn.datasets.files",
}


def __getattr__(name: str) -> Any:
    """Import a name on first access."""
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
