"""The tuned part of the report, and the two readings of the paper's protocol."""

import json
import pathlib

import numpy as np
import pandas as pd
import pytest
from tabular_rows import make_row, make_rows, make_trials, make_tuned_rows

import mixupe_sklearn
from benchmarks import tabular
from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS, TRAINING, configs_of
from benchmarks._tabular.report import figures, make_report, paper
from benchmarks._tabular.report.tuned import find_tuned, importance_of, importances, tuned_table
from benchmarks._tabular.tuning import TUNED, read_trials
from benchmarks.studies import paper_readings

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
SIX = ("iris", "cmc", "letter", "wine", "abalone", "digits")
THREE = ("mixupe-default", "hist-gradient-boosting", "lightgbm")


@pytest.fixture(scope="module")
def rows():
    return make_tuned_rows(SIX, THREE, n_trials=16)


@pytest.fixture(scope="module")
def report(rows, tmp_path_factory):
    return make_report(pd.DataFrame(), tmp_path_factory.mktemp("tuned"), tuned=rows, command="run")


def test_a_run_of_studies_alone_has_a_report_in_all_formats(report, rows):
    text, page = report.markdown.read_text(), report.html.read_text()
    for title in ("Tuned by Optuna", "Ranks of the tuned methods", "What mattered"):
        assert f"## {title}" in text
        assert title in page
    assert page.count("<figure>") == 1 + 6 + 1  # ranks, a map per dataset, importances
    assert "tab:tabular-gains" in report.latex.read_text()
    assert "16 trials" in text
    assert "letter" in report.terminal


def test_the_lowest_tuned_error_is_marked_and_defaults_are_beside_it(rows):
    table = tuned_table(find_tuned(rows))
    own = rows[rows["dataset"] == "iris"].set_index("method")
    cells = next(row for row in table.rows if row[0].text == "iris")
    assert [float(cell.text) for cell in cells[1::2]] == [
        round(own.loc[m, "default_test_error"], 2) for m in THREE
    ]
    assert [cell.is_best for cell in cells[2::2]] == [
        m == own["test_error"].idxmin() for m in THREE
    ]
    assert not any(cell.is_best for cell in cells[1::2])


def test_only_splits_that_all_methods_have_are_compared():
    rows = make_tuned_rows(("iris",), THREE, n_splits=3)
    cut = rows[~((rows["method"] == "lightgbm") & (rows["split"] == 2))]
    means = find_tuned(cut).means
    assert means["n_splits"].tolist() == [2, 2, 2]
    failed = rows.assign(error=rows["error"].mask(rows["split"] == 0, "ValueError: no"))
    assert find_tuned(failed).used["split"].min() == 1


def test_failed_studies_alone_are_reported_with_their_reason(tmp_path):
    rows = make_tuned_rows(("iris",), ("lightgbm",), error="ValueError: no luck", test_error=np.nan)
    text = make_report(pd.DataFrame(), tmp_path, tuned=rows).markdown.read_text()
    assert "No study has a result yet" in text
    assert "no luck" in text


def test_the_parameter_that_decides_is_the_most_important_one(rows):
    for method, shares in importances(find_tuned(rows).used).items():
        first = "alpha" if method == "mixupe-default" else "learning_rate"
        assert shares.mean().idxmax() == first
        assert shares[first].mean() > 0.7
        assert len(shares) == len(SIX)


def test_too_few_or_equal_trials_have_no_importance():
    names = ("state", "valid_error", "valid_log_loss", "n_epochs", "params")
    trials = [
        dict(zip(names, one, strict=True)) for one in make_trials(np.random.default_rng(0), 20)
    ]
    complete = [trial for trial in trials if trial["state"] == "complete"]
    assert importance_of(complete[:9]) == {}
    assert importance_of([one | {"valid_error": 5.0} for one in complete]) == {}
    assert set(importance_of(complete)) == {"alpha", "eta", "lr"}


def test_a_parameter_without_a_choice_matters_nothing():
    params = [{"depth": 3, "kind": kind, "rate": 0.1 * n} for n, kind in enumerate("ab" * 8, 1)]
    trials = [{"params": one, "valid_error": float(one["kind"] == "b")} for one in params]
    shares = importance_of(trials)
    assert shares["depth"] == 0
    assert max(shares, key=lambda name: shares[name]) == "kind"


def test_the_map_names_the_best_trial():
    trials = read_trials(json.dumps(make_trials(np.random.default_rng(0), 12)))
    best = min(
        (one for one in trials if one["state"] == "complete"), key=lambda one: one["valid_error"]
    )
    plot = figures.draw_trials(trials, "MixupE on iris", "map")
    assert "9 complete trials" in plot.svg
    assert "3 pruned" in plot.svg
    assert f"best: alpha {best['params']['alpha']:g}" in plot.svg


