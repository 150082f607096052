"""The commands behind the page on diagnostics: figures, the monitor's cost, the second order."""

import pathlib
import re

import pytest

from benchmarks import _paired, figures, monitor, second_order
from benchmarks._candidates import page
from benchmarks._speed.store import read
from mixupe_sklearn.diagnostics import directional_derivatives

pytest.importorskip("matplotlib").use("agg")
DOCS = pathlib.Path(figures.__file__).parents[1] / "docs"
SMALL = "preactresnet18(width=4, blocks=(1, 1))"


def test_figures_go_on_where_they_were_and_draw_what_the_rows_say(tmp_path, capsys, one_thread):
    path = tmp_path / "rows.csv"
    command = ["--rows", "60", "--epochs", "2", "--networks", SMALL, "small-wideresnet"]
    command += ["--output", str(path), "--pictures", str(tmp_path)]
    assert figures.main(command) == 0
    printed = capsys.readouterr().out
    assert "4 of 4: small-wideresnet, Mixup" in printed
    rows = figures.read_rows(path)
    assert len(rows) == 4 * 2
    assert (tmp_path / "figure-losses.png").stat().st_size > 5_000
    assert figures.table(rows) in printed
    # A training that is not there whole is made again; the others are not.
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    assert figures.main(command) == 0
    printed = capsys.readouterr().out
    assert "3 of 4" not in printed
    assert "4 of 4" in printed
    again = figures.read_rows(path)
    assert again["train_loss"].tolist() == rows["train_loss"].tolist()


def test_figures_are_drawn_from_the_rows_of_their_method(tmp_path, one_thread):
    path = tmp_path / "rows.csv"
    command = ["--rows", "40", "--epochs", "2", "--networks", SMALL, "--output", str(path)]
    assert figures.main([*command, "--pictures", str(tmp_path)]) == 0
    rows = figures.read_rows(path)
    found = figures.curves(rows, network=rows["network"][0], method="Mixup")
    assert [row["epoch"] for row in found] == [1, 2]
    assert {row["method"] for row in found} == {"Mixup"}
    plain = figures.curves(rows, network=rows["network"][0], method="ERM")
    assert {row["penalty_share"] for row in plain} == {0.0}


def test_missing_rows_get_one_sentence(tmp_path, capsys):
    assert figures.main(["--report-only", "--output", str(tmp_path / "none.csv")]) == 2
    assert "which is not there, but expected a file with rows." in capsys.readouterr().err
    assert figures.main(["--data", str(tmp_path / "none.npz")]) == 2
    assert "but expected a readable .npz file" in capsys.readouterr().err


def test_the_monitor_is_timed_in_turns(tmp_path, capsys):
    path = tmp_path / "monitor.json"
    assert monitor.main(["--quick", "--json", str(path)]) == 0
    (part,) = read(path)["parts"].values()
    assert {len(times) for times in part["seconds"].values()} == {2}
    assert part["looks"] >= 1
    assert "| iris | 5 | 2 | 2 |" in capsys.readouterr().out
    assert monitor.main(["--report-only", "--json", str(tmp_path / "none.json")]) == 2


def test_the_second_order_is_timed_and_compared(tmp_path, capsys):
    assert second_order.main(["--timing", "1", "--epochs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "first order: 1.00 (no spread)" in printed
    assert "exact first and second: " in printed
    study = second_order.STUDY
    told = {name: study.params_of("default", name) for name in study.candidates}
    assert len(set(told.values())) == len(told) - 1  # the reference, and itself with another seed
    assert '"penalty_order": 2' in told["second order"]
    command = ["--data", "iris", "--seeds", "1", "--jobs", "1"]
    assert second_order.main([*command, "--output", str(tmp_path / "rows.csv")]) == 0
    assert "| strong | iris |" in capsys.readouterr().out


def test_the_page_has_what_was_measured():
    text = (DOCS / "diagnostics.md").read_text()
    assert page.block_of(text, "monitor") == monitor.report(read(monitor.RESULTS))
    told = second_order.STUDY.describe(_paired.read_rows(second_order.STUDY.rows))
    assert told == page.block_of(text, "second order")
    assert figures.table(figures.read_rows(figures.RESULTS)) in page.block_of(text, "figures")


def test_the_terms_that_the_page_tells_are_those_of_its_example(one_thread):
    text = (DOCS / "diagnostics.md").read_text()
    (block, *_) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    namespace = {}
    exec(compile(block, "diagnostics.md", "exec"), namespace)
    parts = namespace["parts"]
    shown = [f"{value:.3f}" for value in parts.terms]
    told = f"the terms are {', '.join(shown[:3])} and {shown[3]}, of a difference of "
    assert f"{told}{parts.mixup_loss - parts.standard_loss:.3f}" in " ".join(text.split())
    model, X, y = (namespace[name] for name in ("model", "X", "y"))
    whole = directional_derivatives(model, X, y, order=6)
    assert abs(whole.remainders[-1]) > 0.1
    near = directional_derivatives(model, X, y, order=6, reach=0.25)
    assert abs(near.remainders[-1]) < 1e-5
