"""The paper's figures on images: trainings are resumed, and drawn from their rows; the page shows them."""

import pathlib
import re

import pytest

from benchmarks._harness.docs_tables import block_of
from benchmarks.studies import paper_figures as figures
from mixupe_sklearn.diagnostics import directional_derivatives

pytest.importorskip("matplotlib").use("agg")
PAGE = pathlib.Path(figures.__file__).parents[2] / "docs" / "user_guide" / "diagnostics.md"
SMALL = "preactresnet18(width=4, blocks=(1, 1))"


def test_missing_trainings_are_run_and_drawn(tmp_path, capsys, one_thread):
    path = tmp_path / "rows.csv"
    command = ["--rows", "60", "--epochs", "2", "--networks", SMALL, "small-wideresnet"]
    command += ["--output", str(path), "--plots", str(tmp_path)]
    assert figures.main(command) == 0
    printed = capsys.readouterr().out
    assert "4 of 4: small-wideresnet, Mixup" in printed
    rows = figures.read_curves(path)
    assert len(rows) == 4 * 2
    assert (tmp_path / "figure-losses.png").stat().st_size > 5_000
    assert figures.table(rows) in printed
    # An incomplete training is run again; the others are not.
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    assert figures.main(command) == 0
    printed = capsys.readouterr().out
    assert "3 of 4" not in printed
    assert "4 of 4" in printed
    again = figures.read_curves(path)
    assert again["train_loss"].tolist() == rows["train_loss"].tolist()


def test_figures_are_drawn_from_the_rows_of_their_method(tmp_path, one_thread):
    path = tmp_path / "rows.csv"
    command = ["--rows", "40", "--epochs", "2", "--networks", SMALL, "--output", str(path)]
    assert figures.main([*command, "--plots", str(tmp_path)]) == 0
    rows = figures.read_curves(path)
    found = figures.curves(rows, network=rows["network"][0], method="Mixup")
    assert [row["epoch"] for row in found] == [1, 2]
    assert {row["method"] for row in found} == {"Mixup"}
    plain = figures.curves(rows, network=rows["network"][0], method="ERM")
    assert {row["penalty_share"] for row in plain} == {0.0}


def test_missing_files_are_errors(tmp_path, capsys):
    assert figures.main(["--report-only", "--output", str(tmp_path / "none.csv")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert figures.main(["--data", str(tmp_path / "none.npz")]) == 2
    assert "but expected a readable .npz file" in capsys.readouterr().err


def test_the_page_has_the_table_of_the_committed_rows():
    rows = figures.read_curves(figures.RESULTS)
    assert figures.table(rows) in block_of(PAGE.read_text(), "figures")


def test_the_terms_on_the_page_are_those_of_its_example(one_thread):
    text = PAGE.read_text()
    (block, *_) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace = {}
    exec(compile(block, "diagnostics.md", "exec"), namespace)
    parts = namespace["parts"]
    shown = [f"{value:.3f}" for value in parts.terms]
    words = f"the terms are {', '.join(shown[:3])} and {shown[3]}, of a difference of "
    assert f"{words}{parts.mixup_loss - parts.standard_loss:.3f}" in " ".join(text.split())
    model, X, y = (namespace[name] for name in ("model", "X", "y"))
    full = directional_derivatives(model, X, y, order=6)
    assert abs(full.remainders[-1]) > 0.1
    near = directional_derivatives(model, X, y, order=6, reach=0.25)
    assert abs(near.remainders[-1]) < 1e-5
