"""Make the inventories of other projects' names: ``python docs/make_inventories.py``.

Sphinx links a name of another project by that project's inventory, a list of all its names and
addresses, which it would fetch in each build. Ours has no network, so here are lists of just the
names that our pages use, in the same format. A new name goes into ``NAMES``; the addresses follow
the layout of each project's own site.
"""

import pathlib
import zlib

FOLDER = pathlib.Path(__file__).parent / "inventories"
SKLEARN = "modules/generated/$.html#$"
# For each project: the address of a name, by role. A ``$`` stands for the name.
NAMES: dict[str, dict[str, dict[str, str]]] = {
    "python": {
        "py:class": {
            **dict.fromkeys(["bool", "int", "float"], "library/functions.html#$"),
            **dict.fromkeys(["str", "list", "tuple", "dict"], "library/stdtypes.html#$"),
            "pathlib.Path": "library/pathlib.html#$",
        },
        "py:function": {"callable": "library/functions.html#$"},
        "py:data": {"None": "library/constants.html#$"},
        "std:term": dict.fromkeys(["iterable", "sequence"], "glossary.html#term-$"),
        "std:label": {"bltin-boolean-values": "library/stdtypes.html#$"},
    },
    "numpy": {
        "py:class": {
            "numpy.ndarray": "reference/generated/$.html#$",
            "numpy.random.Generator": "reference/random/generator.html#$",
            "numpy.random.RandomState": "reference/random/legacy.html#$",
        },
        "std:term": {"array_like": "glossary.html#term-$"},
    },
    "scipy": {"py:function": {"scipy.io.wavfile.read": "reference/generated/$.html#$"}},
    "sklearn": {
        "py:class": dict.fromkeys(
            [
                "sklearn.calibration.CalibratedClassifierCV",
                "sklearn.compose.ColumnTransformer",
                "sklearn.inspection.DecisionBoundaryDisplay",
                "sklearn.model_selection.GridSearchCV",
                "sklearn.model_selection.StratifiedKFold",
                "sklearn.pipeline.Pipeline",
                "sklearn.preprocessing.OneHotEncoder",
                "sklearn.preprocessing.QuantileTransformer",
            ],
            SKLEARN,
        ),
        "py:function": dict.fromkeys(
            [
                "sklearn.calibration.calibration_curve",
                "sklearn.datasets.load_digits",
                "sklearn.datasets.make_classification",
                "sklearn.datasets.make_moons",
                "sklearn.metrics.average_precision_score",
                "sklearn.metrics.log_loss",
                "sklearn.metrics.precision_score",
                "sklearn.metrics.recall_score",
                "sklearn.model_selection.cross_validate",
                "sklearn.model_selection.train_test_split",
            ],
            SKLEARN,
        ),
    },
    "torch": {
        "py:class": {
            "torch.Tensor": "tensors.html#$",
            "torch.nn.Module": "generated/$.html#$",
            "torch.optim.Adam": "generated/$.html#$",
        }
    },
    "skorch": {
        "py:class": {
            "skorch.classifier.NeuralNetClassifier": "classifier.html#$",
        }
    },
    "optuna": {"py:class": {"optuna.study.Study": "reference/generated/$.html#$"}},
    "pandas": {"py:class": {"pandas.DataFrame": "reference/api/$.html#$"}},
    "matplotlib": {"py:class": {"matplotlib.figure.Figure": "api/_as_gen/$.html#$"}},
}
# The names of fragments that are not the name itself.
FRAGMENTS = {"bltin-boolean-values": "boolean-type-bool"}


def inventory(project: str) -> bytes:
    """The inventory of a project: four lines of heading, then a compressed line for each name."""
    lines = []
    for role, names in NAMES[project].items():
        # The number is the name's rank in a search on that site, which nobody runs here.
        for name, address in sorted(names.items()):
            place = address.replace("$", FRAGMENTS.get(name, name))
            lines.append(f"{name} {role} 1 {place} -\n")
    head = (
        f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    return head.encode() + zlib.compress("".join(lines).encode(), 9)


def main() -> None:
    """Write all inventories."""
    FOLDER.mkdir(exist_ok=True)
    for project in NAMES:
        (FOLDER / f"{project}.inv").write_bytes(inventory(project))


if __name__ == "__main__":
    main()
