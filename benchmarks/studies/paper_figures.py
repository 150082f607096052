"""The paper's first and second figure on images: ``python -m benchmarks.studies.paper_figures``.

Figure 1 has losses of ERM, Mixup and MixupE, figure 2 the least coefficient alpha of Mixup.
"""

import argparse
import csv
import pathlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from benchmarks._harness.cli import positive_int, run_command
from benchmarks._harness.environment import commit, versions_of
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import ResultsFile, Schema, read_rows
from benchmarks._vision_speech.data import Split, load_images
from benchmarks._vision_speech.networks import SMALL, Network, network_of
from mixupe_sklearn import MixupEImageClassifier
from mixupe_sklearn._utils.atomic_files import replacing
from mixupe_sklearn.diagnostics import DerivativeMonitor, plot_alpha_min, plot_loss_curves

METHODS = {"ERM": "erm", "Mixup": "mixup", "MixupE": "mixupe"}
CURVES = ("train_loss", "valid_loss", "alpha_min", "q_abs", "q_hat_abs", "penalty_share")
KEY = ("data", "network", "method", "settings")
SCHEMA = Schema(
    (*KEY, "epoch", *CURVES, "loss_scale", "versions", "commit"),
    frozenset((*KEY, "versions", "commit")),
)
RESULTS = pathlib.Path(__file__).parents[1] / "results" / "figures.csv"


class Training(NamedTuple):
    """A network that is trained by a method."""

    data: str
    network: Network
    method: str
    settings: dict[str, Any]

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies the training in its rows."""
        settings = ", ".join(f"{name}={value}" for name, value in self.settings.items())
        return self.data, self.network.name, self.method, settings

    def run(self, split: Split) -> list[dict[str, Any]]:
        """Train and monitor: a row per epoch."""
        classifier = MixupEImageClassifier(
            method=METHODS[self.method],
            module=self.network.module,
            module_params=self.network.module_params,
            callbacks=[DerivativeMonitor(every=1, n_rows=64)],
            n_threads=1,
            random_state=0,
            **self.settings,
        )
        classifier.fit(split.X_train, split.y_train, X_val=split.X_test, y_val=split.y_test)
        return [
            dict(zip(KEY, self.key, strict=True))
            | {name: float(f"{epoch[name]:.6g}") for name in (*CURVES, "loss_scale")}
            | {"epoch": number}
            for number, epoch in enumerate(classifier.history_, start=1)
        ]


def run(path: pathlib.Path, trainings: Sequence[Training], split: Split) -> None:
    """Run the trainings that the file does not have completely, and append each when it ends."""
    note = {"versions": versions_of(), "commit": commit()}
    with ResultsFile(path, SCHEMA) as file:
        rows = csv.DictReader(file.lines())
        n_epochs = Counter(tuple(row[name] for name in KEY) for row in rows)
        for number, training in enumerate(trainings, start=1):
            if n_epochs[training.key] >= training.settings["max_epochs"]:
                continue
            name = f"{training.network.name}, {training.method}"
            print(f"{number} of {len(trainings)}: {name}", flush=True)
            file.add(row | note for row in training.run(split))


def read_curves(path: pathlib.Path) -> pd.DataFrame:
    """All rows of a file, of repeated epochs the last."""
    return read_rows(path, SCHEMA).drop_duplicates([*KEY, "epoch"], keep="last", ignore_index=True)


def curves(rows: pd.DataFrame, **wanted: str) -> list[dict[str, Any]]:
    """The rows of one training in their order."""
    is_wanted = (rows[list(wanted)] == pd.Series(wanted)).all(axis=1)
    return rows[is_wanted].sort_values("epoch").to_dict("records")


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the data and the settings that were run last."""
    last = rows[["data", "settings"]]
    return rows[(last == last.iloc[-1]).all(axis=1)]


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
    """The last and lowest values of the curves, as Markdown."""
    titles = ["training loss", "test loss", "lowest test loss", "alpha, lowest", "alpha, last"]
    lines = []
    for (network, method), part in newest(rows).groupby(["network", "method"], sort=False):
        part = part.sort_values("epoch")
        last, losses, alphas = part.iloc[-1], part["valid_loss"], part["alpha_min"]
        values = [last["train_loss"], losses.iloc[-1], losses.min(), alphas.min(), alphas.iloc[-1]]
        lines.append([network, method, *(f"{value:.3f}" for value in values)])
    return plain_markdown(["network", "method", *titles], lines, n_texts=2)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.paper_figures",
        description=(__doc__ or "").splitlines()[0],
    )
    words = "images as .npz (scikit-learn's digits)"
    made.add_argument("--data", type=pathlib.Path, metavar="FILE", help=words)
    words = "train on the first so many images (all)"
    made.add_argument("--rows", type=positive_int, help=words)
    made.add_argument("--networks", nargs="+", default=list(SMALL)[::-1], metavar="NETWORK")
    made.add_argument("--epochs", type=positive_int, default=30)
    made.add_argument("--eta", type=float, default=0.001)
    made.add_argument("--report-only", action="store_true", help="train nothing, draw")
    build = pathlib.Path("build")
    made.add_argument("--output", type=pathlib.Path, default=build / "figures.csv", metavar="FILE")
    made.add_argument("--plots", type=pathlib.Path, default=build, metavar="DIR")
    return made


def train(options: argparse.Namespace) -> None:
    """Run missing trainings."""
    images = load_images(options.data, None)
    X_train, y_train, X_test, y_test = images.split(0)
    n_rows = min(options.rows or len(y_train), len(y_train))
    split = Split(X_train[:n_rows], y_train[:n_rows], X_test, y_test)
    # The paper trains CIFAR with alpha = 1.
    settings = {"alpha": 1.0, "eta": options.eta, "lr": 0.02, "lr_schedule": "cosine"}
    settings |= {"max_epochs": options.epochs, "batch_size": 50}
    networks = [network_of(text) for text in options.networks]
    data = f"{images.name}, {n_rows} images"
    trainings = [Training(data, networks[0], method, settings) for method in METHODS]
    trainings += [Training(data, network, "Mixup", settings) for network in networks[1:]]
    run(options.output, trainings, split)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run missing trainings, draw, and return the exit status."""
    options = parser().parse_args(arguments)

    def work() -> None:
        if not options.report_only:
            train(options)
        rows = read_curves(options.output)
        print("", table(rows), "", *draw(rows, options.plots), sep="\n")

    return run_command(work)


if __name__ == "__main__":
    sys.exit(main())
