"""Baselines: other estimators on the same raw samples, seeded and with nearly all defaults."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import LabelEncoder
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from benchmarks._tabular.methods import PAPER_INPUTS
from mixupe_sklearn import make_preprocessor
from mixupe_sklearn._runtime.torch_state import seeded
from mixupe_sklearn.preprocessing import read_columns, select_columns

Params = dict[str, Any]


class TypedFrame(TransformerMixin, BaseEstimator):
    """A frame of floats and categories, for libraries that take categories directly.

    Levels beyond ``max_levels``, the rarest, and levels not seen in training are missing values.
    Columns are renamed, as some libraries refuse brackets; those with one value are dropped.
    """

    def __init__(self, max_levels=None, fills_numbers=False, fills_levels=False):
        self.max_levels = max_levels
        self.fills_numbers = fills_numbers
        self.fills_levels = fills_levels

    def fit(self, X, y=None):
        """Learn the type and the levels of each column."""
        self.amounts_ = {kind: select_columns(X, kind) for kind in ("numbers", "times")}
        self.categories_ = select_columns(X, "categories")
        # Counts have the most frequent level first, and no missing values.
        counts = [pd.Series(column).value_counts() for column in self._texts(X)]
        self.levels_ = [one.index[: self.max_levels].sort_values() for one in counts]
        amounts = self._floats(X)
        self.means_ = np.array([column[~np.isnan(column)].mean() for column in amounts.T])
        return self

    def transform(self, X):
        """Return the frame."""
        check_is_fitted(self)
        amounts = self._floats(X)
        if self.fills_numbers:
            amounts = np.where(np.isnan(amounts), self.means_, amounts)
        columns: list[Any] = list(amounts.T)
        for text, levels in zip(self._texts(X), self.levels_, strict=True):
            columns.append(self._category(text, levels))
        frame = {f"x{position}": column for position, column in enumerate(columns)}
        return pd.DataFrame(frame, index=range(len(X)))

    def _category(self, text: np.ndarray, levels: pd.Index) -> Any:
        codes, n_levels = levels.get_indexer(text), len(levels)  # a missing value is -1
        if self.fills_levels:
            codes, n_levels = np.where(codes < 0, n_levels, codes), n_levels + 1
        # Every library takes integers as levels, whatever the text was.
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
    # Integers are positions: select_columns returns them for names that are not text.
    return X.iloc[:, [X.columns.get_loc(c) if isinstance(c, str) else c for c in columns]]


@dataclass(frozen=True)
class Recipe:
    """How a baseline is built; rows record ``params``, which differ from the library's defaults."""

    preprocessor: Callable[[], Any]
    classifier: str
    params: Params = field(default_factory=dict)
    seed: str = "random_state"
    threads: str = ""
    quiet: Params = field(default_factory=dict)
    # If it is not the classifier's with another ending, and has other parameters.
    regressor: str = ""
    regressor_params: Params | None = None

    @property
    def module(self) -> str:
        """The module that must be installed."""
        return self.classifier.partition(".")[0]

    def path(self, is_regression: bool) -> str:
        """Where the class of the classifier or the regressor is."""
        if not is_regression:
            return self.classifier
        return self.regressor or self.classifier.replace("Classifier", "Regressor")

    def params_for(self, is_regression: bool) -> Params:
        """The parameters that are not defaults."""
        if is_regression and self.regressor_params is not None:
            return dict(self.regressor_params)
        return dict(self.params)

    def make(
        self, params: Params, features: Any, seed: int, n_jobs: int, is_regression: bool = False
    ) -> Any:
        """Return the classifier or the regressor for some features."""
        params = params | self.quiet | {self.seed: seed}
        if self.threads:
            params[self.threads] = n_jobs
        if "batch_size" in params:
            params["batch_size"] = min(params["batch_size"], features.shape[0])
        if self.module == "catboost":
            categories = [name for name in features if features[name].dtype == "category"]
            params["cat_features"] = categories
        module, _, name = self.path(is_regression).rpartition(".")
        return getattr(import_module(module), name)(**params)


_SCALED = partial(make_preprocessor, **PAPER_INPUTS)
_MLP = "sklearn.neural_network.MLPClassifier"
BASELINES: dict[str, Recipe] = {
    "logistic": Recipe(
        _SCALED,
        "sklearn.linear_model.LogisticRegression",
        {"max_iter": 1000},
        regressor="sklearn.linear_model.Ridge",
        regressor_params={},
    ),
    # The paper's network without weight decay, trained like the other networks.
    "mlp-sklearn": Recipe(_SCALED, _MLP, {"hidden_layer_sizes": [128, 128], "alpha": 0.0}),
    "mlp-sklearn-default": Recipe(_SCALED, _MLP),
    "random-forest": Recipe(_SCALED, "sklearn.ensemble.RandomForestClassifier", threads="n_jobs"),
    "hist-gradient-boosting": Recipe(
        partial(TypedFrame, max_levels=255),  # scikit-learn's limit: a level is a bin
        "sklearn.ensemble.HistGradientBoostingClassifier",
        {"categorical_features": "from_dtype"},
    ),
    "realmlp": Recipe(
        partial(TypedFrame, fills_numbers=True),
        "pytabkit.RealMLP_TD_Classifier",
        {"device": "cpu"},
        threads="n_threads",
        quiet={"verbosity": 0},
    ),
    "tabm": Recipe(
        partial(TypedFrame, fills_numbers=True),
        "pytabkit.TabM_D_Classifier",
        {"device": "cpu"},
        threads="n_threads",
        quiet={"verbosity": 0},
    ),
    "xgboost": Recipe(
        TypedFrame,
        "xgboost.XGBClassifier",
        {"enable_categorical": True},
        threads="n_jobs",
        quiet={"verbosity": 0},
    ),
    # Its documentation names both settings for reproducible runs.
    "lightgbm": Recipe(
        TypedFrame,
        "lightgbm.LGBMClassifier",
        {"deterministic": True, "force_col_wise": True},
        threads="n_jobs",
        quiet={"verbosity": -1},
    ),
    "catboost": Recipe(
        partial(TypedFrame, fills_levels=True),
        "catboost.CatBoostClassifier",
        seed="random_seed",
        threads="thread_count",
        quiet={"verbose": False, "allow_writing_files": False},
    ),
}
TRAINING = {"max_epochs": 25, "batch_size": 100, "lr": 0.001}  # the paper's training


