"""Make the inventories of other projects' names: ``python docs/make_inventories.py``.

Sphinx links to names of other projects through their inventories, which it would download in each
build. Our build works offline. This script writes inventories of just the names that our pages
use, in the same format. Add a new name to ``NAMES``; its address follows the project's site.
"""

import pathlib
import zlib

FOLDER = pathlib.Path(__file__).parent / "inventories"
SKLEARN = "modules/generated/$.html#$"
# Addresses by project, role and name. ``$`` stands for the name.
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
# Fragments that differ from the name.
FRAGMENTS = {"bltin-boolean-values": "boolean-type-bool"}


def inventory(project: str) -> bytes:
    """Return the inventory of a project: four header lines, then a compressed line per name."""
    lines = []
    for role, names in NAMES[project].items():
        # The 1 is the search priority of the name, which is not used here.
        for name, address in sorted(names.items()):
            target = address.replace("$", FRAGMENTS.get(name, name))
            lines.append(f"{name} {role} 1 {target} -\n")
    header = (
        f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    return header.encode() + zlib.compress("".join(lines).encode(), 9)


def main() -> None:
    """Write all inventories."""
    FOLDER.mkdir(exist_ok=True)
    for project in NAMES:
        (FOLDER / f"{project}.inv").write_bytes(inventory(project))


if __name__ == "__main__":
    main()
