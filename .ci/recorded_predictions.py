"""Record what models predict, or compare with what was recorded: equal to the bit.

A change that only moves or renames code must not change a number. Record before it, with the code
of then, and compare after it, on the same machine and with the same libraries::

    python .ci/recorded_predictions.py record build/recorded
    python .ci/recorded_predictions.py compare build/recorded

Only public names are used, so that the script runs with either version of the package. The folder
also receives files written by ``save``, which ``compare`` loads.
"""

import argparse
import pathlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.pipeline import make_pipeline

import mixupe_sklearn
from mixupe_sklearn import (
    MixupEClassifier,
    MixupEGraphClassifier,
    MixupEImageClassifier,
    MixupELoss,
    MixupENet,
    MixupERegressor,
    MixupESearchCV,
    MixupESpeechClassifier,
    load,
    make_mixupe_pipeline,
    make_preprocessor,
    preset,
    save,
)

SHORT = {"max_epochs": 6, "min_steps": 0, "random_state": 0, "n_threads": 1}
PAPER = preset("paper") | SHORT | {"batch_size": 32}
Arrays = dict[str, np.ndarray]


def wine() -> tuple[np.ndarray, np.ndarray]:
    """Scaled rows of wine, in single precision."""
    X, y = load_wine(return_X_y=True)
    return (X / X.std(axis=0)).astype(np.float32), y


