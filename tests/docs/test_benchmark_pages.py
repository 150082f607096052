"""The benchmark pages show what the committed results say, and their commands are understood."""

import importlib
import importlib.util
import json
import pathlib
import re
import shutil
import statistics

import pandas as pd
import pytest

import mixupe_sklearn
from benchmarks import default_settings, fit_times
from benchmarks._harness import docs_tables
from benchmarks.studies import columns
from mixupe_sklearn.recipes import RECIPES

ROOT = pathlib.Path(mixupe_sklearn.__file__).parents[1]
PAGES = ROOT / "docs" / "benchmarks"
RESULTS = ROOT / "benchmarks" / "results"


def rows_of(text):
    """Rows of all Markdown tables in a text, as lists of cells."""
    lines = [line for line in text.splitlines() if re.match(r"\| (?!-)", line)]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def words_of(path):
    return " ".join(path.read_text().split())


def test_the_table_by_the_protocol_of_the_paper_is_that_of_the_report():
    report = (RESULTS / "tabular" / "report.md").read_text()
    text = report.split("## Test error")[1].split("\n## ")[0]
    errors = {row[0].replace("\\", ""): row for row in rows_of(text) if len(row) == 12}
    page = (PAGES / "paper_tables.md").read_text()
    shown = [row for row in rows_of(page) if len(row) == 4 and "±" in row[1]]
    assert len(shown) == 14
    for name, *cells in shown:
        # The page has the mean alone in bold.
        ours = [
            re.sub(r"\*\*([\d.]+) (± [\d.]+)\*\*", r"**\1** \2", errors[name][i]) for i in (1, 4, 7)
        ]
        assert cells == ours
    mixup, erm = re.search(r"Mixup's on (\d+) of 14 .*ERM's on (\d+) of 14", report).groups()
    assert f"at or below Mixup on {mixup} of 14 and at or below ERM on {erm} of 14" in page
    assert f"(p = {float(re.search(r'p = ([0-9.]+)', report)[1]):.2f})" in page


PAIRS = {
    "MixupE / MLPClassifier": ("mixupe", "mlp"),
    "MixupE / Mixup": ("mixupe", "mixup"),
    "MixupE, penalty_fraction=0.25 / Mixup": ("quarter", "mixup"),
    "MixupE / floor": ("mixupe", "floor-twice"),
}


def test_the_summary_of_sizes_is_that_of_the_committed_times():
    parts = json.loads((RESULTS / "speed.json").read_text())["parts"]
    text = (PAGES / "speed.md").read_text()
    shown = rows_of(text.split("<!-- speed: sizes -->")[1].split("<!-- end of sizes -->")[0])
    expected = []
    for name, (one, other) in PAIRS.items():
        cells = []
        for batch in (32, 100, 1000):
            times = [
                part["microseconds"]
                for size, part in parts.items()
                if size.startswith("rows=") and size.endswith(f"batch={batch}")
            ]
            ratios = [
                statistics.median(a / b for a, b in zip(time[one], time[other], strict=True))
                for time in times
            ]
            assert len(ratios) == 36
            middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        expected.append([name, *cells])
    assert shown[1:] == expected


# Blocks that a command fills, and the committed report with the same tables.
BLOCKS = [
    ("images", "images", "images/report.md"),
    ("speech", "speech", "speech/report.md"),
    ("graphs", "graphs", "graphs/report.md"),
]


def block_of(page, name):
    text = (PAGES / f"{page}.md").read_text()
    return text.split(f"<!-- tables: {name} -->")[1].split(f"<!-- end of {name} -->")[0]


@pytest.mark.parametrize(("page", "name", "report"), BLOCKS)
def test_the_tables_of_a_page_are_those_of_the_report(page, name, report):
    lines = [line for line in block_of(page, name).splitlines() if line]
    assert len(lines) > 5
    assert set(lines) <= set((RESULTS / report).read_text().splitlines())


# The command that makes a committed report: its module, its option, the folder and the file.
REPORTS = [
    ("images", [], "images", "report.md"),
    ("images", ["--deformations"], "images", "deformations.md"),
    ("images", ["--ablation"], "images", "ablation.md"),
    ("speech", [], "speech", "report.md"),
]


@pytest.mark.parametrize(("name", "options", "folder", "file"), REPORTS)
def test_a_committed_report_is_that_of_the_committed_rows(
    name, options, folder, file, tmp_path, capsys
):
    shutil.copytree(RESULTS / folder, tmp_path / "results")
    (tmp_path / "results" / file).unlink()
    command = importlib.import_module(f"benchmarks.{name}")
    assert command.main([*options, "--report-only", "--output", str(tmp_path / "results")]) == 0
    assert "Report:" in capsys.readouterr().out
    assert (tmp_path / "results" / file).read_text() == (RESULTS / folder / file).read_text()


