"""Other classifiers on the same raw rows: each quiet, seeded, and nearly as its library has it."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks._tabular.own import PAPER_INPUTS
from mixupe_sklearn import make_preprocessor
from mixupe_sklearn._runtime.seeding import seeded
from mixupe_sklearn.preprocessing import read_columns, select_columns

Params = dict[str, Any]


class TypedFrame(TransformerMixin, BaseEstimator):
    """A frame of floats and categories, for libraries that take categories as they are.

    A level that was not in the training rows becomes a hole. Columns are named anew, since some
    libraries refuse names with blanks or brackets; those with a single value are left out.

    Parameters
    ----------
    max_levels : int or None, default=None
        Most levels of a column; the rarest become holes.
    fills_numbers : bool, default=False
        Whether holes among numbers become the mean of the training rows.
    fills_levels : bool, default=False
        Whether holes among categories become a level of their own.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "city": ["Oslo", "Bonn", "Bonn"]})
    >>> TypedFrame().fit(frame).transform(frame.replace("Oslo", "Rome"))["x1"].isna().tolist()
    [True, False, False]
    """

    def __init__(self, max_levels=None, fills_numbers=False, fills_levels=False):
        self.max_levels = max_levels
        self.fills_numbers = fills_numbers
        self.fills_levels = fills_levels

    def fit(self, X, y=None):
        """Find out what each column holds."""
        self.amounts_ = {kind: select_columns(X, kind) for kind in ("numbers", "times")}
        self.categories_ = select_columns(X, "categories")
        self.levels_ = [self._levels(column) for column in self._texts(X)]
        amounts = self._floats(X)
        self.means_ = np.array([column[~np.isnan(column)].mean() for column in amounts.T])
        return self

    def transform(self, X):
        """Make the frame."""
        check_is_fitted(self)
        amounts = self._floats(X)
        if self.fills_numbers:
            amounts = np.where(np.isnan(amounts), self.means_, amounts)
        columns: list[Any] = list(amounts.T)
        for text, levels in zip(self._texts(X), self.levels_, strict=True):
            columns.append(self._category(text, levels))
        frame = {f"x{position}": column for position, column in enumerate(columns)}
        return pd.DataFrame(frame, index=range(len(X)))

    def _levels(self, text: np.ndarray) -> pd.Index:
        counts = pd.Series(text).value_counts()  # the most frequent first, without holes
        return counts.index[: self.max_levels].sort_values()

    def _category(self, text: np.ndarray, levels: pd.Index) -> Any:
        codes, n_levels = levels.get_indexer(text), len(levels)  # a hole is -1
        if self.fills_levels:
            codes, n_levels = np.where(codes < 0, n_levels, codes), n_levels + 1
        # Numbers for levels: every library takes those, whatever text there was.
        return pd.Categorical.from_codes(codes, categories=range(n_levels))

    def _floats(self, X: Any) -> np.ndarray:
        parts = [
            read_columns(_take(X, columns), kind)
            for kind, columns in self.amounts_.items()
            if columns
        ]
        return np.column_stack(parts) if parts else np.empty((len(X), 0))

    def _texts(self, X: Any) -> list[np.ndarray]:
        if not self.categories_:
            return []
        return list(read_columns(_take(X, self.categories_), "categories").T)


def _take(X: pd.DataFrame, columns: list[Any]) -> pd.DataFrame:
    # Whole numbers are positions, as select_columns gives them for names that are not text.
    return X.iloc[:, [X.columns.get_loc(c) if isinstance(c, str) else c for c in columns]]


# Each of these gets what is set, the features, the seed, and the number of threads.


def _logistic(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return LogisticRegression(**params, random_state=seed)


def _mlp(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    params = params | {"batch_size": min(params["batch_size"], features.shape[0])}
    return MLPClassifier(**params, random_state=seed)


def _default_mlp(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return MLPClassifier(**params, random_state=seed)


def _random_forest(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return RandomForestClassifier(**params, random_state=seed, n_jobs=n_jobs)


def _hist_gradient_boosting(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return HistGradientBoostingClassifier(**params, random_state=seed)


def _realmlp(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return import_module("pytabkit").RealMLP_TD_Classifier(
        **params, random_state=seed, n_threads=n_jobs, verbosity=0
    )


def _xgboost(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return import_module("xgboost").XGBClassifier(
        **params, random_state=seed, n_jobs=n_jobs, verbosity=0
    )


def _lightgbm(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return import_module("lightgbm").LGBMClassifier(
        **params, random_state=seed, n_jobs=n_jobs, verbosity=-1
    )


def _catboost(params: Params, features: Any, seed: int, n_jobs: int) -> Any:
    return import_module("catboost").CatBoostClassifier(
        **params,
        cat_features=[name for name in features if features[name].dtype == "category"],
        random_seed=seed,
        thread_count=n_jobs,
        verbose=False,
        allow_writing_files=False,
    )


class Recipe(NamedTuple):
    """How a peer is made."""

    #: Gives what turns raw rows into features.
    preprocessor: Callable[[], Any]
    #: Gives the classifier, from what is set, features, seed and number of threads.
    classifier: Callable[[Params, Any, int, int], Any]
    #: What is set otherwise than the library does.
    params: Params
    #: The module that must be there.
    module: str = "sklearn"
    #: What to tell pip where it is not.
    package: str = "scikit-learn"


def _scaled() -> Any:
    return make_preprocessor(**PAPER_INPUTS)


def _few_levels() -> TypedFrame:
    return TypedFrame(max_levels=255)  # scikit-learn's limit: a level is a bin


def _filled_numbers() -> TypedFrame:
    return TypedFrame(fills_numbers=True)


def _filled_levels() -> TypedFrame:
    return TypedFrame(fills_levels=True)


PEERS: dict[str, Recipe] = {
    "logistic": Recipe(_scaled, _logistic, {"max_iter": 1000}),
    # The paper's network, without weight decay; its training is that of the other networks.
    "mlp-sklearn": Recipe(_scaled, _mlp, {"hidden_layer_sizes": [128, 128], "alpha": 0.0}),
    "mlp-sklearn-default": Recipe(_scaled, _default_mlp, {}),
    "random-forest": Recipe(_scaled, _random_forest, {}),
    "hist-gradient-boosting": Recipe(
        _few_levels, _hist_gradient_boosting, {"categorical_features": "from_dtype"}
    ),
    "realmlp": Recipe(_filled_numbers, _realmlp, {"device": "cpu"}, "pytabkit", "pytabkit[models]"),
    "xgboost": Recipe(TypedFrame, _xgboost, {"enable_categorical": True}, "xgboost", "xgboost"),
    # Both settings make a run repeatable, as its documentation says.
    "lightgbm": Recipe(
        TypedFrame,
        _lightgbm,
        {"deterministic": True, "force_col_wise": True},
        "lightgbm",
        "lightgbm",
    ),
    "catboost": Recipe(_filled_levels, _catboost, {}, "catboost", "catboost"),
}
# The paper's, for a network that is made without.
TRAINING = {"max_epochs": 25, "batch_size": 100, "lr": 0.001}


def params_of(name: str, training: Mapping[str, Any] | None = None) -> Params:
    """What is set for a peer, besides its seed and threads; all else is its library's default.

    Parameters
    ----------
    name : str
        A name in ``PEERS``.
    training : mapping or None, default=None
        ``max_epochs``, ``batch_size`` and ``lr`` of the networks, which ``mlp-sklearn`` takes
        over; what is missing is the paper's.

    Returns
    -------
    params : dict
        Plain values, under the names that the library has for them.

    Examples
    --------
    >>> params_of("logistic"), params_of("random-forest")
    ({'max_iter': 1000}, {})
    >>> params_of("mlp-sklearn", {"max_epochs": 7})["max_iter"]
    7
    """
    params = dict(PEERS[name].params)
    if name == "mlp-sklearn":
        training = TRAINING | dict(training or {})
        params["max_iter"] = params["n_iter_no_change"] = training["max_epochs"]  # no early end
        params["batch_size"] = training["batch_size"]
        params["learning_rate_init"] = training["lr"]
    return params


class Peer(ClassifierMixin, BaseEstimator):
    """A classifier from raw rows to probabilities, by its name in ``PEERS``.

    Parameters
    ----------
    name : str
        Which one.
    seed : int, default=0
        Seed of all that is random in it.
    n_jobs : int, default=1
        How many threads it may use.
    training : mapping or None, default=None
        As :func:`params_of` takes it.

    Attributes
    ----------
    classes_ : ndarray
        The classes of the training rows.
    preprocessor_, classifier_ : estimators
        The fitted parts.
    """

    def __init__(self, name, seed=0, n_jobs=1, training=None):
        self.name = name
        self.seed = seed
        self.n_jobs = n_jobs
        self.training = training

    def fit(self, X, y):
        """Fit on raw rows and classes, which may be text."""
        recipe = PEERS[self.name]
        # Numbers from zero are what XGBoost insists on; the others take them as well.
        labels = LabelEncoder().fit(y)
        self.classes_ = labels.classes_
        with _apart(self.seed, self.n_jobs):
            self.preprocessor_ = recipe.preprocessor()
            features = self.preprocessor_.fit_transform(X)
            params = params_of(self.name, self.training)
            self.classifier_ = recipe.classifier(params, features, self.seed, self.n_jobs)
            self.classifier_.fit(features, labels.transform(y))
        return self

    def predict_proba(self, X):
        """Probabilities, a column per class."""
        check_is_fitted(self)
        with _apart(self.seed, self.n_jobs):
            proba = self.classifier_.predict_proba(self.preprocessor_.transform(X))
        return np.asarray(proba, dtype=np.float64)

    def predict(self, X):
        """The class with the largest probability."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@contextmanager
