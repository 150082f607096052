"""What is at work when something goes wrong: units that are finished one by one, and kept in files.

Each work can be begun anew at any time and goes on where its files end. ``run`` tells of each unit
when it is finished; ``finished`` reads from the files alone which units are there.
"""

import csv
import hashlib
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import optuna
from sklearn.datasets import load_iris

from benchmarks._tabular.append_only import whole_lines
from benchmarks._tabular.rows import FITS, RowsFile, key_of
from benchmarks._tabular.running import Item, Plan, run
from mixupe_sklearn import MixupEClassifier, MixupESearchCV, make_mixupe_pipeline, preset
from mixupe_sklearn._audio.spectrogram import Spectrogram
from mixupe_sklearn._search import storage, worker
from mixupe_sklearn.datasets import load_embedded
from mixupe_sklearn.datasets import openml as tasks
from mixupe_sklearn.persistence import load, save

Tell = Callable[[str, str], None]
# A unit by its name, and something that it must have in common with itself later.
Units = list[tuple[str, str]]

SMALL = preset("paper") | {"module_params": {"d_hidden": (8,)}, "random_state": 0}
SPACE = {"alpha": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], "eta": [1e-4, 1e-3, 1e-2, 0.1, 1.0]}


class Fit:
    """A training that saves its model after each epoch: the units are epochs."""

    name = "fit with checkpoints"
    n_units = 40

    def run(self, folder: pathlib.Path, tell: Tell) -> None:
        """Train on from the file, if there is one."""
        path = folder / "model"
        X, y = load_iris(return_X_y=True)
        model = load(path) if path.exists() else MixupEClassifier(**SMALL)
        while getattr(model, "n_iter_", 0) < self.n_units:
            model.partial_fit(X, y, classes=[0, 1, 2])
            save(model, path)
            tell(str(model.n_iter_), repr(float(model.loss_curve_[-1])))

    def finished(self, folder: pathlib.Path) -> Units:
        """Epochs of the model in the file, each with its loss."""
        path = folder / "model"
        losses = load(path).loss_curve_ if path.exists() else []
        return [(str(epoch), repr(float(loss))) for epoch, loss in enumerate(losses, start=1)]


class Save:
    """A pipeline that is saved under one name again and again: the units are its versions."""

    name = "save"
    n_units = 60

    def run(self, folder: pathlib.Path, tell: Tell) -> None:
        """Save all versions after the one that is there."""
        path = folder / "pipeline"
        if path.exists():
            pipeline = load(path)
        else:
            params = SMALL | {"max_epochs": 1, "module_params": {"d_hidden": (200, 200)}}
            pipeline = make_mixupe_pipeline(**params).fit(*load_iris(return_X_y=True))
            pipeline[-1].n_iter_no_change = 1
        for version in range(pipeline[-1].n_iter_no_change + 1, self.n_units + 2):
            pipeline[-1].n_iter_no_change = version  # of no use in this fit: a place for a number
            save(pipeline, path)
            tell(str(version - 1), "")

    def finished(self, folder: pathlib.Path) -> Units:
        """The version in the file, and those before it."""
        path = folder / "pipeline"
        if not path.exists():
            return []
        pipeline = load(path)
        pipeline.predict_proba(load_iris().data[:2])
        return [(str(version), "") for version in range(1, pipeline[-1].n_iter_no_change)]


class Search:
    """A search with a storage: the units are configurations, with their scores."""

    name = "search"
    n_units = 30

    def run(self, folder: pathlib.Path, tell: Tell) -> None:
        """Search on; a dead worker is noticed after two seconds instead of thirty."""
        storage.HEARTBEAT, storage.GRACE = 1, 2
        finish = worker.finish

        def finish_and_tell(study: Any, trial: Any, state: Any, value: Any, notes: Any) -> bool:
            is_mine = finish(study, trial, state, value, notes)
            if is_mine and state == optuna.trial.TrialState.COMPLETE:
                tell(str(sorted(trial.params.items())), repr(value))
            return is_mine

        worker.finish = finish_and_tell
        params: dict[str, Any] = {"cv": 2, "random_state": 0, "refit": False, "vectorize": False}
        params["storage"] = folder / "search.db"
        classifier = MixupEClassifier(**SMALL | {"max_epochs": 3})
        MixupESearchCV(classifier, SPACE, **params).fit(*load_iris(return_X_y=True))

    def finished(self, folder: pathlib.Path) -> Units:
        """Configurations whose trials are complete."""
        path = folder / "search.db"
        if not path.exists():
            return []
        with storage.opened(path) as place, storage.quiet():
            names = optuna.get_all_study_names(place)
            trials = optuna.load_study(study_name=names[0], storage=place).trials if names else []
        done = [trial for trial in trials if trial.state == optuna.trial.TrialState.COMPLETE]
        return [(str(sorted(t.params.items())), repr(t.value)) for t in done]


