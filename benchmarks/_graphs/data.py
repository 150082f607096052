"""Graph datasets with their folds, as the benchmark trains on them."""

import hashlib
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, train_test_split

from mixupe_sklearn.datasets.graphs import GraphSet, load_graph_text, load_tu

N_MADE, N_FOLDS = 60, 3  # synthetic graphs: their number, and the number of folds
PROTOCOLS = ("xu", "honest")
VALID_SHARE = 0.1  # the share of the training graphs that the honest protocol validates on


@dataclass(frozen=True, eq=False)
class GraphTable:
    """Graphs (adjacency and node features), their classes, and folds (training and test)."""

    name: str
    graphs: list[tuple[Any, np.ndarray]]
    y: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of graphs, classes and folds."""
        digest = hashlib.sha256()
        for adjacency, features in self.graphs:
            for part in (adjacency.indptr, adjacency.indices, features):
                digest.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
        for part in (self.y, *(index for fold in self.folds for index in fold)):
            digest.update(np.ascontiguousarray(part.astype(np.int64)).tobytes())
        return digest.hexdigest()[:12]

    def parts(self, protocol: str, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices of training, validation (none in Xu's protocol) and test graphs."""
        train, test = self.folds[fold]
        if protocol == "xu":
            return train, train[:0], test
        split = train_test_split(
            train, test_size=VALID_SHARE, stratify=self.y[train], random_state=fold
        )
        return split[0], split[1], test


def as_table(found: GraphSet) -> GraphTable:
    """Node labels, or degrees without them, one-hot over the whole dataset, as in Xu et al."""
    values = [
        np.asarray(adjacency.sum(axis=0)).reshape(-1) if nodes is None else nodes
        for adjacency, nodes in found.graphs
    ]
    if values[0].ndim == 1:
        known = np.unique(np.concatenate(values))
        values = [(one[:, None] == known).astype(np.float32) for one in values]
    folds = found.folds
    if folds is None:
        splitter = StratifiedKFold(10, shuffle=True, random_state=0)
        folds = list(splitter.split(np.zeros(len(found.y)), found.y))
    graphs = [(one[0], own) for one, own in zip(found.graphs, values, strict=True)]
    return GraphTable(found.name, graphs, found.y, folds)


def make_synthetic() -> GraphTable:
    """Rings with a few chords against trees, of unequal size: small, and quickly learned."""
    rng = np.random.default_rng(0)
    graphs: list[Any] = []
    y = np.arange(N_MADE) % 2
    for label in y:
        n_nodes = int(rng.integers(6, 16))
        nodes = np.arange(1, n_nodes)
        parents = nodes - 1 if label else np.array([rng.integers(0, node) for node in nodes])
        pairs = np.stack([np.append(nodes, 0), np.append(parents, n_nodes - 1 if label else 1)])
        chord = rng.integers(0, n_nodes, (2, 2)) if label else pairs[:, :0]
        both = np.concatenate([pairs, chord], axis=1)
        matrix = sparse.coo_array((np.ones(both.shape[1]), both), shape=(n_nodes, n_nodes))
        graphs.append(((matrix + matrix.T).astype(bool).astype(np.int8).tocsr(), None))
    splitter = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0)
    folds = list(splitter.split(np.zeros(N_MADE), y))
    return as_table(GraphSet("synthetic", graphs, y, folds))


def load(path: pathlib.Path) -> GraphTable:
    """A graph dataset in the text format, or in the TU format."""
    is_tu = path.is_dir() and any(path.glob("*_A.txt"))
    return as_table(load_tu(path) if is_tu else load_graph_text(path))


def find(folder: pathlib.Path | None, names: Sequence[str]) -> dict[str, pathlib.Path | None]:
    """The folder of each dataset; without a folder synthetic graphs."""
    if folder is None:
        return {"synthetic": None}
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        raise ValueError(
            f"Got --sets {missing[0]}, but expected a folder of this name in {folder}."
        )
    return {name: folder / name for name in dict.fromkeys(names)}
