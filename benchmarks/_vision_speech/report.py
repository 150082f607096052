"""Tables of the benchmarks of images and speech, from rows alone, beside the paper's figures."""

import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.report_tables import (
    Cell,
    Column,
    ReportTable,
    escape_markdown,
    markdown_code,
    number,
    plus_minus,
    seconds,
    short,
    signed,
    span,
)
from benchmarks._harness.results_file import as_json
from benchmarks._harness.single_fits import (
    columns_of,
    source_line,
    split_failed,
    tables_text,
    write_report,
)
from benchmarks._tabular.protocol import NUMBERS, Config
from benchmarks._vision_speech import timing
from benchmarks._vision_speech.deformations import COLUMNS as DEFORMED
from benchmarks._vision_speech.deformations import DEFORMATIONS
from benchmarks._vision_speech.fits import SCHEMA
from mixupe_sklearn.recipes import RECIPES

PAGES = pathlib.Path(__file__).parents[2] / "docs" / "benchmarks"
CAUTION = (
    "Subsets, small networks and short trainings: these figures compare methods within one run. "
    "They do not compare with figures of other runs, nor with the paper's."
)
TITLES = {
    "erm": "ERM",
    "erm+penalty": "ERM + penalty",
    "mixup": "Mixup",
    "manifold-mixup": "Manifold Mixup",
    "mixupe": "MixupE",
}
CELLS = ("erm", "mixup", "erm+penalty", "mixupe")
METHOD = ["method", *NUMBERS]
OF_NETWORK = ("module", "module_params")  # settings of a network, not of the training

PAPER_METHODS = ("erm", "mixup", "mixupe")
# CIFAR-100, PreActResNet-50: test error (%), means of five runs.
PAPER_ABLATION = {"erm": 24.68, "mixup": 23.03, "erm+penalty": 22.42, "mixupe": 20.23}
PAPER_BY_ETA = {1e-4: 20.23, 1e-3: 20.84, 1e-2: 21.01, 1e-1: 20.87}
# CIFAR-100, PreActResNet-18: accuracy (%) on deformed test images, by column of our rows.
_FIGURES = RECIPES["cifar100-preactresnet18"].figures
PAPER_DEFORMED = {
    column: {name: mean for name, (mean, _) in _FIGURES[f"accuracy, {how.head}"].items()}
    for column, how in zip(DEFORMED, DEFORMATIONS.values(), strict=True)
}


def paper_errors(dataset: str) -> dict[str, dict[str, tuple[float, float | None]]]:
    """The paper's test errors (%) by network and method; empty if it lacks the dataset."""
    # The hyphen ends the name: a subset of cifar100 does not match cifar10.
    begins = dataset.replace("_", "-") + "-"
    return {
        recipe.module: dict(recipe.figures["error"])
        for recipe in RECIPES.values()
        if "error" in recipe.figures and begins.startswith(recipe.name.split("-")[0] + "-")
    }


@dataclass(frozen=True, eq=False)
class Section:
    """Rows that can be compared: those of one dataset and one training."""

    dataset: str
    training: dict
    networks: dict[str, dict]
    rows: pd.DataFrame


def sections_of(rows: pd.DataFrame) -> Iterator[Section]:
    """Rows by dataset (other content is another dataset) and training, in their order."""
    params = rows["params"].map(json.loads)
    training = params.map(lambda one: as_json({k: one[k] for k in one if k not in OF_NETWORK}))
    network = params.map(lambda one: as_json({k: one.get(k) for k in OF_NETWORK}))
    rows = rows.assign(network=_names(rows["network"], network), of_network=network)
    for (dataset, _, text), part in rows.groupby(["dataset", "data", training], sort=False):
        networks = part.drop_duplicates("network").set_index("network")["of_network"]
        named = {str(name): json.loads(value) for name, value in networks.items()}
        yield Section(str(dataset), json.loads(str(text)), named, part.reset_index(drop=True))


