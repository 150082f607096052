"""From raw tables to numeric features, and pipelines that begin with them."""

from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from mixupe_sklearn._estimators.classifier import MixupEClassifier
from mixupe_sklearn._estimators.regressor import MixupERegressor
from mixupe_sklearn._preprocessing.columns import (
    read_columns,
    select_columns,
    select_many_levels,
    select_missing,
)
from mixupe_sklearn._preprocessing.dates import DateParts
from mixupe_sklearn._preprocessing.scalers import (
    ClippingScaler,
    PiecewiseLinearEncoder,
    QuantileScaler,
)
from mixupe_sklearn._preprocessing.table import ColumnsToNumbers, TablePreprocessor
from mixupe_sklearn._utils.parameter_rules import FLAG, check_rules

__all__ = [
    "ClippingScaler",
    "ColumnsToNumbers",
    "DateParts",
    "MixupEPipeline",
    "PiecewiseLinearEncoder",
    "QuantileScaler",
    "TablePreprocessor",
    "make_mixupe_pipeline",
    "make_preprocessor",
    "read_columns",
    "select_columns",
    "select_many_levels",
    "select_missing",
]


def make_preprocessor(**params) -> TablePreprocessor:
    """Make the preprocessing that turns raw columns into numeric features.

    Parameters
    ----------
    **params : dict
        Parameters of :class:`~mixupe_sklearn.preprocessing.TablePreprocessor`, such as ``scaling``.

    Returns
    -------
    preprocessor : TablePreprocessor
        Not yet fitted.

    See Also
    --------
    make_mixupe_pipeline : The same with a classifier or regressor behind it.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_preprocessor
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> make_preprocessor(scaling="standard").fit_transform(frame).shape
    (3, 5)
    """
    return TablePreprocessor(**params)


def _last_step_has(name: str):
    return available_if(lambda pipeline: hasattr(pipeline.steps[-1][1], name))


class MixupEPipeline(Pipeline):
    """A scikit-learn pipeline that also passes on the predictions of single ensemble members.

    :func:`make_mixupe_pipeline` builds it. It takes the parameters of
    :class:`sklearn.pipeline.Pipeline` and behaves like it.

    See Also
    --------
    make_mixupe_pipeline : Builds it around our preprocessing.
    sklearn.pipeline.Pipeline : The parent class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import make_mixupe_pipeline
    >>> X, y = load_iris(return_X_y=True)
    >>> pipeline = make_mixupe_pipeline(n_members=2, max_epochs=2, min_steps=0, random_state=0)
    >>> pipeline.fit(X, y).predict_proba_members(X).shape
    (2, 150, 3)
    """

    @_last_step_has("predict_proba_members")
    def predict_proba_members(self, X):
        """Probabilities by each ensemble member of the classifier.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Raw samples.

        Returns
        -------
        probabilities : ndarray of shape (n_members, n_samples, n_classes)
            As :meth:`MixupEClassifier.predict_proba_members` returns them.
        """
        return self.steps[-1][1].predict_proba_members(self[:-1].transform(X))

    @_last_step_has("predict_members")
    def predict_members(self, X):
        """Predictions by each ensemble member of the regressor.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_features)
            Raw samples.

        Returns
        -------
        predictions : ndarray of shape (n_members, n_samples) or (n_members, n_samples, n_outputs)
            As :meth:`MixupERegressor.predict_members` returns them.
        """
        return self.steps[-1][1].predict_members(self[:-1].transform(X))


def make_mixupe_pipeline(*, regression=False, preprocessor=None, **params) -> MixupEPipeline:
    """Make a pipeline from raw samples to a classifier or regressor.

    Parameters
    ----------
    regression : bool, default=False
        Whether the last step is a :class:`MixupERegressor` instead of a :class:`MixupEClassifier`.
    preprocessor : transformer or None, default=None
        Turns raw samples into numeric features; None means :func:`make_preprocessor` with its
        defaults.
    **params : dict
        Parameters of the last step.

    Returns
    -------
    pipeline : MixupEPipeline
        Steps ``"preprocessor"`` and ``"classifier"`` or ``"regressor"``.

    See Also
    --------
    MixupEClassifier, MixupERegressor : The last step.
    sklearn.pipeline.Pipeline : The parent of its class.

    Examples
    --------
    >>> import pandas as pd
    >>> from mixupe_sklearn import make_mixupe_pipeline
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", None]})
    >>> pipeline = make_mixupe_pipeline(batch_size=2, random_state=0)
    >>> pipeline.fit(frame, ["a", "a", "b"]).predict(frame).shape
    (3,)
    >>> make_mixupe_pipeline(regression=True, batch_size=2).fit(frame, [1.0, 2.0, 3.0])["regressor"]
    MixupERegressor(batch_size=2, scale_inputs=False)
    """
    check_rules({"regression": regression}, {"regression": FLAG})
    name, last = ("regressor", MixupERegressor) if regression else ("classifier", MixupEClassifier)
    if preprocessor is None:
        preprocessor = make_preprocessor()
    if isinstance(preprocessor, TablePreprocessor):
        params = {"scale_inputs": False} | params  # its features have their scale
    return MixupEPipeline([("preprocessor", preprocessor), (name, last(**params))])
