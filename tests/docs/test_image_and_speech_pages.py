"""The pages on pictures, speech, recipes and processes say what the package does."""

import inspect
import pathlib
import shutil

import pytest

import mixupe_sklearn
from benchmarks import ablation, deformations
from benchmarks import images as images_benchmark
from benchmarks import speech as speech_benchmark
from benchmarks._signals import report
from benchmarks._signals.rows import SIGNALS
from benchmarks._signals.sections import sections_of
from benchmarks._signals.tables import methods_sheet
from benchmarks._tabular.rows import read_rows
from mixupe_sklearn import modules
from mixupe_sklearn.datasets import graphs, images, speech

DOCS = pathlib.Path(mixupe_sklearn.__file__).parents[1] / "docs"
RESULTS = DOCS.parent / "benchmarks" / "results"
# Who writes tables into a page: the page, the folder of its rows, and the file of its report.
WRITERS = {
    "images": (images_benchmark, "images", "report.md"),
    "deformations": (deformations, "images", "deformations.md"),
    "ablation": (ablation, "images", "ablation.md"),
    "speech": (speech_benchmark, "speech", "report.md"),
}


def own_names(place, module):
    """Functions and classes that a module of the package makes, but for private ones."""
    return [
        f"{place}.{name}"
        for name, value in vars(module).items()
        if inspect.isfunction(value) or inspect.isclass(value)
        if value.__module__ == module.__name__ and not name.startswith("_")
    ]


NAMES = [
    *("MixupEImageClassifier", "MixupESpeechClassifier", "Spectrogram", "MixupEGraphClassifier"),
    *(f"modules.{name}" for name in modules.__all__ if name != "NAMED"),
    *("callbacks.PolyakAverage", "callbacks.WarmupCosine"),
    *("recipes.recipe", "recipes.Recipe", "recipes.recipes_table"),
    *own_names("datasets.images", images),
    *own_names("datasets.speech", speech),
    *own_names("datasets.graphs", graphs),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_in_the_list_of_all(name):
    assert f"   {name}\n" in (DOCS / "api.md").read_text()


@pytest.mark.parametrize("name", WRITERS)
def test_tables_of_pages_and_reports_are_those_of_the_rows(name, tmp_path, monkeypatch, capsys):
    command, folder, file = WRITERS[name]
    page = f"{folder}.md"
    shutil.copytree(RESULTS / folder, tmp_path / "results")
    shutil.copy(DOCS / page, tmp_path / page)
    monkeypatch.setattr(report, "PAGES", tmp_path)
    arguments = ["--report-only", "--docs", "--output", str(tmp_path / "results")]
    assert command.main(arguments) == 0
    assert "Report:" in capsys.readouterr().out
    assert (tmp_path / page).read_text() == (DOCS / page).read_text()
    assert (tmp_path / "results" / file).read_text() == (RESULTS / folder / file).read_text()


@pytest.mark.parametrize("folder", ["images", "speech"])
def test_each_network_has_a_lowest_error_that_is_marked(folder):
    (section,) = sections_of(read_rows(RESULTS / folder / "rows.csv", SIGNALS))
    rows = methods_sheet(section).rows
    assert {row[0].text for row in rows if row[5].is_best} == set(section.networks)
