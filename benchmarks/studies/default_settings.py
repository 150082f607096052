"""The study behind the defaults: ``python -m benchmarks.studies.default_settings``.

The phase ``choose`` prints validation scores only and never reads the test scores in ``test.csv``.
The phase ``ablation`` prints test scores of the defaults without one ingredient each. ``--grid``
ranks each alpha and eta of the paper by validation error, from the rows of the tabular benchmark.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._harness import report_tables
from benchmarks._harness.cli import add_run_options, positive_int, run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.labels import renamed_labels
from benchmarks._harness.report_tables import Cell, ReportTable, as_markdown, number, seconds
from benchmarks._harness.results_file import Key, ResultsFile, Schema, read_rows
from benchmarks._harness.runner import Row, run
from benchmarks._harness.single_fits import SingleFits, columns_of
from benchmarks._tabular.fits import fit_seconds, measured_on, raw_rows, warm_up_defaults
from benchmarks._tabular.methods import Settings, paper_settings
from benchmarks._tabular.options import add_data, check_data
from benchmarks._tabular.protocol import FITS, TRAINING, Split, configs_of, splits_of
from benchmarks._tabular.report.results import SAME, as_printed, common_part, win_tie_loss
from benchmarks.tabular import items_of
from mixupe_sklearn.datasets import Table

Params = dict[str, Any]

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "tables"
GRID_ROWS = ROOT / "benchmarks" / "results" / "tabular" / "rows.csv"
PAGE = ROOT / "docs" / "benchmarks" / "defaults.md"
LARGE = ("mnist_784", "volkert")  # more than 50,000 rows: hours for each candidate
NONE = "There are no rows yet."

# Parts that many candidates share. Earlier exploration (see the page) had found that rates above
# the paper's need a schedule, and that held-out samples must end the training.
FOLDS: Params = {
    "n_members": 8,
    "early_stopping": True,
    "validation_fraction": 0.125,
    "lr_schedule": "cosine",
    "lr": 0.003,
    "max_epochs": 50,
    "min_steps": 500,
}
FOUR = {"alpha": (0.01, 0.05, 0.2, 0.5)}
GROUPS = FOLDS | {"alpha": (0.02, 0.2), "lr": 0.005}
QUARTER = GROUPS | {"validation_fraction": 0.25}
GELU = QUARTER | {"module": "mlp-gelu"}
ROBUST, QUANTILE, SPLINES = ({"scaling": name} for name in ("robust", "quantile", "splines"))

# By name: parameters of the classifier, of the preprocessor, and the reason.
CANDIDATES: dict[str, tuple[Params, Params, str]] = {
    "paper": ({}, {}, "the paper's network and training, our earlier defaults"),
    "no-stopping": (FOLDS | {"early_stopping": False}, {}, "members, schedule and length alone"),
    "folds": (FOLDS, {}, "where long training hurts, held-out samples end it"),
    "folds-faster": (FOLDS | {"lr": 0.005}, {}, "a higher rate"),
    "four-groups": (FOLDS | FOUR, {}, "from hardly any to much mixing"),
    "two-groups": (GROUPS, {}, "weak and strong mixing, weighted on held-out samples"),
    "weak-penalty": (GROUPS | {"eta": 0.1}, {}, "a smaller penalty"),
    "wide": (GROUPS | {"module_params": {"d_hidden": (256, 256)}}, {}, "twice the width"),
    "small-batches": (GROUPS | {"batch_size": 64}, {}, "more steps an epoch"),
    "long": (GROUPS | {"max_epochs": 100, "n_iter_no_change": 20}, {}, "twice the length"),
    "onecycle": (GROUPS | {"lr_schedule": "onecycle"}, {}, "a rate that rises first"),
    "quarter": (QUARTER, {}, "each sample is held out once by a member of each group"),
    "quarter-gelu": (GELU, {}, "a smooth network"),
    "quarter-gelu-robust": (GELU, ROBUST, "outliers do not squeeze the other rows"),
    "quarter-robust": (QUARTER, ROBUST, "the same with ReLU"),
    "quarter-gelu-quantile": (GELU, QUANTILE, "every column is a normal one"),
    "quarter-gelu-splines": (GELU, SPLINES, "steps within a column are easy to learn"),
}
# Parameters that go back to the paper's values when an ingredient is removed.
INGREDIENTS: dict[str, tuple[str, ...]] = {
    "members": ("n_members",),
    "schedule": ("lr_schedule",),
    "length": ("max_epochs", "min_steps"),
    "early stopping": ("early_stopping", "validation_fraction", "n_iter_no_change", "tol"),
    "own alpha and eta": ("alpha", "eta", "beta"),
    "own optimizer": ("optimizer", "optimizer_params", "lr", "weight_decay", "batch_size"),
    "own network": ("module", "module_params"),
}
METHODS = {"mixing": "erm+penalty", "penalty": "mixup", "mixing and penalty": "erm"}


def on_paper(params: Params, inputs: Params) -> Settings:
    """Settings on top of the paper's."""
    paper = paper_settings()
    return Settings(paper.classifier | params, paper.preprocessor | inputs)


