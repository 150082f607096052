"""Graph datasets on disk: the TU format, and the text format of Xu et al. (2019)."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

TU_ADDRESS = "https://chrsmrrs.github.io/datasets/docs/datasets/"
TEXT_LAYOUT = (
    "a line with the number of graphs, then for each a line 'n label' and n lines of nodes"
)
FOLDS = "10fold_idx"


class GraphSet(NamedTuple):
    """Graphs with their labels and folds.

    Attributes
    ----------
    name : str
        Name of the dataset.
    graphs : list of pairs
        A sparse adjacency for each graph, and labels of its nodes ``(n_nodes,)``, features
        ``(n_nodes, n_features)``, or None.
    y : ndarray of shape (n_graphs,)
        The labels of the graphs.
    folds : list of pairs or None
        Positions of the training and test graphs of each fold. None without folds.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> pair = (sparse.csr_array([[0, 1], [1, 0]]), np.array([3, 7]))
    >>> found = GraphSet("pairs", [pair], np.array([1]))
    >>> len(found.graphs), found.folds is None
    (1, True)
    """

    name: str
    graphs: list[tuple[sparse.csr_array, np.ndarray | None]]
    y: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]] | None = None


def load_graph_text(path: str | os.PathLike) -> GraphSet:
    r"""Read graphs in the text format of "How Powerful are Graph Neural Networks?".

    The first line has the number of graphs. Each graph has a line with its number of nodes and its
    label, then a line for each node: its tag, the number of its neighbours, and their indices from
    0. Tags are node labels. They are dropped if there is only one distinct tag.

    Parameters
    ----------
    path : path
        A file, or a folder ``NAME`` with ``NAME.txt`` and optionally a folder ``10fold_idx``, which
        holds ``train_idx-1.txt`` and ``test_idx-1.txt`` up to 10.

    Returns
    -------
    graphs : GraphSet
        The graphs, their labels, and the folds.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mixupe_sklearn.datasets.graphs import load_graph_text
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "TINY.txt")
    ...     _ = path.write_text("2\n2 1\n0 1 1\n3 1 0\n1 0\n0 0\n")
    ...     tiny = load_graph_text(path)
    >>> tiny.y.tolist(), [labels.tolist() for _, labels in tiny.graphs]
    ([1, 0], [[0, 3], [0]])
    """
    path = Path(path)
    file = path / f"{path.name}.txt" if path.is_dir() else path
    found = _read_text_graphs(file)
    tags = {tag for _, labels, _ in found for tag in labels.tolist()}
    graphs = [(adjacency, labels if len(tags) > 1 else None) for adjacency, labels, _ in found]
    y = np.array([label for _, _, label in found])
    folder = file.parent / FOLDS
    folds = read_folds(folder, len(y)) if folder.is_dir() else None
    return GraphSet(file.stem, graphs, y, folds)


def _read_text_graphs(file: Path) -> list[tuple[sparse.csr_array, np.ndarray, int]]:
    """Adjacency, tags and label of each graph."""
    lines = _lines(file)
    number, found = 0, []
    try:
        for _ in range(int(lines[0][0])):
            number += 1
            n_nodes, label = map(int, lines[number][:2])
            if n_nodes < 1:
                raise ValueError(f"a graph of {n_nodes} nodes")
            tags, pairs = [], []
            for node in range(n_nodes):
                number += 1
                tag, n_neighbours, *rest = map(int, lines[number])
                neighbours = rest[:n_neighbours]
                is_valid = all(0 <= other < n_nodes for other in neighbours)
                if len(neighbours) != n_neighbours or not is_valid:
                    raise ValueError(f"neighbours {neighbours} in a graph of {n_nodes} nodes")
                tags.append(tag)
                pairs += [(other, node) for other in neighbours]
            edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            found.append((_adjacency(edges, n_nodes), np.array(tags), label))
    except (IndexError, ValueError) as error:
        raise ValueError(
            f"Got line {number + 1} of {str(file)!r} that is invalid or missing ({error}), but "
            f"expected {TEXT_LAYOUT}."
        ) from None
    if not found:
        raise ValueError(f"Got {str(file)!r} with no graphs, but expected at least one.")
    return found


def _adjacency(pairs: np.ndarray, n_nodes: int) -> sparse.csr_array:
    """A matrix of ones, from source to target. Duplicate edges count once."""
    pairs = np.unique(pairs, axis=0)
    ones = np.ones(len(pairs), dtype=np.int8)
    return sparse.csr_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(n_nodes, n_nodes))


def read_folds(folder: str | os.PathLike, n_graphs: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Read folds: positions of the training and test graphs.

    Parameters
    ----------
    folder : path
        Holds ``train_idx-1.txt``, ``test_idx-1.txt``, and so on.
    n_graphs : int
        The number of graphs. Each fold has all of them. Some graphs may be in no test set, as in
        the folds of MUTAG.

    Returns
    -------
    folds : list of pairs of arrays
        Training and test positions.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for fold, (train, test) in enumerate([("0", "1"), ("1", "0")], start=1):
    ...     _ = (folder / f"train_idx-{fold}.txt").write_text(train)
    ...     _ = (folder / f"test_idx-{fold}.txt").write_text(test)
    >>> read_folds(folder, n_graphs=2)
    [(array([0]), array([1])), (array([1]), array([0]))]
    """
    folder = Path(folder)
    n_folds = len(list(folder.glob("test_idx-*.txt")))
    if not n_folds:
        raise FileNotFoundError(
            f"Got {str(folder)!r} without a test_idx-1.txt, but expected folds."
        )
    folds = []
    for number in range(1, n_folds + 1):
        train = _numbers(folder / f"train_idx-{number}.txt")[:, 0]
        test = _numbers(folder / f"test_idx-{number}.txt")[:, 0]
        both = np.concatenate([train, test])
        if sorted(both.tolist()) != list(range(n_graphs)):
            raise ValueError(
                f"Got fold {number} of {str(folder)!r} with {len(train)} and {len(test)} numbers, "
                f"but expected each of 0 to {n_graphs - 1} once."
            )
        folds.append((train, test))
    return folds


