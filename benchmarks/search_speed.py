"""The paper's grid, three ways: ``python -m benchmarks.search_speed``.

The grid has 55 configurations (45 of MixupE, 9 of Mixup, ERM), each with five seeds, the paper's
network and training, and one validation split: 275 fits. Three candidates run the same fits in two
processes of one thread each:

- ``batched``: MixupESearchCV, which trains networks as one;
- ``own``: GridSearchCV over MixupEClassifier, with the same seeds and so the same draws;
- ``listing``: GridSearchCV over a plain skorch net that runs the paper's listing, with its two
  loaders.

The values of alpha are dealt at random into parts. In each round all candidates run one part, in
turn, so that a machine that slows down slows all of them. Some minutes are enough for two of
three parts, with 2000 rows at most; ``--rounds 3`` runs the whole grid. The processes are started,
and have imported all they need, before the clock is.

One row a candidate and round goes to a CSV file; what is printed is made from the rows of this
run. Tables of OpenML are read from the folder that MIXUPE_DATA names, or ``../shared/data``;
without them the data are scikit-learn's digits.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import joblib
import numpy as np
import optuna
import pandas as pd
import sklearn
import skorch
import torch
from joblib import parallel_config
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.dataset import unpack_data
from torch import Tensor, nn
from torch.nn.functional import one_hot

from benchmarks._tabular.append_only import AppendOnly
from benchmarks._tabular.running import commit
from mixupe_sklearn import MixupEClassifier, MixupESearchCV, __version__, preset
from mixupe_sklearn._search.space import PAPER_ALPHAS, PAPER_ETAS
from mixupe_sklearn.modules import MLP

ROOT = pathlib.Path(__file__).parents[1]
# Tables of OpenML by name, with the number of the data set.
TABLES = {"mfeat-factors": 12, "optdigits": 28}
# The share of a candidate's time that the batched search may take.
MUST = {"listing": 0.25, "own": 0.8}
# Scores are means of five accuracies; smaller differences are those of summing in another order.
TIE = 1e-9

Grid = dict[str, list[Any]]
Scores = dict[str, float]


def table_path(name: str) -> pathlib.Path:
    """Where a table of OpenML is, if it is there."""
    folder = pathlib.Path(os.environ.get("MIXUPE_DATA", ROOT.parent / "shared" / "data"))
    number = str(TABLES[name])
    return folder / "openml/org/openml/www/datasets" / number / f"dataset_{number}.pq"


def names_of_data() -> list[str]:
    """The tables that are there, or else the digits."""
    return [name for name in TABLES if table_path(name).exists()] or ["digits"]


def load_data(name: str, n_rows: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows as float32 and classes as whole numbers; of many rows the given number, at random."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    else:
        frame = pd.read_parquet(table_path(name))
        X, y = frame.drop(columns="class").to_numpy(), frame["class"].cat.codes.to_numpy()
    kept = np.random.RandomState(0).permutation(len(y))[:n_rows]
    return X[kept].astype(np.float32), y[kept].astype(np.int64)


@dataclass(frozen=True)
class Problem:
    """Scaled rows, the one split into training and validation, and how to train on them."""

    X: np.ndarray
    y: np.ndarray
    split: tuple[np.ndarray, np.ndarray]
    max_epochs: int
    n_seeds: int
    n_jobs: int
    n_loaders: int = 2

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, **training: int) -> "Problem":
        """Set a fifth of the rows aside, and scale by the others."""
        train, valid = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)
        X = StandardScaler().fit(X[train]).transform(X)
        return cls(X, y, (train, valid), **training)


def deal_grid(n_parts: int, seed: int = 0) -> list[list[Grid]]:
    """The paper's grid in parts: each has some of the alphas with all etas, the first has ERM."""
    alphas = np.random.RandomState(seed).permutation(PAPER_ALPHAS)
    parts: list[list[Grid]] = []
    for number, part in enumerate(np.array_split(alphas, n_parts)):
        values = sorted(part.tolist())
        mixupe: Grid = {"method": ["mixupe"], "alpha": values, "eta": list(PAPER_ETAS)}
        mixup: Grid = {"method": ["mixup"], "alpha": values}
        parts.append([mixupe, mixup] + ([{"method": ["erm"]}] if number == 0 else []))
    return parts