def candidate_settings() -> dict[str, Settings]:
    """All settings of each candidate, the paper's included."""
    return {name: on_paper(params, inputs) for name, (params, inputs, _) in CANDIDATES.items()}


def ablation_settings() -> dict[str, Settings]:
    """The present defaults, the same without one ingredient each, and the paper's preset."""
    default, paper = Settings({}, {}), paper_settings()
    values = paper.effective().classifier
    less = {
        name: Settings({param: values[param] for param in params}, {})
        for name, params in INGREDIENTS.items()
    }
    less["inputs"] = Settings({}, paper.preprocessor)
    less |= {name: Settings({"method": method}, {}) for name, method in METHODS.items()}
    found = {f"without {name}": settings for name, settings in less.items()}
    text = default.unlike_paper()
    found = {name: one for name, one in found.items() if one.unlike_paper() != text}
    return {"default": default, **found, "paper": paper}


KEY = ("dataset", "data", "split", "candidate", "params")
METRICS = ("error", "log_loss", "ece", "brier")
_TEXTS = frozenset(KEY) - {"split"}
VALID = Schema(
    (*KEY, *(f"valid_{name}" for name in METRICS), "fit_seconds", "error", "versions", "commit"),
    _TEXTS | {"error", "versions", "commit"},
    KEY,
)
TEST = Schema((*KEY, *(f"test_{name}" for name in METRICS)), _TEXTS, KEY)


