"""The paper's first and second figure on pictures: ``python -m benchmarks.figures``.

Figure 1 has the training and the test loss of ERM, Mixup and MixupE; figure 2 the least coefficient
alpha over rows and outputs while Mixup trains, with two networks. Each training is a block of lines
in a CSV file, a line an epoch, and the figures are drawn from these lines alone. A run that ends
early goes on with the training that is missing when the same command is given again.
"""

import argparse
import csv
import io
import pathlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from benchmarks._signals.data import Parts, load_pictures
from benchmarks._signals.networks import SMALL, Network, network_of
from benchmarks._tabular.append_only import AppendOnly, whole_lines
from benchmarks._tabular.running import commit, versions_of
from mixupe_sklearn import MixupEImageClassifier
from mixupe_sklearn._utils.atomic_files import replacing
from mixupe_sklearn.diagnostics import DerivativeMonitor, plot_alpha_min, plot_loss_curves

# What the paper trains CIFAR with: alpha = 1, and the eta of its recipes.
METHODS: dict[str, dict[str, Any]] = {
    "ERM": {"method": "erm"},
    "Mixup": {"method": "mixup"},
    "MixupE": {"method": "mixupe"},
}
WATCHED = ("train_loss", "valid_loss", "alpha_min", "q_abs", "q_hat_abs", "penalty_share")
KEY = ["data", "network", "method", "settings"]
COLUMNS = [*KEY, "epoch", *WATCHED, "loss_scale", "versions", "commit"]
RESULTS = pathlib.Path(__file__).parent / "results" / "figures.csv"


class Training(NamedTuple):
    """A network that is trained by a method."""

    data: str
    network: Network
    method: str
    settings: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes it this training, as its lines have it."""
        told = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return self.data, self.network.name, self.method, told

    def run(self, parts: Parts) -> list[dict[str, Any]]:
        """Train and watch: a record an epoch."""
        classifier = MixupEImageClassifier(
            **METHODS[self.method],
            module=self.network.module,
            module_params=self.network.module_params,
            callbacks=[DerivativeMonitor(every=1, n_rows=64)],
            n_threads=1,
            random_state=0,
            **self.settings,
        )
        classifier.fit(parts.X_train, parts.y_train, X_val=parts.X_test, y_val=parts.y_test)
        return classifier.history_


def lines_of(training: Training, records: Sequence[dict[str, Any]], note: dict[str, str]) -> str:
    """A training as lines of CSV."""
    rows = [
        dict(zip(KEY, training.key, strict=True))
        | {name: float(f"{row[name]:.6g}") for name in (*WATCHED, "loss_scale")}
        | {"epoch": number, **note}
        for number, row in enumerate(records, start=1)
    ]
    text = io.StringIO()
    pd.DataFrame(rows)[COLUMNS].to_csv(text, header=False, index=False)
    return text.getvalue()


def read_rows(path: pathlib.Path) -> pd.DataFrame:
    """All whole lines of a file."""
    if not path.exists():
        raise ValueError(f"Got output={path}, which is not there, but expected a file with rows.")
    return pd.read_csv(io.StringIO("\n".join([*whole_lines(path, COLUMNS)[0], ""])))


def trainings_of(data: str, networks: Sequence[Network], settings: dict) -> Iterator[Training]:
    """All that the figures need: each method with the first network, Mixup with the others."""
    first, *others = networks
    yield from (Training(data, first, method, settings) for method in METHODS)
    yield from (Training(data, network, "Mixup", settings) for network in others)


def run(path: pathlib.Path, trainings: Sequence[Training], parts: Parts) -> None:
    """Run the trainings that the file does not have whole, and add each when it ends."""
    note = {"versions": versions_of(), "commit": commit()}
    with AppendOnly(path, COLUMNS) as file:
        rows = csv.DictReader(file.lines())
        n_epochs = Counter(tuple(row[name] for name in KEY) for row in rows)
        for number, training in enumerate(trainings, start=1):
            if n_epochs[training.key] >= training.settings["max_epochs"]:
                continue
            told = f"{number} of {len(trainings)}: {training.network.name}, {training.method}"
            print(told, flush=True)
            file.write(lines_of(training, training.run(parts), note))


def curves(rows: pd.DataFrame, **wanted: str) -> list[dict[str, Any]]:
    """The records of one training, in their order."""
    is_wanted = (rows[list(wanted)] == pd.Series(wanted)).all(axis=1)
    return rows[is_wanted].sort_values("epoch").to_dict("records")


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the data and the settings that were run last."""
    run = rows[["data", "settings"]]
    return rows[(run == run.iloc[-1]).all(axis=1)]


