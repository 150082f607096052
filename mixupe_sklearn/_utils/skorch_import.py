"""Import skorch without PyTorch Geometric.

If PyTorch Geometric is installed, skorch imports it to recognise its graphs. That lengthens the
import by a half in every process, and few processes use graphs.
"""

import sys
from importlib.util import find_spec

LIBRARY = "torch_geometric"


class _IfImported:
    """True once PyTorch Geometric is imported; before that, none of its graphs can exist."""

    def __bool__(self) -> bool:
        return LIBRARY in sys.modules


def import_skorch_alone() -> None:
    """Import skorch without PyTorch Geometric; both work together if that is imported later.

    Does nothing if either is already imported.
    """
    if LIBRARY in sys.modules or "skorch" in sys.modules or find_spec(LIBRARY) is None:
        return
    sys.modules[LIBRARY] = None  # type: ignore[assignment]  # importing it now raises ImportError
    try:
        import skorch.utils
    finally:
        del sys.modules[LIBRARY]
    skorch.utils.TORCH_GEOMETRIC_INSTALLED = _IfImported()


import_skorch_alone()
