"""Rows that can be compared: those of one data set that were trained in the same way."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from benchmarks._tabular.own import as_json

# Settings of a network, not of the training.
OF_NETWORK = ("module", "module_params")
# The order in which methods are told.
ORDER = ("erm", "erm+penalty", "mixup", "manifold-mixup", "mixupe")
NUMBERS = ["alpha", "eta", "penalty_fraction"]


@dataclass(frozen=True, eq=False)
class Section:
    """Rows of one data set and one way of training, and what that is."""

    dataset: str
    training: dict
    networks: dict[str, dict]
    rows: pd.DataFrame

    @property
    def n_seeds(self) -> int:
        """How many seeds there are."""
        return self.rows["seed"].nunique()


def sections_of(rows: pd.DataFrame) -> Iterator[Section]:
    """Rows that did not fail, by data set and way of training, in the order of the file.

    A data set whose content has changed is another data set. Networks that differ in what is set
    in them have names that differ.
    """
    good = rows[rows["error"] == ""]
    params = good["params"].map(json.loads)
    training = params.map(lambda one: as_json({k: one[k] for k in one if k not in OF_NETWORK}))
    network = params.map(lambda one: as_json({k: one.get(k) for k in OF_NETWORK}))
    good = good.assign(network=_names(good["network"], network), of_network=network)
    for (dataset, _, text), part in good.groupby(["dataset", "data", training], sort=False):
        networks = part.drop_duplicates("network").set_index("network")["of_network"]
        told = {str(name): json.loads(value) for name, value in networks.items()}
        columns = part.drop(columns="of_network").reset_index(drop=True)
        yield Section(str(dataset), json.loads(str(text)), told, columns)


def _names(names: pd.Series, params: pd.Series) -> pd.Series:
    """Names of networks, numbered from the second way on in which one of them was set up."""
    ways = pd.DataFrame({"name": names, "params": params}).drop_duplicates()
    number = ways.groupby("name").cumcount()
    ways["shown"] = ways["name"].where(number == 0, ways["name"] + " #" + (number + 1).astype(str))
    index = pd.MultiIndex.from_frame(ways[["name", "params"]])
    shown = pd.Series(ways["shown"].to_numpy(), index=index)
    wanted = pd.MultiIndex.from_arrays([names, params])
    return pd.Series(shown.reindex(wanted).to_numpy(), index=names.index)


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows by network, then by method and its numbers, then by seed."""
    networks = {name: place for place, name in enumerate(rows["network"].unique())}
    keys = rows.assign(
        _network=rows["network"].map(networks), _method=rows["method"].map(ORDER.index)
    )
    order = ["_network", "_method", "alpha", "eta"]
    ascending = [True] * 4 + [False, True]
    keys = keys.sort_values([*order, "penalty_fraction", "seed"], ascending=ascending)
    return keys.drop(columns=["_network", "_method"])
