"""Graph datasets on disk: both formats, their folds, and invalid files."""

import pathlib

import numpy as np
import pytest
from scipy import sparse

from mixupe_sklearn import MixupEGraphClassifier
from mixupe_sklearn.datasets.graphs import load_graph_text, load_tu, read_folds

REAL = pathlib.Path(__file__).parents[3] / "shared" / "data" / "graphs"
# A triangle with a tail, and two nodes; labels 1 and -1.
TEXT = "2\n4 1\n0 2 1 2\n2 2 0 2\n2 3 0 1 3\n0 1 2\n2 -1\n0 1 1\n0 1 0\n"
TU = {
    "A": "1, 2\n2, 1\n1, 3\n3, 1\n2, 3\n3, 2\n3, 4\n4, 3\n5, 6\n6, 5\n",
    "graph_indicator": "1\n1\n1\n1\n2\n2\n",
    "graph_labels": "1\n-1\n",
    "node_labels": "0\n2\n2\n0\n0\n0\n",
    "node_attributes": "0.5, 1\n1.5, 1\n2.5, 1\n3.5, 1\n4.5, 1\n5.5, 1\n",
}


def write_tu(folder, **changed):
    folder.mkdir(exist_ok=True)
    for part, text in (TU | changed).items():
        if text is not None:
            (folder / f"TINY_{part}.txt").write_text(text)
    return folder


def write_text(folder, text=TEXT, name="TINY"):
    place = folder / name
    place.mkdir(exist_ok=True)
    (place / f"{name}.txt").write_text(text)
    return place


def write_folds(place, **parts):
    folder = place / "10fold_idx"
    folder.mkdir(exist_ok=True)
    for part, numbers in parts.items():
        name = part.replace("_", "_idx-")
        (folder / f"{name}.txt").write_text("".join(f"{number}\n" for number in numbers))
    return folder


def dense(found):
    return [adjacency.toarray().tolist() for adjacency, _ in found.graphs]


TRIANGLE = [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]


def test_both_formats_give_the_same_graphs(tmp_path):
    text, tu = load_graph_text(write_text(tmp_path)), load_tu(write_tu(tmp_path / "tu"))
    for found in (text, tu):
        assert found.name == "TINY"
        assert found.y.tolist() == [1, -1]
        assert found.folds is None
        assert dense(found) == [TRIANGLE, [[0, 1], [1, 0]]]
        assert [labels.tolist() for _, labels in found.graphs] == [[0, 2, 2, 0], [0, 0]]
        assert all(sparse.issparse(adjacency) for adjacency, _ in found.graphs)


def test_the_text_format_reads_a_file_as_well_as_a_folder(tmp_path):
    place = write_text(tmp_path)
    assert dense(load_graph_text(place / "TINY.txt")) == dense(load_graph_text(place))


def test_a_single_tag_is_dropped(tmp_path):
    found = load_graph_text(write_text(tmp_path, TEXT.replace("\n2 2 0 2", "\n0 2 0 2").replace(
        "\n2 3 0 1 3", "\n0 3 0 1 3")))  # fmt: skip
    assert [nodes for _, nodes in found.graphs] == [None, None]


def test_attributes_are_concatenated_with_labels_on_request(tmp_path):
    found = load_tu(write_tu(tmp_path / "tu"), attributes=True)
    np.testing.assert_array_equal(found.graphs[1][1], [[4.5, 1, 1, 0], [5.5, 1, 1, 0]])
    alone = load_tu(write_tu(tmp_path / "bare", node_labels=None), attributes=True)
    np.testing.assert_array_equal(alone.graphs[1][1], [[4.5, 1], [5.5, 1]])
    bare = load_tu(write_tu(tmp_path / "bare2", node_labels=None))
    assert [nodes for _, nodes in bare.graphs] == [None, None]


def test_several_labels_per_node_become_columns(tmp_path):
    labels = "0, 7\n2, 7\n2, 8\n0, 7\n0, 7\n0, 8\n"
    found = load_tu(write_tu(tmp_path / "tu", node_labels=labels))
    np.testing.assert_array_equal(found.graphs[1][1], [[1, 0, 1, 0], [1, 0, 0, 1]])


def test_a_dataset_without_edges_is_read(tmp_path):
    found = load_tu(write_tu(tmp_path / "tu", A="\n"))
    assert [adjacency.nnz for adjacency, _ in found.graphs] == [0, 0]


