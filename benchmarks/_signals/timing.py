"""What the penalty costs: epochs of Mixup and MixupE in turns, in one process, on some of the rows.

Times of whole fits are no fair comparison: they are made beside each other, at different hours.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks._signals.data import Signals
from benchmarks._signals.fits import Fit, config_of
from benchmarks._signals.networks import Network
from benchmarks._speed.timing import Run, Times, median, ratio_of, take_turns, threads
from benchmarks._tabular.report.sheets import Cell, Column, Sheet, number
from benchmarks._tabular.running import commit, versions_of
from benchmarks._writing import write_text

# The share of a batch that each candidate penalises, and the most that its epoch may take of one of
# Mixup.
SHARES = {"MixupE": 1.0, "MixupE, 25 % penalised": 0.25}
BOUNDS = {"MixupE": 2.0, "MixupE, 25 % penalised": 1.35}
N_ROWS = 1000


def runs_of(
    table: Signals, network: Network, training: Mapping[str, Any], *, alpha: float, eta: float
) -> dict[str, Run]:
    """An epoch by each candidate, to be run again and again."""
    parts = table.parts(0)
    X, y, classes = parts.X_train[:N_ROWS], parts.y_train[:N_ROWS], np.unique(table.y)
    configs = {"Mixup": config_of("mixup", alpha=alpha, eta=eta)}
    for name, share in SHARES.items():
        configs[name] = config_of("mixupe", alpha=alpha, eta=eta, penalty_fraction=share)
    once = dict(training) | {"max_epochs": 1}
    models = {name: Fit(table, 0, network, config, once).make() for name, config in configs.items()}

    def epoch(model: Any) -> Run:
        return lambda: model.partial_fit(X, y, classes=classes)

    return {name: epoch(model) for name, model in models.items()}


def measure(
    table: Signals,
    networks: Sequence[Network],
    training: Mapping[str, Any],
    n_rounds: int,
    **numbers: float,
) -> dict[str, Any]:
    """Seconds of each candidate in each round, by network."""
    found: dict[str, Times] = {}
    for network in networks:
        runs = runs_of(table, network, training, **numbers)
        with threads(1):
            take_turns(runs, 1)  # what is loaded on the way is not counted
            times = take_turns(runs, n_rounds)
        found[network.name] = {
            name: [round(one, 4) for one in values] for name, values in times.items()
        }
    about = {"dataset": table.name, "n_rows": min(N_ROWS, len(table.parts(0).y_train))}
    return about | {"commit": commit(), "versions": versions_of(), "seconds": found}


def sheet_of(results: Mapping[str, Any]) -> Sheet:
    """The ratios, with the bounds and whether they were held."""
    body = []
    for network, times in results["seconds"].items():
        for name, bound in BOUNDS.items():
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
    return Sheet("ratios", caption, [*columns, *map(Column, heads)], body)


def write(results: Mapping[str, Any], path: pathlib.Path) -> None:
    """Keep what was measured."""
    write_text(path, json.dumps(results, indent=1) + "\n")
