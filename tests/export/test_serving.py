"""Export to a torch module, or to an ONNX graph with its preprocessing."""

import copy
import decimal
import json
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from paper import paper_regressor
from real_tables import TABLES, load_table
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    StandardScaler,
)
from torch import nn

from mixupe_sklearn import (
    MixupEClassifier,
    MixupERegressor,
    make_mixupe_pipeline,
    make_preprocessor,
    onnx_inputs,
    to_onnx,
    to_torch,
)
from mixupe_sklearn._engine.network import architecture_of
from mixupe_sklearn.modules import MLP

QUICK = {"max_epochs": 3, "min_steps": 0, "batch_size": 32, "random_state": 0}
ONE = {"n_members": 1, "alpha": 0.2, "eta": 0.1, "early_stopping": False}
SCALINGS = ("standard", "robust", "quantile")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "user_guide" / "serving.md"


class OneLogit(MLP):
    """A single output for two classes."""

    def __init__(self, n_features):
        super().__init__(n_features, 1)


class Odd(nn.Module):
    """A module with its own forward, which no list of layers describes."""

    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)

    def forward(self, X):
        return self.layer(X).sin()


def layered(n_features, n_outputs):
    parts = [nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2), nn.LayerNorm(8)]
    parts += [nn.GELU("tanh"), nn.Dropout(0.3), nn.Linear(8, 8, bias=False), nn.ELU(), nn.Sigmoid()]
    return nn.Sequential(*parts, nn.Linear(8, n_outputs))


MODULES = {
    "default": {},
    "one": ONE,
    "relu": {**ONE, "module": "mlp"},
    "normed": {**ONE, "module_params": {"batch_norm": True, "dropout": 0.2, "activation": "silu"}},
    "linear": {**ONE, "module": MLP, "module_params": {"d_hidden": (), "bias": False}},
    "several normed": {"module_params": {"batch_norm": True}},
    "input scale": {**ONE, "module_params": {"input_scale": True}},
    "linear input scale": {
        **ONE,
        "module": MLP,
        "module_params": {"d_hidden": (), "input_scale": True},
    },
    "layers": {**ONE, "module": layered},
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4)) + 3
    return X, (X[:, 0] + X[:, 1] > 6).astype(int) + (X[:, 2] > 4)


