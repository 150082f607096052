"""Models of every kind that can be saved, with the samples that they are fitted on."""

import networkx as nx
import numpy as np
import pandas as pd
import torch
from paper import paper_regressor
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PowerTransformer, StandardScaler
from torch import nn

from mixupe_sklearn import (
    MixupEClassifier,
    MixupEGraphClassifier,
    MixupEImageClassifier,
    MixupESearchCV,
    MixupESpeechClassifier,
    make_mixupe_pipeline,
    make_preprocessor,
    preset,
)
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine
from mixupe_sklearn.modules import MLP
from mixupe_sklearn.preprocessing import PiecewiseLinearEncoder

X, Y = load_iris(return_X_y=True)
FEW = {"max_epochs": 2, "min_steps": 0, "batch_size": 40, "random_state": 0}
SMALL = FEW | {"module_params": {"d_hidden": (8,)}}


def frame():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table["city"] = rng.choice(["Oslo", "Bonn", "Łódź", "Rome"], len(X), p=[0.4, 0.4, 0.17, 0.03])
    table["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 90, len(X)), "D")
    table["level"] = pd.Categorical(rng.integers(1, 4, len(X)))
    table.loc[::7, ["a", "city", "day"]] = None
    return table


def digits():
    images = load_digits()
    return images.images[:60] / 16, images.target[:60]


def sounds():
    rng, time = np.random.default_rng(0), np.arange(4000) / 16000
    pitch = rng.choice([400.0, 1600.0], 12)
    return [np.sin(2 * np.pi * f * time) for f in pitch], pitch


def graphs():
    both = [make(n) for n in range(4, 12) for make in (nx.cycle_graph, nx.path_graph)]
    return both, ["cycle", "path"] * 8


def several():
    return X, np.column_stack([Y == 0, Y == 2]).astype(int)


def targets():
    rows, y = load_diabetes(return_X_y=True)
    return rows[:80], y[:80]


SMALL_IMAGES = {"width": 4, "blocks": (1,)}
SMALL_SOUNDS = {"channels": (2, 2), "d_hidden": (8,)}
MAKERS = {
    "members": lambda: (MixupEClassifier(n_members=3, **SMALL), (X, Y)),
    "one": lambda: (MixupEClassifier(**preset("paper") | SMALL), (X, Y)),
    "text": lambda: (MixupEClassifier(n_members=1, **SMALL), (X, np.array(["a", "b", "é"])[Y])),
    "flags": lambda: (MixupEClassifier(n_members=1, **SMALL), (X, Y > 0)),
    "several labels": lambda: (MixupEClassifier(n_members=1, **SMALL), several()),
    "float64": lambda: (MixupEClassifier(n_members=1, **FEW, module=double_mlp), (X, Y)),
    "one logit": lambda: (
        MixupEClassifier(**preset("paper") | SMALL | {"module_params": {"n_outputs": 1}}),
        (X[:100], Y[:100]),
    ),
    "input scale": lambda: (
        MixupEClassifier(
            n_members=2,
            **FEW,
            module=MLP,
            module_params={"d_hidden": (4,), "input_scale": True},
        ),
        (X, Y),
    ),
    "own module": lambda: (MixupEClassifier(n_members=1, **FEW, module=Normed), (X, Y)),
    "weights": lambda: (MixupEClassifier(class_weight={0: 2, 1: 1, 2: 0.5}, **SMALL), (X, Y)),
    "callbacks": lambda: (
        MixupEClassifier(
            n_members=1,
            **SMALL,
            lr_schedule="constant",
            callbacks=[PolyakAverage(0.9), ("rate", WarmupCosine(n_warmup=2))],
        ),
        (X, Y),
    ),
    "optimizer": lambda: (
        MixupEClassifier(
            n_members=1,
            **SMALL,
            optimizer=torch.optim.RAdam,
            optimizer_params={"betas": (0.8, 0.9)},
        ),
        (X, Y),
    ),
    "regressor": lambda: (paper_regressor(n_members=2, **SMALL), targets()),
    "several targets": lambda: (
        paper_regressor(**SMALL),
        (X[:, :2], X[:, 2:]),
    ),
    "images": lambda: (
        MixupEImageClassifier(
            module_params=SMALL_IMAGES, max_epochs=1, augment="flip", random_state=0
        ),
        digits(),
    ),
    "speech": lambda: (
        MixupESpeechClassifier(module_params=SMALL_SOUNDS, max_epochs=1, random_state=0),
        sounds(),
    ),
    "graphs": lambda: (MixupEGraphClassifier(max_epochs=2, random_state=0), graphs()),
    "pipeline": lambda: (make_mixupe_pipeline(n_members=1, **SMALL), (frame(), Y)),
    "ramps": lambda: (
        make_mixupe_pipeline(
            preprocessor=make_preprocessor(scaling=PiecewiseLinearEncoder(), min_frequency=10),
            n_members=1,
            **SMALL,
        ),
        (frame(), Y),
    ),
    "quantiles": lambda: (
        make_mixupe_pipeline(preprocessor=make_preprocessor(scaling="quantile"), **SMALL),
        (frame().to_numpy(), Y),
    ),
    "other steps": lambda: (
        make_pipeline(
            FunctionTransformer(np.log1p),
            PowerTransformer(),
            PCA(3),
            MixupEClassifier(n_members=1, **SMALL),
        ),
        (X, Y),
    ),
    "transformed target": lambda: (
        TransformedTargetRegressor(paper_regressor(**SMALL), transformer=StandardScaler()),
        targets(),
    ),
    "search": lambda: (
        MixupESearchCV(
            MixupEClassifier(**preset("paper") | SMALL), n_trials=2, cv=2, random_state=0
        ),
        (X, Y),
    ),
}


def double_mlp(n_features, n_outputs):
    return MLP(n_features, n_outputs, d_hidden=(4,)).double()


class Normed(nn.Sequential):
    """A user's network with a layer that the MLP does not have."""

    def __init__(self, n_features, n_outputs):
        layers = nn.Linear(n_features, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, n_outputs)
        super().__init__(*layers)


# Classes and functions that must be trusted.
TRUSTED = [double_mlp, Normed]


def output(model, rows):
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
