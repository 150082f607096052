"""The guide's pages run as they stand, print what they show, and quote figures that are there."""

import contextlib
import importlib
import io
import os
import pathlib
import re

import pandas as pd
import pytest
import sklearn

import mixupe_sklearn
from mixupe_sklearn.recipes import RECIPES

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
DOCS = ROOT / "docs"
# A block that is run, and what it prints where the page shows that.
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of MLPClassifier
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(
    ("page", "n_blocks"),
    [("quickstart", 7), ("choosing", 3), ("migrating", 7), ("faq", 24), ("saving", 8)],
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(
    page, n_blocks, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    found = BLOCK.findall((DOCS / f"{page}.md").read_text())
    assert len(found) >= n_blocks
    namespace = {"__name__": page}
    with sklearn.config_context():
        for code, shown in found:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, f"{page}.md", "exec"), namespace)
            if os.environ.get("SHOW"):
                print(printed.getvalue())
            if shown:
                assert printed.getvalue() == shown


@pytest.fixture(scope="module")
def grid():
    """Mean scores of each method, alpha and eta on each table of the paper's protocol."""
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / "tabular" / "rows.csv")
    scores = ["valid_error", "valid_log_loss", "test_ece"]
    return rows.groupby(["method", "alpha", "eta", "dataset"], dropna=False)[scores].mean()


def table_of(page, name):
    """Rows of a table between two comments, without its head, as lists of cells."""
    part = (
        (DOCS / page).read_text().split(f"<!-- {name} -->")[1].split(f"<!-- end of {name} -->")[0]
    )
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in part.strip().split("\n")[2:]
    ]


def test_what_alpha_does_is_what_the_committed_rows_say(grid):
    plain = grid.groupby(["method", "alpha"], dropna=False).mean()
    means = {"none (ERM)": plain.loc["erm"].iloc[0]}
    means |= {f"{alpha:g}": row for alpha, row in plain.loc["mixup"].iterrows()}
    assert table_of("choosing.md", "alpha") == [
        [name, f"{row.valid_error:.2f}", f"{row.valid_log_loss:.3f}", f"{row.test_ece:.3f}"]
        for name, row in means.items()
    ]


def test_what_eta_does_is_what_the_committed_rows_say(grid):
    errors = grid["valid_error"]
    mixup = errors.loc["mixup"].droplevel("eta")
    change = errors.loc["mixupe"].unstack("eta").sub(mixup, axis=0).groupby("alpha").mean()
    assert table_of("choosing.md", "eta") == [
        [f"{alpha:g}", *(f"{value:+.2f}" for value in row)] for alpha, row in change.iterrows()
    ]
    assert change.loc[:1, :0.1].abs().to_numpy().max() < 0.08
    best = mixup.unstack("dataset").idxmin()
    counts = [best.between(*ends).sum() for ends in ((0, 0.02), (0.03, 0.1), (0.2, 0.5), (1, 5))]
    assert counts == [4, 5, 2, 3]


COMMANDS = re.findall(
    r"^python -m benchmarks\.(\w+)(.*)$", (DOCS / "reproducing.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("name", "options"), COMMANDS)
def test_a_command_for_a_table_of_the_paper_is_understood_up_to_its_data(
    name, options, tmp_path, monkeypatch, capsys
):
    """Its folder is there and empty, so that all options were read when the data are missed."""
    monkeypatch.chdir(tmp_path)
    arguments = [*options.split(), "--output", "out"]
    command = importlib.import_module(f"benchmarks.{name}")
    if name == "tabular":
        assert command.main([*arguments, "--cache-dir", "cache", "--offline", "--quiet"]) == 1
        assert "forbids to fetch it" in capsys.readouterr().err
        return
    folder = tmp_path / arguments[arguments.index("--data") + 1]
    folder.mkdir()
    assert command.main(arguments) == 2
    assert re.match(r"Error: Got (no '|folder=|--sets )", capsys.readouterr().err)


def test_no_table_or_figure_of_the_paper_is_missing():
    page = (DOCS / "reproducing.md").read_text()
    shown = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    wanted = ["Figure 1", "Figure 2", *(f"Table {number}" for number in range(1, 9))]
    assert [name for name in shown if name in wanted] == wanted
    tables = {recipe.source.split(",")[0][:7] for recipe in RECIPES.values()}
    assert tables == {"Table 1", "Table 2", "Table 3", "Table 5", "Table 8"}
