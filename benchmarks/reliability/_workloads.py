"""Work that is interrupted by faults: units that finish one by one and are kept in files.

A workload has a function that continues it where its files end, and one that reads these files.
"""

import csv
import hashlib
import itertools
import os
import pathlib
import resource
import sqlite3
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optuna
from joblib.externals.loky import get_reusable_executor
from sklearn.datasets import load_iris

from benchmarks._harness.results_file import ResultsFile, complete_lines
from benchmarks._harness.runner import Item, run
from benchmarks._tabular.fits import TabularPlan
from benchmarks._tabular.protocol import FITS
from mixupe_sklearn import MixupEClassifier, MixupESearchCV, make_mixupe_pipeline, preset
from mixupe_sklearn._audio.spectrogram import Spectrogram
from mixupe_sklearn._search import heartbeats, storage, worker
from mixupe_sklearn.datasets import load_embedded
from mixupe_sklearn.datasets import openml as tasks
from mixupe_sklearn.persistence import load, save

Report = Callable[[str, str], None]  # takes the name of a unit, and a value that must stay the same
Units = list[tuple[str, str]]

SMALL = preset("paper") | {"module_params": {"d_hidden": (8,)}, "random_state": 0}
DAY = 24 * 3600
SPACE = {"alpha": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0], "eta": [1e-4, 1e-3, 1e-2, 0.1, 1.0]}
N_EPOCHS, N_VERSIONS, N_SPECTROGRAMS = 40, 60, 24
PLAN = TabularPlan(
    ("erm", "mixup", "mixupe"),
    grid="reduced",
    n_seeds=2,
    training={"max_epochs": 2, "batch_size": 30},
)
OPENML_ITEMS = (("dataset", 62), ("task", 59), ("task", 60))
COMPLETE = optuna.trial.TrialState.COMPLETE


def run_fit(folder: pathlib.Path, report: Report) -> None:
    """Train, and save the model after each epoch, which is the unit."""
    path = folder / "model"
    X, y = load_iris(return_X_y=True)
    model = load(path) if path.exists() else MixupEClassifier(**SMALL)
    while getattr(model, "n_iter_", 0) < N_EPOCHS:
        model.partial_fit(X, y, classes=[0, 1, 2])
        save(model, path)
        report(str(model.n_iter_), repr(float(model.loss_curve_[-1])))


def finished_epochs(folder: pathlib.Path) -> Units:
    """Epochs of the saved model, each with its loss."""
    path = folder / "model"
    losses = load(path).loss_curve_ if path.exists() else []
    return [(str(epoch), repr(float(loss))) for epoch, loss in enumerate(losses, start=1)]


def run_save(folder: pathlib.Path, report: Report) -> None:
    """Save versions of a pipeline, which are the units, under one name."""
    path = folder / "pipeline"
    if path.exists():
        pipeline = load(path)
    else:
        params = SMALL | {"max_epochs": 1, "module_params": {"d_hidden": (200, 200)}}
        pipeline = make_mixupe_pipeline(**params).fit(*load_iris(return_X_y=True))
        pipeline[-1].n_iter_no_change = 1
    for version in range(pipeline[-1].n_iter_no_change + 1, N_VERSIONS + 2):
        pipeline[-1].n_iter_no_change = version  # unused in this fit, so it can hold a number
        save(pipeline, path)
        report(str(version - 1), "")


def saved_versions(folder: pathlib.Path) -> Units:
    """The saved version, and those before it."""
    path = folder / "pipeline"
    if not path.exists():
        return []
    pipeline = load(path)
    pipeline.predict_proba(load_iris().data[:2])
    return [(str(version), "") for version in range(1, pipeline[-1].n_iter_no_change)]


def run_search(folder: pathlib.Path, report: Report) -> None:
    """Search with a storage; the units are configurations with their scores."""
    storage.HEARTBEAT, storage.GRACE = 1, 2
    finish = worker.finish

    def finish_and_report(study: Any, trial: Any, state: Any, value: Any, notes: Any) -> bool:
        is_mine = finish(study, trial, state, value, notes)
        if is_mine and state == COMPLETE:
            report(str(sorted(trial.params.items())), repr(value))
        return is_mine

    worker.finish = finish_and_report
    params: dict[str, Any] = {"cv": 2, "random_state": 0, "refit": False, "vectorize": False}
    params["storage"] = folder / "search.db"
    classifier = MixupEClassifier(**SMALL | {"max_epochs": 3})
    MixupESearchCV(classifier, SPACE, **params).fit(*load_iris(return_X_y=True))


def run_workers(folder: pathlib.Path, report: Report) -> None:
    """Search with two worker processes; a thread reports the trials that are in the storage."""
    storage.HEARTBEAT, storage.GRACE = 1, 2
    reported: Units = []

    def report_new() -> None:
        for unit in complete_trials(folder):
            if unit not in reported:
                reported.append(unit)
                report(*unit)

    params: dict[str, Any] = {"cv": 2, "random_state": 0, "refit": False, "vectorize": False}
    params |= {"storage": folder / "search.db", "n_jobs": 2}
    classifier = MixupEClassifier(**SMALL | {"max_epochs": 3, "batch_size": 50})
    with heartbeats.repeat_while(0.05, report_new):
        MixupESearchCV(classifier, SPACE, **params).fit(*load_iris(return_X_y=True))
    report_new()
    # joblib keeps idle workers for minutes, and the end of a child process would wait for them.
    get_reusable_executor().shutdown()