def test_text_of_a_table_cannot_break_the_page(tmp_path):
    rows = make_tuned_rows(("<script>alert(1)</script>|x",), THREE)
    report = make_report(pd.DataFrame(), tmp_path, tuned=rows)
    assert "<script>" not in report.html.read_text()
    assert r"\<script\>alert(1)\</script\>\|x" in report.markdown.read_text()


TUNED_FOLDER = ROOT / "benchmarks" / "results" / "tuned"


def test_the_page_has_the_tables_of_the_committed_studies(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "benchmarks" / "tuned.md").read_text()
    if not TUNED_FOLDER.exists():
        assert block_of(page, "tuned").endswith("was not made yet.")
        return
    monkeypatch.setattr(figures, "to_svg", lambda *arguments, **named: "")
    rows = read_rows(TUNED_FOLDER / "tuned.csv", TUNED)
    command = tabular.read_commands(TUNED_FOLDER)
    report = make_report(pd.DataFrame(), tmp_path, tuned=rows, command=command)
    assert report.markdown.read_text() == (TUNED_FOLDER / "report.md").read_text()
    assert block_of(page, "tuned") == tabular.docs_tables(report.markdown)


# The two readings of the paper's protocol


def grid_rows(names, epochs, n_splits=5):
    """Rows of the paper's whole grid, whose errors are the paper's own means."""
    text = json.dumps(TRAINING | {"max_epochs": epochs}, sort_keys=True)
    return pd.DataFrame(
        make_row(
            name,
            method,
            config.alpha,
            config.eta,
            split,
            params=text,
            grid="paper",
            test_error=paper.FIGURES[name][method].mean,
        )
        for name in names
        for method in paper.METHODS
        for config in configs_of(method, "paper")
        for split in range(n_splits)
    )


def write_rows(path, rows):
    rows.reindex(columns=list(FITS.columns)).to_csv(path, index=False)
    return path


def test_the_papers_own_errors_are_within_its_deviations(tmp_path):
    path = write_rows(tmp_path / "rows.csv", grid_rows(["letter", "cmc"], 50))
    errors = paper_readings.read_errors(path, 50)
    assert list(errors.index) == ["letter", "cmc"]
    assert (paper_readings.deviations_away(errors) == 0).all(axis=None)
    assert paper_readings.read_errors(path, 25).empty  # rows of the other reading
    # Exactly one deviation away is within; a hundredth more is not.
    away = paper_readings.deviations_away(errors.add([0.27, 0.18, 0.21]))
    assert away.loc["letter"].round(6).tolist() == [1, 1, 1.05]


def test_an_incomplete_grid_is_no_reading(tmp_path):
    rows = grid_rows(["letter", "cmc"], 50)
    is_lost = (rows["dataset"] == "cmc") & (rows["alpha"] == 5.0) & (rows["eta"] == 1.0)
    path = write_rows(tmp_path / "rows.csv", rows[~is_lost])
    assert list(paper_readings.read_errors(path, 50).index) == ["letter"]


def test_both_readings_stand_side_by_side_and_far_errors_are_marked(tmp_path, capsys):
    one = write_rows(tmp_path / "25.csv", grid_rows(["letter", "cmc"], 25))
    more = grid_rows(["letter"], 50)
    other = write_rows(tmp_path / "50.csv", more.assign(test_error=more["test_error"] + 1))
    assert paper_readings.main(["--rows-25", str(one), "--rows-50", str(other)]) == 0
    text = capsys.readouterr().out
    assert "| letter | 4.56 ± 0.27 | 4.56 | *5.56* |" in text
    assert "| cmc | 45.77 ± 1.49 | 45.77 |  |" in text
    assert "50 epochs (1 of 2)" in text
    assert "| ERM within one deviation of the paper |  | 2 | 0 |" in text
    assert paper_readings.main(["--rows-25", str(tmp_path / "a"), "--rows-50", str(other)]) == 0
    assert "Not run yet: 25 epochs." in capsys.readouterr().out
    nothing = ["--rows-25", str(tmp_path / "a"), "--rows-50", str(tmp_path / "b")]
    assert paper_readings.main(nothing) == 2
    assert "Got rows without a dataset of the paper" in capsys.readouterr().err


def test_the_page_has_the_readings_of_the_committed_rows():
    page = (ROOT / "docs" / "benchmarks" / "paper_tables.md").read_text()
    files = paper_readings.FILES
    readings = {epochs: paper_readings.read_errors(path, epochs) for epochs, path in files.items()}
    assert block_of(page, "readings") == paper_readings.describe(readings)


def test_fits_and_studies_of_one_folder_share_a_report(tmp_path):
    rows = make_rows(("iris",), ("erm", "mixup", "mixupe"))
    text = make_report(rows, tmp_path, tuned=make_tuned_rows(("iris",))).markdown.read_text()
    assert text.index("## Test error") < text.index("## Tuned by Optuna")
