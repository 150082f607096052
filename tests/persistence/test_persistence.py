"""Saved models load unchanged, loading executes nothing, and bad files raise."""

import io
import json
import pathlib
import pickle
import re
import subprocess
import sys
import textwrap
import zipfile

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from saved_models import FEW, MAKERS, SMALL, TRUSTED, X, Y, frame, output
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.feature_selection import VarianceThreshold
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    LabelBinarizer,
    LabelEncoder,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from torch import nn

from mixupe_sklearn import (
    MixupEClassifier,
    MixupEImageClassifier,
    MixupENet,
    MixupERegressor,
    Spectrogram,
    load,
    make_preprocessor,
    preset,
    save,
    saved_info,
)
from mixupe_sklearn._persistence import file_format as container
from mixupe_sklearn._persistence.schemas import SCHEMAS
from mixupe_sklearn._preprocessing.table import _target_encoder
from mixupe_sklearn.modules import NAMED
from mixupe_sklearn.persistence import skops_types
from mixupe_sklearn.preprocessing import (
    ClippingScaler,
    DateParts,
    PiecewiseLinearEncoder,
    QuantileScaler,
)

KEPT = pathlib.Path(__file__).parent / "saved"


class Linear(nn.Module):
    def __init__(self, n_features, n_outputs):
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)

    def forward(self, rows):
        return self.layer(rows)


@pytest.fixture(scope="module")
def fitted():
    made = {}

    def get(name):
        if name not in made:
            model, (rows, y) = MAKERS[name]()
            made[name] = model.fit(rows, y), rows, y
        return made[name]

    return get