class TellingRows(RowsFile):
    """The file of rows of the benchmark, which tells of each row that is on the disk."""

    tell: Tell

    def add(self, rows: Any) -> None:
        """Write rows, then tell of them."""
        rows = list(rows)
        super().add(rows)
        for row in rows:
            self.tell(str(key_of(row)), str(float(row["test_error"])))


class Rows:
    """The tabular benchmark: the units are fits, by all that makes a fit this fit."""

    name = "benchmark"
    plan = Plan(
        ("erm", "mixup", "mixupe"),
        grid="reduced",
        n_seeds=2,
        training={"max_epochs": 2, "batch_size": 30},
    )
    n_units = 34

    def run(self, folder: pathlib.Path, tell: Tell) -> None:
        """Run the fits that are not in the file."""
        with TellingRows(folder / "rows.csv") as file:
            file.tell = tell
            item = Item("iris", lambda: load_embedded("iris"))
            run([item], self.plan, file, n_jobs=1, is_shown=False)

    def finished(self, folder: pathlib.Path) -> Units:
        """Rows of the file, each as often as it is there."""
        path = folder / "rows.csv"
        if not path.exists():
            return []
        rows = csv.DictReader(whole_lines(path, FITS.columns)[0])
        return [(str(key_of(row)), str(float(row["test_error"]))) for row in rows]


class Spectrograms:
    """A cache of spectrograms: the units are its files."""

    name = "spectrogram cache"
    n_units = 24

    def run(self, folder: pathlib.Path, tell: Tell) -> None:
        """Compute what the cache does not have."""
        rng = np.random.default_rng(0)
        waves = [rng.uniform(-1, 1, 8000).astype(np.float32) for _ in range(8)]
        seen = {name for name, _ in self.finished(folder)}
        for n_frames in range(1, self.n_units + 1):
            Spectrogram(cache=folder, n_frames=n_frames).transform(waves)
            for name, value in self.finished(folder):
                if name not in seen:
                    tell(name, value)
                    seen.add(name)

    def finished(self, folder: pathlib.Path) -> Units:
        """Files that can be read whole."""
        paths = sorted(folder.glob("spectrograms-*.npy"))
        return [(path.name, _digest(np.load(path).tobytes())) for path in paths]


class Downloads:
    """A cache of OpenML's files: the units are its files, of three data sets and tasks."""

    name = "OpenML cache"
    items = (("dataset", 62), ("task", 59), ("task", 60))
    n_units = 12

    def run(self, folder: pathlib.Path, tell: Tell) -> None:
        """Load all, from the cache or from the server that the environment names."""
        import openml

        from mixupe_sklearn.datasets._openml import transport

        openml.config.server = os.environ["MIXUPE_FAULTS_SERVER"]
        transport.BACKOFF_SECONDS = 0.01
        for kind, number in self.items:
            load_one = tasks.load_task if kind == "task" else tasks.load_dataset
            load_one(number, cache_dir=folder / "cache")
            for name, value in self.finished(folder):
                tell(name, value)

    def finished(self, folder: pathlib.Path) -> Units:
        """Files under their own names, with what is in them."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return [
            (path.relative_to(folder).as_posix(), _digest(path.read_bytes()))
            for path in paths
            if path.suffix not in (".lock", ".part")
        ]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


WORKS: dict[str, Any] = {
    work.name: work for work in (Fit(), Search(), Rows(), Save(), Spectrograms(), Downloads())
}


def pieces_of(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """What writers have left half done."""
    return folder.rglob("*.part")


def run_quietly(name: str, folder: pathlib.Path, tell: Tell) -> None:
    """Run a work by its name, without its warnings: that it shares a study, say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        WORKS[name].run(folder, tell)