class ValidationFile(ResultsFile):
    """The file of validation rows, open for appending; test scores go to ``test.csv`` beside it."""

    def __init__(self, folder: pathlib.Path):
        super().__init__(folder / "rows.csv", VALID)

    def keys(self, *, with_failed: bool = True) -> set[Key]:
        """Keys of the fits in the file, with the present names of candidates."""
        names = renamed_labels()
        keys = super().keys(with_failed=with_failed)
        return {tuple(names.get(text, text) for text in key) for key in keys}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, each to both files."""
        rows = list(rows)
        # In this order a run that is killed in between repeats the fit, and loses nothing.
        for schema, path in ((TEST, self.path.with_name("test.csv")), (VALID, None)):
            chosen = [row for row in rows if schema is VALID or not row["error"]]
            found = [{k: row[k] for k in schema.columns if k in row} for row in chosen]
            if path is None:
                super().add(found)
            elif found:
                with ResultsFile(path, schema) as test:
                    test.add(found)


def read_file(path: pathlib.Path, schema: Schema) -> pd.DataFrame:
    """All rows of a file, with the present names of candidates."""
    rows = read_rows(path, schema)
    return rows.assign(candidate=rows["candidate"].replace(renamed_labels()))


@dataclass(frozen=True, eq=False)
class Trial:
    """The job of a process: a candidate on a split."""

    table: Table
    split: Split
    candidate: str
    settings: Settings

    @property
    def identity(self) -> Row:
        """The part of a row that identifies the fit."""
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "split": self.split.number,
            "candidate": self.candidate,
            "params": self.settings.unlike_paper(),
        }

    @property
    def cost(self) -> int:
        """Samples that pass through the networks, for the estimate of the remaining time."""
        params = self.settings.effective().classifier
        n_samples = len(self.split.train) * params["max_epochs"] * params.get("n_members", 1)
        return round(n_samples * (1 + self.table.X.shape[1] / 700))

    def measured(self) -> Row:
        """Fit, and measure on validation and test samples."""
        warm_up_defaults()
        model = self.settings.make(self.split.seed)
        data = raw_rows(self.table, self.split)
        row: Row = {"fit_seconds": fit_seconds(model, data)}
        for part in ("valid", "test"):
            metrics, _ = measured_on(model, data, part)
            row |= {f"{part}_{name}": metrics[name] for name in METRICS}
        return row


@dataclass(frozen=True)
class Study(SingleFits):
    """All candidates on all holdout splits of each dataset."""

    candidates: Mapping[str, Settings]
    n_seeds: int = 5
    retry_failed: bool = False
    schema = VALID

    def fits(self, table: Table) -> list[Trial]:
        """All fits on a dataset in their order."""
        return [
            Trial(table, split, name, settings)
            for split in splits_of(table, "holdout", self.n_seeds)
            for name, settings in self.candidates.items()
        ]


def wanted_rows(rows: pd.DataFrame, params: Mapping[str, str]) -> pd.DataFrame:
    """Rows that did not fail, of the given candidates with their present parameters."""
    is_wanted = rows["params"] == rows["candidate"].map(params)
    if "error" in rows:
        is_wanted &= rows["error"] == ""
    newest = rows[is_wanted].groupby("dataset")["data"].last()
    return rows[is_wanted & (rows["data"] == rows["dataset"].map(newest))]


def means_of(rows: pd.DataFrame, columns: Sequence[str], n_splits: int) -> pd.DataFrame:
    """Means over the splits by dataset and candidate, of datasets that all candidates have."""
    groups = rows.groupby(["dataset", "candidate"])
    complete = groups[list(columns)].mean()[groups.size() >= n_splits]
    names = complete.reset_index()[["dataset", "candidate"]]
    by_candidate = names.groupby("candidate")["dataset"].agg(set)
    common = common_part(list(by_candidate)) if len(by_candidate) else set()
    listed = [name for name, sets in by_candidate.items() if sets >= common]
    keeps = names["dataset"].isin(common) & names["candidate"].isin(listed)
    return complete[keeps.to_numpy()]


def times_of(rows: pd.DataFrame, means: pd.DataFrame) -> pd.DataFrame:
    """Median seconds of a fit over the splits, by dataset and candidate."""
    times = rows.groupby(["dataset", "candidate"])["fit_seconds"].median()
    return times.reindex(means.index).unstack()


def choose_table(
    rows: pd.DataFrame, params: Mapping[str, str], n_splits: int
) -> ReportTable | None:
    """Candidates by average rank of their validation error; None without rows."""
    used = wanted_rows(rows, params)
    columns = [f"valid_{name}" for name in METRICS]
    means = means_of(used, columns, n_splits)
    if means.empty:
        return None
    over_sets = means.groupby("candidate").mean()
    times = times_of(used, means).median()
    ranks = {  # differences below rounding are ties
        name: (means[f"valid_{name}"].unstack() / SAME).round().rank(axis=1).mean()
        for name in ("error", "log_loss")
    }
    order, body = ranks["error"].sort_values(kind="stable").index, []
    for name in order:
        places = [
            Cell(number(rank[name]), is_best=rank[name] == rank.min()) for rank in ranks.values()
        ]
        figures = [number(over_sets["valid_error"][name])]
        figures += [number(over_sets[column][name], 4) for column in columns[1:]]
        figures += [seconds(times[name]), CANDIDATES[name][2] if name in CANDIDATES else ""]
        body.append([Cell(name), *places, *map(Cell, figures)])
    heads = ["Rank by error", "Rank by log loss", "Error (%)", "Log loss", "ECE", "Brier"]
    n_sets = means.index.get_level_values("dataset").nunique()
    return ReportTable(
        "choose",
        f"Candidates by validation scores alone: means over {n_sets} datasets of "
        f"{n_splits} splits each; ranks are averages over the datasets, 1 is the best; seconds "
        f"are medians.",
        columns_of(["Candidate"], [*heads, "Seconds of a fit"]) + columns_of(["Why"]),
        body,
        _unfinished(params, order),
    )


def _unfinished(params: Mapping[str, str], listed: Sequence[str]) -> list[str]:
    missing = [name for name in params if name not in set(listed)]
    return [f"Not finished: {', '.join(missing)}."] if missing else []


def ablation_table(
    rows: pd.DataFrame, test: pd.DataFrame, params: Mapping[str, str], n_splits: int
) -> ReportTable | None:
    """The default without one ingredient each, by test scores; None without the default."""
    columns = [f"test_{name}" for name in METRICS]
    means = means_of(wanted_rows(test, params), columns, n_splits)
    if "default" not in means.index.get_level_values("candidate"):
        return None
    errors = means["test_error"].map(as_printed).unstack()
    over_sets = means.groupby("candidate").mean()
    times = times_of(wanted_rows(rows, params), means)
    order, body = [name for name in params if name in errors], []
    for name in order:
        counts = [] if name == "default" else map(str, win_tie_loss(errors, name, "default"))
        figures = ["/".join(counts) or "·", number(over_sets["test_error"][name])]
        figures += [number(over_sets[column][name], 4) for column in columns[1:]]
        figures.append(number((times[name] / times["default"]).median()))
        body.append([*map(Cell, [name, *figures])])
    heads = ["Wins/ties/losses against the default", "Test error (%)", "Log loss", "ECE", "Brier"]
    return ReportTable(
        "ablation",
        f"The default, and what is left of it without one ingredient: means over {len(errors)} "
        f"datasets of {n_splits} splits each. A win is a lower test error than the "
        f"default's, a tie the same to two decimals.",
        columns_of(["Settings"], [*heads, "Time / default's"]),
        body,
        _unfinished(params, order),
    )


def make_table(
    folder: pathlib.Path, phase: str, settings: Mapping[str, Settings], n_splits: int
) -> str:
    """The table of a phase in Markdown; only that of the ablation reads test scores."""
    params = {name: one.unlike_paper() for name, one in settings.items()}
    if not (folder / "rows.csv").exists():
        return NONE
    rows = read_file(folder / "rows.csv", VALID)
    if phase == "choose":
        table = choose_table(rows, params, n_splits)
    else:
        table = ablation_table(rows, read_file(folder / "test.csv", TEST), params, n_splits)
    return NONE if table is None else as_markdown(table)


N_SPLITS = 5


def wrong_answers(rows: pd.DataFrame) -> pd.DataFrame:
    """Validation errors of MixupE as counts, by alpha and eta (rows) and dataset (columns)."""
    is_one = (rows["method"] == "mixupe") & (rows["splits"] == "holdout") & (rows["error"] == "")
    is_one &= rows["params"] == json.dumps(TRAINING, sort_keys=True)
    rows = rows[is_one & (rows["split"] < N_SPLITS)]
    n_valid = np.ceil(0.25 * (rows["n_rows"] - np.ceil(0.2 * rows["n_rows"])))
    rows = rows.assign(wrong=(rows["valid_error"] / 100 * n_valid).round())
    table = rows.pivot_table(
        index=["alpha", "eta"], columns="dataset", values="wrong", aggfunc=["sum", "count"]
    )
    is_complete = (table["count"] == N_SPLITS).sum() == len(configs_of("mixupe", "paper"))
    return table["sum"].loc[:, is_complete]


def best_pair(wrong: pd.DataFrame) -> tuple[float, float]:
    """The pair with the lowest average rank; of ties the least alpha, then the least eta."""
    return wrong.rank().mean(axis=1).idxmin()


def describe_grid(rows: pd.DataFrame) -> str:
    """Average ranks by alpha and eta, the lowest in bold, and what they mean."""
    wrong = wrong_answers(rows)
    if wrong.shape[1] < 2:
        raise ValueError(
            f"Got rows with {wrong.shape[1]} datasets that have the paper's whole grid, but "
            f"expected two at least: run benchmarks.tabular with --grid paper."
        )
    ranks, best = wrong.rank().mean(axis=1), best_pair(wrong)
    grid = ranks.unstack()
    header, lines = ["alpha", *(f"eta = {eta:g}" for eta in grid.columns)], []
    for alpha, values in grid.iterrows():
        shown = [f"**{v:.2f}**" if v == ranks.min() else f"{v:.2f}" for v in values]
        lines.append([f"{alpha:g}", *shown])
    others = {name: best_pair(wrong.drop(columns=name)) for name in wrong}
    changed = [f"{name} (then {_pair(pair)})" for name, pair in others.items() if pair != best]
    left_out = ", ".join(sorted(set(rows["dataset"]) - set(wrong)))
    left_out = f" Left out, as the grid is incomplete: {left_out}." if left_out else ""
    next_best = ranks.sort_values(kind="stable").iloc[1:4].items()
    runners_up = ", ".join(f"{_pair(pair)} ({rank:.2f})" for pair, rank in next_best)
    sentences = [
        f"Average rank of {len(ranks)} pairs by validation error over {wrong.shape[1]} datasets; "
        f"the middle is {(len(ranks) + 1) / 2:g}.{left_out}",
        f"Lowest: {_pair(best)} ({ranks.min():.2f}). Next: {runners_up}.",
        f"Without one of the datasets it would be another pair: {', '.join(changed) or 'never'}.",
    ]
    return "\n".join([report_tables.plain_markdown(header, lines, len(header)), "", *sentences])


def _pair(pair: Any) -> str:
    return f"alpha={pair[0]:g}, eta={pair[1]:g}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.default_settings",
        description=(__doc__ or "").splitlines()[0],
    )
    add_data(made.add_argument_group("data"))
    group = made.add_argument_group("study")
    words = "candidates by validation scores (default), or the defaults by test scores"
    phases = ("choose", "ablation")
    group.add_argument("--phase", choices=phases, default=phases[0], help=words)
    words = "choose: some of the candidates (default: all)"
    group.add_argument("--candidates", nargs="+", choices=CANDIDATES, metavar="NAME", help=words)
    words = "splits, with a seed each (5)"
    group.add_argument("--seeds", type=positive_int, default=5, help=words)
    words = "rank the paper's alpha and eta by the rows of benchmarks.tabular instead"
    group.add_argument(
        "--grid", nargs="?", type=pathlib.Path, const=GRID_ROWS, metavar="FILE", help=words
    )
    group = made.add_argument_group("running")
    output = "folder of the rows (openml: benchmarks/results/tables, else build/candidates)"
    add_run_options(group, output=output, docs="docs/benchmarks/defaults.md")
    return made


def folder_of(options: argparse.Namespace) -> pathlib.Path:
    """The folder of the rows; only those of the paper's datasets are kept in the repository."""
    if options.output is not None:
        return options.output
    if options.source == "openml" and not options.csv:
        return RESULTS
    return pathlib.Path("build") / "candidates" / (options.csv.stem if options.csv else "embedded")


def run_and_print(options: argparse.Namespace) -> None:
    """Run open fits, print the table, and write it into the page if asked to."""
    if options.phase == "ablation":
        settings = ablation_settings()
    else:
        known = candidate_settings()
        settings = {name: known[name] for name in options.candidates or known}
    folder, not_run = folder_of(options), {}
    if not options.report_only:
        items = [item for item in items_of(options) if item.name not in LARGE]
        study = Study(settings, options.seeds, options.retry_failed)
        with ValidationFile(folder) as file:
            not_run = run(items, study, file, n_jobs=options.jobs, is_shown=not options.quiet)
    table = make_table(folder, options.phase, settings, options.seeds)
    print(table)
    for name, reason in not_run.items():
        print(f"Not run: {name}: {reason}", file=sys.stderr)
    path = folder / "rows.csv"
    failed = [text for text in read_rows(path, VALID)["error"] if text] if path.exists() else []
    if failed:
        print(f"{len(failed)} fits failed, such as: {failed[0]}", file=sys.stderr)
    if options.docs:
        write_block(PAGE, options.phase, table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        if options.grid is not None:
            print(describe_grid(read_rows(options.grid, FITS)))
        else:
            check_data(options)
            run_and_print(options)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