def _lines(file: Path) -> list[list[str]]:
    """The words of each line, separated by spaces or commas."""
    if not file.is_file():
        raise FileNotFoundError(f"Got no {str(file)!r}, but expected this file.")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"Got {str(file)!r}, which is not text, but expected numbers.") from None
    return [line.replace(",", " ").split() for line in text.splitlines()]


def _numbers(file: Path, dtype: Any = np.int64) -> np.ndarray:
    """The numbers of a text file, one row per line."""
    rows = [line for line in _lines(file) if line]
    try:
        return np.array(rows, dtype=dtype).reshape(len(rows), len(rows[0]) if rows else 1)
    except ValueError as error:
        raise ValueError(
            f"Got {str(file)!r}, but expected lines of numbers only ({error})."
        ) from None


def load_tu(folder: str | os.PathLike, *, attributes: bool = False) -> GraphSet:
    r"""Read graphs in the TU format of TUDataset.

    Nothing is downloaded. Download a dataset (Morris et al., 2020) from
    https://chrsmrrs.github.io/datasets/docs/datasets/ and unpack it.

    Parameters
    ----------
    folder : path
        A folder ``NAME`` with ``NAME_A.txt`` (edges, nodes numbered from 1),
        ``NAME_graph_indicator.txt`` (the graph of each node), ``NAME_graph_labels.txt``, and
        optionally ``NAME_node_labels.txt`` and ``NAME_node_attributes.txt``. Other files are
        ignored.
    attributes : bool, default=False
        Whether to read node attributes, together with one-hot encoded labels. If not, nodes have
        only their labels, if there are any.

    Returns
    -------
    graphs : GraphSet
        The graphs and their labels.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mixupe_sklearn.datasets.graphs import load_tu
    >>> parts = {"A": "1, 2\n2, 1\n", "graph_indicator": "1\n1\n2\n"}
    >>> parts["graph_labels"] = "1\n-1\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part, text in parts.items():
    ...         _ = pathlib.Path(folder, f"TINY_{part}.txt").write_text(text)
    ...     tiny = load_tu(folder)
    >>> tiny.y.tolist(), [adjacency.shape for adjacency, _ in tiny.graphs]
    ([1, -1], [(2, 2), (1, 1)])
    """
    folder = Path(folder)
    files = sorted(folder.glob("*_A.txt"))
    if len(files) != 1:
        raise FileNotFoundError(
            f"Got folder={str(folder)!r} with {len(files)} files *_A.txt, but expected one, and "
            f"others of the same name: unpack a dataset of {TU_ADDRESS} there."
        )
    name = files[0].name.removesuffix("_A.txt")

    def part(what: str) -> Path:
        return folder / f"{name}_{what}.txt"

    owner = _numbers(part("graph_indicator"))[:, 0] - 1
    y = _numbers(part("graph_labels"))[:, 0]
    edges = _numbers(files[0])
    if edges.size and edges.shape[1] != 2:
        raise ValueError(
            f"Got {str(files[0])!r} with {edges.shape[1]} numbers per line, but expected the two "
            f"nodes of an edge."
        )
    edges = edges.reshape(-1, 2) - 1
    _check(edges, owner, len(y), folder)
    labels = _numbers(part("node_labels")) if part("node_labels").is_file() else None
    nodes = None if labels is None else labels[:, 0]
    if attributes or (labels is not None and labels.shape[1] > 1):
        columns = [] if labels is None else list(labels.T)
        parts = [(column[:, None] == np.unique(column)).astype(float) for column in columns]
        if attributes:
            parts.insert(0, _numbers(part("node_attributes"), np.float64))
        nodes = np.concatenate(parts, axis=1)
    if nodes is not None and len(nodes) != len(owner):
        raise ValueError(
            f"Got labels or attributes of {len(nodes)} nodes in {str(folder)!r}, but expected "
            f"{len(owner)}, as in {part('graph_indicator').name}."
        )
    return GraphSet(name, _cut(edges, owner, len(y), nodes), y)