def complete_trials(folder: pathlib.Path) -> Units:
    """Configurations with complete trials."""
    path = folder / "search.db"
    if not path.exists():
        return []
    with storage.open_for_search(path) as place, storage.quiet():
        names = optuna.get_all_study_names(place)
        trials = optuna.load_study(study_name=names[0], storage=place).trials if names else []
    done = [trial for trial in trials if trial.state == COMPLETE]
    return [(str(sorted(t.params.items())), repr(t.value)) for t in done]


class _ReportingFile(ResultsFile):
    """The results file of the benchmark, which reports each row that is on the disk."""

    report: Report

    def add(self, rows: Any) -> None:
        rows = list(rows)
        super().add(rows)
        for row in rows:
            self.report(str(FITS.key_of(row)), str(float(row["test_error"])))


def run_benchmark(folder: pathlib.Path, report: Report) -> None:
    """Run the tabular benchmark; the units are its fits."""
    with _ReportingFile(folder / "rows.csv", FITS) as file:
        file.report = report
        run([Item("iris", lambda: load_embedded("iris"))], PLAN, file, n_jobs=1, is_shown=False)


def finished_fits(folder: pathlib.Path) -> Units:
    """Rows of the file, with repetitions."""
    path = folder / "rows.csv"
    if not path.exists():
        return []
    rows = csv.DictReader(complete_lines(path, FITS.columns)[0])
    return [(str(FITS.key_of(row)), str(float(row["test_error"]))) for row in rows]


def run_spectrograms(folder: pathlib.Path, report: Report) -> None:
    """Fill a cache of spectrograms; the units are its files."""
    rng = np.random.default_rng(0)
    waveforms = [rng.uniform(-1, 1, 8000).astype(np.float32) for _ in range(8)]
    seen = set(cached_spectrograms(folder))
    for n_frames in range(1, N_SPECTROGRAMS + 1):
        Spectrogram(cache=folder, n_frames=n_frames).transform(waveforms)
        for unit in set(cached_spectrograms(folder)) - seen:
            report(*unit)
            seen.add(unit)


def cached_spectrograms(folder: pathlib.Path) -> Units:
    """Files that can be read."""
    paths = sorted(folder.glob("spectrograms-*.npy"))
    return [(path.name, _digest(np.load(path).tobytes())) for path in paths]


def run_downloads(folder: pathlib.Path, report: Report) -> None:
    """Load datasets and tasks from the server that the environment names, or from the cache."""
    import openml

    from mixupe_sklearn.datasets._openml import transport

    openml.config.server = os.environ["MIXUPE_FAULTS_SERVER"]
    transport.BACKOFF_SECONDS = 0.01
    for kind, number in OPENML_ITEMS:
        load_one = tasks.load_task if kind == "task" else tasks.load_dataset
        load_one(number, cache_dir=folder / "cache")
        for unit in cached_downloads(folder):
            report(*unit)


def cached_downloads(folder: pathlib.Path) -> Units:
    """Cached files with a digest of their content."""
    return [
        (path.relative_to(folder).as_posix(), _digest(path.read_bytes()))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".lock", ".part")
    ]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


class Workload(NamedTuple):
    """Runs in a folder and reports; reads the finished units; and their number in all."""

    run: Callable[[pathlib.Path, Report], None]
    finished: Callable[[pathlib.Path], Units]
    n_units: int


WORKLOADS = {
    "fit with checkpoints": Workload(run_fit, finished_epochs, N_EPOCHS),
    "search": Workload(run_search, complete_trials, 30),
    "search with two workers": Workload(run_workers, complete_trials, 30),
    "benchmark": Workload(run_benchmark, finished_fits, 34),
    "save": Workload(run_save, saved_versions, N_VERSIONS),
    "spectrogram cache": Workload(run_spectrograms, cached_spectrograms, N_SPECTROGRAMS),
    "OpenML cache": Workload(run_downloads, cached_downloads, 12),
}


def let_the_clock_jump() -> None:
    """Let the wall clock jump by days, forwards and backwards, at each reading."""
    clock, jumps = time.time, itertools.cycle([0.0, 3 * DAY, -2 * DAY, 7 * DAY, -5 * DAY])
    time.time = lambda: clock() + next(jumps)
    time.time_ns = lambda: int(time.time() * 1e9)
    connect = storage._open_sqlite

    def connect_with_clock(path: str) -> sqlite3.Connection:
        connection = connect(path)

        def now() -> str:  # SQLite has its own clock
            return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time()))

        connection.create_function("current_timestamp", 0, now)
        return connection

    storage._open_sqlite = connect_with_clock


def limit_memory() -> None:
    """Limit the memory (as ``ulimit -v`` does), and try to exceed it."""
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    limit = used + 400 * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    X, y = np.zeros((40, 1000)), np.arange(40) % 2
    params = SMALL | {"batch_size": 20, "max_epochs": 1}
    large = MixupEClassifier(**params | {"module_params": {"d_hidden": (400_000,)}})
    fitted = MixupEClassifier(**params).fit(X, y)
    calls = [lambda: large.fit(X, y), lambda: fitted.predict_proba(np.ones((200_000, 1000)))]
    for call in calls:
        try:
            call()
        except MemoryError:
            pass
        except RuntimeError as error:  # torch's own, outside the making of a network
            if "alloc" not in str(error):
                raise
        else:
            raise AssertionError("a call that exceeds the memory succeeded")


ENVIRONMENTS: dict[str, Callable[[], None]] = {
    "": lambda: None,
    "clock": let_the_clock_jump,
    "memory": limit_memory,
}


def work(report: Report, name: str, folder: pathlib.Path, environment: str = "") -> None:
    """Run a workload in an environment, without warnings such as that of a shared study."""
    ENVIRONMENTS[environment]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        WORKLOADS[name].run(folder, report)
