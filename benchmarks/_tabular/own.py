"""Our classifier as it comes, and with the paper's settings: methods of one configuration each.

Unlike the networks of the paper's protocol they take no part in a grid, and nothing of the command
line is set in them. Like the peers they take raw rows, and their time is that of all of it.
"""

import inspect
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline

from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, make_preprocessor, preset
from mixupe_sklearn._training.config import MODULES

Params = dict[str, Any]

# What the benchmark sets in every classifier, and what changes no result.
OF_THE_RUN = ("random_state", "device", "n_threads", "verbose")
# Words of early stopping, which the paper's preset does not use and so does not say. Here they are
# said, so that a candidate that stops early does not follow the defaults without its rows telling.
STOPPING: Params = {"validation_fraction": 0.1, "n_iter_no_change": 10, "tol": 1e-4}
# The paper's inputs: zero mean and unit variance, categories one-hot.
PAPER_INPUTS: Params = {"scaling": "standard"}


def _network(name: str) -> Params:
    """What a network has where nothing is said: its defaults may change as others do."""
    params = inspect.signature(MODULES[name]).parameters.values()
    return {one.name: one.default for one in params if one.default is not one.empty}


class Settings(NamedTuple):
    """What is set in the classifier and in the preprocessor; all else is their default."""

    classifier: Params
    preprocessor: Params

    def effective(self) -> "Settings":
        """The same with all defaults of today: what a fit really has."""
        classifier = MixupEClassifier(**self.classifier).get_params(deep=False)
        if classifier["module"] in MODULES:
            said = classifier["module_params"] or {}
            classifier["module_params"] = _network(classifier["module"]) | said
        inputs = inspect.signature(make_preprocessor).parameters.values()
        return Settings(
            {name: classifier[name] for name in sorted(classifier) if name not in OF_THE_RUN},
            {one.name: one.default for one in inputs} | self.preprocessor,
        )

    def unlike_paper(self) -> str:
        """What a fit has that the paper's settings have not, as JSON; "{}" if nothing."""
        own, paper = self.effective(), paper_settings().effective()
        classifier, inputs = (
            {name: value for name, value in mine.items() if as_json(value) != as_json(its[name])}
            for mine, its in zip(own, paper, strict=True)
        )
        return as_json(classifier | ({"preprocessor": inputs} if inputs else {}))

    def make(self, seed: int) -> Pipeline:
        """The pipeline from raw rows to the classifier, of one thread."""
        return make_mixupe_pipeline(
            preprocessor=make_preprocessor(**self.preprocessor),
            **self.classifier,
            random_state=seed,
            device="cpu",
            n_threads=1,
        )


def as_json(value: Any) -> str:
    """JSON in one line, equal for equal values; a sequence is a list, a class is its name.

    Examples
    --------
    >>> as_json({"b": (1, 2), "a": None})
    '{"a": null, "b": [1, 2]}'
    """
    return json.dumps(value, sort_keys=True, default=_name_of)


def _name_of(value: Any) -> str:
    return getattr(value, "__name__", repr(value))


def paper_settings() -> Settings:
    """The paper's network, training, alpha, eta and inputs.

    Examples
    --------
    >>> paper_settings().classifier["max_epochs"]
    25
    """
    return Settings(preset("paper") | STOPPING, dict(PAPER_INPUTS))


OWN = ("mixupe-default", "mixupe-paper")


def settings_of(name: str) -> Settings:
    """What is set for a method of ours.

    Examples
    --------
    >>> settings_of("mixupe-default")
    Settings(classifier={}, preprocessor={})
    """
    return Settings({}, {}) if name == "mixupe-default" else paper_settings()


def own_params(name: str) -> Mapping[str, Any]:
    """What is set for a method of ours, and all that its parts have then.

    Rows hold it, so that those which were made under other defaults are other rows.
    """
    settings = settings_of(name)
    return {"set": settings._asdict(), "all": settings.effective()._asdict()}
