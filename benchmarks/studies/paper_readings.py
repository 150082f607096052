"""Two readings of the paper's tabular protocol: ``python -m benchmarks.studies.paper_readings``.

The paper trains for 25 epochs in batches of 100. The other reading has twice the epochs. Both are
compared with the paper's table: errors within one of its deviations, wins and losses, and tests.
"""

import argparse
import pathlib
import sys
from collections.abc import Mapping, Sequence

import pandas as pd

from benchmarks._harness.cli import run_command
from benchmarks._harness.docs_tables import write_block
from benchmarks._harness.environment import ROOT
from benchmarks._harness.report_tables import number, p_value, plain_markdown
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS, TRAINING, params_text
from benchmarks._tabular.report import paper
from benchmarks._tabular.report.results import as_printed, choose, label_of, win_tie_loss
from benchmarks._tabular.report.statistics import RankTest, compare_pairs, compare_ranks

RESULTS = ROOT / "benchmarks" / "results"
FILES = {25: RESULTS / "tabular" / "rows.csv", 50: RESULTS / "tabular_50_epochs" / "rows.csv"}
PAGE = ROOT / "docs" / "benchmarks" / "paper_tables.md"
METHODS = list(paper.METHODS)
N_SPLITS = 5
PAIRS = (("mixupe", "mixup"), ("mixupe", "erm"), ("mixup", "erm"))


def read_errors(path: pathlib.Path, epochs: int) -> pd.DataFrame:
    """Test errors of the paper's datasets that have the whole grid; none if there is no file."""
    rows = read_rows(path, FITS) if path.exists() else pd.DataFrame({"method": []})
    rows = rows[rows["method"].isin(METHODS)]
    if len(rows):
        text = params_text("erm", TRAINING | {"max_epochs": epochs})
        rows = rows[(rows["params"] == text) & (rows["splits"] == "holdout")]
    if rows.empty:
        return pd.DataFrame(columns=METHODS, dtype=float)
    chosen = choose(rows)
    # ERM has one configuration, which every grid has.
    is_whole = chosen["n_splits"].eq(N_SPLITS) & chosen["in_paper"].ne("")
    is_whole &= chosen["grid"].eq("paper") | chosen["method"].eq("erm")
    table = chosen[is_whole].pivot(index="in_paper", columns="method", values="test_error")
    table = table.reindex(columns=METHODS).dropna().map(as_printed)
    return table.loc[sorted(table.index, key=paper.place_of)]


def paper_errors(names: Sequence[str]) -> pd.DataFrame:
    """The paper's mean errors of some datasets."""
    rows = {name: {m: paper.FIGURES[name][m].mean for m in METHODS} for name in names}
    return pd.DataFrame.from_dict(rows, orient="index", columns=METHODS)


def deviations_away(errors: pd.DataFrame) -> pd.DataFrame:
    """How many of the paper's deviations each error is from the paper's, with its sign."""
    theirs = paper_errors(list(errors.index))
    deviations = pd.DataFrame(
        [[paper.FIGURES[n][m].deviation for m in METHODS] for n in errors.index],
        index=errors.index,
        columns=METHODS,
    )
    # As printed: a difference of exactly one deviation is within it, despite rounding.
    return ((errors - theirs).round(2) / deviations).round(6)


def levels_table(readings: Mapping[int, pd.DataFrame]) -> str:
    """Errors beside the paper's; those more than one deviation away are in italics."""
    names = sorted(set().union(*(errors.index for errors in readings.values())), key=paper.place_of)
    away = {epochs: deviations_away(errors) for epochs, errors in readings.items()}
    header, lines = ["dataset"], []
    for method in METHODS:
        header += [f"{label_of(method)}, paper", *(f"{epochs} epochs" for epochs in readings)]
    for name in names:
        cells = [name]
        for method in METHODS:
            cells.append(" ± ".join(number(value) for value in paper.FIGURES[name][method]))
            for epochs, errors in readings.items():
                shown = number(errors.loc[name, method]) if name in errors.index else ""
                is_far = bool(shown) and abs(away[epochs].loc[name, method]) > 1
                cells.append(f"*{shown}*" if is_far else shown)
        lines.append(cells)
    return plain_markdown(header, lines)


