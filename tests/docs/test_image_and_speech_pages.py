"""The pages on pictures, speech, recipes and processes say what the package does."""

import contextlib
import importlib.util
import inspect
import io
import pathlib
import re
import shutil

import pytest
import torch
from PIL import Image

import mixupe_sklearn
from benchmarks import ablation, deformations
from benchmarks import images as images_benchmark
from benchmarks import speech as speech_benchmark
from benchmarks._signals import report
from benchmarks._signals.rows import SIGNALS
from benchmarks._signals.sections import sections_of
from benchmarks._signals.tables import methods_sheet
from benchmarks._tabular.rows import read_rows
from mixupe_sklearn import modules, recipes
from mixupe_sklearn.datasets import graphs, images, speech

DOCS = pathlib.Path(mixupe_sklearn.__file__).parents[1] / "docs"
STATIC = DOCS / "_static"
RESULTS = DOCS.parent / "benchmarks" / "results"
# Who writes tables into a page: the page, the folder of its rows, and the file of its report.
WRITERS = {
    "images": (images_benchmark, "images", "report.md"),
    "deformations": (deformations, "images", "deformations.md"),
    "ablation": (ablation, "images", "ablation.md"),
    "speech": (speech_benchmark, "speech", "report.md"),
}
# A block that is run, and what it prints where the page shows that.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


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
# Channels, size and classes that a network's count of parameters on the page is for.
SPECTROGRAMS, LARGE, SMALL = (1, (160, 101), 30), (3, (224, 224), 1000), (3, (32, 32), 10)
MADE_FOR = dict.fromkeys(("lenet", "vgg11", "vgg13"), SPECTROGRAMS)
MADE_FOR |= dict.fromkeys(("resnet50", "vit-b16", "coatnet0"), LARGE)


def between(text, start, end="<!-- end -->"):
    return text.split(start)[1].split(end)[0].strip()


@pytest.fixture(scope="module")
def pictures():
    """The script that makes the pictures, as a module."""
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("page", "n_blocks"), [("images", 6), ("speech", 4), ("recipes", 3), ("graphs", 4)]
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page, n_blocks):
    found = BLOCK.findall((DOCS / f"{page}.md").read_text())
    assert len(found) >= n_blocks
    namespace = {"__name__": page}
    scores = []
    for code, shown in found:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, f"{page}.md", "exec"), namespace)
        if shown:
            assert printed.getvalue() == shown
        scores += re.findall(r"^[01]\.\d+$", printed.getvalue(), re.MULTILINE)
    assert all(float(score) > 0.8 for score in scores)
    assert len(scores) == {"recipes": 0, "graphs": 2}.get(page, 1)


def test_the_table_of_recipes_is_that_of_the_package():
    assert between((DOCS / "recipes.md").read_text(), "<!-- recipes -->") == recipes.recipes_table()


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_in_the_list_of_all(name):
    assert f"   {name}\n" in (DOCS / "api.md").read_text()


@pytest.mark.parametrize("page", ["images", "speech", "recipes", "processes", "graphs"])
def test_a_page_is_found_from_the_first_one(page):
    index = (DOCS / "index.md").read_text()
    assert f"]({page}.md)" in index
    assert f"\n{page}\n" in index.split("{toctree}", 1)[1]


@pytest.mark.parametrize("name", modules.NAMED)
def test_a_network_is_as_large_as_the_pages_say(name):
    n_channels, image_size, n_outputs = MADE_FOR.get(name, SMALL)
    with torch.device("meta"):
        module = modules.NAMED[name](n_outputs, n_channels=n_channels, image_size=image_size)
    n_parameters = sum(weight.numel() for weight in module.parameters())
    rows = between((DOCS / "images.md").read_text(), "## Networks", "A module of your own")
    (row,) = (line for line in rows.splitlines() if f'`"{name}"`' in line)
    names, counts = (cell.split(",") for cell in row.split("|")[1:3])
    assert counts[[own.strip() for own in names].index(f'`"{name}"`')].strip() == (
        f"{n_parameters / 1e6:.2f} M"
    )


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


@pytest.mark.parametrize("name", ["mixed-images.png", "spectrograms.png"])
def test_a_picture_of_the_pages_is_what_the_script_makes(pictures, name):
    figure = pictures.IMAGES[name]()
    with Image.open(STATIC / name) as kept:
        assert kept.size == tuple(round(side * pictures.DPI) for side in figure.get_size_inches())
    assert (STATIC / name).stat().st_size < 250_000
    page = "images" if name.startswith("mixed") else "speech"
    assert f"_static/{name}" in (DOCS / f"{page}.md").read_text()


def test_the_script_makes_each_of_its_pictures_and_they_are_all_there_are(pictures):
    # Those of the paper's figures are made by benchmarks.figures.
    others = {path.name for path in STATIC.glob("figure-*.png")}
    assert set(pictures.IMAGES) == {path.name for path in STATIC.glob("*.png")} - others


def test_mixed_photographs_have_the_shares_that_stand_below_them(pictures):
    first, second = pictures.photographs()
    half = pictures.mix(torch.stack([first, second]), 0.25, pictures.PAIR)[0]
    torch.testing.assert_close(half, 0.25 * first + 0.75 * second)
    shown = [text.get_text() for axes in pictures.mixed_images().axes for text in axes.texts]
    assert shown.count("0.25") == 2
    assert "china 0.75" in shown
    assert "flower 1" in shown
