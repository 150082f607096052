"""The report of the tabular benchmark: contents, formats and escaping."""

import itertools
import json
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from tabular_rows import make_row, make_rows

from benchmarks._harness.report_tables import Cell, Column, ReportTable, as_latex, as_terminal
from benchmarks._tabular.protocol import TRAINING, configs_of
from benchmarks._tabular.report import make_report, paper
from benchmarks._tabular.report.figures import colour_of
from benchmarks._tabular.report.results import LABELS, choose
from benchmarks._tabular.report.sections import standing
from benchmarks._tabular.report.statistics import rank_defaults
from benchmarks._tabular.report.tables import against_table

HOSTILE = "<b>&_|"


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
    for text in (report.terminal, report.markdown.read_text(), report.html.read_text()):
        assert (
            "below Mixup on 10 of 15 datasets and below ERM on 14; of the 4 that are also here, on 3 and on 4"
            in " ".join(text.split())
        )


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


def test_a_csv_is_not_compared_with_the_paper_by_its_name(tmp_path):
    report = make_report(make_rows(["iris"], source="csv"), tmp_path)
    assert "diff." not in report.terminal
    assert "7.29" not in report.html.read_text()


def test_other_data_of_the_same_name_are_not_compared_with_the_paper(tmp_path):
    report = make_report(make_rows(["abalone"], data_id=183), tmp_path)
    assert "diff." not in report.terminal
    assert "34.91" not in report.html.read_text()


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
    assert len([line for line in lines if line.endswith("  not run: no rows")]) == 4
    assert any(line.split() == ["volkert", "not", "run:", "no", "copy"] for line in lines)
    # A run of one task does not list the other fourteen.
    assert "not run" not in make_report(make_rows(["iris"], ["erm"]), tmp_path).terminal
    for source in ("embedded", "csv"):
        other = make_rows(["iris"], ["erm"], source=source, data_id=None)
        assert "not run" not in make_report(other, tmp_path).terminal


def test_differences_from_the_papers_protocol_are_reported(tmp_path):
    rows = make_rows(["iris"], ["erm", "mixup"])
    assert "not the paper's" not in make_report(rows, tmp_path).terminal
    short = rows.assign(params=json.dumps(TRAINING | {"max_epochs": 3}, sort_keys=True))
    sentence = "The protocol is not the paper's: max_epochs 3 instead of 25."
    report = make_report(short, tmp_path)
    assert sentence in report.terminal
    assert "max_epochs 3 instead of 25." in report.html.read_text()
    folds = make_report(rows.assign(splits="task 59"), tmp_path).terminal
    assert "not the paper's: splits task 59 instead of five holdouts." in " ".join(folds.split())


def test_a_tie_of_all_methods_has_no_winner(tmp_path):
    rows = make_rows(["a", "b"], ["erm", "mixup", "logistic"], test_error=5.0)
    text = make_report(rows, tmp_path).markdown.read_text()
    assert (
        "ERM and Mixup and Logistic regression have the lowest mean test error equally often "
        "(a tie counts for each): on 2." in text
    )
    assert "most often" not in text


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
    assert "all fits of a method on one split (ERM 1, Mixup 3, MixupE 6)." in text


def test_unused_fits_are_counted(tmp_path):
    more = make_row(split=2, test_error=99.0)
    text = make_report(pd.concat([make_rows(), frame(more)]), tmp_path).markdown.read_text()
    assert "Unused fits on other splits: 1." in text
    assert "Unused fits" not in make_report(make_rows(), tmp_path).markdown.read_text()


def test_ranks_of_the_papers_methods_and_of_all_methods(tmp_path):
    names = list("abcdefg")
    few = {"n_splits": 1, "train_losses": "", "fit_seconds": None}
    rows = pd.concat([make_rows(names, **few), make_rows(names[:5], ["logistic"], **few)])
    text = make_report(rows, tmp_path).markdown.read_text()
    assert "Friedman's test of 3 methods on 7 datasets" in text
    assert "Friedman's test of 4 methods on 5 datasets" in text