def params_of(name: str, training: Mapping[str, Any] | None = None) -> Params:
    """Return the parameters that are not defaults; ``mlp-sklearn`` shares those of networks."""
    params = dict(BASELINES[name].params)
    if name == "mlp-sklearn":
        training = TRAINING | dict(training or {})
        # As many epochs without improvement as epochs: it never stops early.
        params["max_iter"] = params["n_iter_no_change"] = training["max_epochs"]
        params["batch_size"] = training["batch_size"]
        params["learning_rate_init"] = training["lr"]
    return params


class _Baseline(BaseEstimator):
    """From raw samples to predictions, by the name in ``BASELINES``."""

    def __init__(self, name, seed=0, n_jobs=1, training=None):
        self.name = name
        self.seed = seed
        self.n_jobs = n_jobs
        self.training = training

    def _fit(self, X: Any, y: Any, params: Params, is_regression: bool) -> Any:
        """Return the fitted estimator of the library."""
        recipe = BASELINES[self.name]
        self.preprocessor_ = recipe.preprocessor()
        features = self.preprocessor_.fit_transform(X)

        def make(changes: Params) -> Any:
            arguments = (features, self.seed, self.n_jobs, is_regression)
            return recipe.make(params | changes, *arguments)

        return self._fit_model(make, features, y)

    def _fit_model(self, make: Callable[[Params], Any], features: Any, y: Any) -> Any:
        return make({}).fit(features, y)


class RegressionBaseline(RegressorMixin, _Baseline):
    """A regressor on raw samples."""

    def fit(self, X, y):
        """Fit on raw samples and numbers."""
        with _isolated(self.seed, self.n_jobs):
            params = BASELINES[self.name].params_for(is_regression=True)
            self.regressor_ = self._fit(X, y, params, is_regression=True)
        return self

    def predict(self, X):
        """Return the predicted numbers."""
        check_is_fitted(self)
        with _isolated(self.seed, self.n_jobs):
            y = self.regressor_.predict(self.preprocessor_.transform(X))
        return np.asarray(y, dtype=np.float64).reshape(len(X))


class Baseline(ClassifierMixin, _Baseline):
    """A classifier from raw samples to probabilities."""

    def fit(self, X, y):
        """Fit on raw samples and classes, which may be text."""
        # XGBoost needs classes 0, 1, ...; the others take them as well.
        labels = LabelEncoder().fit(y)
        self.classes_ = labels.classes_
        with _isolated(self.seed, self.n_jobs):
            params = params_of(self.name, self.training)
            self.classifier_ = self._fit(X, labels.transform(y), params, is_regression=False)
        return self

    def predict_proba(self, X):
        """Return probabilities, a column per class."""
        check_is_fitted(self)
        with _isolated(self.seed, self.n_jobs):
            proba = self.classifier_.predict_proba(self.preprocessor_.transform(X))
        return np.asarray(proba, dtype=np.float64)

    def predict(self, X):
        """Return the class with the largest probability."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@contextmanager
def _isolated(seed: int, n_jobs: int) -> Iterator[None]:
    """Run a block quietly, with some threads, and restore the global generators after it."""
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with threadpool_limits(n_jobs), seeded(seed), warnings.catch_warnings():
            # The number of epochs or iterations is fixed on purpose.
            warnings.filterwarnings("ignore", category=ConvergenceWarning)
            # Lightning's own use of torch's functions.
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*treespec")
            yield
    finally:
        logger.setLevel(before)


def make_baseline(
    name: str,
    seed: int,
    n_jobs: int = 1,
    training: Mapping[str, Any] | None = None,
    *,
    is_regression: bool = False,
) -> Baseline | RegressionBaseline:
    """Return a baseline that can run here, its library loaded."""
    check_baselines([name])
    import_module(BASELINES[name].module)  # now: its seconds are not those of a fit
    return (RegressionBaseline if is_regression else Baseline)(name, seed, n_jobs, training)


def check_baselines(names: Sequence[str]) -> list[str]:
    """Return the names if all can run here; without names, all installed baselines."""
    for name in names:
        if name not in BASELINES:
            raise ValueError(f"Got baseline {name!r}, but expected one of {', '.join(BASELINES)}.")
        if name not in installed_baselines():
            raise ImportError(
                f"Got baseline {name!r}, but expected one that is installed: pip install "
                f"mixupe-sklearn[baselines]."
            )
    return list(names) or installed_baselines()


def installed_baselines() -> list[str]:
    """Return the names of the baselines whose library is installed."""
    return [name for name, recipe in BASELINES.items() if find_spec(recipe.module) is not None]
