"""The house rules, read from the source itself."""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import tomllib

import pandas as pd
import pytest
import sklearn

import mixupe_sklearn
from benchmarks._tabular.report import figures, make_report
from benchmarks._tabular.report.results import choose, count_at_or_below, error_table
from benchmarks._tabular.report.statistics import compare_ranks
from benchmarks._tabular.rows import read_rows
from benchmarks.tabular import read_commands
from mixupe_sklearn.modules import MLP

PACKAGE = pathlib.Path(mixupe_sklearn.__file__).parent
ROOT = PACKAGE.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")
}

# A module may import the modules of ours that stand above it, never one below. Those of one line
# do not know each other.
FLOORS = [
    ["_filters"],
    [
        *(
            "_ahead",
            "_mixing",
            "_penalty",
            "_checks",
            "_figure_text",
            "_files",
            "_forward",
            "_loading",
            "_random",
            "_schedule",
        ),
        *("modules.mlp", "modules._parts", "modules._attention"),
        *("_signals", "_signals.augment", "_signals.pixels", "_signals.picture_folders"),
        *("_signals.sound_files", "datasets._pickles", "_graphs", "_graphs.forms"),
        *("datasets.graphs", "datasets._unpacking"),
    ],
    [
        *("modules.embedded_mlp", "modules.lenet", "modules.vgg", "modules.preact_resnet"),
        *("modules.resnet", "modules.vit", "modules.coatnet", "modules.gin"),
        *("_signals.picture_files", "_signals.sound", "_portions", "_processes", "callbacks"),
        *("datasets.images", "datasets.speech", "_rules", "_second_order"),
    ],
    ["modules.wide_resnet", "_signals.picture_datasets", "_signals.spectrogram"],
    ["modules", "_signals.pictures"],
    ["datasets._table", "datasets._openml_check", "datasets._openml_table"],
    ["datasets.embedded", "datasets.files", "datasets._openml_splits", "datasets._openml_web"],
    ["datasets._openml_cache"],
    ["datasets._openml_read"],
    ["datasets.openml"],
    ["datasets"],
    ["_batches", "_callbacks", "_criterion", "_hardware", "_net_files", "_presets", "_slopes"],
    ["_feed", "_stacked", "_skorch_data", "_graphs.packed"],
    ["_lockstep", "_graphs.nodes", "_graphs.reading"],
    ["_by_hand"],
    ["_net", "_inputs", "_labels", "_tasks"],
    ["_predicting", "_settings", "_alike"],
    ["_distributed"],
    ["_training"],
    ["_crews"],
    ["_members"],
    ["_checked"],
    ["_base"],
    ["_classifier", "_many", "_regressor", "adapters", "adapters._prepare", "adapters._parameters"],
    ["adapters._classifier"],
    ["adapters._signal", "adapters.graph"],
    ["adapters.image", "adapters.speech"],
    ["_recipe"],
    ["recipes"],
    ["_columns", "_scaling"],
    ["preprocessing"],
    ["_serving", "_serving.graph", "_serving.inputs", "_serving.plain"],
    ["_serving.layers", "_serving.columns", "_serving.steps"],
    ["_serving.network"],
    ["_serving.onnx_model"],
    ["serving"],
    ["_search", "_search.space", "_search.storage", "_search.identity"],
    ["_search.study", "_search.trials"],
    ["_search.evaluate"],
    ["_search.strategy", "_search.worker", "_search.results", "_search.progress", "_search.plots"],
    ["_search.plan"],
    ["search"],
    ["_saving", "_saving.types", "_saving.container"],
    ["_saving.encoder", "_saving.decoder", "_saving.nets", "_saving.checks"],
    ["persistence"],
    ["_diagnostics", "_diagnostics.axes", "_diagnostics.taylor", "_diagnostics.coefficients"],
    ["_diagnostics.sample", "_diagnostics.complexity"],
    ["_diagnostics.records"],
    ["_diagnostics.derivatives", "_diagnostics.monitor", "_diagnostics.predictions"],
    ["_diagnostics.losses", "_diagnostics.penalties"],
    ["diagnostics"],
    [""],
]
MAY_IMPORT_SKLEARN = {
    *("_base", "_checked", "_labels", "_tasks", "_classifier", "_regressor"),
    *("_scaling", "preprocessing", "search", "_signals.spectrogram", "adapters._classifier"),
    *("_search.trials", "_search.evaluate", "_search.plan"),
    *("datasets.embedded", "_diagnostics.sample", "_diagnostics.records"),
    "persistence",
    *("_diagnostics.predictions", "serving", "_serving.columns", "_serving.onnx_model"),
    "_serving.steps",
}
MAY_IMPORT_OPTUNA = {"search"}  # and all of _search
MAY_IMPORT_SKORCH = {
    *(
        "_ahead",
        "_net",
        "_callbacks",
        "_skorch_data",
        "_alike",
        "_distributed",
        "callbacks",
        "_recipe",
        "_diagnostics.monitor",
    ),
}