def session_of(model):
    """A model in onnxruntime, on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)


def run(estimator, X, output="probabilities"):
    session = session_of(to_onnx(estimator))
    return session.run([output], onnx_inputs(X, session))[0]


@pytest.mark.parametrize("name", MODULES)
def test_torch_and_onnx_give_the_probabilities(name, rows):
    X, y = rows
    estimator = MixupEClassifier(**QUICK | MODULES[name]).fit(X, y)
    expected = estimator.predict_proba(X)
    module = to_torch(estimator)
    for dtype in (torch.float64, torch.float32):
        np.testing.assert_allclose(module(torch.tensor(X, dtype=dtype)), expected, atol=1e-5)
    assert module(torch.tensor(X)).dtype == torch.float64
    np.testing.assert_allclose(module(torch.tensor(X[:1])), expected[:1], atol=1e-6)
    np.testing.assert_allclose(run(estimator, X), expected, atol=1e-6)
    np.testing.assert_array_equal(run(estimator, X, "label"), estimator.predict(X))


@pytest.mark.parametrize("how", [ONE, {}])
def test_heads(how, rows):
    X, y = rows
    several = np.column_stack([y > 0, y > 1])
    targets = np.column_stack([X[:, 0] * 1e6 + 5e6, X[:, 1]])
    single = MixupEClassifier(**QUICK | how, module=OneLogit).fit(X, y > 0)
    labels = MixupEClassifier(**QUICK | how).fit(X, several)
    for estimator in (single, labels):
        proba = estimator.predict_proba(X)
        np.testing.assert_allclose(to_torch(estimator)(torch.tensor(X)), proba, atol=1e-6)
        np.testing.assert_allclose(run(estimator, X), proba, atol=1e-6)
        np.testing.assert_array_equal(run(estimator, X, "label"), estimator.predict(X))
    for y_numbers in (targets, targets[:, 0]):
        regressor = paper_regressor(**QUICK | {"n_members": how.get("n_members", 2)})
        expected = regressor.fit(X, y_numbers).predict(X).reshape(len(X), -1)
        np.testing.assert_allclose(to_torch(regressor)(torch.tensor(X)), expected, rtol=1e-5)
        np.testing.assert_allclose(run(regressor, X, "variable"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("classes", "dtype"),
    [
        (np.array([3, 7]), np.int64),
        (np.array(["no", "yes"]), object),
        (np.array([False, True]), np.int64),
        (np.array([1.0, 2.0]), np.float64),
    ],
)
def test_classes_of_every_type(classes, dtype, rows):
    X, y = rows
    estimator = MixupEClassifier(**QUICK | ONE).fit(X, classes[(y > 0).astype(int)])
    model = to_onnx(estimator)
    session = session_of(model)
    label, _ = session.run(None, {"X": X})
    assert label.dtype == dtype
    assert label.tolist() == estimator.predict(X).tolist()
    metadata = {one.key: one.value for one in model.metadata_props}
    assert metadata["mixupe_sklearn.classes"] == str(classes.tolist()).replace("'", '"').replace(
        "False", "false"
    ).replace("True", "true")
    assert metadata["mixupe_sklearn.version"]


def test_the_module_is_a_copy_in_evaluation_mode(rows):
    X, y = rows
    estimator = MixupEClassifier(**QUICK | ONE | {"warm_start": True}).fit(X, y)
    module = to_torch(estimator)
    before = module(torch.tensor(X))
    estimator.fit(X, y)
    assert not np.allclose(estimator.predict_proba(X), before)
    torch.testing.assert_close(module(torch.tensor(X)), before)
    assert not before.requires_grad
    assert not any(part.training for part in module.modules())
    torch.testing.assert_close(copy.deepcopy(module)(torch.tensor(X)), before)
    with pytest.raises(
        ValueError, match=re.escape("Got X of shape (90, 1), but expected (n_samples, 4).")
    ):
        module(torch.ones(90, 1))


def test_an_exported_module_runs_without_this_package(rows, tmp_path):
    X, y = rows
    estimator = MixupEClassifier(**QUICK | {"n_members": 2, "alpha": 0.2}).fit(X, y)
    rows_dim = torch.export.Dim("rows")
    exported = torch.export.export(
        to_torch(estimator), (torch.tensor(X[:3]),), dynamic_shapes=({0: rows_dim},)
    )
    torch.export.save(exported, tmp_path / "model.pt2")
    np.save(tmp_path / "X.npy", X)
    code = """
import sys, numpy as np, torch
sys.modules["mixupe_sklearn"] = None  # makes it impossible to import
module = torch.export.load("model.pt2").module()
np.save("proba.npy", module(torch.tensor(np.load("X.npy"))).numpy())
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, check=True)
    found = np.load(tmp_path / "proba.npy")
    np.testing.assert_allclose(found, estimator.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", TABLES)
def test_onnxruntime_agrees_on_real_tables_with_text_and_missing_values(name, scaling):
    X, y = load_table(name)
    preprocessor = make_preprocessor(scaling=scaling, min_frequency=2)
    is_regression = TABLES[name].is_regression
    estimator = (MixupERegressor if is_regression else MixupEClassifier)(**QUICK)
    is_train = np.arange(len(X)) % 3 > 0  # some categories of the others are unknown
    pipeline = make_pipeline(preprocessor, estimator).fit(X[is_train], y[is_train])
    if is_regression:
        output, expected = "variable", pipeline.predict(X)[:, None]
        unit = np.std(y.astype(float))
    else:
        output, expected, unit = "probabilities", pipeline.predict_proba(X), 1.0
    assert np.abs(run(pipeline, X, output) - expected).max() <= 1e-5 * unit
    assert np.abs(run(pipeline, X[:1], output) - expected[:1]).max() <= 1e-5 * unit


@pytest.fixture(scope="module")
def frame():
    """Columns of every kind, most with missing values, one constant."""
    rng, n = np.random.default_rng(0), 120
    made = pd.DataFrame(
        {
            "size": rng.normal(size=n) * 100,
            "few": rng.choice([1.0, 1.0, 2.0, 5.0], n),
            "count": rng.integers(0, 5, n),
            "const": 1,
            "a city": rng.choice(["Oslo", "Bonn", "Rom", "x"], n, p=[0.5, 0.3, 0.17, 0.03]),
            "flag": rng.random(n) < 0.5,
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**6, n), "s"),
            "cat": pd.Categorical(rng.integers(1, 4, n)),
            "price": [decimal.Decimal(int(value)) / 7 for value in rng.integers(1, 99, n)],
        }
    )
    for step, name in ((7, "size"), (5, "a city"), (11, "when"), (13, "cat"), (17, "price")):
        made.loc[::step, name] = None
    return made


