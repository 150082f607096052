"""What the penalty costs: epochs of Mixup and MixupE in turns, in one process.

Times of whole fits are no fair comparison, as fits run in parallel and at different hours.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._harness.environment import commit, versions_of
from benchmarks._harness.paired_timing import Run, median, ratio_of, time_in_turns
from benchmarks._harness.report_tables import Cell, Column, ReportTable, number
from benchmarks._harness.results_file import write_text
from benchmarks._vision_speech.data import Dataset
from benchmarks._vision_speech.fits import Fit, config_of
from benchmarks._vision_speech.networks import Network

# The fraction of a batch with the penalty, and the most that an epoch may take of one of Mixup.
SHARES = {"MixupE": (1.0, 2.0), "MixupE, 25 % penalised": (0.25, 1.35)}
N_ROWS = 1000


def runs_of(
    table: Dataset, network: Network, training: Mapping[str, Any], *, alpha: float, eta: float
) -> dict[str, Run]:
    """An epoch of each candidate, which can be repeated."""
    split = table.split(0)
    X, y, classes = split.X_train[:N_ROWS], split.y_train[:N_ROWS], np.unique(table.y)
    configs = {"Mixup": config_of("mixup", alpha=alpha, eta=eta)}
    for name, (share, _) in SHARES.items():
        configs[name] = config_of("mixupe", alpha=alpha, eta=eta, penalty_fraction=share)
    once = dict(training) | {"max_epochs": 1}

    def epoch(model: Any) -> Run:
        return lambda: model.partial_fit(X, y, classes=classes)

    return {
        name: epoch(Fit(table, 0, network, config, once).make()) for name, config in configs.items()
    }


def measure(
    table: Dataset,
    networks: Sequence[Network],
    training: Mapping[str, Any],
    n_rounds: int,
    **numbers: float,
) -> dict[str, Any]:
    """Seconds of each candidate in each round, by network."""
    found = {
        network.name: time_in_turns(
            runs_of(table, network, training, **numbers), n_rounds, digits=4
        )
        for network in networks
    }
    about = {"dataset": table.name, "n_rows": min(N_ROWS, len(table.split(0).y_train))}
    return about | {"commit": commit(), "versions": versions_of(), "seconds": found}


def table_of(results: Mapping[str, Any]) -> ReportTable:
    """The ratios with their bounds."""
    body = []
    for network, times in results["seconds"].items():
        for name, (_, bound) in SHARES.items():
            ratio = ratio_of(times[name], times["Mixup"])
            verdict = "held" if ratio.median <= bound else "missed"
            figures = [f"{median(times[name]):.2f}", f"{median(times['Mixup']):.2f}"]
            figures += [str(len(times[name])), str(ratio), number(bound), verdict]
            body.append([Cell(network), Cell(name), *map(Cell, figures)])
    heads = ["s", "Mixup, s", "Rounds", "Ratio (quartiles)", "At most", "Verdict"]
    columns = [Column(head, is_number=False) for head in ("Network", "Method")]
    caption = (
        f"{results['dataset']}: an epoch of {results['n_rows']:,} rows over one of Mixup, in turns "
        f"in one process with one thread; medians of the times, and of the ratios of a round."
    )
    return ReportTable("ratios", caption, [*columns, *map(Column, heads)], body)


def write(results: Mapping[str, Any], path: pathlib.Path) -> None:
    """Write the times."""
    write_text(path, json.dumps(results, indent=1) + "\n")