def short(name):
    name = name.removesuffix(".__init__")
    return name.removeprefix("mixupe_sklearn").removeprefix(".")


def imports_of(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_one_way(name):
    floor_of = {module: number for number, floor in enumerate(FLOORS) for module in floor}
    mine = short(name)
    assert mine in floor_of, f"give {mine} a floor"
    for imported in imports_of(MODULES[name]):
        top = imported.split(".")[0]
        if top == "mixupe_sklearn":
            is_own_package = mine and short(imported).startswith(mine + ".")
            assert is_own_package or floor_of[short(imported)] < floor_of[mine], imported
        elif top == "sklearn":
            assert mine in MAY_IMPORT_SKLEARN
        elif top == "skorch":
            assert mine in MAY_IMPORT_SKORCH
        elif top == "optuna":
            assert mine in MAY_IMPORT_OPTUNA or mine.startswith("_search")


@pytest.mark.parametrize("name", sorted(MODULES))
def test_files_are_read_in_one_sitting(name):
    assert len(MODULES[name].read_text().splitlines()) <= 400


def test_no_extra_is_imported_with_the_package():
    # skorch itself brings pandas along where that is installed.
    extras = ["optuna", "openml", "torch_geometric", "dask", "soundfile", "matplotlib"]
    extras += ["rtdl_num_embeddings", "onnx", "skl2onnx", "onnxruntime"]
    code = f"""
import sys
import mixupe_sklearn
found = [name for name in {extras} if name in sys.modules]
print(found)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


ORDERS = {
    "ours first": "import mixupe_sklearn, skorch, torch_geometric.data as pyg",
    "graphs first": "import torch_geometric.data as pyg, mixupe_sklearn, skorch",
}


@pytest.mark.parametrize("order", ORDERS)
def test_skorch_knows_graphs_in_whatever_order_all_are_imported(order):
    code = f"""
import torch
{ORDERS[order]}
from skorch.utils import to_tensor
graph = pyg.Data(x=torch.ones(2, 1), edge_index=torch.zeros(2, 0, dtype=torch.long))
print(type(to_tensor(graph, device="cpu")).__name__, to_tensor([1.0], device="cpu"))
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["Data", "[tensor(1.)]"]


def documented_defaults(docstring):
    """Parameter names with the default that their line of the docstring gives."""
    section = docstring.split("Parameters\n----------\n")[1].split("\n\n")[0]
    # A line without a type refers to another docstring.
    found = re.findall(r"^([\w*][\w*, ]*)(?: : (.*))?$", section, flags=re.MULTILINE)
    return {
        name: default.group(1) if (default := re.search(r"default=(.*)$", kind)) else kind and None
        for names, kind in found
        for name in names.split(", ")
    }


def public_names():
    """What the page of the API lists, by name."""
    page = (ROOT / "docs" / "api.md").read_text()
    names = re.findall(r"^   ([A-Za-z][\w.]+)$", page, flags=re.MULTILINE)
    return {name: pkgutil.resolve_name(f"mixupe_sklearn:{name}") for name in names}


for name in ("diagnostics", "callbacks", "recipes", "preprocessing", "datasets.openml"):
    importlib.import_module(f"mixupe_sklearn.{name}")
for name in ("images", "speech", "graphs"):
    importlib.import_module(f"mixupe_sklearn.datasets.{name}")
PUBLIC = public_names()
WITH_PARAMETERS = {
    name: item for name, item in PUBLIC.items() if "Parameters\n" in (item.__doc__ or "")
}


def test_the_page_of_the_api_has_every_public_name():
    diagnostics = importlib.import_module("mixupe_sklearn.diagnostics")
    expected = {*mixupe_sklearn.__all__, *(f"diagnostics.{name}" for name in diagnostics.__all__)}
    assert expected <= set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_with_an_example(name):
    """The examples themselves are run as doctests."""
    told = inspect.getdoc(PUBLIC[name])
    assert len(told) > 60
    assert re.search(r"Examples\n--------\n(.*\n)*?>>> ", told)


@pytest.mark.parametrize("name", [name for name in WITH_PARAMETERS if name != "MixupENet"])
def test_documented_parameters_and_defaults_are_those_of_the_signature(name):
    item = PUBLIC[name]
    documented = documented_defaults(inspect.getdoc(item))
    signature = inspect.signature(item).parameters
    names = [f"**{n}" if p.kind == p.VAR_KEYWORD else n for n, p in signature.items()]
    assert sorted(documented) == sorted(names)
    for name, parameter in signature.items():
        if parameter.default is not inspect.Parameter.empty and documented[name] != "":
            value = parameter.default
            if repr(value) == "<factory>":  # of a dataclass
                value = item.__dataclass_fields__[name].default_factory()
            default, given = "nan" if value != value else repr(value), documented[name]
            assert given == default or ast.literal_eval(given) == value, name


class MyModule(MLP):
    """What the user guide calls a module of one's own."""

    def __init__(self, n_features, n_outputs, width):
        super().__init__(n_features, n_outputs, d_hidden=(width,))


@pytest.mark.parametrize(
    ("page", "n_blocks"),
    [
        ("README.md", 5),
        ("docs/user_guide.md", 2),
        ("docs/searching.md", 4),
        ("docs/diagnostics.md", 4),
    ],
)
def test_the_code_of_a_page_runs(page, n_blocks, small_digits):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert len(blocks) >= n_blocks
    X, y = small_digits
    namespace = {"X_train": X, "y_train": y, "X_val": X, "y_val": y, "MyModule": MyModule}
    with sklearn.config_context():
        for block in blocks:
            exec(compile(block, page, "exec"), namespace)


def test_readme_is_short_and_names_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 150
    assert "make benchmark" in readme
    assert "make test" in readme


def test_the_badges_of_the_readme_are_true():
    readme = (ROOT / "README.md").read_text()
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"!\[(.*?)\]\(https://img.shields.io/badge/(.*?)\)", readme)
    assert [name for name, _ in badges] == [
        f"Python {told['requires-python'].removeprefix('>=')} or later",
        f"Licence {told['license']}",
        "Status: alpha",
    ]
    assert "Development Status :: 3 - Alpha" in told["classifiers"]
    shown = [badge.replace("--", "-") for _, badge in badges]
    assert shown == ["python-3.11+-blue", f"licence-{told['license']}-blue", "status-alpha-orange"]
    pictures = re.findall(r"!\[.*?\]\((docs/.*?)\)", readme)
    assert pictures
    assert all((ROOT / path).is_file() for path in pictures)