def _names(names: pd.Series, params: pd.Series) -> pd.Series:
    """Names of networks, numbered from the second set of parameters on."""
    place = params.groupby(names).transform(lambda part: part.factorize()[0])
    return names.where(place == 0, names + " #" + (place + 1).astype(str))


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows by network, then by method and its numbers, then by seed."""
    places = {name: place for place, name in enumerate([*rows["network"].unique(), *TITLES])}
    return rows.sort_values(
        ["network", "method", "alpha", "eta", "penalty_fraction", "seed"],
        ascending=[True, True, True, True, False, True],
        key=lambda column: column.map(places) if column.name in ("network", "method") else column,
    )


def title_of(method: str, penalty_fraction: float = 1.0) -> str:
    """A method as tables show it."""
    is_part = pd.notna(penalty_fraction) and penalty_fraction != 1
    return TITLES[method] + (f", {100 * penalty_fraction:.0f} % penalised" if is_part else "")


def mean_and_deviation(values: pd.Series, decimals: int = 2) -> str:
    """Mean and deviation over seeds; a single value has no deviation."""
    return plus_minus(values.mean(), values.std(), decimals)


def methods_table(section: Section) -> ReportTable:
    """All networks and methods: errors, losses and times."""
    rows, body = in_order(section.rows), []
    for network, of_network in rows.groupby("network", sort=False):
        groups = of_network.groupby(METHOD, sort=False, dropna=False)
        # The same sums as below, as pandas may round a mean of groups differently.
        best = min(part["test_error"].mean() for _, part in groups)
        mixup = of_network[of_network["method"] == "mixup"]
        for (method, alpha, eta, fraction), part in groups:
            error = part["test_error"]
            body.append(
                [
                    *(Cell(str(network)), Cell(title_of(method, fraction))),
                    *(Cell(short(alpha)), Cell(short(eta)), Cell(str(len(part)))),
                    Cell(mean_and_deviation(error), is_best=error.mean() == best),
                    Cell("·" if method == "mixup" else _against(part, mixup)),
                    Cell(mean_and_deviation(part["test_log_loss"], 3)),
                    Cell(mean_and_deviation(part["test_ece"], 3)),
                    Cell(seconds(part["seconds_per_epoch"].median())),
                ]
            )
    heads = ["alpha", "eta", "Runs", "Test error (%)", "Against Mixup", "Log loss", "ECE"]
    columns = columns_of(["Network", "Method"], [*heads, "s/epoch"])
    caption = (
        f"{section.dataset}: mean and deviation over {_runs(rows)}; the lowest mean error of a "
        f"network is in bold. Against Mixup: the mean difference in test error from Mixup with the "
        f"same seed."
    )
    return ReportTable("methods", caption, columns, body)


def _runs(rows: pd.DataFrame) -> str:
    counts = rows.groupby(["network", *METHOD], dropna=False).size().tolist()
    return "1 seed" if set(counts) == {1} else f"{span(counts)} seeds"


def _against(part: pd.DataFrame, mixup: pd.DataFrame) -> str:
    """Mean difference of errors from Mixup, seed by seed, with the same alpha if there is one."""
    same = mixup[mixup["alpha"].isin(part["alpha"])]
    by_seed = (same if len(same) else mixup).groupby("seed")["test_error"].mean()
    return signed((part.set_index("seed")["test_error"] - by_seed).mean())


def of_config(rows: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Rows of one method with its numbers."""
    is_wanted = rows["method"] == config.method
    for name, value in config.numbers.items():
        is_wanted &= rows[name].isin([float("nan") if value is None else value])
    return rows[is_wanted]


def ablation_table(section: Section, cells: Sequence[Config]) -> ReportTable | None:
    """The four cells of the ablation, by network, beside the paper's; None without rows."""
    etas = " ".join(f"{config.eta:g}" for config in cells if config.method == "mixupe")
    lines = [(TITLES[one.method], one, PAPER_ABLATION[one.method]) for one in cells]
    return _errors_table(section, "ablation", f"of the four cells, eta {etas}", lines)


def eta_table(section: Section, mixup: Config, mixupe: Sequence[Config]) -> ReportTable | None:
    """MixupE by its eta against Mixup, by network, beside the paper's; None without rows."""
    lines = [(TITLES["mixup"], mixup, PAPER_ABLATION["mixup"])]
    for config in sorted(mixupe, key=lambda one: one.eta or 0.0):
        theirs = PAPER_BY_ETA.get(config.eta or 0.0, float("nan"))
        lines.append((f"MixupE, eta {config.eta:g}", config, theirs))
    return _errors_table(section, "eta", "by eta", lines)


def _errors_table(
    section: Section, name: str, what: str, lines: Sequence[tuple[str, Config, float]]
) -> ReportTable | None:
    """Test errors, a row per configuration and a column per network."""
    parts = [of_config(section.rows, config) for _, config, _ in lines]
    used = pd.concat(parts)
    if used.empty:
        return None
    body = []
    for (title, _, theirs), part in zip(lines, parts, strict=True):
        errors = [part.loc[part["network"] == one, "test_error"] for one in section.networks]
        ours = [Cell(mean_and_deviation(values)) for values in errors]
        body.append([Cell(title), *ours, Cell(number(theirs))])
    columns = columns_of(["Method"], [*section.networks, "Paper"])
    caption = (
        f"{section.dataset}: test error (%) {what}, mean and deviation over {_runs(used)}. The "
        f"paper's are of CIFAR-100, PreActResNet-50."
    )
    return ReportTable(name, caption, columns, body)


