"""What the site is built from: examples of one form, inventories, and pages that are all listed."""

import importlib.util
import inspect
import pathlib
import re
import zlib

import pytest

from mixupe_sklearn import modules
from mixupe_sklearn.datasets import graphs, images, speech

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))


def entries(inventory):
    """The lines of an inventory; how they are compressed depends on the library at hand."""
    *head, body = inventory.split(b"\n", 4)
    return head, zlib.decompress(body).decode().splitlines()


def test_inventories_are_those_of_the_script():
    spec = importlib.util.spec_from_file_location("inventories", DOCS / "make_inventories.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    files = {path.stem: path.read_bytes() for path in (DOCS / "inventories").glob("*.inv")}
    assert set(files) == set(script.NAMES)
    for project, content in files.items():
        assert entries(content) == entries(script.inventory(project))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_the_form_of_all(path):
    assert re.fullmatch(r"plot_\d{4}_[a-z_]+", path.stem)
    text = path.read_text()
    title, line = text.splitlines()[1:3]
    assert line == "=" * len(title)
    assert "?" in text.split('"""')[1], "it begins with a question"
    assert "# What to take from it\n# --------------------\n" in text
    assert text.rstrip().splitlines()[-1].startswith("# "), "it ends in prose"
    assert "random_state" in text or "seed" in text


def test_numbers_of_examples_are_not_used_twice():
    numbers = [path.stem.split("_")[1] for path in EXAMPLES]
    assert len(numbers) == len(set(numbers)) >= 9


def test_every_page_is_in_a_list_of_the_front_page():
    index = (DOCS / "index.md").read_text()
    listed = set(index.split("{toctree}", 1)[1].split())
    files = [
        path for path in DOCS.rglob("*.md") if not {"_build", "gallery", "api"} & set(path.parts)
    ]
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in files} - {"index"}
    assert pages <= listed
    # Sphinx writes pages of its own to these addresses, over ours.
    assert not pages & {"search", "genindex", "modindex"}


FILES = sorted(path for path in DOCS.rglob("*.md") if not {"_build", "gallery"} & set(path.parts))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_links_between_pages_and_to_results_lead_to_files(path):
    links = re.findall(
        r"\]\((?:path:)?([^)#:\s]+\.(?:md|json|csv|png|svg))(?:#[^)]*)?\)", path.read_text()
    )
    kept = [link for link in links if "gallery/" not in link]  # built with the site
    missing = [link for link in kept if not (path.parent / link).exists()]
    assert not missing


def test_the_folders_of_the_contributing_page_are_those_of_the_package():
    page = (DOCS / "development" / "contributing.md").read_text()
    tree = page.split("mixupe_sklearn/\n")[1].split("benchmarks/\n")[0]
    package = ROOT / "mixupe_sklearn"
    assert set(re.findall(r"(\w+)/", tree)) == {path.parent.name for path in package.glob("*/*.py")}
    public = {path.name for path in package.glob("*.py")} - {"__init__.py"}
    assert set(re.findall(r"\w+\.py", tree)) == public


def own_names(place, module):
    """Functions and classes that a module of the package defines, but for private ones."""
    return [
        f"{place}.{name}"
        for name, value in vars(module).items()
        if inspect.isfunction(value) or inspect.isclass(value)
        if value.__module__ == module.__name__ and not name.startswith("_")
    ]


NAMES = [
    *(f"modules.{name}" for name in modules.__all__ if name != "NAMED"),
    *("callbacks.PolyakAverage", "callbacks.WarmupCosine"),
    *("recipes.recipe", "recipes.Recipe", "recipes.recipes_table"),
    *own_names("datasets.images", images),
    *own_names("datasets.speech", speech),
    *own_names("datasets.graphs", graphs),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_of_a_submodule_is_on_the_api_page(name):
    assert f"   {name}\n" in (DOCS / "api.md").read_text()
