"""The README: its length, its badges, and figures that equal the committed rows."""

import pathlib
import re
import tomllib

import pytest

import mixupe_sklearn
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS
from benchmarks._tabular.report.results import choose, count_at_or_below, error_table
from benchmarks._tabular.report.statistics import compare_ranks

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]


def test_readme_is_short_and_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    assert "make benchmark" in readme
    assert "make test" in readme


def test_the_badges_of_the_readme_are_true():
    readme = (ROOT / "README.md").read_text()
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"!\[(.*?)\]\(https://img.shields.io/badge/(.*?)\)", readme)
    assert [name for name, _ in badges] == [
        f"Python {told['requires-python'].removeprefix('>=')} or later",
        f"Licence {told['license']}",
        "Status: alpha",
    ]
    assert "Development Status :: 3 - Alpha" in told["classifiers"]
    shown = [badge.replace("--", "-") for _, badge in badges]
    assert shown == ["python-3.11+-blue", f"licence-{told['license']}-blue", "status-alpha-orange"]
    images = re.findall(r"!\[.*?\]\((docs/.*?)\)", readme)
    assert images
    assert all((ROOT / path).is_file() for path in images)


@pytest.fixture(scope="module")
def committed_rows():
    return read_rows(ROOT / "benchmarks" / "results" / "tabular" / "rows.csv", FITS)


def test_the_table_of_the_readme_is_that_of_the_committed_rows(committed_rows):
    readme = (ROOT / "README.md").read_text()
    chosen = choose(committed_rows)
    assert chosen["dataset"].nunique() == 14
    for dataset, part in chosen.groupby("dataset"):
        row = part.set_index("method").loc[["erm", "mixup", "mixupe"]]
        lowest = row["test_error"].round(2).min()
        cells = [
            f"{f'**{mean:.2f}**' if round(mean, 2) == lowest else f'{mean:.2f}'} ± {deviation:.2f}"
            for mean, deviation in zip(row["test_error"], row["test_error_std"], strict=True)
        ]
        assert f"| {dataset} | {' | '.join(cells)} |" in readme
    for other, label in (("mixup", "Mixup"), ("erm", "ERM")):
        count, n_sets = count_at_or_below(error_table(chosen), "mixupe", other)
        assert f"at or below {label} on {count} of {n_sets}" in readme


def test_the_ranks_of_the_readme_are_those_of_the_committed_rows():
    readme = (ROOT / "README.md").read_text()
    errors = error_table(
        choose(read_rows(ROOT / "benchmarks" / "results" / "baselines" / "rows.csv", FITS))
    )
    ranks = compare_ranks(errors.drop(columns="mixupe-paper")).ranks
    assert f"`MixupEClassifier()` is {ranks['mixupe-default']:.2f} of nine" in readme
    assert f"RealMLP's {ranks['realmlp']:.2f} (" in readme
    for label, name in (("CatBoost", "catboost"), ("XGBoost", "xgboost")):
        assert f"{label} {ranks[name]:.2f}" in readme
    means = errors.mean()
    assert f"mean error is {means['mixupe-default']:.2f} %" in readme
    assert f"earlier defaults {means['mixupe-paper']:.2f} %" in readme
