"""Default settings for tables: ``python -m benchmarks.default_settings --tables FOLDER``.

Classification and regression go through one program. ``--phase choose`` fits candidates for
our defaults, prints validation scores and never reads test scores; ``explore`` prints those of the
trial fits of a prototype. The other phases test: ``compare`` the defaults and other libraries,
``ladder`` our presets and our earlier defaults, and ``ablation`` the defaults without one
ingredient each. Each fit is a row; the same command resumes a run.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from benchmarks._harness.cli import add_run_options, positive_int, run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema, as_json, read_rows, rounded
from benchmarks._harness.runner import Item, Row, run
from benchmarks._harness.single_fits import SingleFits
from benchmarks._tabular import baselines
from benchmarks._tabular.collection import is_regression, items_of_folder
from benchmarks._tabular.fits import fit_seconds, measured_on, raw_rows, warm_up_defaults
from benchmarks._tabular.methods import Settings
from benchmarks._tabular.options import add_data, check_data
from benchmarks._tabular.protocol import Split
from benchmarks.tabular import items_of
from mixupe_sklearn import preset
from mixupe_sklearn.datasets import Table

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "default_settings"
PAGE = ROOT / "docs" / "benchmarks" / "defaults.md"
README = ROOT / "README.md"
PHASES = ("choose", "compare", "ladder", "ablation", "explore")
LARGE = ("mnist_784", "volkert")  # more than 50,000 rows: hours for each method
MOST_ROWS = 10_000  # training rows of a split

Params = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """Parameters of both estimators, of each, and of the preprocessor, and the reason for them."""

    why: str
    both: Params = field(default_factory=dict)
    inputs: Params = field(default_factory=dict)
    classifier: Params = field(default_factory=dict)
    regressor: Params = field(default_factory=dict)

    def settings(self, is_regression: bool) -> Settings:
        """Return the settings for one of the tasks."""
        own = self.regressor if is_regression else self.classifier
        return Settings(self.both | own, dict(self.inputs), is_regression)


DEFAULT = Candidate("the defaults")
# Our defaults before this study. A missing category was the most frequent one then.
EARLIER = Candidate(
    "our defaults before this study",
    {"penalty_fraction": 1.0, "ema_decay": None},
    {"n_bins": 0, "max_categories": None},
    {"alpha": (0.02, 0.2), "module": "mlp-gelu", "lr": 0.005, "min_steps": 500},
    {
        **{"alpha": 0.2, "eta": 0.01, "n_members": 1, "module": "mlp", "early_stopping": False},
        **{"lr": 0.001, "lr_schedule": "constant", "max_epochs": 25, "min_steps": 0},
        "validation_fraction": 0.1,
    },
)
TWO_LAYERS: Params = {"module_params": {"d_hidden": (128, 128)}}
CANDIDATES: dict[str, Candidate] = {
    "earlier": EARLIER,
    "default": DEFAULT,
    "4 ramps": Candidate("fewer ramps for each column of a large table", inputs={"n_bins": 4}),
    "longer": Candidate("longer training", {"min_steps": 1500, "n_iter_no_change": 20}),
    "shorter": Candidate("shorter training", {"min_steps": 500}),
    "2 layers": Candidate("one hidden layer less", TWO_LAYERS),
    "no mixing": Candidate("the same networks without mixing and penalty", {"method": "erm"}),
}
LADDER: dict[str, Candidate] = {
    "default": DEFAULT,
    "fast": Candidate("one network, seconds", preset("fast")),
    "best": Candidate("more members and longer training", preset("best")),
    "earlier": EARLIER,
}
ABLATION: dict[str, Candidate] = {
    "default": DEFAULT,
    "without ramps": Candidate("the scaled values alone", inputs={"n_bins": 0}),
    "without factors": Candidate("no learned factors", {"module_params": {"input_scale": False}}),
    "two layers": Candidate("one hidden layer less", TWO_LAYERS),
    "without averaging": Candidate("the weights themselves", {"ema_decay": None}),
    "lower learning rate": Candidate("that of before", {"lr": 0.005}),
    "at least 500 steps": Candidate("small tables train for less", {"min_steps": 500}),
    "one group": Candidate("all members mix alike", {"alpha": 0.1}),
    "one network": Candidate("no ensemble", {"n_members": 1, "alpha": 0.1}),
    "without penalty": Candidate("Mixup", {"method": "mixup"}),
    "without mixing": Candidate("the penalty alone", {"method": "erm+penalty"}),
    "without both": Candidate("neither mixing nor penalty", {"method": "erm"}),
}
# What the tables of the page are made of.
PAGE_OPTIONS: dict[str, tuple[str, ...]] = {
    "choose": ("--splits", "1"),
    "compare": ("--splits", "1"),
    "ladder": ("--splits", "1", "--most-rows", "2000"),
    "ablation": ("--splits", "1", "--most-rows", "2000"),
    "explore": (),
}

KEY = ("dataset", "data", "task", "most_rows", "split", "method", "params")
METRICS = {"classification": ("error", "log_loss"), "regression": ("rmse",)}
_NAMES = ("error", "log_loss", "rmse")
_TEXTS = frozenset(("dataset", "data", "task", "method", "params"))
VALID = Schema(
    (
        *(*KEY, "n_train", *(f"valid_{name}" for name in _NAMES), "fit_seconds"),
        *("error", "versions", "commit", "run"),
    ),
    _TEXTS | {"error", "versions", "commit", "run"},
    KEY,
)
TEST = Schema((*KEY, *(f"test_{name}" for name in _NAMES)), _TEXTS, KEY)


class ValidationFile(ResultsFile):
    """The file of validation rows, open for appending; test scores go to ``test.csv`` beside it."""

    def __init__(self, folder: pathlib.Path):
        super().__init__(folder / "rows.csv", VALID)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, each to both files."""
        rows = list(rows)
        # In this order a run that is killed in between repeats the fit, and loses nothing.
        good = [row for row in rows if not row["error"]]
        with ResultsFile(self.path.with_name("test.csv"), TEST) as test:
            test.add({name: row[name] for name in TEST.columns if name in row} for row in good)
        super().add({name: row[name] for name in VALID.columns if name in row} for row in rows)


