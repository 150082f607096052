"""The committed reports are those of the committed rows."""

import pathlib

import mixupe_sklearn
from benchmarks._harness.results_file import read_rows
from benchmarks._tabular.protocol import FITS
from benchmarks._tabular.report import figures, make_report
from benchmarks.tabular import read_commands

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]


def test_the_committed_report_is_that_of_the_committed_rows(tmp_path, monkeypatch):
    # Markdown has no figures, and drawing takes most of the time; other tests check figures.
    monkeypatch.setattr(figures, "to_svg", lambda *arguments, **named: "")
    folder = ROOT / "benchmarks" / "results" / "tabular"
    rows = read_rows(folder / "rows.csv", FITS)
    report = make_report(rows, tmp_path, command=read_commands(folder))
    assert report.markdown.read_text() == (folder / "report.md").read_text()
