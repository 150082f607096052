"""Fitted models in a file of arrays and text: nothing in it can be executed."""

import os
import platform
import sys
import warnings
from collections.abc import Collection, Iterable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.preprocessing import OneHotEncoder

from mixupe_sklearn._estimators.base import BaseMixupE
from mixupe_sklearn._net.net import MixupENet, MixupENetRegressor
from mixupe_sklearn._persistence import networks as nets
from mixupe_sklearn._persistence.allowed_types import UnknownNameError, make_finder, skops_types
from mixupe_sklearn._persistence.checks import check_encoder
from mixupe_sklearn._persistence.decoder import Decoder
from mixupe_sklearn._persistence.encoder import Encoder
from mixupe_sklearn._persistence.file_format import EXPECTED, Content, pack, refuse, unpack
from mixupe_sklearn._runtime.device import resolve_device
from mixupe_sklearn._utils.atomic_files import replacing

__all__ = ["load", "save", "saved_info", "skops_types"]

# Libraries whose versions are written down.
_LIBRARIES = ("numpy", "scikit-learn", "skorch", "torch")


def save(estimator, path, *, keep_training=True):
    """Save a fitted model to one file that anyone can load without running its author's code.

    The file is in the safetensors format; what its arrays mean is JSON text in its header, with a
    checksum over all. It takes the place of an older file only when it is whole.

    Parameters
    ----------
    estimator : estimator
        One of this package, or a pipeline with one; steps may be the preprocessing of this package
        and most transformers of scikit-learn. Others can be saved too, if their attributes are
        numbers, text and arrays, and have to be named as ``trusted`` when the model is loaded.
    path : str or path
        Where to. Any name will do; ``.safetensors`` tells other programs what it is.
    keep_training : bool, default=True
        Whether to keep what only training needs: what the optimizer and the callbacks remember.
        Without it the file is a third as large, and ``partial_fit`` goes on with a new optimizer.

    See Also
    --------
    load : The way back.
    saved_info : What is in a file.

    Notes
    -----
    Left behind are ``Pipeline(memory=...)``, ``cache`` and ``storage``: places on this machine.

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

    def take_apart(value: Any) -> dict[str, Any]:
        return _take_apart(value, keep_training)

    encoder = Encoder(take_apart)
    model = encoder.encode(estimator, "estimator")
    versions = {name: version(name) for name in _LIBRARIES}
    versions["python"] = platform.python_version()
    data = pack(model, encoder.arrays, version("mixupe-sklearn"), versions)
    with replacing(path) as file:
        file.write(data)


def load(path, *, device=None, trusted=()):
    """Load a model that :func:`save` has written. Nothing in the file is executed.

    Parameters
    ----------
    path : str or path
        The file.
    device : {"auto", "cpu", "cuda", "mps"} or None, default=None
        Where the model is to be, as its parameter ``device``; None leaves that parameter as it
        was. Where there is no such device here, the model is on the processor, with a warning.
    trusted : list of types and functions, default=()
        Those of your own that the model needs: the class of its module, a callback, a step of the
        pipeline. The file has their names only.

    Returns
    -------
    estimator : estimator
        As it was saved: it predicts the same to the bit on the same machine, and goes on training.

    Raises
    ------
    ValueError
        If the file is damaged, is no saved model, comes from a later version that writes another
        format, or names a type that is neither known nor trusted.

    See Also
    --------
    save : What writes such a file.

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
        resolve_device(device)  # who knows no such device says so
    content, name = _read(path)

    def put_together(value: Any, attributes: dict[str, Any]) -> Any:
        return _put_together(value, attributes, device, trusted)

    try:
        decoder = Decoder(content.arrays, make_finder(trusted), put_together)
        estimator = decoder.decode(content.model)
        if not isinstance(estimator, BaseEstimator):
            raise ValueError("has no estimator in it")
    except UnknownNameError as error:
        raise ValueError(f"Got {name}, which {error}.") from error
    except MemoryError:
        raise
    except Exception as error:  # a value of the wrong kind may fail in any library
        raise ValueError(
            f"Got {name}, written by mixupe-sklearn {content.written_by!r}, which cannot be read "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}), but expected "
            f"{EXPECTED}."
        ) from error
    _warn_of_versions(content, name)
    return estimator


def saved_info(path):
    """Tell what is in a saved file, without loading the model.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    info : dict
        ``written_by`` (the version of this package that wrote it), ``versions`` (those of the
        libraries beside it), ``type`` of the estimator and ``n_values``, how many numbers its
        arrays have.

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
    kind = content.model.get("object") if isinstance(content.model, dict) else None
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
    if path.exists() and not path.is_file():  # a device or a pipe may never end
        refuse(name, "is no regular file")
    return unpack(path.read_bytes(), name, version("mixupe-sklearn")), name


def _is_search(value: Any) -> bool:
    module = sys.modules.get("mixupe_sklearn.search")  # who has a search has loaded it
    return module is not None and isinstance(value, module.MixupESearchCV)


def _take_apart(value: Any, keep_training: bool) -> dict[str, Any]:
    attributes = dict(vars(value))
    if _is_search(value):
        attributes.pop("scorer_", None)  # follows from ``scoring``
        if "study_" in attributes:
            results = import_module("mixupe_sklearn._search.results")
            attributes["study_"] = results.plain_study(value.study_)
    if isinstance(value, BaseMixupE) and "nets_" in attributes:
        attributes |= nets.take_apart(value, keep_training)
        del attributes["net_"]  # the first of them
    return attributes


def _put_together(
    value: Any, attributes: dict[str, Any], device: str | None, trusted: Collection[Any]
) -> Any:
    kept = attributes.get("nets_") if isinstance(value, BaseMixupE) else None
    vars(value).update(attributes)
    if kept is not None:
        nets.put_together(value, kept, device, trusted)
    if isinstance(value, OneHotEncoder):
        check_encoder(value)
    if _is_search(value) and "study_" in attributes:
        results = import_module("mixupe_sklearn._search.results")
        value.study_ = results.study_of(value.study_)
        scorer, _ = value._get_scorers()
        value.scorer_ = getattr(scorer, "_scorers", scorer)
    return value


def _warn_of_versions(content: Content, name: str) -> None:
    """Warn, as scikit-learn does, where parts of it are from another version."""
    here, there = version("scikit-learn"), content.versions.get("scikit-learn")
    if here != there and '"sklearn.' in repr(content.model).replace("'", '"'):
        warnings.warn(
            InconsistentVersionWarning(
                estimator_name=f"the model in {name}",
                current_sklearn_version=here,
                original_sklearn_version=str(there),
            ),
            stacklevel=3,
        )
