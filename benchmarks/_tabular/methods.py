"""Our estimators with their defaults and with the paper's settings, from raw samples."""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

from benchmarks._harness.results_file import as_json
from mixupe_sklearn import (
    MixupEClassifier,
    MixupERegressor,
    make_mixupe_pipeline,
    make_preprocessor,
    preset,
)
from mixupe_sklearn._training.config import MODULES
from mixupe_sklearn.preprocessing import TablePreprocessor

Params = dict[str, Any]

# Parameters that the benchmark sets in every classifier, and those that change no result.
OF_THE_RUN = ("random_state", "device", "n_threads", "verbose")
# Fixed, as the paper's preset leaves them out: a later change of the defaults appears in rows.
STOPPING: Params = {"validation_fraction": 0.1, "n_iter_no_change": 10, "tol": 1e-4}
PAPER_INPUTS: Params = {"scaling": "standard", "n_bins": 0}
OWN = ("mixupe-default", "mixupe-paper")


class Settings(NamedTuple):
    """Parameters of the estimator and of the preprocessor; all others have their defaults."""

    classifier: Params
    preprocessor: Params
    is_regression: bool = False

    def effective(self) -> "Settings":
        """Return the settings with all current defaults: what a fit uses."""
        estimator = MixupERegressor if self.is_regression else MixupEClassifier
        classifier = estimator(**self.classifier).get_params(deep=False)
        if classifier["module"] in MODULES:
            params = inspect.signature(MODULES[classifier["module"]]).parameters.values()
            defaults = {one.name: one.default for one in params if one.default is not one.empty}
            classifier["module_params"] = defaults | (classifier["module_params"] or {})
        inputs = inspect.signature(TablePreprocessor).parameters.values()
        return Settings(
            {name: classifier[name] for name in sorted(classifier) if name not in OF_THE_RUN},
            {one.name: one.default for one in inputs} | self.preprocessor,
            self.is_regression,
        )

    def unlike_paper(self) -> str:
        """Return as JSON what differs from the paper's settings; "{}" if nothing does."""
        own, paper = self.effective(), paper_settings().effective()
        classifier, inputs = (
            {k: value for k, value in mine.items() if as_json(value) != as_json(its.get(k))}
            for mine, its in zip(own[:2], paper[:2], strict=True)
        )
        return as_json(classifier | ({"preprocessor": inputs} if inputs else {}))

    def make(self, seed: int) -> Pipeline:
        """Return the pipeline from raw samples to the estimator, with one thread."""
        return make_mixupe_pipeline(
            regression=self.is_regression,
            preprocessor=make_preprocessor(**self.preprocessor),
            **self.classifier,
            random_state=seed,
            device="cpu",
            n_threads=1,
        )


def paper_settings() -> Settings:
    """Return the paper's network, training, alpha, eta and inputs."""
    return Settings(preset("paper") | STOPPING, dict(PAPER_INPUTS))


def settings_of(name: str) -> Settings:
    """Return the settings of one of our two methods."""
    return Settings({}, {}) if name == "mixupe-default" else paper_settings()


def own_params(name: str) -> Mapping[str, Any]:
    """Return what is set for one of our two methods, and all parameters that result."""
    settings = settings_of(name)
    return {"set": settings._asdict(), "all": settings.effective()._asdict()}