@pytest.mark.parametrize("scaling", SCALINGS)
def test_scalings_of_columns_of_every_kind(scaling, frame):
    y = np.where(frame["size"].fillna(0) > 0, "up", "down")
    preprocessor = make_preprocessor(scaling=scaling, min_frequency=10)
    pipeline = make_mixupe_pipeline(preprocessor=preprocessor, **QUICK | ONE).fit(frame, y)
    rows = frame.copy()
    rows.loc[:9, "a city"] = "Atlantis"
    rows.loc[10, "size"], rows.loc[11, "size"] = 1e12, 1e140 if scaling == "robust" else -1e12
    rows["count"] = rows["count"].astype(float)
    session = session_of(to_onnx(pipeline))
    assert {one.name for one in session.get_inputs()} == set(frame.columns) - {"const"}
    inputs = onnx_inputs(rows, session)
    assert {"size": "f", "a city": "O", "when": "f"}.items() <= {
        name: values.dtype.kind for name, values in inputs.items()
    }.items()
    label, proba = session.run(None, inputs)
    np.testing.assert_allclose(proba, pipeline.predict_proba(rows), atol=1e-6)
    np.testing.assert_array_equal(label, pipeline.predict(rows))
    one = onnx_inputs(rows.drop(columns="const")[:1], session)
    np.testing.assert_allclose(session.run(None, one)[1], proba[:1], atol=1e-6)


@pytest.mark.parametrize("handle_unknown", ["infrequent_if_exist", "ignore", "error"])
@pytest.mark.parametrize("min_frequency", [None, 10])
def test_unknown_categories(handle_unknown, min_frequency, frame):
    y = frame["flag"].to_numpy()
    preprocessor = make_preprocessor(handle_unknown=handle_unknown, min_frequency=min_frequency)
    pipeline = make_mixupe_pipeline(preprocessor=preprocessor, **QUICK | ONE).fit(frame, y)
    rows = frame.copy()
    rows.loc[::2, "a city"] = "Atlantis"
    proba = run(pipeline, rows)
    if handle_unknown == "error":
        assert np.isnan(proba[::2]).all()
        rows, proba = rows[1::2], proba[1::2]
    np.testing.assert_allclose(proba, pipeline.predict_proba(rows), atol=1e-6)


def test_columns_without_names(frame):
    X, y = frame.drop(columns="cat").to_numpy(dtype=object), frame["flag"].to_numpy()
    pipeline = make_mixupe_pipeline(**QUICK | ONE).fit(X, y)
    session = session_of(to_onnx(pipeline))
    assert [one.name for one in session.get_inputs()] == ["x0", "x1", "x2", "x4", "x5", "x6", "x7"]
    proba = session.run(["probabilities"], onnx_inputs(X, session))[0]
    np.testing.assert_allclose(proba, pipeline.predict_proba(X), atol=1e-6)