def summary_table(readings: Mapping[int, pd.DataFrame]) -> str:
    """Distances, wins and losses, and tests: the paper's own means and each reading."""
    known = sorted(set().union(*(errors.index for errors in readings.values())), key=paper.place_of)
    columns = {"paper": summary(paper_errors(known))}
    # The paper is at no distance from itself.
    columns["paper"] |= dict.fromkeys(
        [name for name in columns["paper"] if "the paper" in name], ""
    )
    columns |= {f"{epochs} epochs": summary(errors) for epochs, errors in readings.items()}
    lines = [[name, *(one[name] for one in columns.values())] for name in columns["paper"]]
    return plain_markdown(["", *columns], lines)


def summary(errors: pd.DataFrame) -> dict[str, str]:
    """What a column of the summary shows, by the name of its line."""
    names = {method: label_of(method) for method in METHODS}
    away = deviations_away(errors).abs()
    distances = (errors - paper_errors(list(errors.index))).abs().mean()
    found = {"datasets": str(len(errors))}
    for method, name in names.items():
        found[f"{name} within one deviation of the paper"] = str((away[method] <= 1).sum())
    for method, name in names.items():
        found[f"{name}, mean distance from the paper"] = number(distances[method])
    for method, other in PAIRS:
        counts = win_tie_loss(errors, method, other)
        line = f"{names[method]} against {names[other]}: wins/ties/losses"
        found[line] = "/".join(map(str, counts))
    test, pairs = compare_ranks(errors), compare_pairs(errors)
    ranks = friedman = ""
    if isinstance(test, RankTest):
        ranks = ", ".join(number(test.ranks[m]) for m in METHODS)
        friedman = p_value(test.p_value)
    found |= {"average ranks of ERM, Mixup, MixupE": ranks, "Friedman's test, p": friedman}
    for method, other in PAIRS:
        line = f"{names[method]} against {names[other]}: Wilcoxon's test, p (Holm)"
        found[line] = ""
        if not isinstance(pairs, str):
            own = pairs[(pairs["method"] == method) & (pairs["other"] == other)]
            found[line] = p_value(own["p_holm"].iloc[0])
    return found


def describe(readings: Mapping[int, pd.DataFrame]) -> str:
    """Both tables; readings without a complete dataset are left out and named."""
    there = {epochs: errors for epochs, errors in readings.items() if len(errors)}
    if not there:
        raise ValueError(
            "Got rows without a dataset of the paper that has the whole grid, but expected some: "
            "run benchmarks.tabular --source openml."
        )
    missing = [f"{epochs} epochs" for epochs in readings if epochs not in there]
    most = max(len(errors) for errors in there.values())
    partial = [f"{n} epochs ({len(e)} of {most})" for n, e in there.items() if len(e) < most]
    notes = [f"Not run yet: {', '.join(missing)}."] if missing else []
    notes += [f"So far with a part of the datasets: {', '.join(partial)}."] if partial else []
    words = "Test error (%). In italics: more than one of the paper's deviations from its mean."
    return "\n\n".join([words, levels_table(there), summary_table(there), *notes])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, write them into the page if asked to, and return the exit status."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.paper_readings",
        description=(__doc__ or "").splitlines()[0],
    )
    for epochs, path in FILES.items():
        words = f"rows of benchmarks.tabular --epochs {epochs}"
        made.add_argument(f"--rows-{epochs}", type=pathlib.Path, default=path, help=words)
    words = "write the tables into docs/benchmarks/paper_tables.md"
    made.add_argument("--docs", action="store_true", help=words)
    options = made.parse_args(arguments)

    def work() -> None:
        paths = {epochs: getattr(options, f"rows_{epochs}") for epochs in FILES}
        text = describe({epochs: read_errors(path, epochs) for epochs, path in paths.items()})
        print(text)
        if options.docs:
            write_block(PAGE, "readings", text)

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
