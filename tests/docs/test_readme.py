"""The README: its length, its badges, its figure, and numbers that equal the committed results."""

import importlib.util
import pathlib
import re
import tomllib

import pytest
from PIL import Image

import mixupe_sklearn
from benchmarks import fit_times
from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS
from benchmarks._tabular.report.results import choose, error_table
from benchmarks._tabular.report.statistics import compare_ranks
from benchmarks.default_settings import page_summary, summary_table

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text()
WHEN_TO_USE = (ROOT / "docs" / "getting_started" / "when_to_use.md").read_text()


@pytest.fixture(scope="module")
def script():
    """The script that draws the figure."""
    spec = importlib.util.spec_from_file_location("script", ROOT / "docs" / "make_rank_figure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results():
    """Ranks and time of each method with default settings."""
    return page_summary()


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


def test_the_table_of_results_equals_the_committed_rows(results):
    assert block_of(README, "results") == summary_table(results)


def test_the_figure_shows_the_committed_ranks(results, script):
    with Image.open(script.FIGURE) as image:
        assert image.info["Description"] == script.describe(results)


def test_claims_about_the_results_hold(results):
    ranks = results[["error", "log_loss", "rmse"]]
    assert (ranks.idxmin() == "default").all()  # "first by all three"
    n_sets = results.attrs["n_sets"]
    assert (n_sets["error"], n_sets["rmse"]) == (33, 13)
    for page in (README, WHEN_TO_USE):
        assert "first by all three" in page
    times = read_rows(fit_times.FILE, fit_times.SCHEMA)
    realmlp, boosting = (fit_times.ratios(times, pair).median() for pair in fit_times.PAIRS[:2])
    assert 0.18 < realmlp < 0.22
    assert "about a fifth of RealMLP's time" in " ".join(README.split())
    assert f"about a fifth of RealMLP's time and {boosting:.0f} times" in WHEN_TO_USE


def test_the_p_value_of_the_papers_protocol_is_that_of_the_committed_rows():
    errors = error_table(choose(read_rows(RESULTS / "tabular" / "rows.csv", FITS)))
    test = compare_ranks(errors[["erm", "mixup", "mixupe"]])
    for page in (README, WHEN_TO_USE):
        assert f"(p = {test.p_value:.2f})" in page
    assert f"on {test.n_sets} of its 15 datasets" in README