def _check(edges: np.ndarray, owner: np.ndarray, n_graphs: int, folder: Path) -> None:
    is_right = len(owner) and owner[0] == 0 and bool(np.isin(np.diff(owner), (0, 1)).all())
    if not is_right or owner[-1] != n_graphs - 1:
        raise ValueError(
            f"Got {str(folder)!r} with graphs that are not numbered 1 to {n_graphs} in order, but "
            f"expected a graph for each label, and nodes graph by graph."
        )
    is_valid: Any = ((edges >= 0) & (edges < len(owner))).all(axis=1)
    is_valid[is_valid] = owner[edges[is_valid, 0]] == owner[edges[is_valid, 1]]
    if not is_valid.all():
        raise ValueError(
            f"Got the edge {(edges[~is_valid][0] + 1).tolist()} in {str(folder)!r}, but expected "
            f"two nodes of one graph, out of 1 to {len(owner)}."
        )


def _cut(
    edges: np.ndarray, owner: np.ndarray, n_graphs: int, nodes: np.ndarray | None
) -> list[tuple[sparse.csr_array, np.ndarray | None]]:
    """One adjacency for each graph, from edges between globally numbered nodes."""
    first = np.searchsorted(owner, np.arange(n_graphs + 1))
    edges = edges[np.argsort(owner[edges[:, 0]], kind="stable")]
    bounds = np.searchsorted(owner[edges[:, 0]], np.arange(n_graphs + 1))
    return [
        (
            _adjacency(edges[bounds[graph] : bounds[graph + 1]] - start, stop - start),
            None if nodes is None else nodes[start:stop],
        )
        for graph, (start, stop) in enumerate(pairwise(first))
    ]
