"""The user guide: sizes of networks, names of recipes, and the figures that a script draws."""

import importlib.util
import pathlib

import pytest
import torch
from PIL import Image

import mixupe_sklearn
from mixupe_sklearn import modules
from mixupe_sklearn.recipes import RECIPES

DOCS = pathlib.Path(mixupe_sklearn.__file__).parents[1] / "docs"
GUIDE, STATIC = DOCS / "user_guide", DOCS / "_static"
# Channels, size and classes for which the page gives the number of parameters.
SPECTROGRAMS, LARGE, SMALL = (1, (160, 101), 30), (3, (224, 224), 1000), (3, (32, 32), 10)
SIZES = dict.fromkeys(("lenet", "vgg11", "vgg13"), SPECTROGRAMS)
SIZES |= dict.fromkeys(("resnet50", "vit-b16", "coatnet0"), LARGE)


@pytest.fixture(scope="module")
def script():
    """The script that draws the figures, as a module."""
    spec = importlib.util.spec_from_file_location("make_figures", DOCS / "make_figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", modules.NAMED)
def test_a_network_has_the_number_of_parameters_of_the_page(name):
    n_channels, image_size, n_outputs = SIZES.get(name, SMALL)
    with torch.device("meta"):
        module = modules.NAMED[name](n_outputs, n_channels=n_channels, image_size=image_size)
    n_parameters = sum(weight.numel() for weight in module.parameters())
    table = (GUIDE / "images.md").read_text().split("## Networks")[1].split("\n\n")[1]
    (row,) = (line for line in table.splitlines() if f'`"{name}"`' in line)
    names, counts = ([part.strip() for part in cell.split(",")] for cell in row.split("|")[1:3])
    assert counts[names.index(f'`"{name}"`')] == f"{n_parameters / 1e6:.2f} M"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_stands_on_the_page_with_its_alpha_and_eta(name):
    lines = (GUIDE / "recipes.md").read_text().splitlines()
    (row,) = (line for line in lines if line.startswith("| `") and f"`{name}`" in line)
    alpha, eta = (float(cell) for cell in row.split("|")[3:5])
    assert (alpha, eta) == (RECIPES[name].alpha, RECIPES[name].eta)


@pytest.mark.parametrize(
    ("name", "page"), [("mixed-images.png", "images"), ("spectrograms.png", "speech")]
)
def test_a_figure_of_a_page_is_the_one_that_the_script_draws(script, name, page):
    figure = script.FIGURES[name]()
    with Image.open(STATIC / name) as saved:
        assert saved.size == tuple(round(side * script.DPI) for side in figure.get_size_inches())
    assert (STATIC / name).stat().st_size < 250_000
    assert f"_static/{name}" in (GUIDE / f"{page}.md").read_text()


def test_every_figure_of_the_script_is_saved(script):
    assert set(script.FIGURES) <= {path.name for path in STATIC.glob("*.png")}


def test_mixed_photographs_have_the_shares_of_their_bars(script):
    first, second = script.photographs()
    mixed = script.mix(torch.stack([first, second]), 0.25, script.PAIR)[0]
    torch.testing.assert_close(mixed, 0.25 * first + 0.75 * second)
    shown = [text.get_text() for axes in script.mixed_images().axes for text in axes.texts]
    assert shown.count("0.25") == 2
    assert "china 0.75" in shown
    assert "flower 1" in shown
