"""Studies of the search: ``python -m benchmarks.studies.search [speed | pruning | ensemble]``.

``speed`` runs the paper's grid with MixupESearchCV, which trains networks as one, and with
GridSearchCV. ``pruning`` scores the best of each pruner on rows that the search has not seen.
``ensemble`` searches the default ensemble, and one network of it, and refits the ensemble.
"""

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, parallel_config
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._harness.cli import positive_int, run_command
from benchmarks._harness.environment import commit, versions
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema
from benchmarks._speed.baselines import listing_net
from benchmarks.studies.paired import load
from mixupe_sklearn import MixupEClassifier, MixupESearchCV, preset
from mixupe_sklearn.search import PAPER_GRID

LIBRARIES = ("mixupe-sklearn", "torch", "scikit-learn", "skorch", "optuna", "joblib")
MUST = {"listing": 0.25, "own": 0.8}  # the most of its time that the batched search may take
# Scores are means of five accuracies; smaller differences are those of another order of summation.
TIE = 1e-9
PRUNERS = ("none", "auto", "hyperband")  # the first is the reference of the others
N_SEARCH_ROWS = 1000  # rows to search on; the others are for the test
STUDIES = ("speed", "pruning", "ensemble", "both")
# Ways to search for the parameters of an ensemble: those of its trials.
WAYS: dict[str, dict[str, Any] | None] = {"ensemble": None, "network": {"n_members": 1}}
MUST_SAVE = 0.5  # the share of the epochs that pruning must save

Grid = dict[str, list[Any]]
Scores = dict[str, float]
Row = dict[str, Any]


def load_data(
    name: str, cache_dir: pathlib.Path | None, n_rows: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Features as float32 and classes as integers; of many rows a random sample."""
    table = load(name, cache_dir)
    kept = np.random.RandomState(0).permutation(table.n_rows)[:n_rows]
    y = np.unique(table.y, return_inverse=True)[1]
    return table.X.to_numpy(dtype=np.float32)[kept], y[kept]


def describe_run() -> dict[str, str]:
    """What every row of a run records: versions, commit and start."""
    shown = ", ".join(" ".join(item) for item in versions(LIBRARIES).items())
    start = datetime.now(UTC).isoformat(timespec="seconds")
    return {"versions": shown, "commit": commit(), "run": start}


def append_rows(path: pathlib.Path, rows: Iterable[Row], note: Mapping[str, str]) -> None:
    """Write each row as soon as it is measured."""
    for row in rows:
        with ResultsFile(path, Schema((*row, *note), frozenset()), timeout=60) as file:
            file.add([row | dict(note)])
        print({name: row[name] for name in row if name != "scores"}, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Problem:
    """Scaled data, the split into training and validation, and the training."""

    X: np.ndarray
    y: np.ndarray
    split: tuple[np.ndarray, np.ndarray]
    max_epochs: int
    n_seeds: int
    n_jobs: int

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, **training: int) -> "Problem":
        """Hold out a fifth of the samples, and scale by the others."""
        train, valid = train_test_split(np.arange(len(y)), test_size=0.2, random_state=0)
        X = StandardScaler().fit(X[train]).transform(X)
        return cls(X, y, (train, valid), **training)


def split_grid(n_parts: int, seed: int = 0) -> list[list[Grid]]:
    """The paper's grid in parts: each has some alphas with all etas, and the first has ERM."""
    alphas = np.random.RandomState(seed).permutation(PAPER_GRID["alpha"])
    parts: list[list[Grid]] = []
    for number, part in enumerate(np.array_split(alphas, n_parts)):
        values = sorted(part.tolist())
        mixupe: Grid = {"method": ["mixupe"], "alpha": values, "eta": PAPER_GRID["eta"]}
        mixup: Grid = {"method": ["mixup"], "alpha": values}
        parts.append([mixupe, mixup] + ([{"method": ["erm"]}] if number == 0 else []))
    return parts


def label(params: Mapping[str, Any]) -> str:
    """A configuration as text, without its seed."""
    numbers = [f"{name}={params[name]:g}" for name in ("alpha", "eta") if name in params]
    return " ".join([params["method"], *numbers])


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
    """Mean score of each configuration by GridSearchCV, with the seeds as a parameter."""
    search = GridSearchCV(
        estimator,
        [{**grid, **seeds} for grid in grids],
        cv=[problem.split],
        refit=False,
        n_jobs=problem.n_jobs,
        error_score="raise",
    ).fit(problem.X, problem.y)
    scores = pd.Series(
        search.cv_results_["mean_test_score"], index=map(label, search.cv_results_["params"])
    )
    return scores.groupby(level=0, sort=False).mean().to_dict()


def candidates(problem: Problem, seeds: list[int]) -> dict[str, Callable[[list[Grid]], Scores]]:
    """The candidates by name: each searches the given grids."""
    ours = MixupEClassifier(**preset("paper") | {"max_epochs": problem.max_epochs})
    shape = (problem.X.shape[1], len(np.unique(problem.y)))
    plain = listing_net(*shape, problem.max_epochs)
    return {
        "batched": lambda grids: search_batched(problem, grids)[0],
        "own": lambda grids: search_one_by_one(problem, grids, ours, {"random_state": seeds}),
        "listing": lambda grids: search_one_by_one(problem, grids, plain, {"seed": seeds}),
    }


def time_searches(name: str, problem: Problem, parts: Sequence[list[Grid]]) -> Iterable[Row]:
    """Run every part by every candidate in turns: a row each."""
    # A short search of each kind starts the processes, which then import what they need.
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
                "n_loaders": 2,
                "scores": json.dumps(scores),
            }