def deformations_table(
    section: Section, network: str, configs: Sequence[Config]
) -> ReportTable | None:
    """Accuracy of one network on deformed test images, beside the paper's; None without rows."""
    rows = section.rows[section.rows["network"] == network]
    parts = [of_config(rows, config) for config in configs]
    used = pd.concat(parts)
    if used[list(DEFORMED)].isna().all(axis=None):
        return None
    theirs = next(iter(PAPER_DEFORMED.values()))
    clean = [mean_and_deviation(100 - part["test_error"]) for part in parts]
    body = [[Cell(text) for text in ("as they are", *clean, *[""] * len(theirs))]]
    for column, how in zip(DEFORMED, DEFORMATIONS.values(), strict=True):
        best = max(part[column].mean() for part in parts if len(part))
        cells = [
            Cell(mean_and_deviation(part[column]), is_best=part[column].mean() == best)
            for part in parts
        ]
        figures = [Cell(number(value)) for value in PAPER_DEFORMED[column].values()]
        body.append([Cell(how.head), *cells, *figures])
    columns = columns_of(["Test images"])
    columns += [Column(f"{TITLES[one.method]}, alpha {one.alpha:g}", "Ours") for one in configs]
    columns += [Column(head, "Paper") for head in theirs]
    caption = (
        f"{section.dataset}, {network}: accuracy (%) on deformed test images, mean and deviation "
        f"over {_runs(used)}, the best of ours in bold. The paper's are of CIFAR-100, "
        f"PreActResNet-18."
    )
    return ReportTable("deformations", caption, columns, body)


def paper_table(dataset: str) -> ReportTable | None:
    """The paper's errors on the dataset that ours is taken from; None if it has none."""
    errors = paper_errors(dataset)
    if not errors:
        return None
    body = []
    for network, figures in errors.items():
        means = [figures[method] for method in PAPER_METHODS]
        shown = [plus_minus(mean, float("nan") if dev is None else dev) for mean, dev in means]
        body.append([Cell(network), *map(Cell, shown)])
    columns = columns_of(["Network"], [TITLES[method] for method in PAPER_METHODS])
    caption = (
        "The paper's test errors (%) on the whole dataset with networks of full size: the order "
        "of the methods can be compared, the values cannot."
    )
    return ReportTable("paper", caption, columns, body)


class Report(NamedTuple):
    """A report: its name, title and file, and a function that makes the tables of a section."""

    name: str
    title: str
    make_tables: Callable[[Section], Sequence[ReportTable | None]]
    file: str = "report.md"

    def tables(self, section: Section) -> list[ReportTable]:
        """The tables of a section that have rows."""
        return [table for table in self.make_tables(section) if table is not None]

    def ratios(self, folder: pathlib.Path) -> list[ReportTable]:
        """What the penalty costs, if it was timed."""
        path = folder / timing.FILE
        return [timing.table_of(path)] if self.file == "report.md" and path.exists() else []


def all_methods(section: Section) -> list[ReportTable | None]:
    """The tables of a run without further options."""
    return [methods_table(section), paper_table(section.dataset)]


def settings_lines(section: Section) -> list[str]:
    """How the rows of a section were made."""
    rows = section.rows
    first = rows.iloc[0]
    lines = [
        f"- runs: {len(rows)}, seeds: {rows['seed'].nunique()}; {first['n_train']:,.0f} rows to "
        f"train and {first['n_test']:,.0f} to test in {first['n_classes']:.0f} classes (data "
        f"{markdown_code(first['data'])})",
        f"- training: {markdown_code(as_json(section.training))}",
    ]
    for name, params in section.networks.items():
        n_parameters = rows.loc[rows["network"] == name, "n_parameters"].iloc[0]
        code = markdown_code(as_json(params))
        lines.append(f"- {escape_markdown(name)}: {n_parameters:,.0f} parameters, {code}")
    return [*lines, source_line(rows)]


def page_tables(report: Report, folder: pathlib.Path) -> str:
    """All tables of a report in Markdown, for a page of the documentation."""
    sections = sections_of(split_failed(folder / "rows.csv", SCHEMA)[0])
    tables = [table for section in sections for table in report.tables(section)]
    return tables_text([*tables, *report.ratios(folder)])


def write_page(report: Report, folder: pathlib.Path, page: str) -> None:
    """Write the tables into a page of the docs."""
    write_block(PAGES / f"{page}.md", report.name, page_tables(report, folder))


def make_report(report: Report, folder: pathlib.Path) -> str:
    """Write the report on all rows of a folder, and return the text for the terminal."""
    rows, failed = split_failed(folder / "rows.csv", SCHEMA)
    parts = [f"# {report.title}", CAUTION]
    for section in sections_of(rows):
        parts += [f"## {escape_markdown(section.dataset)}", tables_text(report.tables(section))]
        parts += ["How it was run:", "\n".join(settings_lines(section))]
    ratios = report.ratios(folder)
    parts += [*failed, *([tables_text(ratios)] if ratios else [])]
    return write_report(folder / report.file, "\n\n".join(parts) + "\n")