@pytest.mark.parametrize("name", ["images", "speech"])
def test_the_lowest_error_of_each_network_is_in_bold(name):
    rows = [row for row in rows_of(block_of(name, name)) if len(row) == 10][1:]
    errors = {network: [] for network, *_ in rows}
    for network, _method, _alpha, _eta, _runs, error, *_ in rows:
        errors[network].append((float(error.strip("*").split()[0]), "**" in error))
    assert errors
    for found in errors.values():
        lowest = min(found)[0]
        assert [is_bold for error, is_bold in found] == [error == lowest for error, _ in found]


def test_the_seed_that_decides_about_speech_is_in_the_rows():
    rows = pd.read_csv(RESULTS / "speech" / "rows.csv")
    vgg = rows[rows["network"].str.startswith("vgg11")].pivot(
        index="seed", columns="method", values="test_error"
    )
    worst = vgg.loc[vgg["mixup"].idxmax()]
    assert (
        f"errors of {worst['mixup']:.1f} and {worst['mixupe']:.1f} %, where ERM has "
        f"{worst['erm']:.1f}"
    ) in words_of(PAGES / "speech.md")


REPRODUCING = (PAGES / "reproducing.md").read_text()
# The page names the options that its commands for images share.
SHARED = re.search(r'^FULL="(.+)"$', REPRODUCING, re.MULTILINE)[1]
COMMANDS = re.findall(
    r"^python -m benchmarks\.([\w.]+)(.*)$",
    REPRODUCING.replace("\\\n", " ").replace("$FULL", SHARED),
    re.MULTILINE,
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
        assert "forbids" in capsys.readouterr().err
        return
    folder = tmp_path / arguments[arguments.index("--data") + 1]
    folder.mkdir()
    assert command.main(arguments) == 2
    assert re.match(r"Error: Got (no '|folder=|--sets )", capsys.readouterr().err)


def test_no_table_or_figure_of_the_paper_is_missing():
    names = [row[0] for row in rows_of((PAGES / "reproducing.md").read_text())]
    wanted = ["Figure 1", "Figure 2", *(f"Table {number}" for number in range(1, 9))]
    assert [name for name in names if name in wanted] == wanted
    tables = {recipe.source.split(",")[0][:7] for recipe in RECIPES.values()}
    assert tables == {"Table 1", "Table 2", "Table 3", "Table 5", "Table 8"}


@pytest.mark.parametrize(("name", "hours"), [("images", 3.4), ("speech", 1.4), ("graphs", 8.4)])
def test_the_hours_of_the_trials_are_those_of_the_rows(name, hours):
    rows = pd.read_csv(RESULTS / name / "rows.csv")
    page = (PAGES / "reproducing.md").read_text()
    assert round(rows["fit_seconds"].sum() / 3600, 1) == hours
    assert f"{hours} hours" in page
    assert name != "graphs" or f"{len(rows)} rows;" in page


LISTED = rows_of((ROOT / "benchmarks" / "README.md").read_text())[1:]


@pytest.mark.parametrize("row", LISTED, ids=lambda row: row[0].strip("`"))
def test_a_listed_command_has_its_module_its_results_and_its_page(row):
    command, _, results, page = row
    name = re.search(r"python -m ([\w.]+)", command)[1]
    assert importlib.util.find_spec(name) is not None
    for file in re.findall(r"`(.+?)`", results):
        assert (RESULTS / file).exists()
    assert (ROOT / "benchmarks" / re.search(r"\((.+?)\)", page)[1]).is_file()


def test_every_command_is_listed():
    folder = ROOT / "benchmarks"
    files = [
        path
        for place in (folder, folder / "studies", folder / "reliability")
        for path in place.glob("*.py")
    ]
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in files
        if not path.name.startswith("_") and 'if __name__ == "__main__":' in path.read_text()
    }
    assert names == {re.search(r"python -m ([\w.]+)", row[0])[1] for row in LISTED}


@pytest.mark.parametrize("phase", default_settings.PAGE_OPTIONS)
def test_the_tables_of_default_settings_are_those_of_the_committed_rows(phase, capsys):
    options = ["--phase", phase, "--report-only", *default_settings.PAGE_OPTIONS[phase]]
    assert default_settings.main(options) == 0
    page = default_settings.PAGE.read_text()
    assert docs_tables.block_of(page, phase) == capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("command", "block"), [(fit_times, "times"), (columns, "columns")], ids=["times", "columns"]
)
def test_the_table_of_a_study_is_that_of_its_committed_rows(command, block, capsys):
    assert command.main(["--report-only"]) == 0
    shown = docs_tables.block_of(command.PAGE.read_text(), block)
    assert shown == capsys.readouterr().out.strip()