def label(params: Mapping[str, Any]) -> str:
    """A configuration in words, without its seed."""
    numbers = [f"{name}={params[name]:g}" for name in ("alpha", "eta") if name in params]
    return " ".join([params["method"], *numbers])


class SideBySide:
    """Batches of several loaders at a time, anew in each epoch."""

    def __init__(self, loaders: Sequence[Any]):
        self.loaders = loaders

    def __iter__(self):
        return zip(*self.loaders, strict=True)


class ListingNet(NeuralNetClassifier):
    """A plain skorch net whose training step is the listing of the paper's appendix.

    As there, partners come from a second loader; with ``n_loaders=1`` they are a permutation of
    the batch, which is faster.
    """

    def __init__(self, *args, method="mixupe", alpha=0.2, eta=0.01, seed=0, n_loaders=2, **kwargs):
        super().__init__(*args, **kwargs)
        self.method = method
        self.alpha = alpha
        self.eta = eta
        self.seed = seed
        self.n_loaders = n_loaders

    def get_iterator(self, dataset, training=False):
        """Go through two loaders side by side, each with an order of its own."""
        if not training or self.method == "erm" or self.n_loaders == 1:
            return super().get_iterator(dataset, training)
        return SideBySide([super(ListingNet, self).get_iterator(dataset, True) for _ in range(2)])

    def fit(self, X, y, **params):
        """Fit with the seed that was given."""
        torch.manual_seed(self.seed)
        np.random.seed(self.seed % 2**32)
        return super().fit(X, y, **params)

    def train_step_single(self, batch, **params):
        """Mix, add the penalty, scale: line by line as the paper has it."""
        if self.method == "erm":
            return super().train_step_single(batch, **params)
        self._set_training(True)
        x1, y1, x2, y2 = self._pairs(batch)
        lam = np.random.beta(self.alpha, self.alpha)
        x = lam * x1 + (1.0 - lam) * x2
        y = lam * y1 + (1.0 - lam) * y2
        y_pred = self.infer(x)
        loss = self.get_loss(y_pred, y, X=x, training=True)
        if self.method == "mixupe":
            loss = self._with_penalty(loss, x1, y1)
        loss.backward()
        return {"loss": loss, "y_pred": y_pred}

    def _pairs(self, batch: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.n_loaders == 2:
            (x1, labels), (x2, other_labels) = batch
            others = one_hot(other_labels, self.module__n_outputs).float()
            return x1, one_hot(labels, self.module__n_outputs).float(), x2, others
        x1, labels = unpack_data(batch)
        y1, partner = one_hot(labels, self.module__n_outputs).float(), torch.randperm(len(x1))
        return x1, y1, x1[partner], y1[partner]

    def _with_penalty(self, loss: Tensor, x1: Tensor, y1: Tensor) -> Tensor:
        mean_of_lam = (self.alpha + 1) / (self.alpha + 1 + self.alpha)
        loss_scale = torch.abs(loss.detach())
        f = self.infer(x1)
        q = torch.sum(f * (y1 - torch.softmax(f, dim=1)), dim=1)
        penalty = (1.0 - mean_of_lam) * torch.sum(torch.abs(q)) / len(x1)
        loss = loss + self.eta * penalty
        return (loss_scale / torch.abs(loss.detach())) * loss


def listing_net(problem: Problem) -> ListingNet:
    """The paper's network and training, with skorch's own loader."""
    return ListingNet(
        MLP,
        module__n_features=problem.X.shape[1],
        module__n_outputs=len(np.unique(problem.y)),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=0.001,
        batch_size=100,
        max_epochs=problem.max_epochs,
        n_loaders=problem.n_loaders,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
    )


def search_batched(problem: Problem, grids: Sequence[Grid]) -> tuple[Scores, list[int]]:
    """Mean score of each configuration by our search, and the seeds that it used."""
    scores: Scores = {}
    seeds: list[int] = []
    for grid in grids:
        search = MixupESearchCV(
            MixupEClassifier(**preset("paper") | {"max_epochs": problem.max_epochs}),
            grid,
            n_repeats=problem.n_seeds,
            cv=[problem.split],
            refit=False,
            n_jobs=problem.n_jobs,
            vectorize=True,
            random_state=0,
        ).fit(problem.X, problem.y)
        results = search.cv_results_
        scores |= dict(zip(map(label, results["params"]), results["mean_test_score"], strict=True))
        seeds = search.seeds_
    return scores, seeds


def search_one_by_one(
    problem: Problem, grids: Sequence[Grid], estimator: Any, seeds: Mapping[str, list[int]]
) -> Scores:
    """Mean score of each configuration by GridSearchCV; the seeds are one more parameter."""
    search = GridSearchCV(
        estimator,
        [{**grid, **seeds} for grid in grids],
        cv=[problem.split],
        refit=False,
        n_jobs=problem.n_jobs,
        error_score="raise",
    ).fit(problem.X, problem.y)
    results = pd.DataFrame(
        {
            "label": list(map(label, search.cv_results_["params"])),
            "score": search.cv_results_["mean_test_score"],
        }
    )
    return results.groupby("label", sort=False)["score"].mean().to_dict()


def candidates(problem: Problem, seeds: list[int]) -> dict[str, Callable[[list[Grid]], Scores]]:
    """What is compared, by name: each runs the grids that it is given."""
    ours = MixupEClassifier(**preset("paper") | {"max_epochs": problem.max_epochs})
    plain = listing_net(problem)
    return {
        "batched": lambda grids: search_batched(problem, grids)[0],
        "own": lambda grids: search_one_by_one(problem, grids, ours, {"random_state": seeds}),
        "listing": lambda grids: search_one_by_one(problem, grids, plain, {"seed": seeds}),
    }


def measure(name: str, problem: Problem, parts: Sequence[list[Grid]]) -> Iterable[dict[str, Any]]:
    """Run every part by every candidate in turn: a row each."""
    # A short search of each kind starts the processes and lets them import what they need.
    short = replace(problem, max_epochs=1)
    warm_up: list[Grid] = [{"method": ["mixupe"], "alpha": [1.0], "eta": [0.1]}]
    seeds = search_batched(short, warm_up)[1]
    for run in candidates(short, seeds).values():
        run(warm_up)
    runs = list(candidates(problem, seeds).items())
    for number, grids in enumerate(parts):
        for candidate, run in runs if number % 2 == 0 else reversed(runs):
            start = time.perf_counter()
            scores = run(grids)
            yield {
                "data": name,
                "candidate": candidate,
                "round": number,
                "n_rows": len(problem.y),
                "n_fits": len(scores) * problem.n_seeds,
                "seconds": time.perf_counter() - start,
                "max_epochs": problem.max_epochs,
                "n_jobs": problem.n_jobs,
                "n_loaders": problem.n_loaders,
                "scores": json.dumps(scores),
            }


def make_table(rows: pd.DataFrame) -> str:
    """Time of each candidate, and the share of it that the batched search takes, as Markdown."""
    lines = [
        "| data | candidate | fits | rounds | seconds | batched takes | lowest to highest | must |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (data, candidate), part in rows.groupby(["data", "candidate"], sort=False):
        is_same = (rows["data"] == data) & (rows["candidate"] == "batched")
        share = rows[is_same].set_index("round")["seconds"] / part.set_index("round")["seconds"]
        must = f"<= {MUST[candidate]}" if candidate in MUST else ""
        lines.append(
            f"| {data} | {candidate} | {part['n_fits'].sum()} | {len(part)} | "
            f"{part['seconds'].sum():.1f} | {share.median():.2f} | "
            f"{share.min():.2f} to {share.max():.2f} | {must} |"
        )
    return "\n".join(lines)


def scores_of(rows: pd.DataFrame, data: str, candidate: str) -> Scores:
    """Mean score of each configuration, from the rows of all rounds."""
    wanted = rows[(rows["data"] == data) & (rows["candidate"] == candidate)]
    return {key: score for text in wanted["scores"] for key, score in json.loads(text).items()}


def best_of(scores: Scores) -> list[str]:
    """The configurations with the highest score; of several the first is what a search returns."""
    highest = max(scores.values())
    return [key for key, score in scores.items() if score > highest - TIE]


def describe_agreement(rows: pd.DataFrame, data: str) -> str:
    """Say whether both ways to run our own fits find the same."""
    batched, own = scores_of(rows, data, "batched"), scores_of(rows, data, "own")
    differences = [abs(batched[key] - own[key]) for key in batched]
    n_unequal = sum(difference > TIE for difference in differences)
    best, best_of_own = best_of(batched), best_of(own)
    return (
        f"{data}: best configuration {'equal' if best[0] == best_of_own[0] else 'NOT equal'} "
        f"({best[0]} batched, {best_of_own[0]} one by one); those that share the highest score "
        f"{'equal' if best == best_of_own else 'NOT equal'} ({len(best)} and {len(best_of_own)}); "
        f"mean scores differ in {n_unequal} of {len(differences)} configurations, by "
        f"{max(differences):.1e} at most."
    )


def stamp() -> dict[str, str]:
    """What every row of a run carries: when it began, and what was measured."""
    versions = {
        "mixupe-sklearn": __version__,
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "skorch": skorch.__version__,
        "optuna": optuna.__version__,
        "joblib": joblib.__version__,
        "Python": platform.python_version(),
    }
    return {
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "commit": commit(),
        "run": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def append_rows(
    path: pathlib.Path, rows: Iterable[dict[str, Any]], note: Mapping[str, str]
) -> None:
    """Write each row when it comes, and say so."""
    for row in rows:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow([*row.values(), *note.values()])
        with AppendOnly(path, [*row, *note], patience=60) as file:
            file.write(text.getvalue())
        shown = {name: value for name, value in row.items() if name != "scores"}
        print(", ".join(f"{name} {_short(value)}" for name, value in shown.items()), flush=True)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all rounds on all data, then print the table, the agreement, and where the rows are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="*", default=names_of_data(), help="names of data sets")
    parser.add_argument("--rows", type=int, default=2000, help="rows at most (default: 2000)")
    parser.add_argument("--parts", type=int, default=3, help="parts of the grid (default: 3)")
    parser.add_argument("--rounds", type=int, default=2, help="parts to run (default: 2)")
    parser.add_argument("--seeds", type=int, default=5, help="seeds a configuration (default: 5)")
    parser.add_argument("--epochs", type=int, default=25, help="epochs a fit (default: 25)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument(
        "--loaders", type=int, default=2, help="loaders of the listing: 2 as printed, or 1"
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("build/search_speed.csv"),
        help="file that rows are added to (default: build/search_speed.csv)",
    )
    options = parser.parse_args(arguments)
    note = stamp()
    parts = deal_grid(options.parts)[: options.rounds]
    training = {"max_epochs": options.epochs, "n_seeds": options.seeds, "n_jobs": options.jobs}
    training["n_loaders"] = options.loaders
    with parallel_config("loky", inner_max_num_threads=1):
        for name in options.data:
            problem = Problem.of(*load_data(name, options.rows), **training)
            append_rows(options.output, measure(name, problem, parts), note)
    rows = pd.read_csv(options.output)
    rows = rows[rows["run"] == note["run"]]
    print(f"\n{make_table(rows)}\n")
    for name in options.data:
        print(describe_agreement(rows, name))
    print(f"\n{len(parts)} of {options.parts} parts of the grid. Rows: {options.output}")


if __name__ == "__main__":
    main()