def test_binary_files_are_refused(tmp_path):
    place = write_text(tmp_path)
    (place / "TINY.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="which is not text, but expected numbers"):
        load_graph_text(place)


def test_folds_come_with_the_graphs(tmp_path):
    place = write_text(tmp_path)
    write_folds(place, train_1=[0], test_1=[1], train_2=[1], test_2=[0])
    folds = load_graph_text(place).folds
    assert [(train.tolist(), test.tolist()) for train, test in folds] == [([0], [1]), ([1], [0])]


def test_graphs_that_no_fold_tests_are_allowed(tmp_path):
    folder = write_folds(
        write_text(tmp_path), train_1=[0, 2], test_1=[1], train_2=[1, 2], test_2=[0]
    )
    assert len(read_folds(folder, 3)) == 2


TEXT_ERRORS = {
    "ends early": (TEXT[:22], "Got line 5 of .* that is invalid or missing"),
    "a word": (TEXT.replace("4 1", "four 1"), "Got line 2 of .* 'four'"),
    "one number": (TEXT.replace("\n0 1 2\n", "\n0\n"), "Got line 6 of .* got 1"),
    "no such node": (TEXT.replace("0 2 1 2", "0 2 1 9"), r"Got line 3 of .*neighbours \[1, 9\]"),
    "too few": (TEXT.replace("0 2 1 2", "0 3 1 2"), "Got line 3 of .*neighbours"),
    "negative": (TEXT.replace("2 -1", "-2 -1"), "Got line 7 of .*a graph of -2 nodes"),
    "minus neighbours": (TEXT.replace("0 2 1 2", "0 -1 1 2"), "Got line 3 of .*neighbours"),
    "no graphs": ("0\n", "Got .* with no graphs, but expected at least one"),
}


@pytest.mark.parametrize("case", TEXT_ERRORS)
def test_invalid_text_is_reported_with_its_line(tmp_path, case):
    text, message = TEXT_ERRORS[case]
    with pytest.raises(ValueError, match=message):
        load_graph_text(write_text(tmp_path, text))


TU_ERRORS = {
    "no such node": ({"A": "1, 9\n9, 1\n"}, r"Got the edge \[1, 9\] in .*, but expected two nodes"),
    "between graphs": (
        {"A": "1, 2\n1, 5\n"},
        r"Got the edge \[1, 5\] in .* two nodes of one graph",
    ),
    "graphs out of order": (
        {"graph_indicator": "1\n2\n1\n1\n2\n2\n"},
        "that are not numbered 1 to 2",
    ),
    "a label too many": ({"graph_labels": "1\n1\n1\n"}, "that are not numbered 1 to 3"),
    "nodes too few": ({"node_labels": "0\n1\n"}, "Got labels or attributes of 2 nodes"),
    "three numbers an edge": (
        {"A": "1, 2, 3\n"},
        "with 3 numbers per line, but expected the two nodes of an edge",
    ),
    "a word": ({"graph_labels": "yes\nno\n"}, "but expected lines of numbers only"),
}


@pytest.mark.parametrize("case", TU_ERRORS)
def test_invalid_tu_files_are_refused(tmp_path, case):
    changed, message = TU_ERRORS[case]
    with pytest.raises(ValueError, match=message):
        load_tu(write_tu(tmp_path / "tu", **changed))


def test_missing_files_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="Got no .*nowhere.*, but expected this file"):
        load_graph_text(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"with 0 files \*_A.txt, but expected one"):
        load_tu(tmp_path)
    with pytest.raises(FileNotFoundError, match="Got no .*TINY_graph_labels.txt"):
        load_tu(write_tu(tmp_path / "tu", graph_labels=None))
    with pytest.raises(FileNotFoundError, match="Got no .*node_attributes.txt"):
        load_tu(write_tu(tmp_path / "bare", node_attributes=None), attributes=True)


def test_invalid_folds_are_refused(tmp_path):
    folder = write_folds(write_text(tmp_path), train_1=[0], test_1=[1], train_2=[0], test_2=[1])
    with pytest.raises(ValueError, match="Got fold 1 of .* but expected each of 0 to 2 once"):
        read_folds(folder, 3)
    (tmp_path / "none").mkdir()
    with pytest.raises(FileNotFoundError, match="without a test_idx-1.txt, but expected folds"):
        read_folds(tmp_path / "none", 2)
    (folder / "train_idx-1.txt").unlink()
    with pytest.raises(FileNotFoundError, match="Got no .*train_idx-1.txt"):
        read_folds(folder, 2)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real sets of graphs")
@pytest.mark.parametrize(
    ("name", "counts", "n_nodes", "n_tags"),
    [
        ("MUTAG", [63, 125], 17.93, 7),
        ("PTC", [192, 152], 25.56, 19),
        ("PROTEINS", [663, 450], 39.06, 3),
        ("IMDBBINARY", [500, 500], 19.77, 0),
        ("IMDBMULTI", [500, 500, 500], 13.00, 0),
    ],
)
def test_the_real_datasets_have_their_published_sizes(name, counts, n_nodes, n_tags):
    found = load_graph_text(REAL / name)
    assert np.unique(found.y, return_counts=True)[1].tolist() == counts
    assert np.mean([one.shape[0] for one, _ in found.graphs]) == pytest.approx(n_nodes, abs=0.005)
    tags = {tag for _, labels in found.graphs if labels is not None for tag in labels.tolist()}
    assert len(tags) == n_tags
    assert all((one != one.T).nnz == 0 for one, _ in found.graphs)
    assert len(found.folds) == 10
    tested = np.concatenate([test for _, test in found.folds])
    assert len(tested) == len(set(tested.tolist()))
    # The folds of MUTAG leave eight graphs out of every test.
    assert len(tested) == {"MUTAG": 180, "PTC": 340, "PROTEINS": 1110}.get(name, sum(counts))


@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real sets of graphs")
def test_mutag_is_learned():
    found = load_graph_text(REAL / "MUTAG")
    train, test = found.folds[1]
    model = MixupEGraphClassifier(max_epochs=30, random_state=0, n_threads=1)
    model.fit([found.graphs[number] for number in train], found.y[train])
    share = model.score([found.graphs[number] for number in test], found.y[test])
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert share > 0.7