def speed_table(rows: pd.DataFrame) -> str:
    """Time of each candidate, and the ratio of the batched search to it, as Markdown."""
    lines = []
    for (data, candidate), part in rows.groupby(["data", "candidate"], sort=False):
        is_batched = (rows["data"] == data) & (rows["candidate"] == "batched")
        share = rows[is_batched].set_index("round")["seconds"] / part.set_index("round")["seconds"]
        counts = [str(part["n_fits"].sum()), str(len(part)), f"{part['seconds'].sum():.1f}"]
        spread = f"{share.min():.2f} to {share.max():.2f}"
        must = f"<= {MUST[candidate]}" if candidate in MUST else ""
        lines.append([data, candidate, *counts, f"{share.median():.2f}", spread, must])
    header = ["data", "candidate", "fits", "rounds", "seconds", "batched takes"]
    return plain_markdown([*header, "lowest to highest", "must"], lines)


def describe_agreement(rows: pd.DataFrame, data: str) -> str:
    """Whether both ways to run our own fits find the same configurations and scores."""
    rows = rows[rows["data"] == data]
    batched, own = (
        {key: score for text in rows.loc[rows["candidate"] == name, "scores"]
         for key, score in json.loads(text).items()}
        for name in ("batched", "own")
    )  # fmt: skip
    differences = [abs(batched[key] - own[key]) for key in batched]
    n_unequal = sum(difference > TIE for difference in differences)
    best, best_own = best_of(batched), best_of(own)
    return (
        f"{data}: best configurations {'equal' if best == best_own else 'NOT equal'} "
        f"({best[0]} batched, {best_own[0]} one by one); mean scores differ in {n_unequal} of "
        f"{len(differences)} configurations, by {max(differences):.1e} at most."
    )


def best_of(scores: Scores) -> list[str]:
    """The configurations with the highest score; a search returns the first of them."""
    highest = max(scores.values())
    return [key for key, score in scores.items() if score > highest - TIE]


