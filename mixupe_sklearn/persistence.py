"""Save and load fitted models as files of arrays and text. Loading executes nothing in a file."""

import json
import os
import platform
import warnings
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning

from mixupe_sklearn._net.net import MixupENet, MixupENetRegressor
from mixupe_sklearn._persistence import convert
from mixupe_sklearn._persistence.file_format import (
    EXPECTED,
    Content,
    pack,
    printable,
    refuse,
    unpack,
)
from mixupe_sklearn._persistence.objects import Builder, Describer
from mixupe_sklearn._persistence.schemas import UnknownNameError, skops_types
from mixupe_sklearn._persistence.values import Writer
from mixupe_sklearn._runtime.torch_state import resolve_device
from mixupe_sklearn._utils.atomic_files import replacing

__all__ = ["load", "save", "saved_info", "skops_types"]

# Libraries whose versions a file records.
_LIBRARIES = ("numpy", "scikit-learn", "skorch", "torch")


def save(estimator, path, *, keep_training=True):
    """Save a fitted model to one file that anyone can load without running its author's code.

    The file has the safetensors format. JSON text in its header describes the arrays, and a
    checksum covers all bytes. It replaces an older file only once it is complete.

    Parameters
    ----------
    estimator : estimator
        An estimator of this package, or a pipeline with one. Steps may be the preprocessing of
        this package and most transformers of scikit-learn. Other estimators can be saved if their
        attributes are numbers, text and arrays; pass them as ``trusted`` to :func:`load`.
    path : str or path
        The file to write. The suffix ``.safetensors`` identifies the format to other programs.
    keep_training : bool, default=True
        Whether to save the state of the optimizer and the callbacks, which only training needs.
        Without it the file is a third as large, and ``partial_fit`` starts a new optimizer.

    See Also
    --------
    load : Load a saved model.
    saved_info : Describe a file without loading the model.

    Notes
    -----
    ``Pipeline(memory=...)``, ``cache`` and ``storage`` are not saved: they are paths on this
    machine.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MixupEClassifier(max_epochs=2, min_steps=0, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     save(model, path)
    ...     loaded = load(path)
    >>> np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    True
    """
    is_net = isinstance(estimator, (MixupENet, MixupENetRegressor))
    if is_net or not isinstance(estimator, BaseEstimator):
        raise TypeError(
            f"Got estimator of type {type(estimator).__name__}, but expected a scikit-learn "
            f"estimator, such as MixupEClassifier or a pipeline with one"
            f"{'; a skorch net has save_params' if is_net else ''}."
        )
    writer = Writer(Describer(keep_training))
    model = writer.plain(estimator, "estimator")
    versions = {name: version(name) for name in _LIBRARIES}
    versions["python"] = platform.python_version()
    data = pack(model, writer.arrays, version("mixupe-sklearn"), versions)
    with replacing(path) as file:
        file.write(data)


def load(path, *, device=None, trusted=()):
    """Load a model that :func:`save` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : str or path
        The file.
    device : {"auto", "cpu", "cuda", "mps"} or None, default=None
        The new value of the parameter ``device``; None keeps the saved value. If this machine has
        no such device, the model is loaded onto the CPU with a warning.
    trusted : list of types and functions, default=()
        Your own types and functions that the model needs: the class of its module, a callback, a
        step of the pipeline. The file holds only their names.

    Returns
    -------
    estimator : estimator
        The saved estimator. On the same machine its predictions are equal to the bit, and it can
        continue training.

    Raises
    ------
    ValueError
        If the file is damaged, is not a saved model, comes from a later version with another
        format, or names a type that is neither known nor trusted.

    See Also
    --------
    save : Write such a file.

    Examples
    --------
    >>> import pathlib, pickle, tempfile
    >>> from mixupe_sklearn import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "model.pkl")
    ...     size = path.write_bytes(pickle.dumps("a model"))
    ...     try:
    ...         load(path)
    ...     except ValueError as error:
    ...         print(str(error).partition(", ")[2])
    which is a pickle, but expected a file that mixupe_sklearn.save has written.
    """
    if isinstance(trusted, (str, bytes)) or not isinstance(trusted, Iterable):
        raise TypeError(
            f"Got trusted={trusted!r}, but expected a list of types and functions, such as "
            f"trusted=[MyModule]."
        )
    trusted = list(trusted)
    if device is not None:
        resolve_device(device)  # raises for an unknown device
    content, name = _read(path)
    builder = Builder(content.arrays, device, trusted)
    try:
        estimator = builder.reader.plain(content.model, "estimator", ("estimator",))
        if not isinstance(estimator, BaseEstimator):
            raise ValueError("has no estimator in it")
        if content.arrays:
            raise ValueError(f"has an array {min(content.arrays)!r} that is not part of the model")
    except UnknownNameError as error:
        raise ValueError(f"Got {name}, which {printable(str(error), 400)}.") from error
    except MemoryError:
        raise
    except Exception as error:  # a bad value may fail in any library
        raise ValueError(
            f"Got {name}, written by mixupe-sklearn {content.written_by!r}, which cannot be read "
            f"({type(error).__name__}: {printable(str(error))}), but expected {EXPECTED}."
        ) from None
    _warn_of_versions(content, name)
    return estimator


def saved_info(path):
    """Describe a saved file without loading the model.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    info : dict
        ``written_by`` (the version of this package that wrote the file), ``versions`` (of the
        libraries), ``type`` of the estimator and ``n_values``, the number of values in its arrays.

    Examples
    --------
    >>> import os, tempfile
    >>> from mixupe_sklearn import MixupERegressor, save, saved_info
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.safetensors")
    ...     save(MixupERegressor(), path)
    ...     info = saved_info(path)
    >>> info["type"], info["n_values"]
    ('mixupe.MixupERegressor', 0)
    """
    content, name = _read(path)
    kind = content.model.get("class") if isinstance(content.model, dict) else None
    if not isinstance(kind, str):
        refuse(name, "has no estimator in it")
    return {
        "written_by": content.written_by,
        "versions": content.versions,
        "type": kind,
        "n_values": sum(array.size for array in content.arrays.values()),
    }


def _read(path: Any) -> tuple[Content, str]:
    name = repr(os.fspath(path))
    path = Path(path)
    if path.exists() and not path.is_file():  # reading a device or a pipe may never end
        refuse(name, "is not a regular file")
    return unpack(path.read_bytes(), name, version("mixupe-sklearn")), name


def _warn_of_versions(content: Content, name: str) -> None:
    """Warn, as scikit-learn does, if its parts are from another version of scikit-learn."""
    here, there = version("scikit-learn"), content.versions.get("scikit-learn")
    if here != there and '"class": "sklearn.' in json.dumps(content.model):
        warnings.warn(
            InconsistentVersionWarning(
                estimator_name=f"the model in {name}",
                current_sklearn_version=here,
                original_sklearn_version=printable(str(there)),
            ),
            stacklevel=3,
        )


if __name__ == "__main__":
    convert.main()