@pytest.mark.parametrize("name", MAKERS)
def test_a_saved_model_loads_unchanged(name, fitted, tmp_path):
    model, rows, _ = fitted(name)
    path = tmp_path / "model.safetensors"
    save(model, path)
    loaded = load(path, trusted=TRUSTED)
    assert type(loaded) is type(model)
    np.testing.assert_array_equal(output(loaded, rows), output(model, rows))
    told = [re.sub("0x[0-9a-f]+", "", str(one.get_params())) for one in (loaded, model)]
    assert told[0] == told[1]
    save(loaded, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def _attributes(value, path=""):
    """All plain values inside an object, by path."""
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    elif hasattr(value, "__dict__") and type(value).__module__.startswith(("mixupe", "skorch")):
        value = vars(value)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _attributes(item, f"{path}.{key}")
    elif isinstance(value, (int, float, str, type(None))):
        yield path, value


@pytest.mark.parametrize("name", ["members", "one", "regressor", "images", "graphs", "callbacks"])
def test_loaded_nets_equal_the_saved_ones(name, fitted, tmp_path):
    model, _, _ = fitted(name)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert vars(loaded).keys() == vars(model).keys()
    differ = dict(_attributes(model.net_)).items() ^ dict(_attributes(loaded.net_)).items()
    # These only record the last fit.
    passing = r"epoch_start_time_|_factors|_rates.*|best_\w+|n_misses_|is_active|patience|tol|training|_compiled_call_impl"
    assert [p for p, _ in differ if not re.search(rf"\.({passing})$", p)] == []


@pytest.mark.parametrize("name", ["members", "one", "regressor", "images", "graphs", "callbacks"])
def test_continued_training_equals_uninterrupted_training(name, tmp_path):
    model, (rows, y) = MAKERS[name]()
    save(model.fit(rows, y), tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one in (model, loaded):
        one.partial_fit(rows, y)
    np.testing.assert_array_equal(output(loaded, rows), output(model, rows))
    assert loaded.n_iter_ == model.n_iter_ == 1 + len(model.history_[:-1])


WITH_MISSING = np.where(X > 5, np.nan, X)
TEXT = np.array([["a", "b"], ["c", "b"], ["a", None], ["d", np.nan]] * 6, dtype=object)
FEW_LEVELS = TEXT[:, :1]
TRANSFORMERS = {
    "ClippingScaler": (ClippingScaler(), X),
    "QuantileScaler": (QuantileScaler(), WITH_MISSING),
    "PiecewiseLinearEncoder": (PiecewiseLinearEncoder(), WITH_MISSING),
    "DateParts": (DateParts(), X * 1e8),
    "TablePreprocessor": (make_preprocessor(), TEXT),
    "TablePreprocessor as frame": (
        make_preprocessor(scaling="quantile").set_output(transform="pandas"),
        frame(),
    ),
    "ColumnTransformer": (
        ColumnTransformer(
            [("a", StandardScaler(), [0, 1]), ("b", "passthrough", slice(2, 3))],
            remainder=PowerTransformer(),
        ),
        X,
    ),
    "ColumnTransformer of names": (
        ColumnTransformer([("a", StandardScaler(), ["a"]), ("b", "drop", ["b"])]),
        frame(),
    ),
    "PCA": (PCA(2, whiten=True), X),
    "TruncatedSVD": (TruncatedSVD(2), X),
    "VarianceThreshold": (VarianceThreshold(), X),
    "MissingIndicator": (MissingIndicator(), WITH_MISSING),
    "SimpleImputer": (SimpleImputer(add_indicator=True), WITH_MISSING),
    "SimpleImputer of text": (
        SimpleImputer(strategy="most_frequent", missing_values=None),
        TEXT[:3],
    ),
    "FeatureUnion": (FeatureUnion([("a", StandardScaler()), ("b", PCA(1))]), X),
    "Pipeline": (make_pipeline(StandardScaler(), PCA(2)), X),
    "Binarizer": (Binarizer(), X),
    "FunctionTransformer": (FunctionTransformer(np.log1p, np.expm1), X),
    "MaxAbsScaler": (MaxAbsScaler(), X),
    "MinMaxScaler": (MinMaxScaler(), X),
    "Normalizer": (Normalizer(), X),
    "OneHotEncoder": (
        OneHotEncoder(min_frequency=7, drop="first", handle_unknown="infrequent_if_exist"),
        TEXT,
    ),
    "OneHotEncoder of numbers": (OneHotEncoder(dtype=np.float32), WITH_MISSING),
    "OneHotEncoder in an order": (OneHotEncoder(categories=[["d", "c", "a"]]), FEW_LEVELS),
    "OrdinalEncoder": (OrdinalEncoder(min_frequency=7), TEXT),
    "PolynomialFeatures": (PolynomialFeatures((2, 3), interaction_only=True), X),
    "PowerTransformer": (PowerTransformer(), X),
    "QuantileTransformer": (
        QuantileTransformer(n_quantiles=20, random_state=np.random.RandomState(1)),
        X,
    ),
    "RobustScaler": (RobustScaler(with_centering=False), WITH_MISSING),
    "StandardScaler": (StandardScaler(), WITH_MISSING),
    "TargetEncoder": (_target_encoder(), FEW_LEVELS),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_alone(name, tmp_path):
    transformer, rows = TRANSFORMERS[name]
    y = np.arange(len(rows)) % 3
    save(transformer.fit(rows, y), tmp_path / "one")
    loaded = load(tmp_path / "one")
    found, expected = (one.transform(rows) for one in (loaded, transformer))
    if hasattr(expected, "columns"):
        pd.testing.assert_frame_equal(found, expected)
    else:
        dense = [part.toarray() if sparse.issparse(part) else part for part in (found, expected)]
        np.testing.assert_array_equal(*dense)
    if hasattr(transformer, "get_feature_names_out"):
        names = [list(one.get_feature_names_out()) for one in (loaded, transformer)]
        assert names[0] == names[1]
    save(loaded, tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("encoder", [LabelEncoder(), LabelBinarizer()])
def test_encoders_of_labels(encoder, tmp_path):
    save(encoder.fit(["b", "a", "c"]), tmp_path / "one")
    loaded = load(tmp_path / "one").transform(["c", "a"])
    np.testing.assert_array_equal(loaded, encoder.transform(["c", "a"]))


def test_every_transformer_of_the_table_has_a_test():
    tested = {name.split(" ")[0] for name in TRANSFORMERS} | {"LabelEncoder", "LabelBinarizer"}
    others = {"TransformedTargetRegressor", "MixupEPipeline", "ColumnsToNumbers", "Spectrogram"}
    others |= {type(MAKERS[name]()[0]).__name__ for name in MAKERS}
    known = {name.partition(".")[2] for name, one in SCHEMAS.items() if one.kind == "estimator"}
    assert known == tested | others


@pytest.mark.parametrize("optimizer", sorted(n for n in SCHEMAS if n.startswith("torch.optim")))
def test_every_optimizer_continues(optimizer, tmp_path):
    params = {"optimizer": getattr(torch.optim, optimizer.rpartition(".")[2]), "lr": 0.001}
    model = MixupEClassifier(**preset("paper") | SMALL | params).fit(X, Y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one in (model, loaded):
        one.partial_fit(X, Y)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("params", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {}])
def test_momentum_continues(params, tmp_path):
    model = MixupEClassifier(n_members=2, optimizer="sgd", optimizer_params=params, **SMALL)
    save(model.fit(X, Y), tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one in (model, loaded):
        one.set_params(lr=0.02).partial_fit(X, Y)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_an_unfitted_model(tmp_path):
    rng = np.random.RandomState(3)
    rng.normal()  # the second of a pair waits inside
    save(MixupERegressor(alpha=0.7, random_state=rng), tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert not hasattr(loaded, "net_")
    assert loaded.random_state.normal() == rng.normal()


@pytest.mark.parametrize("name", sorted(set(NAMED) - {"resnet50", "vit-b16", "coatnet0"}))
def test_every_named_network(name, tmp_path):
    images = np.random.default_rng(0).random((4, 32, 32))
    narrow = {"lenet": {}, "vgg11": {"width": 4}, "vgg13": {"width": 4}}
    params = narrow.get(
        name, {"width": 2} if name.startswith("pre") else {"depth": 10, "widening": 1}
    )
    model = MixupEImageClassifier(module=name, module_params=params, max_epochs=1, random_state=0)
    save(model.fit(images, [0, 1, 0, 1]), tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").predict_proba(images), model.predict_proba(images)
    )


def test_without_the_state_of_training(fitted, tmp_path):
    model, rows, y = fitted("members")
    save(model, tmp_path / "whole")
    save(model, tmp_path / "light", keep_training=False)
    assert (tmp_path / "light").stat().st_size < 0.6 * (tmp_path / "whole").stat().st_size
    light = load(tmp_path / "light")
    np.testing.assert_array_equal(output(light, rows), output(model, rows))
    assert light.partial_fit(rows, y).n_iter_ == model.n_iter_ + 1


def test_the_search_keeps_its_trials(fitted, tmp_path):
    search, rows, y = fitted("search")
    save(search, tmp_path / "search")
    loaded = load(tmp_path / "search")
    assert loaded.score(rows, y) == search.score(rows, y)
    assert loaded.best_params_ == search.best_params_
    pd.testing.assert_frame_equal(
        pd.DataFrame(loaded.cv_results_), pd.DataFrame(search.cv_results_)
    )
    ours, theirs = loaded.study_.trials_dataframe(), search.study_.trials_dataframe()
    pd.testing.assert_frame_equal(ours, theirs)


def test_in_a_fresh_process(fitted, tmp_path):
    """A new process loads each kind of model and predicts."""
    program = textwrap.dedent("""
        import pathlib, pickle, sys
        import numpy as np
        folder = pathlib.Path(sys.argv[1])
        sys.path.insert(0, sys.argv[2])
        from saved_models import TRUSTED
        from mixupe_sklearn import load
        for path in sorted(folder.glob("*.safetensors"), key=lambda path: path.stem):
            rows, expected = pickle.loads(path.with_suffix(".pkl").read_bytes())
            model = load(path, trusted=TRUSTED)
            found = model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)
            print(path.stem, np.array_equal(found, expected))
    """)
    names = sorted(MAKERS)
    for name in names:
        model, rows, _ = fitted(name)
        save(model, tmp_path / f"{name}.safetensors")
        (tmp_path / f"{name}.pkl").write_bytes(pickle.dumps((rows, output(model, rows))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path), str(KEPT.parent.parent)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.splitlines() == [f"{name} True" for name in names]


# Files that must not load.


class Bomb:
    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.mark),)


@pytest.mark.parametrize("kind", ["pickle", "joblib", "torch", "skops", "text", "empty", "folder"])
def test_other_files_are_refused_and_nothing_is_executed(kind, tmp_path):
    bomb = Bomb()
    bomb.mark = str(tmp_path / "executed")
    path = tmp_path / "model.safetensors"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(bomb))
    elif kind == "joblib":
        joblib.dump(bomb, path, compress=3)
    elif kind == "torch":
        torch.save(bomb, path)
    elif kind == "skops":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("schema.json", json.dumps({"__loader__": "FunctionNode"}))
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text("hello " * 20 if kind == "text" else "")
    with pytest.raises(ValueError, match="Got .*model.safetensors', which .*, but expected a file"):
        load(path)
    assert not (tmp_path / "executed").exists()


def test_safetensors_of_others_are_refused(tmp_path):
    import safetensors.torch

    safetensors.torch.save_file({"w": torch.ones(2)}, tmp_path / "theirs")
    with pytest.raises(ValueError, match="has no header of a saved model"):
        load(tmp_path / "theirs")


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="none/model', but expected .* that exists.$"):
        save(MixupEClassifier(), tmp_path / "none" / "model")


def test_a_file_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


@pytest.mark.parametrize("kind", ["flip", "cut"])
def test_damaged_files_are_refused(kind, fitted, tmp_path):
    """A thousand files; half of them are damaged in the header."""
    model, _, _ = fitted("pipeline")
    path = tmp_path / "model"
    save(model, path, keep_training=False)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    n_header = 8 + int.from_bytes(whole[:8], "little")
    for number in range(500):
        data = bytearray(whole)
        place = int(rng.integers(n_header if number % 2 else len(whole)))
        if kind == "flip":
            data[place] ^= 1 << int(rng.integers(8))
        else:
            del data[place:]
        path.write_bytes(data)
        with pytest.raises(
            ValueError, match=r"^Got '.*model', which .*, but expected a f(ile|ormat)"
        ):
            load(path)


def forged(model, change, tmp_path):
    """The file of a model with changed text and a valid checksum."""
    save(model, tmp_path / "model")
    content = container.unpack((tmp_path / "model").read_bytes(), "a file", "1")
    plain = change(content.model, content.arrays) or content.model
    data = container.pack(plain, content.arrays, content.written_by, content.versions)
    (tmp_path / "forged").write_bytes(data)
    return tmp_path / "forged"


def _set(path, value):
    def change(model, arrays):
        *way, last = path
        for key in way:
            model = model[key]
        model[last] = value

    return change


NET = ("fitted", "nets", 0, "dict")
FORGERIES = {
    "a type of the system": (
        _set(("params", "module"), {"name": "os.system"}),
        "names 'os.system'",
    ),
    "an object": (
        _set(("params", "module"), {"class": "subprocess.Popen", "params": {"args": "true"}}),
        "names 'subprocess.Popen'",
    ),
    "a name among plain values": (_set(("params", "alpha"), {"name": "os.system"}), "tag 'name'"),
    "a tag": (_set(("params", "alpha"), {"pickle": "gASVAA=="}), "has the tag 'pickle'"),
    "the class": (_set(("fitted", "__class__"), 1), "'__class__' among the attributes"),
    "an attribute of its own": (_set(("fitted", "n_epochs_"), 1), "'n_epochs_' among the"),
    "a parameter of its own": (_set(("params", "epochs"), 1), "the parameter 'epochs'"),
    "a wide network": (
        _set(("params", "module_params"), {"dict": {"d_hidden": [10**9]}}),
        "arguments of its module that exceed",
    ),
    "a wider network": (
        _set(("params", "module_params"), {"dict": {"d_hidden": [9]}}),
        "weights that do not match",
    ),
    "a deep network": (
        _set(("params", "module_params"), {"dict": {"d_hidden": [8] * 1000}}),
        "fewer weights than its module",
    ),
    "no weights": (_set((*NET, "weights"), {"dict": {}}), "weights that do not match"),
    "a function in place of a module": (
        _set(("params", "module"), {"name": "mixupe.flip"}),
        "'mixupe.flip' where it may not be",
    ),
    "many networks": (_set(("params", "n_members"), 10**9), "for other than 1000000000 members"),
    "no array": (_set((*NET, "weights", "dict", "none"), {"tensor": "float32"}), "has no array"),
    "an array too many": (
        lambda model, arrays: arrays.update(more=np.zeros(3)),
        "an array 'more' that is not part",
    ),
    "wide text": (
        _set(("fitted", "classes_"), {"array": "C", "view": "<U99999999"}),
        "characters that do not exist",
    ),
    "a large shape": (
        _set(("fitted", "classes_"), {"objects": [10**12], "kind": "O"}),
        "has no array",
    ),
    "a generator beyond its end": (
        _set(("params", "random_state"), {"random_state": [[1] * 624, 10**6, 0, 0.0]}),
        "position beyond its buffer",
    ),
    "text for a number": (_set((*NET, "head"), {"float": "1e999"}), "KeyError: '1e999'"),
    "a method": (
        _set(("fitted", "_resolved_device"), 1),
        "'_resolved_device' among the attributes",
    ),
    "a type that is called": (
        _set(("params", "module"), {"type": "bytes_"}),
        "weights|argument",
    ),
    "long bytes": (_set(("params", "alpha"), {"scalar": "S1", "value": 2 * 10**9}), "type 'S1'"),
    "a wide type": (_set(("params", "alpha"), {"dtype": "U99999999"}), "the type 'U99999999'"),
    "keys that are alike": (
        _set(
            ("params", "class_weight"),
            {"pairs": [[number * (2**61 - 1), 1.0] for number in range(1, 1003)]},
        ),
        "too many large numbers",
    ),
    "control characters": (
        _set(("params", "module"), {"name": "\x1b[31mX"}),
        r"'\\x1b\[31mX', .*trusted=\[\.\.\.\]",
    ),
    "no alpha": (_set(("params", "alpha"), []), "ZeroDivisionError"),
    "no estimator": (lambda model, arrays: {"tuple": [1, 2]}, "no estimator in it"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_files_are_refused(name, fitted, tmp_path):
    change, words = FORGERIES[name]
    path = forged(fitted("one")[0], change, tmp_path)
    with pytest.raises(ValueError, match=words):
        load(path)


def test_buffers_are_counted_too(tmp_path):
    """CoAtNet creates a table of all pairs of positions, which no file holds."""
    small = {"widths": (4, 4, 4, 4, 4), "blocks": (1, 1, 1, 1, 1), "d_head": 2}
    images = np.random.default_rng(0).random((4, 32, 32))
    model = MixupEImageClassifier(module="coatnet0", module_params=small, max_epochs=1)
    save(model.fit(images, [0, 1, 0, 1]), tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").predict_proba(images), model.predict_proba(images)
    )
    small = {
        "dict": {name: {"tuple": list(own)} for name, own in small.items() if name != "d_head"}
    }
    small["dict"] |= {"d_head": 2, "image_size": {"tuple": [4096, 4096]}}
    change = _set(("params", "module_params"), small)
    with pytest.raises(ValueError, match="weights that do not match|more memory than its weights"):
        load(forged(model, change, tmp_path))


@pytest.mark.parametrize("attribute", ["_n_features_outs", "_default_to_infrequent_mappings"])
def test_a_one_hot_encoder_beyond_its_columns_is_refused(attribute, fitted, tmp_path):
    """scikit-learn would write outside of its memory."""

    def change(model, arrays):
        for value in _dicts(model):
            is_fitted = "categories_" in value.get("fitted", {})
            if is_fitted and attribute == "_n_features_outs":
                counts = value["fitted"][attribute]
                value["fitted"][attribute] = [2**40] * len(counts)
        for entry in arrays:
            if attribute in entry:
                arrays[entry] = arrays[entry] + 2**40

    with pytest.raises(ValueError, match="OneHotEncoder whose fitted attributes do not fit"):
        load(forged(fitted("ramps")[0], change, tmp_path))


def _dicts(value):
    if isinstance(value, dict):
        yield value
    items = value.values() if isinstance(value, dict) else value
    for item in items if isinstance(value, (dict, list)) else ():
        yield from _dicts(item)


def test_deeply_nested_text_is_refused(fitted, tmp_path):
    def change(model, arrays):
        value = 1
        for _ in range(400):
            value = [value]
        model["params"]["alpha"] = value

    path = forged(fitted("one")[0], change, tmp_path)
    data = path.read_bytes()
    deep = data.replace(b"[" * 400, b"[" * 100_000)
    path.write_bytes(
        (len(deep) - len(data) + int.from_bytes(data[:8], "little")).to_bytes(8, "little")
        + deep[8:]
    )
    with pytest.raises(ValueError, match="no header"):
        load(path)


@pytest.mark.parametrize("n_values", [1, 5])
def test_an_optimizer_state_of_other_shapes_is_refused(n_values, fitted, tmp_path):
    """A moment of a single element ended the process in ``partial_fit``."""

    def change(model, arrays):
        entry = next(name for name in arrays if name.endswith("exp_avg"))
        arrays[entry] = np.zeros(n_values, np.float32)  # no weight has this shape

    with pytest.raises(ValueError, match="optimizer state with other shapes than the weights"):
        load(forged(fitted("one")[0], change, tmp_path))


def test_paths_of_this_machine_are_not_saved(tmp_path):
    pipeline = make_pipeline(StandardScaler(), MixupEClassifier(), memory=str(tmp_path / "cache"))
    save(pipeline, tmp_path / "model")
    assert load(tmp_path / "model").memory is None
    assert load(forged(pipeline, _set(("params", "memory"), "elsewhere"), tmp_path)).memory is None
    save(Spectrogram(cache=str(tmp_path)), tmp_path / "maker")
    assert load(tmp_path / "maker").cache is None


# Versions.


def test_a_later_format_raises(fitted, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(container, "FORMAT_VERSION", 7)
        save(fitted("one")[0], tmp_path / "model")
    with pytest.raises(ValueError, match="written in format 7, but expected a format up to 2"):
        load(tmp_path / "model")


def test_another_version_of_scikit_learn_warns(fitted, tmp_path):
    path = tmp_path / "model"
    save(fitted("pipeline")[0], path)
    content = container.unpack(path.read_bytes(), "a file", "1")
    versions = content.versions | {"scikit-learn": "0.1"}
    path.write_bytes(container.pack(content.model, content.arrays, "0.1", versions))
    with pytest.warns(InconsistentVersionWarning, match="from version 0.1"):
        load(path)


def test_info(fitted, tmp_path):
    save(fitted("one")[0], tmp_path / "model")
    info = saved_info(tmp_path / "model")
    assert info["type"] == "mixupe.MixupEClassifier"
    assert info["versions"]["torch"] == torch.__version__
    n_weights = sum(p.numel() for p in fitted("one")[0].net_.module_.parameters())
    assert info["n_values"] > 3 * n_weights


@pytest.mark.parametrize("name", ["classifier", "pipeline", "regressor"])
def test_files_of_format_1_are_converted(name, tmp_path):
    """Written by version 0.1.0.dev0, with its predictions; see ``make_saved.py`` beside them."""
    with pytest.raises(ValueError, match="mixupe_sklearn.persistence convert OLD NEW'.$"):
        load(KEPT / f"{name}.safetensors")
    command = [sys.executable, "-W", "ignore", "-m", "mixupe_sklearn.persistence", "convert"]
    done = subprocess.run(
        [*command, str(KEPT / f"{name}.safetensors"), str(tmp_path / "new")],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert "only if you trust" in done.stdout
    model = load(tmp_path / "new")
    kept = json.loads((KEPT / f"{name}.json").read_text())
    rows = pd.DataFrame(kept["rows"]) if name == "pipeline" else np.array(kept["rows"])
    np.testing.assert_allclose(output(model, rows), kept["output"], atol=1e-6)
    assert saved_info(tmp_path / "new")["written_by"] == kept["written_by"]


# The user's own modules, callbacks and devices.


def test_a_user_module_must_be_trusted(tmp_path):
    model = MixupEClassifier(n_members=1, module=Linear, **FEW).fit(X, Y)
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"Linear', a type .*load\(..., trusted=\[Linear\]\)\.$"):
        load(tmp_path / "model")
    loaded = load(tmp_path / "model", trusted=[Linear])
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


class Own(MixupEClassifier):
    """A user's estimator, with an attribute of its own."""

    def fit(self, X, y):
        self.n_calls_ = getattr(self, "n_calls_", 0) + 1
        return super().fit(X, y)


def test_a_subclass_must_be_trusted_and_keeps_the_rules_of_its_parent(tmp_path):
    model = Own(n_members=2, **SMALL).fit(X, Y)
    save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"trusted=\[Own\]"):
        load(tmp_path / "model")
    loaded = load(tmp_path / "model", trusted=[Own])
    assert loaded.n_calls_ == 1
    for one in (model, loaded):
        one.partial_fit(X, Y)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    path = forged(model, lambda _, arrays: arrays.update(_short(arrays)), tmp_path)
    with pytest.raises(ValueError, match="'X_mean_' is not"):
        load(path, trusted=[Own])


def _short(arrays):
    return {name: own[:2] for name, own in arrays.items() if name.endswith("X_mean_")}


def test_what_load_would_refuse_is_not_saved(tmp_path):
    """A parameter of plain values holds no object, and attributes keep their rules."""
    with pytest.raises(ValueError, match="estimator.alpha of type StandardScaler, which save does"):
        save(MixupEClassifier(alpha=StandardScaler()), tmp_path / "model")
    scaler = StandardScaler().fit(X)
    scaler.note = "mine"
    with pytest.raises(ValueError, match="estimator.note, an attribute of a StandardScaler"):
        save(scaler, tmp_path / "model")
    scaler = StandardScaler().fit(X)
    scaler.mean_ = scaler.mean_[:2]
    with pytest.raises(ValueError, match="^Got an estimator that has a sklearn.StandardScaler wh"):
        save(scaler, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_errors_name_what_cannot_be_saved(tmp_path):
    local = MixupEClassifier(module=lambda n_features, n_outputs: nn.Linear(n_features, n_outputs))
    with pytest.raises(ValueError, match="estimator.module, a function .* within a function"):
        save(local, tmp_path / "model")
    odd = MixupEClassifier(module_params={"bias": object()})
    with pytest.raises(ValueError, match="estimator.module_params.bias of type object, which save"):
        save(odd, tmp_path / "model")
    circle = []
    circle.append(circle)
    with pytest.raises(ValueError, match="contains itself"):
        save(MixupEClassifier(alpha=circle), tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("trusted", [Linear, "Linear", 3])
def test_trusted_must_be_a_list(trusted, tmp_path):
    save(MixupEClassifier(), tmp_path / "model")
    with pytest.raises(TypeError, match="but expected a list of types"):
        load(tmp_path / "model", trusted=trusted)


@pytest.mark.parametrize("thing", [{"a": 1}, "model", None, MixupENet(nn.Linear(2, 2))])
def test_only_estimators_are_saved(thing, tmp_path):
    with pytest.raises(TypeError, match="but expected a"):
        save(thing, tmp_path / "model")


def test_a_missing_device_warns(fitted, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    path = forged(fitted("one")[0], _set(("params", "device"), "cuda"), tmp_path)
    with pytest.warns(UserWarning, match="onto the CPU"):
        loaded = load(path)
    np.testing.assert_array_equal(loaded.predict(X), fitted("one")[0].predict(X))
    assert load(path, device="cpu").device == "cpu"


# Other ways to save.


@pytest.mark.parametrize("name", MAKERS)
def test_pickle_and_joblib_keep_working(name, fitted):
    model, rows, _ = fitted(name)
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    for loaded in (pickle.loads(pickle.dumps(model)), joblib.load(buffer)):
        np.testing.assert_array_equal(output(loaded, rows), output(model, rows))


@pytest.mark.parametrize(
    "name", sorted(set(MAKERS) - {"float64", "own module", "callbacks", "search"})
)
def test_skops_keeps_working_with_our_types_declared(name, fitted):
    model, rows, _ = fitted(name)
    data = skops.io.dumps(model)
    assert set(skops.io.get_untrusted_types(data=data)) <= set(skops_types())
    loaded = skops.io.loads(data, trusted=skops_types())
    np.testing.assert_array_equal(output(loaded, rows), output(model, rows))
