"""The files that a skorch net writes: skorch's Checkpoint writes them anew in every epoch."""

import os
from contextlib import ExitStack
from typing import Any

from mixupe_sklearn._utils.atomic_files import replacing

# A mixin: its method finds skorch's own through the net's other classes.
_Net: Any = object


class WholeFiles(_Net):
    """Write the files of ``save_params`` whole or not at all: those of before stay until then."""

    def save_params(
        self,
        f_params: Any = None,
        f_optimizer: Any = None,
        f_criterion: Any = None,
        f_history: Any = None,
        use_safetensors: bool = False,
        **files: Any,
    ) -> None:
        """See ``skorch.NeuralNet.save_params``."""
        files |= {"f_params": f_params, "f_optimizer": f_optimizer}
        files |= {"f_criterion": f_criterion, "f_history": f_history}
        with ExitStack() as stack:
            for name, file in files.items():
                if isinstance(file, (str, os.PathLike)):
                    files[name] = stack.enter_context(replacing(file)).name
            super().save_params(**files, use_safetensors=use_safetensors)