def digits(n_samples: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Digits as 8 x 8 grey values in [0, 1]."""
    X, y = load_digits(return_X_y=True)
    return (X[:n_samples] / 16).astype(np.float32), y[:n_samples]


def columns_of(history: Any) -> Arrays:
    """Each number that an epoch recorded, but for times."""
    if history is None:
        return {}
    keys = [
        key
        for key, value in history[-1].items()
        if isinstance(value, int | float) and key not in ("dur", "epoch")
    ]
    return {f"history {key}": np.array([row.get(key, np.nan) for row in history]) for key in keys}


def outcome(model: Any, X: Any) -> Arrays:
    """Predictions of a fitted model, and the history of its training."""
    found = {"predict": np.asarray(model.predict(X))}
    if hasattr(model, "predict_proba"):
        found["predict_proba"] = np.asarray(model.predict_proba(X))
    last = model[-1] if hasattr(model, "steps") else model
    return found | columns_of(getattr(last, "history_", None))


def classified(params: dict[str, Any] | None = None, **fit_params: Any) -> Arrays:
    """A classifier on wine."""
    X, y = wine()
    return outcome(MixupEClassifier(**SHORT | (params or {})).fit(X, y, **fit_params), X)


def paper(**params: Any) -> Arrays:
    """The paper's single network on wine, with some parameters changed."""
    return classified(PAPER | params)


def regressed(**params: Any) -> Arrays:
    """A regressor on diabetes."""
    X, y = load_diabetes(return_X_y=True)
    return outcome(MixupERegressor(**SHORT | params).fit(X, y), X)


def weighted() -> Arrays:
    """Weights of samples and classes, and a validation set."""
    X, y = wine()
    weight = 0.5 + np.arange(len(y)) % 3
    model = MixupEClassifier(**SHORT, class_weight="balanced", early_stopping=True)
    return outcome(model.fit(X, y, weight, X_val=X[::5], y_val=y[::5]), X)


def multilabel() -> Arrays:
    """Three labels of each digit."""
    X, y = digits()
    labels = np.column_stack([y % 2 == 0, y > 4, y == 3]).astype(int)
    return outcome(MixupEClassifier(**SHORT).fit(X, labels), X)


def sparse() -> Arrays:
    """Sparse rows."""
    from scipy.sparse import csr_array

    X, y = digits()
    return outcome(MixupEClassifier(**SHORT).fit(csr_array(X), y), csr_array(X))


def continued() -> Arrays:
    """Training continued by ``partial_fit`` and by ``warm_start``."""
    X, y = wine()
    model = MixupEClassifier(**PAPER)
    for part in (slice(0, None, 2), slice(1, None, 2)):
        model.partial_fit(X[part], y[part], classes=np.unique(y))
    warm = MixupEClassifier(**PAPER | {"warm_start": True})
    warm.fit(X, y).set_params(lr=0.01).fit(X, y)
    return outcome(model, X) | {f"warm {key}": value for key, value in outcome(warm, X).items()}


def frame() -> Any:
    """Iris with a text column and missing values."""
    import pandas as pd

    X, y = load_iris(return_X_y=True)
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table["city"] = np.array(["Oslo", "Bonn", "Lima"])[(np.arange(150) * 7) % 3]
    table.loc[::9, ["a", "city"]] = None
    return table, y


def pipeline() -> Arrays:
    """Raw columns through our preprocessing, for each scaling."""
    X, y = frame()
    found = {}
    for scaling in ("standard", "robust", "quantile"):
        model = make_pipeline(make_preprocessor(scaling=scaling), MixupEClassifier(**SHORT))
        fitted = model.fit(X, y)
        found |= {f"{scaling} {key}": value for key, value in outcome(fitted, X).items()}
    default = make_mixupe_pipeline(**SHORT).fit(X, y)
    return found | outcome(default, X)


def images() -> Arrays:
    """A small residual network on digits, with augmentation left at its default."""
    X, y = digits()
    small = {"width": 4, "blocks": (1, 1)}
    model = MixupEImageClassifier(
        module_params=small, lr=0.01, max_epochs=2, batch_size=20, random_state=0, n_threads=1
    )
    X = X.reshape(-1, 8, 8)
    return outcome(model.fit(X, y), X)


def speech() -> Arrays:
    """Tones of three pitches in noise."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    time = np.arange(4000) / 16000
    X = [
        0.5 * np.sin(2 * np.pi * (300.0, 900.0, 2700.0)[label] * time)
        + rng.normal(0, 0.02, len(time))
        for label in y
    ]
    model = MixupESpeechClassifier(
        module_params={"channels": (2, 2), "d_hidden": (8,)},
        max_epochs=3,
        batch_size=10,
        lr=0.01,
        random_state=0,
        n_threads=1,
    )
    return outcome(model.fit(X, y), X)


def graphs() -> Arrays:
    """Rings and paths."""
    import networkx as nx

    X = [kind(n) for n in range(3, 20) for kind in (nx.cycle_graph, nx.path_graph)]
    y = np.arange(len(X)) % 2
    model = MixupEGraphClassifier(
        module_params={"d_hidden": 8, "n_layers": 2},
        max_epochs=3,
        batch_size=8,
        random_state=0,
        n_threads=1,
    )
    return outcome(model.fit(X, y), X)


def search(estimator: Any) -> Arrays:
    """A search of four configurations, with every score."""
    X, y = wine()
    space = {"alpha": [0.1, 1.0], "eta": [0.01, 1.0]}
    made = MixupESearchCV(estimator, space, n_trials=4, cv=2, random_state=0)
    made.fit(X, y)
    scores = made.cv_results_
    found = {key: np.asarray(scores[key]) for key in scores if "_test_score" in key}
    return found | {
        "alpha": np.asarray(scores["param_alpha"], dtype=float),
        "predict_proba": made.predict_proba(X),
    }


def torch_loop() -> Arrays:
    """MixupELoss in a loop of the user's, with each method and penalty, and gradients."""
    X, y = (torch.as_tensor(values) for values in wine())
    found = {}
    for name, params in {
        "logit": {},
        "directional": {"penalty": "directional"},
        "per sample": {"lam_per": "sample", "alpha": 0.5},
        "fraction": {"penalty_fraction": 0.4, "eta": 1.0},
        "two passes": {"single_pass": False},
        "second order": {"penalty_order": 2, "eta": 1.0},
        "erm+penalty": {"method": "erm+penalty", "eta": 1.0},
    }.items():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(13, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        parts = MixupELoss(random_state=0, **params)(module, X - X.mean(0), y)
        parts.loss.backward()
        gradients = [parameter.grad.ravel() for parameter in module.parameters()]
        found[f"{name} parts"] = np.array([float(value.detach()) for value in parts[:4]])
        found[f"{name} gradient"] = torch.cat(gradients).numpy()
    return found


def skorch_net() -> Arrays:
    """MixupENet in place of skorch's classifier."""
    X, y = wine()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(13, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    net = MixupENet(
        module, criterion__alpha=0.2, criterion__random_state=0, max_epochs=3, lr=0.01, verbose=0
    )
    net.fit(X, y)
    return {"predict_proba": net.predict_proba(X), **columns_of(net.history)}


CASES: dict[str, Callable[[], Arrays]] = {
    "default": classified,
    "default, stopped early": lambda: classified({"max_epochs": 60, "n_iter_no_change": 2}),
    "paper": paper,
    **{
        f"paper, {method}": lambda method=method: paper(method=method)  # type: ignore[misc]
        for method in ("mixup", "erm", "erm+penalty")
    },
    "directional": lambda: paper(penalty="directional"),
    "second order": lambda: paper(penalty_order=2),
    "fraction": lambda: paper(penalty_fraction=0.3),
    "lam per sample": lambda: paper(lam_per="sample", alpha=0.5, beta=1.0),
    "hidden": lambda: paper(mix_at="hidden"),
    "hidden, directional": lambda: paper(mix_at="hidden", penalty="directional"),
    "dropout, GELU": lambda: paper(module_params={"dropout": 0.2, "activation": "gelu"}),
    "cosine": lambda: paper(lr_schedule="cosine", weight_decay=0.01, early_stopping=True),
    "sgd": lambda: paper(optimizer="sgd", lr=0.1),
    "weights": weighted,
    "multilabel": multilabel,
    "sparse": sparse,
    "continued": continued,
    "regressor": regressed,
    "regressor, paper": lambda: regressed(**PAPER),
    "regressor, directional": lambda: regressed(**PAPER | {"penalty": "directional"}),
    "pipeline": pipeline,
    "images": images,
    "speech": speech,
    "graphs": graphs,
    "search": lambda: search(MixupEClassifier(**PAPER)),
    "search of the default": lambda: search(MixupEClassifier(**SHORT)),
    "torch loop": torch_loop,
    "skorch net": skorch_net,
}


def saved_models() -> dict[str, tuple[Any, Any]]:
    """Fitted models to save, each with the samples that it is asked about."""
    X, y = wine()
    raw, labels = frame()
    numbers, target = load_diabetes(return_X_y=True)
    searched = MixupESearchCV(
        MixupEClassifier(**PAPER), {"alpha": [0.1, 1.0]}, n_trials=2, cv=2, random_state=0
    )
    names = np.array(["first", "second", "third"])
    image_data, image_labels = digits(60)
    image_data = image_data.reshape(-1, 8, 8)
    image_model = MixupEImageClassifier(
        module_params={"width": 4, "blocks": (1, 1)}, max_epochs=1, batch_size=20, random_state=0
    )
    return {
        "classifier": (MixupEClassifier(**SHORT).fit(X, names[y]), X),
        "pipeline": (make_mixupe_pipeline(**SHORT).fit(raw, labels), raw),
        "regressor": (MixupERegressor(**SHORT).fit(numbers, target), numbers),
        "search": (searched.fit(X, y), X),
        "images": (image_model.fit(image_data, image_labels), image_data),
    }


def run(name: str) -> Arrays:
    """The arrays of one case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CASES[name]()


def record(folder: pathlib.Path) -> int:
    """Write the arrays of every case, and the saved models with their predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        np.savez(folder / f"{name}.npz", **run(name))
        print(f"recorded {name}", flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, X) in saved_models().items():
            save(model, folder / f"{name}.safetensors")
            np.savez(folder / f"saved {name}.npz", **predictions(model, X))
    return 0


def predictions(model: Any, X: Any) -> Arrays:
    """What a model makes of samples, without its history."""
    found = {"predict": np.asarray(model.predict(X))}
    if hasattr(model, "predict_proba"):
        found["predict_proba"] = np.asarray(model.predict_proba(X))
    return found


def differences(expected: Arrays, found: Arrays) -> list[str]:
    """The names of arrays that are missing, new or not equal to the bit."""
    names = sorted(set(expected) | set(found))
    return [
        name
        for name in names
        if name not in expected
        or name not in found
        or not np.array_equal(
            expected[name], found[name], equal_nan=expected[name].dtype.kind in "fc"
        )
    ]


def read(path: pathlib.Path) -> Arrays:
    """The arrays of a file."""
    with np.load(path) as arrays:
        return dict(arrays)


def compare(folder: pathlib.Path) -> int:
    """Run every case again and print what differs; the exit status is the number of cases."""
    failed = []
    for name in CASES:
        different = differences(read(folder / f"{name}.npz"), run(name))
        print(f"{'DIFFERS' if different else 'equal  '} {name} {', '.join(different)}", flush=True)
        failed += [name] * bool(different)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (model, X) in saved_models().items():
            expected = read(folder / f"saved {name}.npz")
            again = load(folder / f"{name}.safetensors")
            different = differences(expected, predictions(again, X))
            different += differences(expected, predictions(model, X))
            clone(again)
            print(f"{'DIFFERS' if different else 'equal  '} saved {name}", flush=True)
            failed += [f"saved {name}"] * bool(different)
    print(f"{len(CASES) + 5 - len(failed)} equal, {len(failed)} different")
    return len(failed)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"mixupe_sklearn of {pathlib.Path(mixupe_sklearn.__file__).parent}")
    return record(options.folder) if options.action == "record" else compare(options.folder)


if __name__ == "__main__":
    sys.exit(main())