def run_speed(options: argparse.Namespace, path: pathlib.Path) -> None:
    """Run all rounds on all datasets, then print the table and the agreement."""
    note = describe_run()
    parts = split_grid(options.parts)[: options.rounds]
    training = {"max_epochs": options.epochs, "n_seeds": options.seeds or 5}
    training |= {"n_jobs": options.jobs}
    with parallel_config("loky", inner_max_num_threads=1):
        for name in options.data:
            data = load_data(name, options.cache_dir, options.rows)
            problem = Problem.of(*data, **training)
            append_rows(path, time_searches(name, problem, parts), note)
    rows = pd.read_csv(path)
    rows = rows[rows["run"] == note["run"]]
    print(f"\n{speed_table(rows)}\n")
    for name in options.data:
        print(describe_agreement(rows, name))
    print(f"\n{len(parts)} of {options.parts} parts of the grid. Rows: {path}")


def search_once(name: str, pruner: str, seed: int, options: argparse.Namespace) -> Row:
    """Search, refit the best, and measure: one row."""
    X, y = load_data(name, options.cache_dir)
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=N_SEARCH_ROWS, random_state=0, stratify=y
    )
    params = preset("paper") | {"max_epochs": options.epochs}
    search = MixupESearchCV(
        make_pipeline(StandardScaler(), MixupEClassifier(**params)),
        n_trials=options.trials,
        cv=3,
        pruner=pruner,
        random_state=seed,
    )
    start = time.perf_counter()
    search.fit(X, y)
    seconds = time.perf_counter() - start
    return {
        "data": name,
        "seed": seed,
        "pruner": str(pruner),
        "n_trials": options.trials,
        "n_complete": int(np.sum(search.cv_results_["state"] == "complete")),
        "n_epochs": int(np.sum(search.cv_results_["n_epochs"])),
        "seconds": seconds,
        "valid_score": search.best_score_,
        "test_score": search.score(X_test, y_test),
    }


def describe_pruning(rows: pd.DataFrame) -> str:
    """Each pruner beside no pruning; scores, their noise and the paired loss in percent."""
    lines, verdicts = [], []
    for (data, pruner), part in rows.groupby(["data", "pruner"], sort=False):
        part = part.set_index("seed")
        plain = rows[(rows["data"] == data) & (rows["pruner"] == PRUNERS[0])].set_index("seed")
        test, others = 100 * part["test_score"], 100 * plain["test_score"]
        loss, saved = others - test, 1 - part["n_epochs"].sum() / plain["n_epochs"].sum()
        figures = [f"{part['n_epochs'].mean():.0f}", f"{saved:.0%}"]
        figures += [f"{part['seconds'].mean():.1f}", f"{100 * part['valid_score'].mean():.2f}"]
        figures += [f"{one.mean():.2f} ± {one.std():.2f}" for one in (test, loss)]
        lines.append([data, pruner, *figures])
        if pruner == PRUNERS[1]:
            verdicts.append(
                f"{data}: pruner={pruner!r} saves {saved:.0%} of the epochs (must: "
                f"{MUST_SAVE:.0%}) and loses {loss.mean():.2f} points of test score (seed noise: "
                f"{others.std():.2f})."
            )
    header = ["data", "pruner", "epochs", "saved", "seconds", "validation (%)", "test (%)"]
    return "\n".join([plain_markdown([*header, "test loss (%)"], lines), "", *verdicts])


def run_pruning(options: argparse.Namespace, path: pathlib.Path) -> None:
    """Run all searches, then print the table and whether pruning is worth it."""
    note, n_seeds = describe_run(), options.seeds or 10
    calls = (
        delayed(search_once)(name, pruner, seed, options)
        for name in options.data
        for seed in range(n_seeds)
        for pruner in PRUNERS
    )
    found = Parallel(n_jobs=options.jobs, return_as="generator")(calls)
    append_rows(path, found, note)
    rows = pd.read_csv(path, keep_default_na=False)
    print(f"\n{describe_pruning(rows[rows['run'] == note['run']])}\nRows: {path}")


