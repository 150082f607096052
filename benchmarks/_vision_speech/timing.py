"""What the penalty costs: epochs of Mixup and MixupE in turns, in one process."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks._harness.paired_timing import Run, judged, median, time_in_turns, write_times
from benchmarks._harness.report_tables import Cell, ReportTable
from benchmarks._harness.single_fits import columns_of
from benchmarks._vision_speech.data import Dataset
from benchmarks._vision_speech.fits import Fit, config_of
from benchmarks._vision_speech.networks import Network

FILE = "timing.json"
# The fraction of a batch with the penalty, and the most that an epoch may take of one of Mixup.
SHARES = {"MixupE": (1.0, 2.0), "MixupE, 25 % penalised": (0.25, 1.35)}
N_ROWS = 1000


def runs_of(
    table: Dataset, network: Network, training: Mapping[str, Any], **numbers: float
) -> dict[str, Run]:
    """An epoch of each candidate, which can be repeated."""
    split = table.split(0)
    configs = {"Mixup": config_of("mixup", **numbers)}
    for name, (share, _) in SHARES.items():
        configs[name] = config_of("mixupe", **numbers, penalty_fraction=share)
    once = {**training, "max_epochs": 1}
    return {
        name: partial(
            Fit(table, 0, network, config, once).make().partial_fit,
            split.X_train[:N_ROWS],
            split.y_train[:N_ROWS],
            classes=np.unique(table.y),
        )
        for name, config in configs.items()
    }


def measure(
    path: pathlib.Path,
    table: Dataset,
    networks: Sequence[Network],
    training: Mapping[str, Any],
    n_rounds: int,
    **numbers: float,
) -> None:
    """Write the seconds of each candidate in each round, by network."""
    found = {
        network.name: time_in_turns(
            runs_of(table, network, training, **numbers), n_rounds, digits=4
        )
        for network in networks
    }
    n_rows = min(N_ROWS, len(table.split(0).y_train))
    write_times(path, {"dataset": table.name, "n_rows": n_rows}, found)


def table_of(path: pathlib.Path) -> ReportTable:
    """The ratios with their bounds."""
    results, body = json.loads(path.read_text()), []
    for network, times in results["seconds"].items():
        for name, (_, bound) in SHARES.items():
            medians = [f"{median(times[one]):.2f}" for one in (name, "Mixup")]
            figures = [*medians, *judged(times[name], times["Mixup"], bound)]
            body.append([*map(Cell, [network, name, *figures])])
    heads = ["s", "Mixup, s", "Rounds", "Ratio (quartiles)", "At most", "Verdict"]
    caption = (
        f"{results['dataset']}: an epoch of {results['n_rows']:,} rows over one of Mixup, in turns "
        f"in one process with one thread; medians of the times, and of the ratios of a round."
    )
    return ReportTable("ratios", caption, columns_of(["Network", "Method"], heads), body)