@pytest.fixture(scope="module")
def committed_rows():
    return read_rows(ROOT / "benchmarks" / "results" / "tabular" / "rows.csv")


def test_the_table_of_the_readme_is_that_of_the_committed_rows(committed_rows):
    readme = (ROOT / "README.md").read_text()
    chosen = choose(committed_rows)
    assert chosen["dataset"].nunique() == 14
    for dataset, part in chosen.groupby("dataset"):
        row = part.set_index("method").loc[["erm", "mixup", "mixupe"]]
        lowest = row["test_error"].round(2).min()
        cells = [
            f"{f'**{mean:.2f}**' if round(mean, 2) == lowest else f'{mean:.2f}'} ± {deviation:.2f}"
            for mean, deviation in zip(row["test_error"], row["test_error_std"], strict=True)
        ]
        assert f"| {dataset} | {' | '.join(cells)} |" in readme
    for other, label in (("mixup", "Mixup"), ("erm", "ERM")):
        count, n_sets = count_at_or_below(error_table(chosen), "mixupe", other)
        assert f"at or below {label} on {count} of {n_sets}" in readme


@pytest.mark.parametrize("name", ["tabular", "peers"])
def test_the_committed_report_is_that_of_the_committed_rows(name, tmp_path, monkeypatch):
    # Markdown has no pictures, and drawing them takes most of the time; others look at those.
    monkeypatch.setattr(figures, "to_svg", lambda *arguments, **named: "")
    folder = ROOT / "benchmarks" / "results" / name
    rows = read_rows(folder / "rows.csv")
    report = make_report(rows, tmp_path, command=read_commands(folder))
    assert report.markdown.read_text() == (folder / "report.md").read_text()


def test_the_ranks_of_the_readme_are_those_of_the_committed_rows():
    readme = (ROOT / "README.md").read_text()
    errors = error_table(choose(read_rows(ROOT / "benchmarks" / "results" / "peers" / "rows.csv")))
    ranks = compare_ranks(errors.drop(columns="mixupe-paper")).ranks
    assert f"`MixupEClassifier()` is {ranks['mixupe-default']:.2f} of nine" in readme
    assert f"RealMLP's {ranks['realmlp']:.2f} (" in readme
    for label, name in (("CatBoost", "catboost"), ("XGBoost", "xgboost")):
        assert f"{label} {ranks[name]:.2f}" in readme
    means = errors.mean()
    assert f"mean error is {means['mixupe-default']:.2f} %" in readme
    assert f"earlier defaults {means['mixupe-paper']:.2f} %" in readme


def test_the_times_of_the_page_are_those_of_the_committed_rows():
    page = (ROOT / "docs" / "tables.md").read_text()
    rows = pd.read_csv(ROOT / "benchmarks" / "results" / "peers" / "times.csv")
    seconds = rows.pivot_table(index="dataset", columns="method", values="fit_seconds")
    ours, boosting = seconds["mixupe-default"], seconds["hist-gradient-boosting"]
    shares = pd.DataFrame({"realmlp": ours / seconds["realmlp"], "boosting": ours / boosting})
    for name, own in shares.iterrows():
        assert (
            f"| {own['realmlp']:.2f} | {own['boosting']:.2f} |"
            in page.split(f"| {name} |")[1].split("\n")[0]
        )
    at_most, below = (shares["realmlp"] <= 0.2).sum(), (shares["boosting"] < 1).sum()
    assert f"at most a fifth on {at_most} of the {len(shares)} tables" in page
    assert f"below histogram boosting's on {below} of {len(shares)}:" in page