def search_ensemble(
    name: str, way: str, n_jobs: int, seed: int, options: argparse.Namespace
) -> Row:
    """Search the default ensemble or one network of it, refit the ensemble: one row."""
    X, y = load_data(name, options.cache_dir)
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=N_SEARCH_ROWS, random_state=0, stratify=y
    )
    search = MixupESearchCV(
        MixupEClassifier(),
        n_trials=options.trials,
        cv=3,
        trial_params=WAYS[way],
        n_jobs=n_jobs,
        random_state=seed,
    )
    start = time.perf_counter()
    search.fit(X, y)
    seconds = time.perf_counter() - start
    probabilities = search.predict_proba(X_test)
    return {
        "data": name,
        "seed": seed,
        "way": way,
        "n_jobs": n_jobs,
        "n_trials": options.trials,
        "seconds": seconds,
        "refit_seconds": search.refit_time_,
        "valid_score": search.best_score_,
        "test_score": search.score(X_test, y_test),
        "test_log_loss": log_loss(y_test, probabilities, labels=search.classes_),
    }


def describe_ensembles(rows: pd.DataFrame) -> str:
    """Time and test scores of each way to search, over seeds, as Markdown."""
    lines = []
    for (data, way, n_jobs), part in rows.groupby(["data", "way", "n_jobs"], sort=False):
        accuracy, loss = 100 * part["test_score"], part["test_log_loss"]
        figures = [f"{part['seconds'].mean():.1f}", f"{part['refit_seconds'].mean():.1f}"]
        figures += [f"{accuracy.mean():.2f} ± {accuracy.std():.2f}", f"{loss.mean():.4f}"]
        lines.append([data, way, str(n_jobs), str(len(part)), *figures])
    header = ["data", "search", "n_jobs", "seeds", "seconds", "of these refit"]
    return plain_markdown([*header, "test (%)", "test log loss"], lines)


def run_ensembles(options: argparse.Namespace, path: pathlib.Path) -> None:
    """Run both ways with one process and with several, in turns, then print the table."""
    note, n_seeds = describe_run(), options.seeds or 5
    found = (
        search_ensemble(name, way, n_jobs, seed, options)
        for name in options.data
        for seed in range(n_seeds)
        for way in WAYS
        for n_jobs in sorted({1, options.jobs})
    )
    append_rows(path, found, note)
    rows = pd.read_csv(path)
    print(f"\n{describe_ensembles(rows[rows['run'] == note['run']])}\nRows: {path}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.search", description=(__doc__ or "").splitlines()[0]
    )
    words = "one of the studies, or speed and pruning (both)"
    made.add_argument("study", nargs="?", choices=STUDIES, default="both", help=words)
    words = "names of datasets (digits)"
    made.add_argument("--data", nargs="+", default=["digits"], metavar="NAME", help=words)
    made.add_argument("--cache-dir", type=pathlib.Path, metavar="DIR", help="a cache of OpenML")
    for name, default, words in (
        ("seeds", None, "speed: of a configuration (5); of the search: pruning (10), ensemble (5)"),
        ("epochs", 25, "of a fit (25)"),
        ("jobs", 2, "processes (2)"),
        ("rows", 2000, "speed: at most (2000)"),
        ("parts", 3, "speed: of the grid (3)"),
        ("rounds", 2, "speed: parts to run (2)"),
        ("trials", 40, "of a search (40)"),
    ):
        made.add_argument(f"--{name}", type=positive_int, default=default, help=words)
    words = "folder of search_speed.csv, pruning.csv and search_ensemble.csv (build)"
    build = pathlib.Path("build")
    made.add_argument("--output", type=pathlib.Path, default=build, metavar="DIR", help=words)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a study, print its tables, and return the exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        if options.study in ("speed", "both"):
            run_speed(options, options.output / "search_speed.csv")
        if options.study in ("pruning", "both"):
            run_pruning(options, options.output / "pruning.csv")
        if options.study == "ensemble":
            run_ensembles(options, options.output / "search_ensemble.csv")

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