def _apart(seed: int, n_jobs: int) -> Iterator[None]:
    """Run a block in silence, with so many threads, and leave global generators as they were."""
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with threadpool_limits(n_jobs), seeded(seed), warnings.catch_warnings():
            # So many epochs or iterations and no more, on purpose: not to be told with each fit.
            warnings.filterwarnings("ignore", category=ConvergenceWarning)
            # Lightning's own, of torch's functions.
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*treespec")
            yield
    finally:
        logger.setLevel(before)


def make_peer(
    name: str, seed: int, n_jobs: int = 1, training: Mapping[str, Any] | None = None
) -> Peer:
    """Make a classifier that takes a raw frame: text, categories, holes, and classes as text.

    Parameters
    ----------
    name : str
        A name in ``PEERS``.
    seed : int
        Seed of all that is random in it.
    n_jobs : int, default=1
        How many threads it may use.
    training : mapping or None, default=None
        As :func:`params_of` takes it.

    Returns
    -------
    peer : Peer
        Not yet fitted.

    Examples
    --------
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0, 4.0], "is_new": [True, False, None, True]})
    >>> make_peer("logistic", seed=0).fit(frame, ["a", "a", "b", "b"]).predict_proba(frame).shape
    (4, 2)
    """
    check_peers([name])
    import_module(PEERS[name].module)  # now, since it takes seconds that are not those of a fit
    return Peer(name, seed, n_jobs, training)


def check_peers(names: Sequence[str]) -> list[str]:
    """Names of peers that can run here; all that are installed if none is named.

    Examples
    --------
    >>> check_peers(["logistic"])
    ['logistic']
    """
    for name in names:
        if name not in PEERS:
            raise ValueError(f"Got peer {name!r}, but expected one of {', '.join(PEERS)}.")
        if not _is_installed(name):
            recipe = PEERS[name]
            raise ImportError(
                f"Got peer {name!r}, but expected one that is installed; this one comes with pip "
                f"install {recipe.package}."
            )
    return list(names) or installed_peers()


def installed_peers() -> list[str]:
    """Names of the peers whose library is installed.

    Examples
    --------
    >>> "random-forest" in installed_peers()
    True
    """
    return [name for name in PEERS if _is_installed(name)]


def _is_installed(name: str) -> bool:
    return find_spec(PEERS[name].module) is not None
