"""The README: its length, its badges, its figure, and numbers that equal the committed results."""

import importlib.util
import pathlib
import re
import tomllib

import pandas as pd
import pytest
from PIL import Image

import mixupe_sklearn
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS
from benchmarks._tabular.report.results import choose, error_table, win_tie_loss
from benchmarks._tabular.report.statistics import compare_ranks

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text()
WHEN_TO_USE = (ROOT / "docs" / "getting_started" / "when_to_use.md").read_text()


@pytest.fixture(scope="module")
def script():
    """The script that draws the figure; it knows where the results are and what methods are called."""
    spec = importlib.util.spec_from_file_location("script", ROOT / "docs" / "make_rank_figure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(script):
    """Rank, error, log loss and time of each method with default settings."""
    errors = script.read_errors()
    chosen = choose(read_rows(script.ROWS, FITS))
    by_method = chosen.groupby("method")
    columns = {
        "rank": compare_ranks(errors).ranks,
        "error": errors.mean(),
        "log_loss": by_method["test_log_loss"].mean(),
        "seconds": by_method["fit_seconds"].median(),
    }
    return pd.DataFrame(columns).dropna().sort_values("rank")


def test_readme_is_short_and_names_the_two_commands():
    assert len(README.splitlines()) <= 150
    assert "make benchmark" in README
    assert "make test" in README


def test_badges_are_true_and_images_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"!\[(.*?)\]\(https://img.shields.io/badge/(.*?)\)", README)
    assert [name for name, _ in badges] == [
        f"Python {project['requires-python'].removeprefix('>=')} or later",
        f"Licence {project['license']}",
        "Status: alpha",
    ]
    assert "Development Status :: 3 - Alpha" in project["classifiers"]
    shown = [badge.replace("--", "-") for _, badge in badges]
    licence = f"licence-{project['license']}-blue"
    assert shown == ["python-3.11+-blue", licence, "status-alpha-orange"]
    images = re.findall(r"!\[.*?\]\((docs/.*?)\)", README)
    assert len(images) == 2
    assert all((ROOT / path).is_file() for path in images)


def test_the_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    quickstart = (ROOT / "docs" / "getting_started" / "quickstart.md").read_text()
    table = quickstart.split("| extra | adds |")[1].split("\n\n")[0]
    first_cells = " ".join(line.split("|")[1] for line in table.splitlines()[2:])
    assert set(re.findall(r"`(\w+)`", first_cells)) == set(project["optional-dependencies"])


def test_the_table_of_results_equals_the_committed_rows(results, script):
    table = README.split("| method | mean rank")[1].split("\n\n")[0]
    shown = [[cell.strip(" *`()") for cell in x.split("|")[1:-1]] for x in table.splitlines()[2:]]
    assert shown == [
        [
            script.LABELS[row.Index].removesuffix("()"),
            f"{row.rank:.2f}",
            f"{row.error:.2f}",
            f"{row.log_loss:.3f}",
            f"{row.seconds:.1f}",
        ]
        for row in results.itertuples()
    ]


def test_the_figure_shows_the_committed_ranks(results, script):
    with Image.open(script.FIGURE) as image:
        assert image.info["Description"] == script.describe(results["rank"])


def test_claims_about_the_results_hold(results, script):
    ours, realmlp = results.loc["mixupe-default"], results.loc["realmlp"]
    assert results["log_loss"].idxmin() == "mixupe-default"
    assert round(ours["seconds"] / realmlp["seconds"], 1) == 0.2  # "about a fifth"
    wins, ties, losses = win_tie_loss(script.read_errors(), "mixupe-default", "realmlp")
    assert ties == 0
    for page in (README, WHEN_TO_USE):
        assert f"{wins} wins and {losses} losses" in page
    log_loss = results["log_loss"].map("{:.3f}".format)
    assert f"mean log loss is {log_loss['mixupe-default']}" in WHEN_TO_USE
    assert f"with {log_loss['catboost']}, RealMLP with {log_loss['realmlp']}" in WHEN_TO_USE


def test_the_ablation_equals_the_committed_rows():
    rows = pd.read_csv(RESULTS / "tables" / "test.csv")
    means = rows.groupby("candidate")[["test_error", "test_log_loss"]].mean()
    error, log_loss = (
        [f"{means.loc[name, column]:{form}}" for name in ("without mixing and penalty", "default")]
        for column, form in (("test_error", ".2f"), ("test_log_loss", ".4f"))
    )
    prose = " ".join(README.split())
    assert f"the mean error in the ablation is {error[0]} % instead of {error[1]} %" in prose
    assert f"the log loss is {log_loss[0]} instead of {log_loss[1]}" in prose


def test_the_p_value_of_the_papers_protocol_is_that_of_the_committed_rows():
    errors = error_table(choose(read_rows(RESULTS / "tabular" / "rows.csv", FITS)))
    test = compare_ranks(errors[["erm", "mixup", "mixupe"]])
    for page in (README, WHEN_TO_USE):
        assert f"(p = {test.p_value:.2f})" in page
    assert f"on {test.n_sets} of its 15 datasets" in README