def default_rows(errors, seconds, n_splits):
    """One row per dataset, split and method, with the given errors and times."""
    return frame(
        *(
            make_row(
                f"set {place}",
                method,
                split=split,
                test_error=error,
                fit_seconds=seconds[method][split],
                train_losses="",
            )
            for method, own in errors.items()
            for place, error in enumerate(own)
            for split in range(n_splits)
        )
    )


BEST = pd.DataFrame(
    {
        "mixupe-default": [1.0, 1.0, 1.0, 1.0, 3.0, 1.0],
        "realmlp": 2.0,
        "logistic": 9.0,
        "erm": 0.0,
    }
)


def test_our_place_among_default_classifiers():
    assert standing(rank_defaults(BEST)) == (
        "With default settings for all 3 classifiers, MixupEClassifier() has the best average rank on "
        "6 datasets, 1.17; the next is RealMLP with 1.83. By Nemenyi's test at 5 % it differs "
        "from: Logistic regression."
    )
    lines = [[cell.text for cell in row] for row in against_table(BEST).rows]
    assert lines == [
        ["Logistic regression", "1.33", "9.00", "-8.00", "6/0/0", "6"],
        ["RealMLP", "1.33", "2.00", "-1.00", "5/0/1", "6"],
    ]


def test_a_second_and_a_shared_place():
    assert (
        "MixupEClassifier() has the second best average rank on 6 datasets, 2.00; the best is "
        "RealMLP with 1.00." in standing(rank_defaults(BEST.assign(**{"mixupe-default": 5.0})))
    )
    shared = BEST.assign(**{"mixupe-default": 2.0})
    assert "has the best (shared with 1) average rank" in standing(rank_defaults(shared))


def test_our_defaults_on_too_few_datasets_have_no_rank():
    few = BEST.assign(**{"mixupe-default": [1.0, *[np.nan] * 5], "random-forest": 4.0})
    assert rank_defaults(few) == ("There are no ranks: MixupEClassifier() ran on too few datasets.")
    assert rank_defaults(BEST.drop(columns="mixupe-default")) is None


def test_times_of_a_fit_are_medians_over_splits_and_shares_of_others(tmp_path):
    errors = {"mixupe-default": [1, 1], "realmlp": [2, 2], "hist-gradient-boosting": [3]}
    seconds = {"mixupe-default": [1.0, 2.0, 90.0], "realmlp": [10.0, 20.0, 30.0]}
    seconds["hist-gradient-boosting"] = [1.0, 1.0, 1.0]
    rows = default_rows(errors, seconds, n_splits=3)
    text = make_report(rows, tmp_path).markdown.read_text()
    assert (
        "A fit of MixupEClassifier() takes 0.10 of the time of RealMLP's (median over 2 datasets, "
        "from 0.10 to 0.10) and is below it on 2, at or below 0.2 of it on 2." in text
    )
    assert "takes 2.00 of the time of Hist. gradient boosting's (median over 1 datasets" in text
    assert "| set 1 | 0.10 |  | 2 |  | 20 |" in text
    assert "| Median over datasets | 0.10 | 2.00 |" in text
    assert "were timed in" not in text
    rows.loc[rows["method"] == "realmlp", "run"] = "2026-02-03T04:05:06+00:00"
    assert "were timed in 2 runs" in make_report(rows, tmp_path).markdown.read_text()


def test_a_report_without_our_defaults_has_no_such_sections(report):
    for text in (report.terminal, report.markdown.read_text(), report.html.read_text()):
        assert "Default settings" not in text
        assert "Time of a fit" not in text


def test_every_method_has_its_own_colour():
    assert len({colour_of(name) for name in LABELS}) == len(LABELS)


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
    assert len(figures) == page.count("<figure>") == 2 + 2 * 6
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


