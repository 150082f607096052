"""Models that are served without this package: ``to_onnx`` and ``to_torch``."""

from importlib import import_module
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import nn

from mixupe_sklearn._estimators.classifier import MixupEClassifier
from mixupe_sklearn._estimators.regressor import MixupERegressor
from mixupe_sklearn._export.onnx.inputs import described_by, feed
from mixupe_sklearn._export.torch_module import PlainModel
from mixupe_sklearn._utils.atomic_files import replacing

__all__ = ["onnx_inputs", "to_onnx", "to_torch"]


def to_torch(estimator) -> nn.Module:
    """Make a plain torch module of a fitted estimator: rows in, predictions out.

    It does all that ``predict_proba`` (or ``predict`` of the regressor) does behind the checks:
    it subtracts ``X_mean_``, runs the members, turns logits into probabilities, and averages
    them. It gives the same numbers up to the rounding of single precision: matrix products of
    few rows may sum in another order.

    Parameters
    ----------
    estimator : MixupEClassifier or MixupERegressor
        A fitted one; of a pipeline, its last step.

    Returns
    -------
    module : torch.nn.Module
        In evaluation mode, on the processor, without gradients of its weights, and a copy: later
        training of the estimator does not change it. ``torch.export`` takes it, with any number
        of rows. It takes a tensor of single or double precision, of shape
        (n_samples, n_features), and gives double precision: (n_samples, n_classes) for classes,
        (n_samples, n_labels) for several labels, (n_samples, n_outputs) for numbers.

    See Also
    --------
    to_onnx : A file for onnxruntime, with the preprocessing.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, to_torch
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = MixupEClassifier(max_epochs=2, min_steps=0, random_state=0).fit(X, y)
    >>> module = to_torch(classifier)
    >>> bool((abs(module(torch.tensor(X)).numpy() - classifier.predict_proba(X)) < 1e-6).all())
    True
    """
    if not isinstance(estimator, (MixupEClassifier, MixupERegressor)):
        raise TypeError(
            f"Got a {type(estimator).__name__}, but expected a MixupEClassifier or "
            f"MixupERegressor; of a pipeline, take its last step, as in pipeline[-1]."
        )
    check_is_fitted(estimator, "net_")
    return PlainModel(estimator)


def to_onnx(estimator, path=None, *, missing="") -> Any:
    """Write a fitted estimator, or a pipeline that ends with one, as an ONNX model.

    The preprocessing is part of the model. Behind :func:`make_preprocessor` each column that is
    used becomes an input of its name and of shape (n_samples, 1): numbers in double precision with
    NaN for holes, dates and spans of time as seconds (since 1970), categories as text; columns of
    an array are ``x0``, ``x1``, and so on. Without it the only input is ``X``, a matrix of double
    precision. :func:`onnx_inputs` makes all that of a data frame.

    Outputs are ``label`` and ``probabilities`` (a matrix, classes in the order of ``classes_``),
    or ``variable`` for numbers. Labels are text, whole numbers (truth values become 0 and 1) or
    floats; of several labels, zeros and ones in a matrix. If a column has the name of an output,
    the output's gets an underscore more: ``label_``.

    Parameters
    ----------
    estimator : MixupEClassifier, MixupERegressor or Pipeline
        A fitted one. Steps before the last may be those of :func:`make_preprocessor`, or scalers,
        imputers, one-hot encoders, PCA and SVD of scikit-learn on numbers.
    path : str, path or None, default=None
        A file to write. It appears under its name only when it is whole.
    hole : str, default=''
        How a missing category is written, since text has no NaN in ONNX. It must be none of the
        categories of the training rows.

    Returns
    -------
    model : onnx.ModelProto
        Checked by ``onnx.checker``. Its metadata have the version of this package, the classes,
        and a description of the inputs.

    See Also
    --------
    onnx_inputs : What onnxruntime is to be fed with.
    to_torch : A torch module, without the preprocessing.

    Notes
    -----
    A graph cannot refuse a row. Where ``predict_proba`` would, for infinite numbers or, with
    ``handle_unknown="error"``, for categories that it has not seen, there is no error: for the
    categories all probabilities are NaN.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_mixupe_pipeline, to_onnx
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> pipeline = make_mixupe_pipeline(batch_size=2, random_state=0)
    >>> model = to_onnx(pipeline.fit(frame, ["a", "a", "b"]))
    >>> [one.name for one in model.graph.input], [one.name for one in model.graph.output]
    (['size', 'city'], ['label', 'probabilities'])
    """
    try:
        parts = import_module("mixupe_sklearn._export.onnx.convert")
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library == "mixupe_sklearn":
            raise
        raise ImportError(f"to_onnx needs {library}: pip install mixupe-sklearn[onnx].") from error
    model = parts.make_model(estimator, missing, import_module("mixupe_sklearn").__version__)
    if path is not None:
        with replacing(path) as file:
            file.write(model.SerializeToString())
    return model


def onnx_inputs(X, session) -> dict[str, np.ndarray]:
    """Make of a data frame, or of an array, what a model of ``to_onnx`` is fed with.

    Columns are read as :func:`make_preprocessor` reads them: whole numbers, truth values,
    decimals, dates, pandas' categories, and every kind of hole.

    Parameters
    ----------
    X : data frame or array of shape (n_samples, n_features)
        Rows, with the columns of ``fit``; those that the model does not use may be missing.
    session : onnxruntime.InferenceSession
        The model.

    Returns
    -------
    inputs : dict of str to ndarray
        For ``session.run``.

    See Also
    --------
    to_onnx : The model.

    Examples
    --------
    >>> import onnxruntime
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_mixupe_pipeline, onnx_inputs, to_onnx
    >>> frame = pd.DataFrame({"size": [1, 2, 3], "city": ["Oslo", "Bonn", None]})
    >>> pipeline = make_mixupe_pipeline(batch_size=2, random_state=0)
    >>> model = to_onnx(pipeline.fit(frame, ["a", "a", "b"]))
    >>> session = onnxruntime.InferenceSession(model.SerializeToString())
    >>> {name: values.tolist() for name, values in onnx_inputs(frame, session).items()}
    {'size': [[1.0], [2.0], [3.0]], 'city': [['Oslo'], ['Bonn'], ['']]}
    """
    return feed(X, described_by(session))
