"""Files that once crashed the process, took gigabytes or ran code of another kind are refused."""

import os
import time
import tracemalloc

import numpy as np
import pytest
import torch
from saved_changes import SECONDS, SPARE, is_wrong, run
from saved_models import FEW, MAKERS, SMALL, X, Y
from sklearn.exceptions import InconsistentVersionWarning
from torch import nn

from mixupe_sklearn import MixupEClassifier, MixupEGraphClassifier, load, save, saved_info
from mixupe_sklearn._persistence import file_format
from mixupe_sklearn.callbacks import PolyakAverage, WarmupCosine
from mixupe_sklearn.modules import MLP


@pytest.fixture(scope="module")
def content():
    """The content of the file of a model, by the model's name."""
    made = {}

    def get(name):
        if name not in made:
            model, (rows, y) = MAKERS[name]()
            made[name] = content_of(model.fit(rows, y))
        found = made[name]
        return found._replace(model=_copied(found.model), arrays=dict(found.arrays))

    return get


def content_of(model):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        save(model, path)
        with open(path, "rb") as file:
            return file_format.unpack(file.read(), "a file", "1")


def _copied(value):
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def written(content, folder):
    """A file with this content and a valid checksum."""
    path = folder / "forged"
    path.write_bytes(file_format.pack(content.model, content.arrays, "0.1", content.versions))
    return path


def refusal(path, **options):
    """The error of ``load``, which must need little memory and time."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(ValueError, match="^Got ") as caught:
            load(path, **options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * path.stat().st_size + SPARE
    assert time.process_time() - start < SECONDS
    assert str(caught.value).isprintable()
    return str(caught.value)


def objects(value, name):
    """All objects of a class in the JSON of a model."""
    if isinstance(value, dict) and value.get("class") == name:
        yield value
    items = value.values() if isinstance(value, dict) else value
    for item in items if isinstance(value, (dict, list)) else ():
        yield from objects(item, name)


@pytest.mark.parametrize("change", ["reversed", "equal"])
def test_unsorted_levels_of_an_encoder(change, content, tmp_path):
    """scikit-learn's bisection then wrote beyond the end of its arrays in ``predict``."""
    found = content("pipeline")
    names = [n for n in found.arrays if "categories_" in n and found.arrays[n].dtype.kind == "f"]
    assert names
    for name in names:
        levels = found.arrays[name]
        found.arrays[name] = levels[::-1].copy() if change == "reversed" else levels * 0
    assert "OneHotEncoder" in refusal(written(found, tmp_path))


def test_unsorted_classes(content, tmp_path):
    found = content("one")
    found.arrays["estimator.classes_"] = found.arrays["estimator.classes_"][::-1].copy()
    assert "'classes_'" in refusal(written(found, tmp_path))


def test_an_array_of_text_holds_only_atoms(content, tmp_path):
    """A dict or set inside took thousands of times the size of the file."""
    found = content("text")
    found.model["fitted"]["classes_"] = {"items": [{"dict": {}}] * 3, "kind": "U", "shape": [3]}
    assert "tag 'items'" in refusal(written(found, tmp_path))
    found.model["fitted"]["classes_"] = {"objects": [3], "kind": "O"}
    found.arrays["estimator.classes_"] = np.array([[5, 1], [0, 2], [0, 3]])  # 5 is no type
    found.arrays["estimator.classes_.text"] = np.frombuffer(b"abc", np.uint8)
    assert "items beyond its text" in refusal(written(found, tmp_path))


def test_wide_text_takes_no_more_than_its_file(content, tmp_path):
    """Every item of a text array is as wide as the longest."""
    found = content("text")
    found.arrays["estimator.classes_"] = np.full((3, 1), 0x110000, np.uint32)
    assert "characters that do not exist" in refusal(written(found, tmp_path))


def test_parameters_of_the_first_fit_replace_no_method(content, tmp_path):
    found = content("one")
    found.model["fitted"]["fixed"]["dict"]["_resolved_device"] = "cpu"
    assert "parameter that is not fixed" in refusal(written(found, tmp_path))


def test_saved_callbacks_have_the_types_of_the_parameters(content, tmp_path):
    """``load`` called methods of other types that a file had put there."""
    found = content("callbacks")
    callbacks = found.model["fitted"]["nets"][0]["dict"]["callbacks"]
    callbacks.reverse()
    names = [name for name in found.arrays if ".callbacks." in name]
    assert names
    swapped = {name: found.arrays.pop(name) for name in names}
    for name, array in swapped.items():
        found.arrays[name.replace(".callbacks.0.", ".callbacks.1.")] = array
    assert "in place of the callback" in refusal(written(found, tmp_path))


def test_the_average_of_a_callback_has_the_shapes_of_the_network(content, tmp_path):
    found = content("callbacks")
    name = next(name for name in found.arrays if "average_" in name)
    found.arrays[name] = np.zeros(1, np.float32)
    assert "other weights than the network" in refusal(written(found, tmp_path))


