"""Figures that a page quotes are those of their source; tables of parameters are those of the code."""

import ast
import contextlib
import io
import pathlib
import re

import pandas as pd
import pytest
import sklearn
from sklearn.neural_network import MLPClassifier

import mixupe_sklearn
from mixupe_sklearn import MixupEClassifier

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
        ("getting_started/quickstart", 5),
        ("user_guide/parameters", 3),
        ("getting_started/migrating", 5),
        ("getting_started/faq", 10),
        ("user_guide/saving", 5),
        ("user_guide/serving", 3),
        ("benchmarks/faults", 1),
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
    """Mean scores of each method, alpha and eta on each dataset of the paper's protocol."""
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


def test_the_effect_of_alpha_is_that_of_the_committed_rows(grid):
    plain = grid.groupby(["method", "alpha"], dropna=False).mean()
    means = {"none (ERM)": plain.loc["erm"].iloc[0]}
    means |= {f"{alpha:g}": row for alpha, row in plain.loc["mixup"].iterrows()}
    assert table_of("user_guide/parameters.md", "alpha") == [
        [name, f"{row.valid_error:.2f}", f"{row.valid_log_loss:.3f}", f"{row.test_ece:.3f}"]
        for name, row in means.items()
    ]


def test_the_effect_of_eta_is_that_of_the_committed_rows(grid):
    errors = grid["valid_error"]
    mixup = errors.loc["mixup"].droplevel("eta")
    change = errors.loc["mixupe"].unstack("eta").sub(mixup, axis=0).groupby("alpha").mean()
    assert table_of("user_guide/parameters.md", "eta") == [
        [f"{alpha:g}", *(f"{value:+.2f}" for value in row)] for alpha, row in change.iterrows()
    ]
    assert change.loc[:1, :0.1].abs().to_numpy().max() < 0.08
    best = mixup.unstack("dataset").idxmin()
    counts = [best.between(*ends).sum() for ends in ((0, 0.02), (0.03, 0.1), (0.2, 0.5), (1, 5))]
    assert counts == [4, 5, 2, 3]


SETTING = re.compile(r"`(\w+)=([^`]+)`")


def test_each_parameter_of_mlp_classifier_has_its_line_with_both_defaults():
    part = (DOCS / "getting_started" / "migrating.md").read_text().split("### Parameters")[1]
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


# What a page says, the file that has the figures, and how the line there begins.
TABULAR = "benchmarks/results/tabular/report.md"
DEFAULTS, SPEED, IMAGES, GRAPHS, PAPER = (
    f"docs/benchmarks/{name}.md"
    for name in ("defaults", "speed", "images", "graphs", "paper_tables")
)
PARAMETERS = "user_guide/parameters"
REPRODUCING = "benchmarks/reproducing"
QUOTED = [
    (PARAMETERS, "members cost 0.38", DEFAULTS, "| 50,000 rows, 2 epochs: 8 members, default"),
    (PARAMETERS, "to 0.45 of eight single fits", DEFAULTS, "| 5,000 rows, 10 epochs: 8 members, d"),
    (PARAMETERS, "and 0.64", DEFAULTS, "| 500 rows, 50 epochs: 8 members, one"),
    (PARAMETERS, "to 0.72 with one thread", DEFAULTS, "| 5,000 rows, 10 epochs: 8 members, o"),
    (PARAMETERS, "starting point | 1.77 |", SPEED, "| MixupE / Mixup |"),
    (PARAMETERS, "in small studies | 7.20 |", SPEED, "| MixupE, directional penalty /"),
    (PARAMETERS, "| 1.31 |", SPEED, "| MixupE, penalty_fraction=0.25 / Mixup |"),
    (PARAMETERS, "takes 218", SPEED, "| MixupEClassifier, method=erm |"),
    (PARAMETERS, '`"mixup"` 231', SPEED, "| MixupEClassifier, method=mixup |"),
    (
        "getting_started/faq",
        "1.06 times a float32 table of 389 MiB",
        SPEED,
        "| 1,000,000 x 100, float32 |",
    ),
    ("getting_started/faq", "1.52 times the same table", SPEED, "| 1,000,000 x 100, float64 |"),
    (REPRODUCING, "on two busy cores: 3,850 fits", PAPER, "The command ends with"),
    (REPRODUCING, "1.42 points for ERM", TABULAR, "| ERM | 1"),
    (REPRODUCING, "1.81 for Mixup", TABULAR, "| Mixup | 1"),
    (REPRODUCING, "1.75 for MixupE", TABULAR, "| MixupE | 1"),
    (REPRODUCING, "128-128, batches of 100 | 1.77", SPEED, "| MixupE / Mixup |"),
    (REPRODUCING, "| 1.31 | [speed]", SPEED, "| MixupE, penalty_fraction=0.25 / Mixup |"),
    (REPRODUCING, "| 1.93", IMAGES, "| small-preactresnet | MixupE | 3"),
    (REPRODUCING, "| 1.24", IMAGES, "| small-preactresnet | MixupE, 25"),
    (REPRODUCING, "| 2.32", IMAGES, "| small-wideresnet | MixupE | 3"),
    (REPRODUCING, "| 1.23", IMAGES, "| small-wideresnet | MixupE, 25"),
    (REPRODUCING, "| 0.96", GRAPHS, "| PTC | 7 |"),
    (REPRODUCING, "to 1.16 |", GRAPHS, "| IMDBMULTI | 7 |"),
    ("benchmarks/speech", "1.250 instead", "docs/benchmarks/speech.md", "| lenet | Mixup |"),
    ("benchmarks/speech", "of 2.049", "docs/benchmarks/speech.md", "| lenet | ERM |"),
    (
        "benchmarks/speed",
        "Mixup (1.31, at most",
        SPEED,
        "| MixupE, penalty_fraction=0.25 / Mixup |",
    ),
    ("benchmarks/speed", "`MLPClassifier` (0.84, must", SPEED, "| MixupE / MLPClassifier |"),
    ("benchmarks/speed", "listing (0.26, at most", SPEED, "| MixupE / paper's listing, skorch"),
]


def numbers(text):
    return set(re.findall(r"\d+\.\d+|\d,\d{3}|\d+", text))


@pytest.mark.parametrize(("page", "quote", "source", "start"), QUOTED)
def test_a_figure_is_that_of_its_source(page, quote, source, start):
    assert quote in " ".join((DOCS / f"{page}.md").read_text().split())
    lines = [x for x in (ROOT / source).read_text().splitlines() if x.startswith(start)]
    figures = set(re.findall(r"\d+\.\d+|\d,\d{3}", quote)) or set(re.findall(r"\d+", quote))
    assert any(figures <= numbers(line) for line in lines)
