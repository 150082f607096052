"""Random and damaged files of images, audio, graphs and pickles are read or refused."""

import io
import pickle

import numpy as np
import pytest
from fuzz import flipped, tried
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from scipy.io import wavfile

from mixupe_sklearn._audio import files as audio_files
from mixupe_sklearn._images import files as image_files
from mixupe_sklearn.datasets._restricted_unpickler import unpickle_arrays
from mixupe_sklearn.datasets.graphs import load_graph_text, load_tu, read_folds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


BATCH = {b"data": np.arange(12, dtype=np.uint8).reshape(3, 4), b"labels": [0, 1, 0], b"name": "b"}
PICKLES = [pickle.dumps(BATCH, protocol=protocol) for protocol in (0, 2, 4)]


# A memo with the number 2**31 - 1, which is a list of that length to Python's own reader in C.
LONG_MEMO = PICKLES[1].replace(b"}q\x00(", b"}r\xff\xff\xff\x7f(")


@given(st.sampled_from(PICKLES).flatmap(flipped) | st.binary(max_size=40))
@example(LONG_MEMO)
def test_a_damaged_pickle_gives_plain_data_or_is_refused(folder, content):
    found = tried(lambda: unpickle_arrays(written(folder, "batch", content), "a set", "an address"))
    if found.refusal is None:
        assert isinstance(found.answer, dict)
        plain = (
            np.ndarray,
            np.generic,
            np.dtype,
            type,
            str,
            bytes,
            int,
            float,
            list,
            tuple,
            dict,
            type(None),
            complex,
        )
        assert all(
            isinstance(value, (*plain, set, bytearray, type(len)))
            for value in found.answer.values()
        )


def test_an_intact_pickle_is_read(folder):
    for content in [*PICKLES, LONG_MEMO, pickle.dumps(BATCH, protocol=5)]:
        assert len(LONG_MEMO) > len(PICKLES[1])
        found = unpickle_arrays(written(folder, "batch", content), "a set", "an address")
        assert np.array_equal(found[b"data"], BATCH[b"data"])
        assert found[b"data"].dtype == np.uint8
        assert found[b"labels"] == BATCH[b"labels"]


def wav(dtype):
    buffer = io.BytesIO()
    wavfile.write(buffer, 8000, np.zeros(20, dtype=dtype))
    return buffer.getvalue()


@given(st.sampled_from([wav("i2"), wav("u1"), wav("f4")]).flatmap(flipped) | st.binary(max_size=60))
def test_a_damaged_wav_file_is_read_or_refused(folder, content):
    path = written(folder, "a.wav", content)
    found = tried(lambda: audio_files.read_file(path, "a.wav"))
    if found.refusal is None:
        assert 1 <= found.answer.rate <= audio_files.MAX_RATE
        assert found.answer.values.size
        assert np.isfinite(found.answer.values).all()


def image(form, mode):
    buffer = io.BytesIO()
    Image.new(mode, (5, 4), 1).save(buffer, form)
    return buffer.getvalue()


IMAGES = [
    image("PNG", "RGB"),
    image("PNG", "P"),
    image("PNG", "I;16"),
    image("JPEG", "RGB"),
]
IMAGES += [
    image("GIF", "L"),
    image("BMP", "RGB"),
    image("TIFF", "L"),
    image("PPM", "RGB"),
]


@given(st.sampled_from(IMAGES).flatmap(flipped) | st.binary(max_size=60))
def test_a_damaged_image_is_read_or_refused(folder, content):
    path = written(folder, "a.png", content)
    found = tried(lambda: image_files.read_file(path))
    if found.refusal is None:
        assert found.answer.dtype == np.uint8
        assert found.answer.ndim == 3
        assert found.answer.shape[2] in (1, 3)


GRAPHS = b"2\n3 1\n0 1 1\n3 2 0 2\n1 1 1\n2 0\n0 1 1\n0 1 0\n"
numbers = st.lists(st.integers(-2, 5), max_size=5).map(lambda row: " ".join(map(str, row)))
lines = st.lists(numbers, max_size=8).map(lambda rows: "\n".join(rows).encode())


@given(flipped(GRAPHS) | lines | st.binary(max_size=40))
def test_a_damaged_text_of_graphs_is_read_or_refused(folder, content):
    found = tried(lambda: load_graph_text(written(folder, "G.txt", content)))
    if found.refusal is None:
        assert len(found.answer.graphs) == len(found.answer.y) > 0
        for adjacency, labels in found.answer.graphs:
            assert adjacency.shape[0] == adjacency.shape[1] > 0
            assert labels is None or len(labels) == adjacency.shape[0]


TU = {"A": b"1, 2\n2, 1\n3, 4\n", "graph_indicator": b"1\n1\n2\n2\n", "graph_labels": b"1\n-1\n"}
TU |= {"node_labels": b"0\n1\n1\n0\n", "node_attributes": b"0.5\n1\n2\n3\n"}


@given(st.sampled_from(list(TU)), st.data(), st.booleans())
def test_a_damaged_part_of_a_tu_dataset_is_read_or_refused(folder, part, data, attributes):
    home = folder / "TU"
    home.mkdir(exist_ok=True)
    for name, content in TU.items():
        (home / f"S_{name}.txt").write_bytes(content)
    (home / f"S_{part}.txt").write_bytes(data.draw(flipped(TU[part]) | lines))
    found = tried(lambda: load_tu(home, attributes=attributes), FileNotFoundError)
    if found.refusal is None:
        assert len(found.answer.graphs) == len(found.answer.y)
        assert sum(adjacency.shape[0] for adjacency, _ in found.answer.graphs) >= len(
            found.answer.y
        )
        for adjacency, nodes in found.answer.graphs:
            assert nodes is None or len(nodes) == adjacency.shape[0]


@given(lines | st.binary(max_size=12), lines | st.just(b"3\n"), st.integers(0, 4))
def test_damaged_folds_are_read_or_refused(folder, train, test, n_graphs):
    home = folder / "folds"
    home.mkdir(exist_ok=True)
    written(home, "train_idx-1.txt", train)
    written(home, "test_idx-1.txt", test)
    found = tried(lambda: read_folds(home, n_graphs))
    for first, second in found.answer or []:
        assert sorted([*first, *second]) == list(range(n_graphs))