def split_of(table: Table, number: int, most_rows: int) -> Split:
    """Return 60 % training, 20 % validation and 20 % test samples, with so many for training."""
    rows, codes = np.arange(len(table.y)), pd.factorize(table.y)[0]
    is_stratified = not is_regression(table) and np.bincount(codes).min() >= 5

    def parts(rows: np.ndarray, share: float) -> list[np.ndarray]:
        groups = codes[rows] if is_stratified else None
        return train_test_split(rows, test_size=share, random_state=number, stratify=groups)

    rest, test = parts(rows, 0.2)
    train, valid = parts(rest, 0.25)
    train = np.random.default_rng(number).permutation(train)[:most_rows]
    return Split("holdout", number, number, *map(np.sort, (train, valid, test)))


@dataclass(frozen=True, eq=False)
class Trial:
    """The job of a process: a method on a split."""

    table: Table
    split: Split
    method: str
    settings: Settings | None  # None: a baseline
    most_rows: int

    @property
    def identity(self) -> Row:
        """The part of a row that identifies the fit."""
        has_numbers = is_regression(self.table)
        if self.settings is None:
            params = as_json(baselines.BASELINES[self.method].params_for(has_numbers))
        else:
            params = self.settings.unlike_paper()
        return {
            "dataset": self.table.name,
            "data": self.table.fingerprint,
            "task": "regression" if has_numbers else "classification",
            "most_rows": self.most_rows,
            "split": self.split.number,
            "method": self.method,
            "params": params,
        }

    @property
    def cost(self) -> int:
        """Rows times columns, for the estimate of the remaining time."""
        return round(len(self.split.train) * (10 + self.table.X.shape[1]))

    def measured(self) -> Row:
        """Fit, and measure on validation and test samples."""
        warm_up_defaults()
        table, split = self.table, self.split
        has_numbers = is_regression(table)
        if self.settings is None:
            model: Any = baselines.make_baseline(self.method, split.seed, is_regression=has_numbers)
        else:
            model = self.settings.make(split.seed)
        data = raw_rows(table, split)
        row: Row = {"n_train": len(split.train), "fit_seconds": fit_seconds(model, data)}
        for part in ("valid", "test"):
            if has_numbers:
                away = model.predict(data.X[part]) - data.y[part]
                # In units of the deviation of the training targets.
                scores = {"rmse": rounded(np.sqrt(np.mean(away**2)) / data.y["train"].std())}
            else:
                scores, _ = measured_on(model, data, part)
            row |= {f"{part}_{name}": value for name, value in scores.items() if name in _NAMES}
        return row