def test_text_of_users_is_escaped_everywhere(tmp_path):
    rows = pd.concat(
        [
            make_rows([HOSTILE], ["erm", "mixup", "mixupe", HOSTILE]),
            frame(make_row(HOSTILE, error=HOSTILE, split=7)),
        ]
    )
    report = make_report(
        rows, tmp_path, command=f"run {HOSTILE}", not_run={f"{HOSTILE} two": HOSTILE}
    )
    page = report.html.read_text()
    assert "<b>" not in page
    assert page.count("&lt;b&gt;&amp;_|") > 10
    for figure in svgs_of(page):
        ElementTree.fromstring(figure)
    markdown = report.markdown.read_text().replace(r"\<b\>\&\_\|", "")
    assert "<b>" not in markdown
    assert "_|" not in markdown
    latex = report.latex.read_text()
    assert r"\textless{}b\textgreater{}\&\_\textbar{}" in latex
    assert "<b>" not in re.sub("%.*", "", latex)
    assert HOSTILE in report.terminal


def test_control_characters_are_removed(tmp_path):
    rows = make_rows(["red\x1b[31m\nrose"], ["erm"])
    report = make_report(rows, tmp_path)
    assert "red [31m rose" in report.terminal
    for text in (report.terminal, report.html.read_text(), report.latex.read_text()):
        assert "\x1b" not in text


def test_rows_of_a_latex_table_have_all_columns(report):
    text = report.latex.read_text()
    assert text.count("{") == text.count("}")
    bodies = re.findall(
        r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL
    )
    assert len(bodies) > 6
    for columns, body in bodies:
        for line in re.findall(r"^ *(.*?) \\\\$", body, flags=re.MULTILINE):
            spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            n_cells = len(re.split(r"(?<!\\)&", line)) + sum(spans) - len(spans)
            assert n_cells == len(columns), line
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(labels) == len(set(labels))


def test_a_name_in_brackets_is_not_an_option_of_latex():
    table = ReportTable(
        "x",
        "Caption.",
        [Column("name"), Column("n")],
        [[Cell("a"), Cell("1")], [Cell("[2pt] *"), Cell("2")]],
    )
    assert "{[}2pt] {*} & 2" in as_latex(table)


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


def test_a_wide_table_is_split_between_groups():
    columns = [
        Column("name", is_number=False),
        *(Column(head, group) for group in "AB" for head in ("ours", "diff.")),
    ]
    table = ReportTable("x", "Caption.", columns, [[Cell("row"), *map(Cell, "1234")]])
    first, second = as_terminal(table, width=20).split("\n\n")
    assert first.splitlines()[-1].split() == ["row", "1", "2"]
    assert second.splitlines()[-1].split() == ["row", "3", "4"]
    assert r"\multicolumn{2}{c}{A} & \multicolumn{2}{c}{B}" in as_latex(table)


CASES = {
    "one dataset": (make_rows(), "On iris, "),
    "one method": (
        make_rows(["iris", "cmc"], ["mixupe"]),
        "MixupE has the lowest mean test error most often",
    ),
    "one split": (make_rows(n_splits=1), "mean over 1 split)"),
    "no mixupe": (
        make_rows(["iris", "cmc"], ["erm", "mixup"]),
        "ERM and Mixup have the lowest mean test error equally often",
    ),
    "only baselines": (
        make_rows(methods=["logistic"], train_losses="", test_losses=""),
        "Logistic regression has the lowest",
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
    "no seconds": (make_rows(fit_seconds=None), "On iris, "),
    "infinite losses": (
        make_rows(test_log_loss=np.inf, valid_log_loss=np.inf, test_losses="inf inf inf"),
        "On iris, ",
    ),
    "errors of zero": (make_rows(valid_error=0.0, test_error=0.0), "0.00 %"),
    "one epoch": (make_rows(train_losses="1.5", test_losses="1.4"), "On iris, "),
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


def test_invalid_rows_are_rejected(tmp_path):
    with pytest.raises(
        ValueError, match="Got rows without seed, test_ece, but expected all columns"
    ):
        make_report(make_rows().drop(columns=["seed", "test_ece"]), tmp_path)
    with pytest.raises(ValueError, match="Got test_error='low', but expected a number or a blank."):
        make_report(make_rows(test_error="low"), tmp_path)
