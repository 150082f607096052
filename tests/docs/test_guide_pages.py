"""The guide's pages run as they stand, print what they show, and quote figures that are there."""

import ast
import contextlib
import importlib
import io
import pathlib
import re

import pandas as pd
import pytest
import sklearn
from sklearn.neural_network import MLPClassifier

import mixupe_sklearn
from mixupe_sklearn import MixupEClassifier
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
    [
        ("quickstart", 7),
        ("choosing", 3),
        ("migrating", 7),
        ("faq", 24),
        ("saving", 8),
        ("serving", 3),
    ],
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


SETTING = re.compile(r"`(\w+)=([^`]+)`")


def test_each_parameter_of_mlp_classifier_has_its_line_with_both_defaults():
    part = (DOCS / "migrating.md").read_text().split("### Parameters")[1]
    rows = [line.split("|")[1:3] for line in part.split("\n\n")[1].splitlines()[2:]]
    theirs, ours = MLPClassifier().get_params(), MixupEClassifier().get_params()
    named = {name for first, _ in rows for name in re.findall(r"`(\w+)[=`]", first)}
    assert named == set(theirs)
    for first, second in rows:
        for name, value in SETTING.findall(first):
            assert ast.literal_eval(value) == theirs[name], name
        for name, value in SETTING.findall(second):
            is_default = name not in ("module", "module_params", "optimizer", "optimizer_params")
            if is_default and name != "lr_schedule":  # these lines say what to set
                assert ast.literal_eval(value) == ours[name], name


COMMANDS = re.findall(
    r"^python -m benchmarks\.(\w+)(.*)$",
    (DOCS / "reproducing.md").read_text().replace("\\\n", " "),
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


# What a page says, the file that has the figures, and how the line there begins.
BASELINES, TABULAR = (f"benchmarks/results/{name}/report.md" for name in ("baselines", "tabular"))
QUOTED = [
    ("choosing", "32.31 % errors on arrhythmia", BASELINES, "| arrhythmia |"),
    ("choosing", "CatBoost with its defaults 24.62 %", BASELINES, "| arrhythmia |"),
    ("choosing", "18.80 % against 16.40 % of histogram boosting", BASELINES, "| mfeat-fourier |"),
    ("choosing", "average rank 2.35", BASELINES, "| RealMLP | 2."),
    ("choosing", "against 2.42", BASELINES, "| MixupEClassifier() | 2."),
    ("choosing", "an error of 18.17 % and a log loss of 0.4709", "docs/tables.md", "| default |"),
    ("choosing", "it is 18.39 % and 0.4729", "docs/tables.md", "| without penalty |"),
    ("choosing", "mixing 18.33 % and 0.4783", "docs/tables.md", "| without mixing |"),
    ("choosing", "both 18.21 % and 0.4786", "docs/tables.md", "| without mixing and penalty |"),
    ("choosing", "an error of 19.44 %", "docs/tables.md", "| without members |"),
    ("choosing", "They cost 0.44", "docs/tables.md", "| 500 | 50 |"),
    ("choosing", "0.64 of eight", "docs/tables.md", "| 5,000 | 10 |"),
    ("choosing", "1.58 times the time of a step", "docs/speed.md", "| MixupE / Mixup |"),
    ("choosing", "in small studies | 7.80 |", "docs/speed.md", "| MixupE, directional penalty /"),
    ("choosing", "310", "docs/speed.md", "| MixupEClassifier, method=erm |"),
    ("choosing", "328 microseconds", "docs/speed.md", "| MixupEClassifier, method=mixup |"),
    ("migrating", "15.62 % there and 14.45 % here", BASELINES, "| MLPClassifier() | 14."),
    (
        "faq",
        "1.08 times a float32 table of 389 MiB",
        "docs/speed.md",
        "| peak memory of fit / data, 1",
    ),
    ("faq", "in 0.28 of the default's time", "docs/tables.md", "| paper | 2/"),
    ("reproducing", "on two busy cores: 3,850 fits", "docs/benchmark.md", "The whole grid"),
    ("reproducing", "1.42 points for ERM", TABULAR, "| ERM | 1"),
    ("reproducing", "1.81 for Mixup", TABULAR, "| Mixup | 1"),
    ("reproducing", "1.75 for MixupE", TABULAR, "| MixupE | 1"),
    ("reproducing", "128-128, batches of 100 | 1.58", "docs/speed.md", "| MixupE / Mixup |"),
    ("reproducing", "1.93", "docs/images.md", "| small-preactresnet | MixupE | 3"),
    ("reproducing", "| 1.24", "docs/images.md", "| small-preactresnet | MixupE, 25"),
    ("reproducing", "2.32", "docs/images.md", "| small-wideresnet | MixupE | 3"),
    ("reproducing", "| 1.23", "docs/images.md", "| small-wideresnet | MixupE, 25"),
    ("reproducing", "| 0.96", "docs/graphs.md", "| PTC | 7 |"),
    ("reproducing", "to 1.16 |", "docs/graphs.md", "| IMDBMULTI | 7 |"),
]


@pytest.mark.parametrize(("page", "quote", "source", "start"), QUOTED)
def test_a_figure_is_that_of_its_source(page, quote, source, start):
    assert quote in " ".join((DOCS / f"{page}.md").read_text().split())
    lines = [x for x in (ROOT / source).read_text().splitlines() if x.startswith(start)]
    figures = set(re.findall(r"\d+\.\d+|\d,\d{3}", quote)) or set(re.findall(r"\d+", quote))
    assert any(figures <= set(re.findall(r"\d+\.\d+|\d,\d{3}|\d+", line)) for line in lines)


@pytest.mark.parametrize(("name", "hours"), [("images", 3.4), ("speech", 1.4), ("graphs", 5.4)])
def test_the_hours_of_the_trials_are_those_of_the_rows(name, hours):
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / name / "rows.csv")
    page = (DOCS / "reproducing.md").read_text()
    assert round(rows["fit_seconds"].sum() / 3600, 1) == hours
    assert f"{hours} hours" in page
    assert name != "graphs" or f"{len(rows)} rows, with" in page
