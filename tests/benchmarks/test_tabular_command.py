"""The command line of the tabular benchmark."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from benchmarks import tabular
from benchmarks._harness.results_file import ResultsFile, read_rows
from benchmarks._tabular.protocol import FITS
from mixupe_sklearn import MixupEClassifier, preset

ROOT = pathlib.Path(__file__).parents[2]
QUICK = ["--seeds", "2", "--epochs", "2", "--grid", "reduced", "--jobs", "1", "--quiet"]


@pytest.fixture
def csv_file(tmp_path):
    """A dataset with text, missing values, semicolons and a decimal comma."""
    rng = np.random.default_rng(0)
    size = rng.normal(10, 2, 90)
    frame = pd.DataFrame(
        {
            "size": [f"{value:.2f}".replace(".", ",") for value in size],
            "city": rng.choice(["Oslo", "Bonn", "São Paulo"], 90),
            "note": rng.choice(["a;b", 'quoted "word"', ""], 90),
            "label": np.where(size > 10, "large", "small"),
        }
    )
    frame.loc[::7, "size"] = ""
    frame.loc[3::9, "city"] = "NA"
    path = tmp_path / "my table.csv"
    frame.to_csv(path, sep=";", index=False)
    return path


def run_command(*arguments):
    return tabular.main([str(argument) for argument in arguments])


def test_a_csv_with_text_and_missing_values_gives_a_full_report(csv_file, tmp_path, capsys):
    out = tmp_path / "out"
    status = run_command("--csv", csv_file, "--target", "label", "--output", out, *QUICK)
    printed = capsys.readouterr().out
    assert status == 0
    rows = read_rows(out / "rows.csv", FITS)
    assert (rows["error"] == "").all()
    assert rows.groupby("method").size().to_dict() == {"erm": 2, "mixup": 8, "mixupe": 24}
    assert rows["dataset"].unique().tolist() == ["my table"]
    assert rows["n_features"].unique().tolist() == [3]
    assert "my table" in printed
    assert str(out / "report.html") in printed
    for name in ("report.html", "report.md", "report.tex"):
        assert "my table" in (out / name).read_text()


def test_a_csv_may_have_a_name(csv_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--csv", csv_file, "--target", "label", "--csv-name", "shoes/2024", *QUICK]
    assert run_command(*given, "--methods", "erm") == 0
    (path,) = tmp_path.rglob("rows.csv")
    assert path.parent == tmp_path / "build" / "tabular" / "csv-shoes-2024"
    assert read_rows(path, FITS)["dataset"].unique().tolist() == ["shoes/2024"]
    assert "shoes/2024" in capsys.readouterr().out


def test_methods_baselines_and_the_default_grid(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["--names", "iris", "--grid", "default", "--seeds", "2", "--epochs", "1"]
    arguments += [
        "--methods",
        "mixupe",
        "manifold-mixup",
        "--baselines",
        "logistic",
        "random-forest",
    ]
    assert run_command(*arguments, "--jobs", "1", "--quiet", "--output", out) == 0
    rows = read_rows(out / "rows.csv", FITS)
    assert (rows["error"] == "").all()
    assert set(rows["method"]) == {"mixupe", "manifold-mixup", "logistic", "random-forest"}
    assert rows[rows["method"] == "mixupe"]["eta"].unique() == [preset("paper")["eta"]]
    assert len(rows) == 8


def test_our_defaults_and_baselines_run_without_the_papers_methods(tmp_path, capsys, monkeypatch):
    few = ["--names", "iris", "--seeds", "1", "--epochs", "1", "--jobs", "1", "--quiet"]
    few += ["--output", tmp_path]
    assert run_command(*few, "--methods", "--baselines", "logistic") == 0
    assert run_command(*few, "--methods", "mixupe-default") == 0
    rows = read_rows(tmp_path / "rows.csv", FITS)
    assert rows["method"].tolist() == ["logistic", "mixupe-default"]
    assert (rows["error"] == "").all()
    # Other defaults make another fit, and the report uses the newest.
    monkeypatch.setitem(MixupEClassifier.__init__.__kwdefaults__, "max_epochs", 3)
    capsys.readouterr()
    assert run_command("--output", tmp_path, "--report-only") == 0
    assert "Note:" not in capsys.readouterr().err
    assert run_command(*few, "--methods", "mixupe-default") == 0
    assert "Note: 1 rows of" in capsys.readouterr().err
    assert len(read_rows(tmp_path / "rows.csv", FITS)) == 3
    assert r'"max\_epochs": 3,' in (tmp_path / "report.md").read_text()


def test_report_only_repeats_the_report_with_its_command(tmp_path, capsys):
    out = tmp_path / "out"
    run_command("--names", "iris", "--output", out, *QUICK)
    first = capsys.readouterr().out
    (out / "report.html").unlink()
    assert run_command("--output", out, "--report-only", "--epochs", "2") == 0
    assert capsys.readouterr().out == first
    assert (out / "report.html").exists()
    page = (out / "report.md").read_text()
    assert "--names iris" in page
    assert "--report-only" not in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--names", "irish"], "Got name='irish', but expected one of iris, wine"),
        (["--tasks", "59"], "Got --tasks, but expected it with --source openml only."),
        (["--csv", "x.csv"], "but expected both: --csv FILE --target COLUMN."),
        (["--target", "label"], "but expected both: --csv FILE --target COLUMN."),
        (["--csv", "x.csv", "--target", "y", "--names", "iris"], "Got --names"),
        (["--csv", "x.csv", "--target", "y"], "x.csv"),
        (["--source", "openml", "--csv", "x", "--target", "y"], "expected one of them"),
        (["--splits", "task"], "Got --splits task, but expected it with --source openml only."),
        (["--csv-name", "wine"], "Got --csv-name, but expected it with --csv only."),
        (["--report-only"], "but found no"),
        (["--baselines", "xgbost"], "xgbost"),
        (["--methods"], "Got --methods without names, but expected some, or --baselines."),
        (["--source", "openml", "--tasks", "59", "--offline", "--cache-dir", "."], "task_id=59"),
    ],
)
def test_invalid_options_get_a_one_line_error(arguments, sentence, tmp_path, capsys):
    assert run_command(*arguments, "--quiet", "--output", tmp_path / "out") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: ")
    assert sentence in lines[0]


@pytest.mark.parametrize("arguments", [["--jobs", "0"], ["--seeds", "x"], ["--methods", "mixip"]])
def test_the_parser_rejects_invalid_values(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        run_command(*arguments)
    assert stop.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_a_second_run_in_the_same_folder_fails(tmp_path, capsys):
    with ResultsFile(tmp_path / "rows.csv", FITS):
        assert run_command("--names", "iris", "--output", tmp_path, *QUICK) == 2
    assert "another run is writing" in capsys.readouterr().err


def test_results_of_other_protocols_are_not_mixed(tmp_path, capsys):
    """More epochs for one method, or other data of the same name, would be an unfair comparison."""
    quick = ["--names", "iris", "--output", tmp_path, "--seeds", "2", "--jobs", "1", "--quiet"]
    quick += ["--grid", "reduced"]
    run_command(*quick, "--epochs", "1", "--baselines", "mlp-sklearn")
    first = capsys.readouterr().out
    run_command(*quick, "--epochs", "4", "--methods", "mixupe", "--baselines", "mlp-sklearn")
    assert "rows of other splits, numbers of epochs or contents" in capsys.readouterr().err
    run_command("--output", tmp_path, "--report-only", "--epochs", "1")
    assert capsys.readouterr().out == first


def test_each_kind_of_data_has_its_own_folder(tmp_path, csv_file, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_command("--names", "iris", *QUICK, "--methods", "erm")
    run_command("--csv", csv_file, "--target", "label", *QUICK, "--methods", "erm")
    folders = {path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("rows.csv")}
    assert folders == {"build/tabular/embedded", "build/tabular/csv-my table"}


def test_failed_fits_are_reported_with_a_reason(tmp_path, capsys, monkeypatch):
    def fail(*_):
        raise ValueError("no luck")

    monkeypatch.setattr("benchmarks._tabular.fits.prepare", fail)
    assert run_command("--names", "iris", "--output", tmp_path, *QUICK) == 1
    assert "34 of 34 fits failed, such as: ValueError: no luck" in capsys.readouterr().out


def test_ctrl_c_outside_of_a_run_prints_one_sentence(tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tabular, "make_report", interrupt)
    assert run_command("--names", "iris", "--output", tmp_path, *QUICK) == 130
    assert capsys.readouterr().err.strip() == tabular.INTERRUPTED
    assert len(read_rows(tmp_path / "rows.csv", FITS)) == 34


@pytest.mark.parametrize("n_jobs", ["1", "2"])
def test_ctrl_c_ends_with_a_summary_and_the_run_can_be_resumed(tmp_path, n_jobs):
    """As in a terminal: the signal reaches all processes of the group."""
    out = tmp_path / "out"
    arguments = ["--names", "iris", "wine", "--grid", "reduced", "--epochs", "8", "--seeds", "2"]
    arguments += ["--output", str(out)]
    command = [sys.executable, "-m", "benchmarks.tabular", *arguments, "--jobs", n_jobs]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    rows, end = out / "rows.csv", time.monotonic() + 300  # much, where the machine is busy
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        try:
            while not rows.exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < end
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)
            printed, errors = process.communicate(timeout=300)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == 130
    assert "iris" in printed
    assert tabular.INTERRUPTED in errors
    assert "Traceback" not in errors + printed
    assert 0 < len(read_rows(rows, FITS)) < 68
    assert run_command(*arguments, "--jobs", "1", "--quiet") == 0
    assert rows.read_bytes().count(b"\n") == 69


def test_tasks_and_suites_of_a_server_are_run(server, cache, tmp_path, capsys):
    """From a real server on this machine, through the cache, to the report."""
    where = ["--source", "openml", "--cache-dir", cache, "--output", tmp_path / "out"]
    assert run_command(*where, "--suite", "99", "--methods", "erm", *QUICK) == 0
    suite = read_rows(tmp_path / "out" / "rows.csv", FITS)
    assert suite["task_id"].nunique() > 1
    assert (suite["error"] == "").all()
    n_requests = sum(server.counts.values())
    assert run_command(*where, "--tasks", "59", "--splits", "task", "--offline", *QUICK) == 0
    assert sum(server.counts.values()) == n_requests
    rows = read_rows(tmp_path / "out" / "rows.csv", FITS)
    assert rows["splits"].unique().tolist() == ["holdout", "task 59"]
    assert "report.html" in capsys.readouterr().out


def test_an_unknown_task_fails_before_anything_is_run(server, cache, tmp_path, capsys):
    where = ["--source", "openml", "--cache-dir", cache, "--output", tmp_path / "out"]
    assert run_command(*where, "--tasks", "59", "123456", *QUICK) == 2
    assert "task_id=123456" in capsys.readouterr().err
    assert not (tmp_path / "out" / "rows.csv").exists()