def test_no_module_is_built_in_place_of_a_class(content, tmp_path):
    """Its weights were built before the refusal."""
    found = content("one")
    arguments = {"n_features": 20_000, "n_outputs": 20_000, "d_hidden": []}
    found.model["params"]["module"] = {"class": "mixupe.MLP", "params": arguments, "fitted": {}}
    before = torch.nn.Module.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Module, "__init__", lambda *_: pytest.fail("a module was built"))
        assert "may only be named" in refusal(written(found, tmp_path))
    assert torch.nn.Module.__init__ is before


class Wide(nn.Module):
    """A module of a user, whose width is an argument."""

    def __init__(self, n_features, n_outputs, width=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, width), nn.Linear(width, n_outputs))
        self.is_real = self.layers[0].weight.device.type != "meta"

    def forward(self, rows):
        assert self.is_real
        return self.layers(rows)


@pytest.mark.parametrize("width", [4, 10**5, 10**12])
def test_a_trusted_module_is_built_without_memory_first(width, tmp_path):
    """The file decides its arguments, and the user trusts only its code."""
    model = MixupEClassifier(n_members=1, module=Wide, module_params={"width": 3}, **FEW).fit(X, Y)
    found = content_of(model)
    assert load(written(found, tmp_path), trusted=[Wide]).predict(X).shape == Y.shape
    found.model["params"]["module_params"]["dict"]["width"] = width
    built = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            nn.Linear,
            "reset_parameters",
            lambda self: built.append(self.weight.device.type),
        )
        error = refusal(written(found, tmp_path), trusted=[Wide])
    assert set(built) <= {"meta"}
    assert "do not match a Wide" in error or "exceed the size of its weights" in error


class Draws(nn.Linear):
    """A module that reads a number from a tensor, which the meta device cannot."""

    def __init__(self, n_features, n_outputs):
        super().__init__(n_features, n_outputs)
        self.size = self.weight.detach().abs().max().item()


def test_a_module_that_load_could_not_build_is_not_saved(tmp_path):
    model = MixupEClassifier(n_members=1, module=Draws, **FEW).fit(X, Y)
    with pytest.raises(ValueError, match="^Got a network that load cannot build .*; try pickle.$"):
        save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


KEYS = {
    "tuples": [{"tuple": [0, number]} for number in range(2000)],
    "lists": [[number] for number in range(10)],
    "numbers that are alike": [number * (2**61 - 1) for number in range(1, 1500)],
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_a_dict(kind, content, tmp_path):
    """A dict with colliding keys takes the square of its size in time."""
    found = content("one")
    found.model["params"]["class_weight"] = {"pairs": [[key, 1.0] for key in KEYS[kind]]}
    assert "keys other than" in refusal(written(found, tmp_path))


@pytest.mark.parametrize("text", ["[],", "{},", '"",', "0,", '[{"a":[]}],'])
def test_text_of_many_small_values(text, content, tmp_path):
    """Empty lists took 52 times the size of the file."""
    whole = f'{{"sha256":"{"0" * 64}","format_version":2,"written_by":"","model":[{text}'
    n_times = (file_format.MAX_HEADER - 1000) // len(text.replace('"', '\\"'))
    import safetensors.numpy

    inner = whole + (text * n_times)[:-1] + "]}"
    path = tmp_path / "many"
    path.write_bytes(safetensors.numpy.save({}, metadata={file_format.ENTRY: inner}))
    assert path.stat().st_size > 1.9 * 2**20
    assert "more than 131072 values" in refusal(path)
    with pytest.raises(ValueError, match="more than 131072 values"):
        saved_info(path)


def test_the_header_is_bounded_before_it_is_parsed(tmp_path):
    path = tmp_path / "long"
    n_header = file_format.MAX_HEADER + 1
    path.write_bytes(n_header.to_bytes(8, "little") + b"[" * n_header)
    assert f"has a header of {n_header} bytes" in refusal(path)


def test_a_model_with_a_longer_header_is_not_saved(tmp_path):
    many = MixupEClassifier(module_params={"text": "a" * 2**21})
    with pytest.raises(ValueError, match="^Got a model with 0 arrays .*; try keep_training=False"):
        save(many, tmp_path / "model")


ESCAPES = "\x1b]0;owned\x07\x1b[31m\u202e\n"


def _escaped(place):
    def change(found):
        if place == "a name":
            found.model["params"]["module"] = {"name": ESCAPES}
        elif place == "a class":
            found.model["class"] = f"sklearn.{ESCAPES}"
        elif place == "a tag":
            found.model["params"]["alpha"] = {ESCAPES: 1}
        elif place == "a parameter":
            found.model["params"][ESCAPES] = 1
        elif place == "an attribute":
            found.model["fitted"][ESCAPES] = 1
        elif place == "an array":
            found.arrays[ESCAPES] = np.zeros(1)
        elif place == "a weight":
            weights = found.model["fitted"]["nets"][0]["dict"]["weights"]["dict"]
            weights[ESCAPES] = {"tensor": "float32"}
        elif place == "a value":
            found.model["params"]["penalty"] = ESCAPES
        else:
            found.model["params"]["device"] = ESCAPES

    return change


@pytest.mark.parametrize(
    "place",
    [
        *("a name", "a class", "a tag", "a parameter", "an attribute", "an array", "a weight"),
        *("a value", "a device"),
    ],
)
def test_errors_have_no_control_characters(place, content, tmp_path):
    found = content("one")
    _escaped(place)(found)
    refusal(written(found, tmp_path))


def test_versions_have_no_control_characters(content, tmp_path):
    found = content("pipeline")
    path = tmp_path / "forged"
    versions = found.versions | {"scikit-learn": ESCAPES}
    path.write_bytes(file_format.pack(found.model, found.arrays, ESCAPES, versions))
    with pytest.warns(InconsistentVersionWarning, match="from version") as caught:
        load(path)
    assert not any(set("\x1b\x07\u202e") & set(str(one.message)) for one in caught)
    assert saved_info(path)["written_by"].isprintable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_format, "FORMAT_VERSION", 7)
        path.write_bytes(file_format.pack(found.model, found.arrays, ESCAPES, versions))
    assert "format 7" in refusal(path)


