"""What has to happen before skorch is imported.

Where PyTorch Geometric is installed, skorch imports it to know its graphs when they come: half as
long again as everything else takes, in every process, for a use that most have not.
"""

import sys
from importlib.util import find_spec

LIBRARY = "torch_geometric"


class IfImported:
    """True as soon as PyTorch Geometric has been imported: before that, no graph of it can come.

    Examples
    --------
    >>> bool(IfImported("a_library_that_nobody_has"))
    False
    """

    def __init__(self, library: str = LIBRARY):
        self.library = library

    def __bool__(self) -> bool:
        return self.library in sys.modules


def import_skorch_alone() -> None:
    """Import skorch without PyTorch Geometric; whoever imports that later finds both at work.

    Nothing is done where either is imported already.
    """
    if LIBRARY in sys.modules or "skorch" in sys.modules or find_spec(LIBRARY) is None:
        return
    sys.modules[LIBRARY] = None  # type: ignore[assignment]  # to import it is an ImportError now
    try:
        import skorch.utils
    finally:
        del sys.modules[LIBRARY]
    skorch.utils.TORCH_GEOMETRIC_INSTALLED = IfImported()


import_skorch_alone()