def draw(rows: pd.DataFrame, folder: pathlib.Path) -> list[pathlib.Path]:
    """Draw both figures of the newest data in the rows."""
    rows = newest(rows)
    first = rows["network"].iloc[0]
    losses = {method: curves(rows, network=first, method=method) for method in METHODS}
    figure = next(iter(plot_loss_curves(losses).values())).figure_
    figure.axes[1].set_ylabel("test loss")
    networks = list(dict.fromkeys(rows.loc[rows["method"] == "Mixup", "network"]))
    alphas = {name: curves(rows, network=name, method="Mixup") for name in networks}
    second = next(iter(plot_alpha_min(alphas).values())).figure_
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "figure-losses.png", folder / "figure-alpha-min.png"]
    for path, made in zip(paths, (figure, second), strict=True):
        with replacing(path) as file:
            made.savefig(file, format="png", dpi=130, metadata={"Software": None})
    return paths


def table(rows: pd.DataFrame) -> str:
    """What the curves end with, as Markdown."""
    rows = newest(rows)
    titles = ["training loss", "test loss", "lowest test loss", "alpha, lowest", "alpha, last"]
    lines = [f"| network | method | {' | '.join(titles)} |", "|---|---|" + "--:|" * len(titles)]
    for (network, method), part in rows.groupby(["network", "method"], sort=False):
        part = part.sort_values("epoch")
        last = part.iloc[-1]
        values = [last["train_loss"], last["valid_loss"], part["valid_loss"].min()]
        values += [part["alpha_min"].min(), last["alpha_min"]]
        lines.append(f"| {network} | {method} | {' | '.join(f'{v:.3f}' for v in values)} |")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.figures", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument(
        "--data", type=pathlib.Path, metavar="FILE", help="pictures as .npz (scikit-learn's digits)"
    )
    made.add_argument("--rows", type=int, help="train on the first so many pictures (all)")
    made.add_argument("--networks", nargs="+", default=list(SMALL)[::-1], metavar="NETWORK")
    made.add_argument("--epochs", type=int, default=30)
    made.add_argument("--eta", type=float, default=0.001)
    made.add_argument("--report-only", action="store_true", help="train nothing, draw")
    made.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("build/figures.csv"), metavar="FILE"
    )
    made.add_argument("--pictures", type=pathlib.Path, default=pathlib.Path("build"), metavar="DIR")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, then draw."""
    options = parser().parse_args(arguments)
    try:
        if not options.report_only:
            signals = load_pictures(options.data, None)
            X_train, y_train, X_test, y_test = signals.parts(0)
            n_rows = len(y_train) if options.rows is None else min(options.rows, len(y_train))
            parts = Parts(X_train[:n_rows], y_train[:n_rows], X_test, y_test)
            settings = {"alpha": 1.0, "eta": options.eta, "lr": 0.02, "lr_schedule": "cosine"}
            settings |= {"max_epochs": options.epochs, "batch_size": 50}
            networks = [network_of(text) for text in options.networks]
            data = f"{signals.name}, {n_rows} pictures"
            run(options.output, list(trainings_of(data, networks, settings)), parts)
        rows = read_rows(options.output)
        print("", table(rows), "", *draw(rows, options.pictures), sep="\n")
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
