"""What a step costs: MixupE over Mixup, and epochs beside a plain loop of PyTorch Geometric."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

from benchmarks._graphs.data import GraphTable
from benchmarks._graphs.fits import LR, METHODS, TITLES, Training
from benchmarks._harness.paired_timing import Run, judged, median, time_in_turns, write_times
from benchmarks._harness.report_tables import Cell, ReportTable
from benchmarks._harness.single_fits import columns_of
from benchmarks._vision_speech.fits import config_of
from mixupe_sklearn._data.batches import make_dataset

FILE = "timing.json"
PLAIN = "plain loop"
MOST, MOST_OF_PLAIN = 1.3, 1.0  # bounds: a step of MixupE over Mixup, and ERM over the plain loop
N_LAYERS = 5


def _mlp(d_in: int, d_out: int) -> nn.Sequential:
    layers = [nn.Linear(d_in, d_out), nn.BatchNorm1d(d_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(d_out, d_out), nn.BatchNorm1d(d_out), nn.ReLU())


class PlainGIN(nn.Module):
    """The same network, built from the layers of PyTorch Geometric."""

    def __init__(self, n_features: int, n_outputs: int, d_hidden: int):
        super().__init__()
        widths = [n_features] + [d_hidden] * N_LAYERS
        self.layers = nn.ModuleList(
            GINConv(_mlp(d_in, d_hidden), train_eps=True) for d_in in widths[:-1]
        )
        self.norm = nn.BatchNorm1d(sum(widths), affine=False)
        self.head = nn.Sequential(
            nn.Linear(sum(widths), d_hidden), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(d_hidden, n_outputs),
        )  # fmt: skip

    def forward(self, data: Any) -> torch.Tensor:
        """Logits of a batch."""
        X = data.x
        parts = [global_add_pool(X, data.batch)]
        for layer in self.layers:
            X = layer(X, data.edge_index)
            parts.append(global_add_pool(X, data.batch))
        return self.head(self.norm(torch.cat(parts, dim=1)))


def plain_loop(table: GraphTable, numbers: np.ndarray, training: Training) -> Run:
    """An epoch of the loop in the examples of PyTorch Geometric, without mixing."""
    classes, y = np.unique(table.y, return_inverse=True)
    graphs = []
    for place in numbers:
        adjacency, features = table.graphs[place]
        edges = np.stack(adjacency.nonzero())
        graphs.append(
            Data(
                x=torch.from_numpy(features),
                edge_index=torch.from_numpy(edges.astype(np.int64)),
                y=torch.tensor([y[place]]),
            )
        )
    loader = DataLoader(graphs, batch_size=training.batch_size, shuffle=True)
    module = PlainGIN(graphs[0].x.shape[1], len(classes), training.d_hidden)
    # As ours, with all weights in one operation.
    optimizer = torch.optim.Adam(module.parameters(), lr=LR, fused=True)

    def epoch() -> None:
        module.train()
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(batch), batch.y).backward()
            optimizer.step()

    return epoch


def runs_of(table: GraphTable, training: Training, n_epochs: int) -> dict[str, Run]:
    """Some epochs of each candidate, which can be repeated; ours on graphs in memory."""
    train, _ = table.folds[0]
    X, y = [table.graphs[number] for number in train], table.y[train]

    def ours(method: str) -> Run:
        model = training.make(config_of(method, alpha=1.0, eta=0.1), seed=0)
        model.set_params(max_epochs=1, callbacks=None).fit(X, y)
        net, rows = model.net_, model._rows(*model._labelled(X, y), None)
        dataset = make_dataset(*model._tensors(net, rows))
        return lambda: net.partial_fit(dataset, None, epochs=n_epochs)

    one = plain_loop(table, train, training)

    def plain() -> None:
        for _ in range(n_epochs):
            one()

    return {PLAIN: plain} | {TITLES[method]: ours(method) for method in METHODS}


def measure(
    path: pathlib.Path,
    pairs: Sequence[tuple[GraphTable, Training]],
    n_rounds: int,
    n_epochs: int = 3,
) -> None:
    """Write the seconds per epoch of each candidate in each round, by dataset."""
    found = {
        table.name: time_in_turns(
            runs_of(table, training, n_epochs), n_rounds, n_units=n_epochs, digits=5
        )
        for table, training in pairs
    }
    write_times(path, {"n_epochs": n_epochs}, found)


def tables_of(path: pathlib.Path) -> list[ReportTable]:
    """The ratios with their bounds, and epochs a second."""
    results, steps, epochs = json.loads(path.read_text()), [], []
    for name, times in results["seconds"].items():
        figures = judged(times["MixupE"], times["Mixup"], MOST)
        steps.append([*map(Cell, [name, *figures])])
        rates = [f"{1 / median(times[one]):.3g}" for one in (PLAIN, *TITLES.values())]
        _, ratio, _, verdict = judged(times["ERM"], times[PLAIN], MOST_OF_PLAIN)
        epochs.append([*map(Cell, [name, *rates, ratio, verdict])])
    heads = ["Rounds", "Ratio (quartiles)", "At most", "Verdict"]
    caption = (
        f"A step of MixupE over one of Mixup: the median of the ratios of a round of "
        f"{results['n_epochs']} epochs each, in turns in one process with one thread."
    )
    first = ReportTable("steps", caption, columns_of(["Set"], heads), steps)
    heads = [PLAIN, *TITLES.values(), "ERM over plain (quartiles)", "At most 1"]
    caption = (
        "Epochs a second, and the time of an epoch of ours without mixing over that of a plain "
        "loop: the same network of PyTorch Geometric's own layers, its DataLoader, the same "
        "optimizer; of the same rounds."
    )
    return [first, ReportTable("epochs", caption, columns_of(["Set"], heads), epochs)]
