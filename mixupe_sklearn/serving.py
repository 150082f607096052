"""Export models to run without this package: ``to_onnx`` and ``to_torch``."""

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
    """Convert a fitted estimator to a plain torch module that maps samples to predictions.

    The module does what ``predict_proba`` (or ``predict`` of the regressor) does after input
    validation: it subtracts ``X_mean_``, runs the members, turns logits into probabilities, and
    averages them. Results are equal up to rounding in single precision, since matrix products of
    few samples may sum in another order.

    Parameters
    ----------
    estimator : MixupEClassifier or MixupERegressor
        A fitted estimator; for a pipeline, its last step.

    Returns
    -------
    module : torch.nn.Module
        A copy in evaluation mode, on the CPU, without gradients: later training of the estimator
        does not change it. ``torch.export`` accepts it, with any number of samples. The input is a
        tensor of single or double precision and shape (n_samples, n_features). The output has
        double precision and shape (n_samples, n_classes) for classes, (n_samples, n_labels) for
        multi-label targets, and (n_samples, n_outputs) for regression.

    See Also
    --------
    to_onnx : Export to onnxruntime, with the preprocessing.

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
            f"MixupERegressor; for a pipeline, pass its last step, pipeline[-1]."
        )
    check_is_fitted(estimator, "net_")
    return PlainModel(estimator)


def to_onnx(estimator, path=None, *, missing="") -> Any:
    """Convert a fitted estimator, or a pipeline that ends with one, to an ONNX model.

    The preprocessing is part of the model. After :func:`make_preprocessor`, each used column is an
    input with the name of the column and shape (n_samples, 1). Numeric columns have double
    precision with NaN for missing values, dates and durations are seconds (since 1970), and
    categories are text. Columns of an array are ``x0``, ``x1``, and so on. Without preprocessing
    the only input is ``X``, a matrix of double precision. :func:`onnx_inputs` creates the inputs
    from a data frame.

    Outputs are ``label`` and ``probabilities`` (a matrix, classes in the order of ``classes_``),
    or ``variable`` for regression. Labels are text, integers (booleans become 0 and 1) or floats;
    multi-label targets are a matrix of zeros and ones. If a column has the name of an output, the
    output gets a trailing underscore: ``label_``.

    Parameters
    ----------
    estimator : MixupEClassifier, MixupERegressor or Pipeline
        A fitted estimator. Steps before the last may be those of :func:`make_preprocessor`, or
        scalers, imputers, one-hot encoders, PCA and SVD of scikit-learn on numeric columns.
    path : str, path or None, default=None
        A file to write. It appears under its name only once it is complete.
    missing : str, default=''
        Text of a missing category, since text has no NaN in ONNX. It must not be a category of the
        training data.

    Returns
    -------
    model : onnx.ModelProto
        Checked by ``onnx.checker``. Its metadata hold the version of this package, the classes,
        and a description of the inputs.

    See Also
    --------
    onnx_inputs : Create the inputs of the model.
    to_torch : Convert to a torch module, without the preprocessing.

    Notes
    -----
    An ONNX graph cannot raise an error. ``predict_proba`` raises for infinite values and, with
    ``handle_unknown="error"``, for unknown categories. The graph does not raise; for unknown
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
        convert = import_module("mixupe_sklearn._export.onnx.convert")
    except ModuleNotFoundError as error:
        library = (error.name or "").split(".")[0]
        if library == "mixupe_sklearn":
            raise
        raise ImportError(f"to_onnx needs {library}: pip install mixupe-sklearn[onnx].") from error
    model = convert.make_model(estimator, missing, import_module("mixupe_sklearn").__version__)
    if path is not None:
        with replacing(path) as file:
            file.write(model.SerializeToString())
    return model


def onnx_inputs(X, session) -> dict[str, np.ndarray]:
    """Create the inputs of a model of ``to_onnx`` from a data frame or an array.

    Columns are read as :func:`make_preprocessor` reads them: integers, booleans, decimals, dates,
    pandas categories, and every kind of missing value.

    Parameters
    ----------
    X : data frame or array of shape (n_samples, n_features)
        Samples with the columns of ``fit``; columns that the model does not use may be absent.
    session : onnxruntime.InferenceSession
        The model.

    Returns
    -------
    inputs : dict of str to ndarray
        The input of ``session.run``.

    See Also
    --------
    to_onnx : Create the model.

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
