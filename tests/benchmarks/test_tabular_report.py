"""The report of the tabular benchmark: contents, formats and escaping."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from tabular_rows import make_row, make_rows

from benchmarks._harness.report_tables import Cell, Column, ReportTable, as_terminal
from benchmarks._tabular.protocol import configs_of
from benchmarks._tabular.report import make_report, paper
from benchmarks._tabular.report.results import choose
from benchmarks._tabular.report.sections import standing
from benchmarks._tabular.report.statistics import compare_all_ranks
from benchmarks._tabular.report.tables import against_table


def frame(*rows):
    return pd.DataFrame(list(rows))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    rows = make_rows(
        ["iris", "cmc", "letter", "wine", "abalone", "digits"],
        ["erm", "mixup", "mixupe", "logistic"],
    )
    folder = tmp_path_factory.mktemp("report") / "made"
    return make_report(
        rows, folder, command="python -m benchmarks.tabular", not_run={"volkert": "no copy of it"}
    )


def test_every_format_has_errors_the_papers_figures_and_datasets_not_run(report):
    for text in (report.html.read_text(), report.markdown.read_text(), report.latex.read_text()):
        assert "no copy of it" in text
        assert "7.29" in text  # the paper's MixupE on iris


def test_the_lead_distinguishes_ties_from_wins(tmp_path):
    errors = {"a": (3.0, 2.0, 2.0), "b": (1.0, 3.0, 2.0), "c": (2.0, 1.0, 2.0)}
    rows = [
        make_row(name, m, test_error=e)
        for name, row in errors.items()
        for m, e in zip(paper.METHODS, row, strict=True)
    ]
    text = make_report(frame(*rows), tmp_path).markdown.read_text()
    assert (
        "at or below Mixup's on 2 of 3 (below on 1), and at or below ERM's on 2 of 3 (below on 1)."
        in text
    )


def test_no_section_is_empty(report):
    lines = [line for line in report.markdown.read_text().splitlines() if line]
    assert not any(a.startswith("#") and b.startswith("#") for a, b in itertools.pairwise(lines))
    assert "`report.html`" in report.markdown.read_text()


def test_the_difference_is_ours_minus_the_papers(tmp_path):
    rows = frame(*(make_row("abalone", method, test_error=36.0) for method in paper.METHODS))
    text = make_report(rows, tmp_path).markdown.read_text()
    line = next(line for line in text.splitlines() if line.startswith("| abalone"))
    assert line.split(" | ")[1:10] == [
        *("**36.00**", "35.05 ± 0.61", "+0.95", "**36.00**", "35.07 ± 0.69", "+0.93"),
        *("**36.00**", "34.91 ± 0.70", "+1.09"),
    ]


def test_a_partly_finished_grid_is_marked(tmp_path):
    rows = [
        make_row("iris", method, config.alpha, config.eta, grid="any")
        for method in paper.METHODS
        for config in configs_of(method, "paper")
    ]
    assert "in part" not in make_report(frame(*rows), tmp_path).terminal
    assert "in part" in make_report(frame(*rows[:-1]), tmp_path).terminal


def test_datasets_of_the_paper_without_rows_are_listed(tmp_path):
    rows = make_rows(list(paper.FIGURES)[:10], ["erm"])
    lines = make_report(rows, tmp_path, not_run={"volkert": "no copy"}).terminal.splitlines()
    assert len([line for line in lines if "  not run: no rows" in line]) == 4
    assert any(line.split() == ["volkert", "not", "run:", "no", "copy"] for line in lines)
    # A run of one task does not list the other fourteen.
    assert "not run" not in make_report(make_rows(["iris"], ["erm"]), tmp_path).terminal
    for source in ("embedded", "csv"):
        other = make_rows(["iris"], ["erm"], source=source, data_id=None)
        assert "not run" not in make_report(other, tmp_path).terminal


def test_a_tie_of_all_methods_has_no_winner(tmp_path):
    rows = make_rows(["a", "b"], ["erm", "mixup", "logistic"], test_error=5.0)
    text = make_report(rows, tmp_path).markdown.read_text()
    assert (
        "the lowest mean test error is most often that of ERM and Mixup and Logistic regression: "
        "on 2." in text
    )


def test_the_choice_on_each_split_is_reported(tmp_path):
    # Alpha 0.1 is best by the mean, but on split 1 alpha 0.5 is.
    fits = [(0.1, 0, 1.0, 20.0), (0.1, 1, 3.0, 30.0), (0.5, 0, 9.0, 50.0), (0.5, 1, 2.0, 60.0)]
    rows = [
        make_row(name, "mixup", a, split=s, valid_error=v, test_error=e)
        for name in ("a", "b")
        for a, s, v, e in fits
    ]
    rows += [
        make_row(name, "mixupe", 0.1, 0.1, split=s, test_error=e)
        for name, e in (("a", 26.0), ("b", 24.0))
        for s in (0, 1)
    ]
    text = make_report(frame(*rows), tmp_path).markdown.read_text()
    before, after = text.split("## Chosen on each split")
    assert "at or below Mixup's on 1 of 2 (below on 1)" in before
    assert "a test sample of one split may be a validation sample of another" in after
    assert "at or below Mixup's on 2 of 2 (below on 2)" in after
    assert "| a | 40.00 ± 28.28 | **26.00 ± 0.00** |" in after
    alone = make_report(make_rows(methods=["erm"]), tmp_path).markdown.read_text()
    assert "Chosen on each split" not in alone


def test_time_is_that_of_the_search(tmp_path):
    text = make_report(make_rows(fit_seconds=2.0), tmp_path).markdown.read_text()
    lines = [re.split(r" *\| *", line) for line in text.split("Other metrics")[-1].splitlines()]
    seconds = {line[2]: line[6:8] for line in lines if len(line) == 10 and line[1] == "iris"}
    assert seconds == {"ERM": ["2", "2"], "Mixup": ["2", "6"], "MixupE": ["2", "12"]}


def test_unused_fits_are_counted(tmp_path):
    more = make_row(split=2, test_error=99.0)
    text = make_report(pd.concat([make_rows(), frame(more)]), tmp_path).markdown.read_text()
    assert "Unused fits on other splits: 1." in text
    assert "Unused fits" not in make_report(make_rows(), tmp_path).markdown.read_text()


def test_ranks_of_the_papers_methods_and_of_all_methods(tmp_path):
    names = list("abcdefg")
    few = {"n_splits": 1, "fit_seconds": None}
    rows = pd.concat([make_rows(names, **few), make_rows(names[:5], ["logistic"], **few)])
    text = make_report(rows, tmp_path).markdown.read_text()
    assert "Friedman's test of 3 methods on 7 datasets" in text
    assert "Friedman's test of 4 methods on 5 datasets" in text


BEST = pd.DataFrame(
    {
        "mixupe-default": [1.0, 1.0, 1.0, 1.0, 3.0, 1.0],
        "realmlp": 2.0,
        "logistic": 9.0,
        "erm": 0.0,
    }
)


def test_our_rank_among_default_classifiers():
    (ranks,) = compare_all_ranks(BEST)
    assert standing(ranks) == (
        "With default settings for all 3 classifiers, the average rank of MixupEClassifier() on 6 "
        "datasets is 1.17; the best of the others: RealMLP 1.83, Logistic regression 3.00. By "
        "Nemenyi's test at 5 % it differs from: Logistic regression."
    )
    lines = [[cell.text for cell in row] for row in against_table(BEST).rows]
    assert lines == [
        ["Logistic regression", "1.33", "9.00", "-8.00", "6/0/0", "6"],
        ["RealMLP", "1.33", "2.00", "-1.00", "5/0/1", "6"],
    ]


def test_equal_rows_give_equal_bytes(tmp_path):
    first, second = (make_report(make_rows(), tmp_path / name) for name in ("a", "b"))
    for kind in ("html", "markdown", "latex"):
        assert getattr(first, kind).read_bytes() == getattr(second, kind).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "report.html",
        "report.md",
        "report.tex",
    ]


def test_a_report_that_cannot_be_written_leaves_no_temporary_file(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OSError, match="report.html"):
        make_report(make_rows(methods=["erm"]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def svgs_of(page):
    return re.findall(r'<svg viewBox="[^"]*" role="img".*?</svg>', page, flags=re.DOTALL)


def test_figures_are_well_formed_labelled_and_do_not_share_ids(report):
    page = report.html.read_text()
    figures = svgs_of(page)
    assert len(figures) == page.count("<figure>") == 2 + 6
    for figure in figures:
        root = ElementTree.fromstring(figure)
        assert root.get("role") == "img"
        assert len(root.get("aria-label")) > 20
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_the_page_loads_nothing_and_is_small(report):
    page = report.html.read_text()
    assert not re.search(r"<script|@import|\bsrc=|https?:", page)
    assert len(page) < 2_000_000 / 15 * 6  # so that the paper's 15 fit into two megabytes


def test_rows_of_a_latex_table_have_all_columns(report):
    text = report.latex.read_text()
    assert text.count("{") == text.count("}")
    bodies = re.findall(
        r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL
    )
    assert len(bodies) > 6
    for columns, body in bodies:
        for line in re.findall(r"^ *(.*?) \\\\$", body, flags=re.MULTILINE):
            assert len(re.split(r"(?<!\\)&", line)) == len(columns), line
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(labels) == len(set(labels))


def test_the_terminal_table_fits_into_a_hundred_columns(tmp_path):
    methods = [
        "erm",
        "mixup",
        "mixupe",
        "hist-gradient-boosting",
        "mlp-sklearn",
        "logistic",
        "catboost",
    ]
    rows = make_rows(["a name that goes on and on without an end", "iris"], methods)
    report = make_report(rows, tmp_path, not_run={"volkert": "because " * 40})
    assert max(map(len, report.terminal.splitlines())) <= 100
    assert all(name in report.terminal for name in ("CatBoost", "Hist. gradient boosting", "…"))


def test_a_wide_table_is_split_in_the_terminal():
    columns = [
        Column("name", is_number=False),
        *(Column(head, group) for group in "AB" for head in ("ours", "diff.")),
    ]
    table = ReportTable("x", "Caption.", columns, [[Cell("row"), *map(Cell, "1234")]])
    first, second = as_terminal(table, width=25).split("\n\n")
    assert first.splitlines()[0].split() == ["name", "A", "ours", "A", "diff.", "\\"]
    assert first.splitlines()[-1].split() == ["row", "1", "2"]
    assert second.splitlines()[-1].split() == ["row", "3", "4"]


CASES = {
    "one dataset": (make_rows(), "On iris, "),
    "one method": (
        make_rows(["iris", "cmc"], ["mixupe"]),
        "the lowest mean test error is most often that of MixupE: on 2",
    ),
    "no mixupe": (
        make_rows(["iris", "cmc"], ["erm", "mixup"]),
        "the lowest mean test error is most often that of ERM and Mixup: on 1",
    ),
    "only baselines": (
        make_rows(methods=["logistic"], train_losses="", test_losses=""),
        "most often that of Logistic regression",
    ),
    "all failed": (
        make_rows(error="boom", valid_error=None, test_error=None),
        "There is no result yet: the rows hold 20 fits, of which 20 failed.",
    ),
    "no rows": (make_rows().iloc[:0], "There is no result yet: the rows hold 0 fits"),
    "defaults only": (
        pd.DataFrame([make_row(method=m, grid="default") for m in paper.METHODS]),
        "On iris, ",
    ),
    "infinite losses": (
        make_rows(test_log_loss=np.inf, valid_log_loss=np.inf, test_losses="inf inf inf"),
        "On iris, ",
    ),
    "errors of zero": (make_rows(valid_error=0.0, test_error=0.0), "On iris, "),
    "incomplete": (make_rows(["iris", "cmc"]).iloc[:27], "MixupE"),
}


@pytest.mark.parametrize("name", CASES)
def test_unusual_runs_have_a_report(name, tmp_path):
    rows, sentence = CASES[name]
    report = make_report(rows, tmp_path)
    for text in (
        report.html.read_text(),
        report.markdown.read_text(),
        " ".join(report.terminal.split()),
    ):
        assert sentence in text
        assert not re.search(r"\bnan\b|\bNone\b|NaN", text)
    for figure in svgs_of(report.html.read_text()):
        ElementTree.fromstring(figure)


def test_a_row_without_error_rates_counts_as_failed(tmp_path):
    rows = frame(make_row(), make_row(split=1, test_error=None))
    assert choose(rows)["n_splits"].tolist() == [1]
    assert "the row has no error rate" in make_report(rows, tmp_path).markdown.read_text()


def test_failed_fits_are_counted_and_listed(tmp_path):
    rows = pd.concat(
        [make_rows(n_splits=1), make_rows(["cmc"], error="no | memory", test_error=None)]
    )
    text = make_report(rows, tmp_path).markdown.read_text()
    assert "Failed fits: 20 of 30." in text
    assert r"| cmc | MixupE | no \| memory | 12 |" in text
    assert "| cmc | no result: the rows hold 20 fits, of which 20 failed |" in text


@pytest.mark.parametrize("n_together", [1, 15])
def test_seconds_of_networks_trained_as_one_are_called_a_share(n_together, tmp_path):
    text = make_report(make_rows(n_together=n_together), tmp_path).markdown.read_text()
    assert ("share of a single network" in text) == (n_together > 1)
