"""Made the files beside it, of format 1, with the version that was installed then.

They are kept as they are for as long as their format is converted, and are not made again.
"""

import json
import pathlib
from importlib.metadata import version

import numpy as np
import pandas as pd
from paper import paper_regressor
from sklearn.datasets import load_diabetes, load_iris

from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline, save

HERE = pathlib.Path(__file__).parent
SMALL = {"max_epochs": 3, "min_steps": 0, "module_params": {"d_hidden": (6,)}, "random_state": 0}


def keep(name, model, rows, expected, plain):
    """Save a model, some samples, and its predictions."""
    save(model, HERE / f"{name}.safetensors")
    kept = {"written_by": version("mixupe-sklearn"), "rows": plain, "output": expected.tolist()}
    (HERE / f"{name}.json").write_text(json.dumps(kept))


def main():
    """Write all files."""
    X, y = load_iris(return_X_y=True)
    rows = X[::15]
    classifier = MixupEClassifier(n_members=2, **SMALL).fit(X, np.array(["a", "b", "ü"])[y])
    keep("classifier", classifier, rows, classifier.predict_proba(rows), rows.tolist())

    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["city"] = np.array(["Oslo", "Bonn", "Łódź"])[(np.arange(150) * 7) % 3]
    frame.loc[::9, ["a", "city"]] = None
    few = frame[::15].astype(object).where(frame[::15].notna(), None)
    pipeline = make_mixupe_pipeline(n_members=1, **SMALL).fit(frame, y)
    keep("pipeline", pipeline, few, pipeline.predict_proba(few), few.to_dict("records"))

    X, y = load_diabetes(return_X_y=True)
    rows = X[::40]
    regressor = paper_regressor(**SMALL).fit(X, y)
    keep("regressor", regressor, rows, regressor.predict(rows), rows.tolist())


if __name__ == "__main__":
    main()