def test_steps_of_scikit_learn(rows):
    X, y = rows
    X = X.copy()
    X[::9, 1] = np.nan
    steps = (SimpleImputer(strategy="median"), StandardScaler(), MinMaxScaler())
    pipeline = make_pipeline(*steps, MixupEClassifier(**QUICK | ONE)).fit(X, y)
    np.testing.assert_allclose(run(pipeline, X), pipeline.predict_proba(X), atol=1e-6)
    levels = np.round(X[:, 2:])
    encoder = OneHotEncoder(min_frequency=9, handle_unknown="infrequent_if_exist")
    pipeline = make_pipeline(encoder, MixupEClassifier(**QUICK | ONE)).fit(levels, y)
    odd = levels + (np.arange(len(X)) % 2)[:, None] * 100
    np.testing.assert_allclose(run(pipeline, odd), pipeline.predict_proba(odd), atol=1e-6)
    named = pd.DataFrame(X, columns=list("abcd")).fillna(0.0)
    pipeline = make_pipeline(StandardScaler(), MixupEClassifier(**QUICK | ONE)).fit(named, y)
    shuffled = run(pipeline, named[["d", "a", "c", "b"]])
    np.testing.assert_allclose(shuffled, pipeline.predict_proba(named), atol=1e-6)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Binarizer(threshold=2.3), "Got a Binarizer"),
        (Normalizer(), "Got a Normalizer"),
        (PowerTransformer(), "Got a PowerTransformer"),
        (MaxAbsScaler(clip=True), "with clip=True"),
        (FeatureUnion([("power", PowerTransformer())]), "Got a PowerTransformer"),
        (ColumnTransformer([("all", PolynomialFeatures(), [0, 1])]), "Got a PolynomialFeatures"),
    ],
)
def test_steps_whose_conversion_would_differ_are_refused(step, words, rows):
    X, y = rows
    pipeline = make_pipeline(step, MixupEClassifier(**QUICK | ONE)).fit(X, y)
    with pytest.raises(ValueError, match=words):
        to_onnx(pipeline)


def test_labels_without_a_type_in_onnx_are_refused(rows):
    X, y = rows
    model = MixupEClassifier(**QUICK | ONE).fit(X, y.astype("M8[D]"))
    with pytest.raises(ValueError, match="Got labels such as .*, but expected text"):
        to_onnx(model)


def test_wrong_input_of_onnx_inputs_raises(rows):
    X, y = rows
    model = make_pipeline(StandardScaler(), MixupEClassifier(**QUICK | ONE))
    named = pd.DataFrame(X, columns=list("abcd"))
    session = session_of(to_onnx(model.fit(named, y)))
    for wrong in (None, X[0], "X"):
        with pytest.raises(ValueError, match="Expected 2D array|could not convert string"):
            onnx_inputs(wrong, session)
    with pytest.raises(ValueError, match="without the column 'a'"):
        onnx_inputs(named[["b", "c", "d"]], session)
    with pytest.raises(ValueError, match="could not convert string to float"):
        onnx_inputs(named.astype(object).assign(a="text"), session)
    with pytest.raises(TypeError, match="expected an onnxruntime.InferenceSession"):
        onnx_inputs(X, "model.onnx")
    for thing in (None, StandardScaler()):
        with pytest.raises(ValueError, match="but expected a MixupEClassifier"):
            to_onnx(thing)
    with pytest.raises(ValueError, match="Got missing=3, but expected text"):
        to_onnx(model, missing=3)


