"""What the site is made from: examples of one form, inventories, and the front page's numbers."""

import importlib.util
import pathlib
import re
import zlib

import pytest

from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS
from benchmarks._tabular.report.results import choose, error_table
from benchmarks._tabular.report.statistics import compare_ranks

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("*.py"))
LABELS = {
    "RealMLP": "realmlp",
    "CatBoost": "catboost",
    "`MLPClassifier`": "mlp-sklearn-default",
    "logistic regression": "logistic",
    "random forest": "random-forest",
    "LightGBM": "lightgbm",
    "histogram boosting": "hist-gradient-boosting",
    "XGBoost": "xgboost",
    "**`MixupEClassifier()`**": "mixupe-default",
}


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


def test_the_ranks_of_the_front_page_are_those_of_the_committed_rows():
    rows = read_rows(ROOT / "benchmarks" / "results" / "baselines" / "rows.csv", FITS)
    ranks = compare_ranks(error_table(choose(rows)).drop(columns="mixupe-paper")).ranks
    assert set(ranks.index) == set(LABELS.values())
    index = (DOCS / "index.md").read_text()
    shown = re.findall(r"^\| (.+?) \| (.+?) \|$", index, flags=re.MULTILINE)
    expected = sorted((f"{ranks[name]:.2f}", label) for label, name in LABELS.items())
    assert [(value.strip("*"), label) for label, value in shown[1:]] == expected
    assert f"on {len(error_table(choose(rows)))} tables" in shown[0][0]


def test_every_page_is_in_a_list_of_the_front_page():
    index = (DOCS / "index.md").read_text()
    listed = set(index.split("{toctree}", 1)[1].split())
    pages = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    assert pages <= listed
    # Sphinx writes pages of its own to these addresses, over ours.
    assert not pages & {"search", "genindex", "modindex"}