@dataclass(frozen=True)
class Study(SingleFits):
    """All methods on the splits of each dataset, split by split."""

    settings: Mapping[str, Candidate | None]
    n_splits: int = 3
    most_rows: int = MOST_ROWS
    retry_failed: bool = False
    schema = VALID

    @property
    def methods(self) -> Sequence[str]:  # type: ignore[override]
        """The methods by name."""
        return tuple(self.settings)

    def fits(self, table: Table) -> list[Trial]:
        """All fits on a dataset in their order."""
        has_numbers = is_regression(table)
        return [
            Trial(
                table,
                split_of(table, number, self.most_rows),
                method,
                None if one is None else one.settings(has_numbers),
                self.most_rows,
            )
            for number in range(self.n_splits)
            for method, one in self.settings.items()
        ]


# A relative change is measured beyond this error (in percent) or loss, so that tables on which
# every method is nearly perfect do not decide; and a single table counts at most this much.
FLOORS = {"error": 0.5, "log_loss": 0.005, "rmse": 0.0}
MOST_CHANGE = 0.3
SAME = {"error": 1e-4, "log_loss": 1e-6, "rmse": 1e-6}


def scores_of(rows: pd.DataFrame, part: str, methods: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the mean score of each dataset (rows) and method (columns), by metric.

    Only splits that all methods have count.
    """
    rows = rows[rows["method"].isin(methods)]
    found = {}
    for name in _NAMES:
        one = rows.pivot_table(f"{part}_{name}", ["dataset", "split"], "method", dropna=False)
        whole = one.reindex(columns=list(methods)).dropna()
        found[name] = whole.groupby(level="dataset").mean()
    return found


def changes(scores: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """Return the log of each score over the reference's, by dataset."""
    shifted = scores + FLOORS[metric]
    logs = np.log(shifted.div(shifted[reference], axis=0))
    return logs.clip(-MOST_CHANGE, MOST_CHANGE) if FLOORS[metric] else logs


def ranks_of(scores: pd.DataFrame, metric: str) -> pd.Series:
    """Return the average rank of each method; differences below rounding are ties."""
    return (scores / SAME[metric]).round().rank(axis=1).mean()


def seconds_of(rows: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return the seconds of a fit, by dataset and split (rows) and method (columns)."""
    times = rows.pivot_table("fit_seconds", ["dataset", "split"], "method")
    return times.reindex(columns=list(methods)).dropna()


def comparison(
    rows: pd.DataFrame, scores: pd.DataFrame, part: str, reference: str, methods: Sequence[str]
) -> str:
    """Return a table of methods against a reference in Markdown, the best rank by error first."""
    by_metric = scores_of(scores, part, methods)
    times = seconds_of(rows, methods)
    head: list[str] = ["method"]
    columns: dict[str, list[str]] = {}
    for name, words in (("error", "error"), ("log_loss", "log loss"), ("rmse", "RMSE")):
        one = by_metric[name]
        if one.empty:
            continue
        logs, ranks = changes(one, reference, name), ranks_of(one, name)
        n_sets = len(one)
        head += [f"rank by {words} ({n_sets})", f"{words}, change (%)", "wins/ties/losses"]
        for method in methods:
            own = logs[method]
            is_same = own.abs() < 1e-9
            counts = (int((own < 0)[~is_same].sum()), int(is_same.sum()), int((own > 0).sum()))
            change = 100 * np.expm1(own.mean())
            columns.setdefault(method, []).extend(
                [f"{ranks[method]:.2f}", f"{change:+.1f}", "/".join(map(str, counts))]
            )
    if not columns:
        return NONE
    head += ["seconds of a fit, median", "time ratio, median"]
    ratio = times.div(times[reference], axis=0).median()
    body = []
    for method, cells in columns.items():
        body.append([method, *cells, f"{times[method].median():.2g}", f"{ratio[method]:.2f}"])
    body.sort(key=lambda line: float(line[1]))
    return plain_markdown(head, body)


def complete_enough(rows: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    """Return the methods with nearly all fits: only splits that all methods have are compared."""
    counts = rows[["method", "dataset", "split"]].drop_duplicates()["method"].value_counts()
    least = MOST_COMPLETE * counts.max() if len(counts) else 0
    return [name for name in methods if counts.get(name, 0) >= max(1, least)]


MOST_COMPLETE = 0.9  # of the fits of the method with most
NONE = "There are no rows yet."
LABELS = {
    "default": "**MixupE**",
    "logistic": "logistic or ridge regression",
    "mlp-sklearn-default": "scikit-learn's MLP",
    "random-forest": "random forest",
    "hist-gradient-boosting": "histogram boosting",
    "realmlp": "RealMLP-TD",
    "tabm": "TabM-D",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}


def summary(rows: pd.DataFrame, scores: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Return the average test ranks of each method and the median seconds of its fits.

    ``attrs["n_sets"]`` has the number of datasets by metric.
    """
    by_metric = scores_of(scores, "test", methods)
    ranks = {name: ranks_of(one, name) for name, one in by_metric.items() if len(one)}
    found = pd.DataFrame(ranks).assign(seconds=seconds_of(rows, methods).median())
    found.attrs["n_sets"] = {name: len(by_metric[name]) for name in ranks}
    return found.sort_values(next(iter(ranks)))


def summary_table(found: pd.DataFrame) -> str:
    """Return the table of the README."""
    words = {"error": "error", "log_loss": "log loss", "rmse": "RMSE"}
    names = [name for name in words if name in found]
    best = found[names].round(2) == found[names].round(2).min()
    head = ["method", *(f"mean rank by {words[name]}" for name in names), "median fit time (s)"]
    body = []
    for method, own in found.iterrows():
        cells = [f"{own[name]:.2f}" for name in names]
        is_best = best.loc[method, names]
        cells = [f"**{c}**" if own else c for c, own in zip(cells, is_best, strict=True)]
        body.append([LABELS.get(str(method), str(method)), *cells, f"{own['seconds']:.2g}"])
    return plain_markdown(head, body)


def known_rows(folder: pathlib.Path, schema: Schema, params: Mapping[Any, str]) -> pd.DataFrame:
    """Return the rows of the wanted methods with their present parameters."""
    name = "rows.csv" if schema is VALID else "test.csv"
    if not (folder / name).exists():
        return pd.DataFrame(columns=list(schema.columns))
    rows = read_rows(folder / name, schema)
    wanted = [
        params.get((method, task)) == own
        for method, task, own in zip(rows["method"], rows["task"], rows["params"], strict=True)
    ]
    rows = rows[wanted]
    return rows[rows["error"] == ""] if schema is VALID else rows


def rows_of(
    folder: pathlib.Path,
    part: str,
    methods: Mapping[str, Candidate | None],
    n_splits: int,
    most_rows: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of fits, and those with their scores; only a test reads test scores."""
    params = params_of(methods)
    rows = known_rows(folder, VALID, params)
    scores = rows if part == "valid" else known_rows(folder, TEST, params)
    first, second = (
        one[(one["most_rows"] == most_rows) & (one["split"] < n_splits)] for one in (rows, scores)
    )
    return first, second


def page_summary() -> pd.DataFrame:
    """Return the summary of the committed comparison."""
    options = parser().parse_args(["--phase", "compare", "--report-only", *PAGE_OPTIONS["compare"]])
    methods = methods_of(options)
    rows, scores = rows_of(RESULTS, "test", methods, options.splits, options.most_rows)
    return summary(rows, scores, complete_enough(rows, list(methods)))


def params_of(methods: Mapping[str, Candidate | None]) -> dict[tuple[str, str], str]:
    """Return the recorded parameters by method and task."""
    found = {}
    for task in METRICS:
        has_numbers = task == "regression"
        for name, one in methods.items():
            if one is None:
                own = as_json(baselines.BASELINES[name].params_for(has_numbers))
            else:
                own = one.settings(has_numbers).unlike_paper()
            found[name, task] = own
    return found


def methods_of(options: argparse.Namespace) -> dict[str, Candidate | None]:
    """Return what a phase compares, by name."""
    of_phase = {"choose": CANDIDATES, "ladder": LADDER, "ablation": ABLATION}
    known: dict[str, Candidate | None] = dict(of_phase.get(options.phase, {"default": DEFAULT}))
    if options.phase == "compare":
        others = [name for name in baselines.installed_baselines() if name not in NOT_DEFAULT]
        known |= dict.fromkeys(baselines.BASELINES if options.report_only else others)
        known = {name: one for name, one in known.items() if name not in NOT_DEFAULT}
    unknown = [name for name in options.methods or () if name not in known]
    if unknown:
        raise ValueError(
            f"Got --methods {unknown[0]}, but expected methods of the phase {options.phase} that "
            f"are installed: {', '.join(known)}."
        )
    return {name: one for name, one in known.items() if name in (options.methods or known)}


NOT_DEFAULT = ("mlp-sklearn",)  # it has the paper's network and training


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.default_settings", description=(__doc__ or "").splitlines()[0]
    )
    group = made.add_argument_group("data")
    add_data(group)
    words = "folder with tables.json and CSV files, besides --source openml or alone"
    group.add_argument("--tables", type=pathlib.Path, metavar="FOLDER", help=words)
    group = made.add_argument_group("study")
    group.add_argument("--phase", choices=PHASES, default=PHASES[0], help="see above (choose)")
    group.add_argument("--methods", nargs="+", metavar="NAME", help="some of the methods (all)")
    words = "methods are compared with this one (the first)"
    group.add_argument("--reference", metavar="NAME", help=words)
    group.add_argument("--splits", type=positive_int, default=3, help="splits of a dataset (3)")
    words = f"largest number of training samples of a split ({MOST_ROWS:,})"
    group.add_argument("--most-rows", type=positive_int, default=MOST_ROWS, help=words)
    output = "folder of the rows (benchmarks/results/default_settings)"
    add_run_options(made.add_argument_group("running"), output=output, docs=PAGE.name)
    return made


def items_for(options: argparse.Namespace) -> list[Item]:
    """Return the requested datasets."""
    items = []
    if options.tables is None or options.source == "openml" or options.names or options.csv:
        items += [item for item in items_of(options) if item.name not in LARGE]
    return items + ([] if options.tables is None else items_of_folder(options.tables))


def exploration() -> str:
    """Return the table of the trial fits, in their order."""
    rows = pd.read_csv(RESULTS / "exploration.csv")
    text, wide = [], rows["method"].str.startswith(("B", "C"))
    for part in (rows[~wide], rows[wide | (rows["method"] == "earlier")]):
        methods = list(part["method"].unique())
        text.append(comparison(part, part, "valid", "earlier", methods))
    return "\n\n".join(text)


def run_and_print(options: argparse.Namespace) -> None:
    """Run open fits, print the table of the phase, and write it into the page if asked to."""
    if options.phase == "explore":
        print(exploration())
        if options.docs:
            write_block(PAGE, "explore", exploration())
        return
    methods, folder = methods_of(options), options.output or RESULTS
    not_run: dict[str, str] = {}
    if not options.report_only:
        study = Study(methods, options.splits, options.most_rows, options.retry_failed)
        with ValidationFile(folder) as file:
            not_run = run(
                items_for(options), study, file, n_jobs=options.jobs, is_shown=not options.quiet
            )
    part = "valid" if options.phase == "choose" else "test"
    rows, scores = rows_of(folder, part, methods, options.splits, options.most_rows)
    present = complete_enough(rows, list(methods))
    left_out = [name for name in methods if name in set(rows["method"]) - set(present)]
    if left_out:
        print(f"Left out, with too few fits so far: {', '.join(left_out)}", file=sys.stderr)
    reference = options.reference or (present or [""])[0]
    if present and reference not in present:
        raise ValueError(f"Got --reference {reference}, but expected one of {', '.join(present)}.")
    text = comparison(rows, scores, part, reference, present) if present else NONE
    print(text)
    short = ""
    if options.phase == "compare" and len(present) > 1:
        short = summary_table(summary(rows, scores, present))
    for name, reason in not_run.items():
        print(f"Not run: {name}: {reason}", file=sys.stderr)
    path = folder / "rows.csv"
    failed = [text for text in read_rows(path, VALID)["error"] if text] if path.exists() else []
    if failed:
        print(f"{len(failed)} fits failed, such as: {failed[0]}", file=sys.stderr)
    if options.docs:
        write_block(PAGE, options.phase, text)
        if short:
            write_block(README, "results", short)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return the exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        check_data(options)
        run_and_print(options)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