def test_the_file_is_complete_or_absent(rows, tmp_path, monkeypatch):
    X, y = rows
    estimator = MixupEClassifier(**QUICK | ONE).fit(X, y)
    path = tmp_path / "model.onnx"
    model = to_onnx(estimator, path)
    assert onnx.load(path) == model
    content = path.read_bytes()

    def fail(number):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        to_onnx(estimator, path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_errors_name_what_cannot_be_exported(rows, frame):
    X, y = rows
    with pytest.raises(TypeError, match="Got a Pipeline, but expected a MixupEClassifier"):
        to_torch(make_pipeline(MixupEClassifier()))
    with pytest.raises(
        ValueError, match="Got a LogisticRegression, but expected a MixupEClassifier"
    ):
        to_onnx(LogisticRegression().fit(X, y))
    odd = MixupEClassifier(**QUICK | ONE, module=Odd).fit(X, y)
    with pytest.raises(ValueError, match="Got a Odd in the module, but expected an MLP"):
        to_onnx(odd)
    hooked = MixupEClassifier(**QUICK | ONE).fit(X, y)
    hooked.net_.module_.register_forward_hook(lambda module, given, output: output * 2)
    with pytest.raises(ValueError, match="Got a MLP with hooks"):
        to_onnx(hooked)
    rows_with_text = frame.assign(**{"a city": frame["a city"].fillna("none")})
    pipeline = make_mixupe_pipeline(**QUICK | ONE).fit(rows_with_text, frame["flag"])
    with pytest.raises(ValueError, match="Got missing='none', which is a category"):
        to_onnx(pipeline, missing="none")
    session = session_of(to_onnx(pipeline, missing="?"))
    inputs = onnx_inputs(frame, session)
    assert inputs["a city"][0, 0] == "?"
    with pytest.raises(ValueError, match="Got X without the column 'flag'"):
        onnx_inputs(frame.drop(columns="flag"), session)


def test_without_the_extra_the_error_names_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("mixupe_sklearn._export.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    sentence = "to_onnx needs onnx: pip install mixupe-sklearn[onnx]."
    with pytest.raises(ImportError, match=re.escape(sentence)):
        to_onnx(None)


def test_columns_named_as_outputs(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=["label", "probabilities", "cast1", "label_"])
    pipeline = make_mixupe_pipeline(**QUICK | ONE).fit(frame, y)
    session = session_of(to_onnx(pipeline))
    assert [one.name for one in session.get_inputs()] == list(frame.columns)
    assert [one.name for one in session.get_outputs()] == ["label__", "probabilities_"]
    proba = session.run(None, onnx_inputs(frame, session))[1]
    np.testing.assert_allclose(proba, pipeline.predict_proba(frame), atol=1e-6)


def test_the_server_of_the_docs_answers(tmp_path):
    frame = pd.DataFrame({"size": [0.1, 2.0, None] * 9, "city": ["Oslo", None, "Bonn"] * 9})
    pipeline = make_mixupe_pipeline(**QUICK | ONE).fit(frame, ["a", "b", "a"] * 9)
    to_onnx(pipeline, tmp_path / "model.onnx")
    (code,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    (tmp_path / "serve.py").write_text(code.replace("8000", str(port)))
    command = [sys.executable, "-W", "ignore", "serve.py"]
    server = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        rows = frame[:3].astype(object).where(frame[:3].notna(), None)
        answer = asked(port, rows.to_dict("records"))
    finally:
        server.kill()
        server.wait()
    np.testing.assert_allclose(
        answer["probabilities"], pipeline.predict_proba(frame[:3]), atol=1e-6
    )
    assert answer["label"] == pipeline.predict(frame[:3]).tolist()


def asked(port, rows):
    """The answer of the server, once it is up."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}", json.dumps(rows).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(600):
        try:
            with opener.open(request, timeout=30) as reply:
                return json.load(reply)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.1)
    raise AssertionError("the server never came up")


@pytest.mark.parametrize("how", [ONE, {}])
def test_the_fast_path_of_validation_equals_the_full_one(how, rows):
    """A float array skips most checks; a list never does."""
    X, y = rows
    estimator = MixupEClassifier(**QUICK | how).fit(X, y)
    expected = estimator.predict_proba(X.tolist())
    np.testing.assert_array_equal(estimator.predict_proba(X), expected)
    np.testing.assert_array_equal(estimator.predict_proba(X[:1]), expected[:1])
    np.testing.assert_array_equal(estimator.predict_proba(np.asfortranarray(X)), expected)
    for wrong in (X[:, :3], X[:0], X[0], X * np.nan, X * 1e60):
        messages = []
        for form in (wrong, wrong.tolist() if wrong.size else wrong.astype(object)):
            with pytest.raises(ValueError) as caught:
                estimator.predict_proba(form)
            messages.append(re.sub(r"array=.*", "", str(caught.value), flags=re.DOTALL))
        assert messages[0] == messages[1]


def test_a_module_with_an_extra_weight_has_no_known_architecture():
    module = MLP(4, 3)
    assert architecture_of(module) is not None
    module.stages[0].register_parameter("extra", nn.Parameter(torch.ones(1)))
    assert architecture_of(module) is None
    tied = MLP(4, 4, d_hidden=(4, 4))
    tied.stages[1][0].weight = tied.stages[0][0].weight
    assert architecture_of(tied) is None
