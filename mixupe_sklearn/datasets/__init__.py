"""Tables to try things on: scikit-learn's and one made by rule, OpenML's, and files of one's own.

Nothing is trained here. All loaders return a :class:`Table`. They need pandas, and those of OpenML
its client: ``pip install mixupe-sklearn[openml]``.
"""

try:
    import pandas as _pandas  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "mixupe_sklearn.datasets needs pandas: pip install mixupe-sklearn[openml]."
    ) from error

from mixupe_sklearn.datasets._table import Table
from mixupe_sklearn.datasets.embedded import EMBEDDED, load_embedded
from mixupe_sklearn.datasets.files import read_csv

__all__ = ["EMBEDDED", "Table", "load_embedded", "read_csv"]