def test_generators_that_only_draw_zeros(content, tmp_path):
    """The sampler of mixing weights rejects zeros, so that ``partial_fit`` never ended."""
    found = content("one")
    found.arrays["estimator.streams"] = found.arrays["estimator.streams"] * 0
    assert "even increment" in refusal(written(found, tmp_path))
    found = content("one")
    found.model["params"]["random_state"] = {"random_state": [[0] * 624, 0, 0, 0.0]}
    assert "generator without a state" in refusal(written(found, tmp_path))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(value, content, tmp_path):
    """They loaded, and predicted the first class."""
    found = content("one")
    name = next(name for name in found.arrays if "weights" in name)
    found.arrays[name] = np.full_like(found.arrays[name], value)
    assert "are not finite" in refusal(written(found, tmp_path))


def test_a_diverged_model_is_not_saved(tmp_path):
    model = MixupEClassifier(n_members=1, **SMALL).fit(X, Y)
    with torch.no_grad():
        next(model.net_.module_.parameters()).fill_(np.nan)
    with pytest.raises(ValueError, match="^Got a network that load cannot .* not finite"):
        save(model, tmp_path / "model")


@pytest.mark.parametrize("name", ["X_mean_", "X_scale_", "member_weights_"])
@pytest.mark.parametrize("change", ["nan", "longer", "text"])
def test_fitted_arrays_keep_their_rules(name, change, content, tmp_path):
    found = content("members")
    array = found.arrays[f"estimator.{name}"]
    odd = {"nan": array * np.nan, "longer": np.append(array, 1.0), "text": array.astype("u4")}
    found.arrays[f"estimator.{name}"] = odd[change]
    assert repr(name) in refusal(written(found, tmp_path)) or change == "longer"


def test_an_average_and_a_schedule_continue(tmp_path):
    """The state of callbacks is data that belongs to their class."""
    callbacks = [PolyakAverage(0.5), WarmupCosine(n_warmup=2)]
    model = MixupEClassifier(
        n_members=1, lr_schedule="constant", callbacks=callbacks, module=MLP, **SMALL
    )
    save(model.fit(X, Y), tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one in (model, loaded):
        one.partial_fit(X, Y)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_labels_of_nodes_that_are_no_atoms_are_not_saved(tmp_path):
    import networkx as nx

    graphs = [nx.path_graph(4) for _ in range(8)]
    for graph in graphs:
        nx.set_node_attributes(graph, (1, 2), "label")
    model = MixupEGraphClassifier(max_epochs=1).fit(graphs, ["a", "b"] * 4)
    with pytest.raises(ValueError, match="keys other than text and numbers"):
        save(model, tmp_path / "model")


@pytest.mark.parametrize("length", [200, 233, 234, 254, 255])
def test_long_file_names(length, tmp_path):
    """The temporary name was longer than the name."""
    path = tmp_path / ("é" * 20 + "m" * (length - 40))
    assert len(os.fsencode(path.name)) == length
    for _ in range(2):
        save(MixupEClassifier(), path)
    assert isinstance(load(path), MixupEClassifier)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_name_beyond_the_limit_gets_the_system_s_error(tmp_path):
    with pytest.raises(OSError, match="name too long"):
        save(MixupEClassifier(), tmp_path / ("m" * 256))
    assert not list(tmp_path.iterdir())


# Other kinds of ``MAKERS`` differ from these in a parameter or in their labels.
KINDS = [
    *("members", "callbacks", "regressor", "images", "speech", "graphs", "pipeline"),
    *("other steps", "transformed target", "search"),
]


@pytest.mark.filterwarnings("ignore:Got .* training samples")
def test_changed_files_give_an_error_or_a_model():
    """A hundred random changes of each kind; ``tests/saved_changes.py`` makes more."""
    outcomes = run(KINDS, 100)
    assert len(outcomes) == 100 * len(KINDS)
    assert [line for line in outcomes if is_wrong(line)] == []
    assert {line["outcome"] for line in outcomes} >= {"refused", "predicts"}
