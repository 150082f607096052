"""Ensembles: members against single networks, what options cost, and a search as one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ParameterGrid
from skorch.callbacks import Callback

from benchmarks._harness.paired_timing import Run, at_most, median, ratio_of, threads, time_in_turns
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.resources import MEGABYTE, added_by, can_measure
from benchmarks._harness.results_file import Results
from benchmarks._harness.subprocesses import beside_busy_cores, call_in_child
from benchmarks._speed.baselines import products_of, run_products
from benchmarks._speed.sizes import Scale, Size, make_table
from benchmarks._speed.targets import Line
from mixupe_sklearn import MixupEClassifier, fit_many, preset

Measurements = dict[str, Callable[[], Results]]

# Both sides of a ratio have the same: the default of the estimator, or one thread.
THREADS = {"default threads": None, "one thread": 1}
N_MEMBERS, N_FEATURES, N_CLASSES = 8, 20, 5
# Rows, epochs (fewer for more rows, as a step costs the same), rounds, and the bound.
MEMBER_SIZES = ((500, 50, 15, 0.4), (5_000, 10, 11, 0.6), (50_000, 2, 7, 0.7))
MEMORY_ROWS = (100_000, 1_000_000)
# Rows, features, epochs and rounds; the bounds of two threads against one, and beside a busy core.
TWO_THREADS, BUSY_BOUND = (5_000, 50, 10, 11, 0.65), 1.5


def threads_of(n_threads: int | None) -> Results:
    """What a part records of its threads; the default depends on torch's own number."""
    name = next(name for name, number in THREADS.items() if number == n_threads)
    return {"threads": name, "torch_threads": torch.get_num_threads()}


def about_threads(results: Results) -> str:
    """What default threads are, in words."""
    numbers = {part["torch_threads"] for part in results["parts"].values() if "threads" in part}
    shown = " or ".join(map(str, sorted(numbers)))
    return f"Default threads are those of `n_threads=None` where torch has {shown}."


def classifier_of(
    n_members: int, epochs: int, seed: int = 0, n_threads: int | None = 1
) -> MixupEClassifier:
    """The default classifier but for members, length, early stopping, alpha and eta."""
    return MixupEClassifier(
        **{name: preset("paper")[name] for name in ("alpha", "eta")},
        n_members=n_members,
        max_epochs=epochs,
        min_steps=0,
        early_stopping=False,
        n_threads=n_threads,
        device="cpu",
        random_state=seed,
    )


def default_ensemble(epochs: int, **params: Any) -> MixupEClassifier:
    """The default classifier with a fixed number of epochs; it holds samples out as ever."""
    given = {"max_epochs": epochs, "min_steps": 0, "n_iter_no_change": epochs}
    return MixupEClassifier(**given | {"device": "cpu", "random_state": 0} | params)


def floor_of_members(n_rows: int, epochs: int) -> Run:
    """The matrix products of all members in all epochs, with one thread."""
    batch = classifier_of(1, 1).batch_size
    size = Size(n_rows, N_FEATURES, N_CLASSES, 128, batch)
    products = products_of(size, 2 * batch)  # the mixed and the clean batch
    n_steps = max(1, N_MEMBERS * epochs * n_rows // batch)

    def run() -> None:
        with threads(1):
            run_products(products, n_steps)

    return run


def time_members(
    n_rows: int, epochs: int, rounds: int, bound: float, n_threads: int | None
) -> Results:
    """Seconds of both, and of the floor, in every round; the bound is that of default threads."""
    X, y = make_table(n_rows, N_FEATURES, N_CLASSES)

    def members() -> None:
        classifier_of(N_MEMBERS, epochs, n_threads=n_threads).fit(X, y)

    def singles() -> None:
        for seed in range(N_MEMBERS):
            classifier_of(1, epochs, seed, n_threads).fit(X, y)

    runs: dict[str, Run] = {"members": members, "singles": singles}
    runs["floor"] = floor_of_members(n_rows, epochs)
    return {
        "rows": n_rows,
        "epochs": epochs,
        **threads_of(n_threads),
        "bound": bound if n_threads is None else None,
        "seconds": time_in_turns(runs, rounds, digits=5, n_threads=n_threads),
    }


def time_two_threads(
    n_rows: int, n_features: int, epochs: int, rounds: int, bound: float
) -> Results:
    """Seconds of the default ensemble with two threads and with one, and whether both agree."""
    X, y = make_table(n_rows, n_features, N_CLASSES)
    models = {"two": default_ensemble(epochs, n_threads=2)}
    models["one"] = default_ensemble(epochs, n_threads=1)
    runs: dict[str, Run] = {name: partial(model.fit, X, y) for name, model in models.items()}
    times = time_in_turns(runs, rounds, digits=5, n_threads=None)
    two, one = (model.predict_proba(X) for model in models.values())
    return {
        "what": f"{n_rows:,} x {n_features}, {epochs} epochs",
        "bound": bound,
        "is_equal": bool(np.array_equal(two, one)),
        "seconds": times,
    }


def time_beside_busy_core(n_rows: int, n_features: int, epochs: int, rounds: int) -> Results:
    """Seconds of the default ensemble with default threads, alone and beside one busy core."""
    X, y = make_table(n_rows, n_features, N_CLASSES)
    run = partial(default_ensemble(epochs).fit, X, y)
    run()
    times = beside_busy_cores({"alone": run}, rounds, 1)
    return {
        "what": f"{n_rows:,} x {n_features}, {epochs} epochs",
        **threads_of(None),
        "bound": BUSY_BOUND,
        "seconds": {name: [round(one, 5) for one in own] for name, own in times.items()},
    }


def memory_of_members(n_rows: int) -> Results:
    """MiB that probabilities of so many rows add to the rows and to the result."""
    few = make_table(5_000, N_FEATURES, N_CLASSES)
    classifier = classifier_of(N_MEMBERS, 1).fit(*few)
    classifier.predict_proba(few[0])
    X, _ = make_table(n_rows, N_FEATURES, N_CLASSES)
    found = {"data": X.nbytes, "added": added_by(classifier.predict_proba, X)}
    return {"rows": n_rows} | {name: round(n / MEGABYTE, 2) for name, n in found.items()}


def member_measurements(scale: Scale) -> Measurements:
    """Times of each size and number of threads, and memory in a process of its own."""
    found: Measurements = {}
    for n_rows, epochs, rounds, bound in MEMBER_SIZES[: 2 if scale.is_short else None]:
        for name, n_threads in THREADS.items():
            found[f"{n_rows} rows, {name}"] = partial(
                time_members, n_rows, epochs, scale.few(rounds), bound, n_threads
            )
    n_rows, n_features, epochs, rounds, bound = TWO_THREADS
    found["two threads"] = partial(
        time_two_threads, n_rows, n_features, epochs, scale.few(rounds), bound
    )
    found["busy core"] = partial(
        time_beside_busy_core, n_rows, n_features, epochs, scale.few(rounds)
    )
    for n_rows in MEMORY_ROWS if can_measure() else ():
        measure = partial(call_in_child, __name__, "memory_of_members", n_rows)
        found[f"memory of {n_rows} rows"] = measure
    return found


def report_members(results: Results) -> str:
    """The figures with their bounds, in Markdown."""
    timed, two, busy, memory = [], [], [], []
    for part in results["parts"].values():
        if "added" in part:
            memory.append([f"{part['rows']:,}", f"{part['data']:.1f}", f"{part['added']:.1f}"])
            continue
        seconds = part["seconds"]
        if "is_equal" in part:
            ratio = ratio_of(seconds["two"], seconds["one"])
            figures = [f"{median(seconds[name]):.3g}" for name in ("two", "one")]
            verdict = [at_most(ratio, part["bound"]), "yes" if part["is_equal"] else "NO"]
            what = f"{part['what']}: two threads / one thread"
            two.append([what, str(len(seconds["one"])), *figures, str(ratio), *verdict])
            continue
        if "alone" in seconds:
            ratio = ratio_of(seconds["beside alone"], seconds["alone"])
            what = f"{part['what']}: beside one busy core / alone, {part['threads']}"
            figures = [f"{median(seconds[name]):.3g}" for name in ("beside alone", "alone")]
            rounds = str(len(seconds["alone"]))
            busy.append([what, rounds, *figures, str(ratio), at_most(ratio, part["bound"])])
            continue
        ratio = ratio_of(seconds["members"], seconds["singles"])
        what = (
            f"{part['rows']:,} rows, {part['epochs']} epochs: {N_MEMBERS} members, "
            f"{part['threads']} / {N_MEMBERS} single fits, {part['threads']}"
        )
        figures = [f"{median(seconds[name]):.3g}" for name in ("members", "singles")]
        bound = "" if part["bound"] is None else at_most(ratio, part["bound"])
        floor = str(ratio_of(seconds["members"], seconds["floor"]))
        timed.append([what, str(len(seconds["members"])), *figures, str(ratio), bound, floor])
    header = ["what", "rounds", "members, s", "singles, s", "ratio (quartiles)", "bound"]
    pieces = [
        f"`n_members={N_MEMBERS}` against {N_MEMBERS} single fits: medians of the times, and the "
        "median of the ratios of the same round. The floor is the matrix products of all members, "
        f"one thread. {about_threads(results)}",
        plain_markdown([*header, "members / floor"], timed),
    ]
    if two:
        header = ["what", "rounds", "two, s", "one, s", "ratio (quartiles)", "bound"]
        pieces.append("The default ensemble with `n_threads=2` against `n_threads=1`.")
        pieces.append(plain_markdown([*header, "predictions equal to the bit"], two))
    if busy:
        header = ["what", "rounds", "beside, s", "alone, s", "ratio (quartiles)", "bound"]
        pieces.append("The default ensemble while another process uses one of the cores.")
        pieces.append(plain_markdown(header, busy))
    if memory:
        pieces.append(
            f"Memory that `predict_proba` of {N_MEMBERS} members adds to rows and result."
        )
        pieces.append(plain_markdown(["rows", "data, MiB", "added, MiB"], memory))
    return "\n\n".join(pieces)


class ReadHistory(Callback):
    """Reads the history at the end of each epoch, as most callbacks do."""

    def on_epoch_end(self, net, **kwargs):
        """Read the last row."""
        self.last_ = dict(net.history[-1])


# By name: the parameters, the bound and the goal.
OPTIONS: dict[str, tuple[dict[str, Any], float, float | None]] = {
    "a callback at the end of each epoch": ({"callbacks": [ReadHistory()]}, 1.1, 1.02),
    "dropout of 0.1": ({"module_params": {"dropout": 0.1}}, 1.3, None),
    "ema_decay=0.99": ({"ema_decay": 0.99}, 1.1, None),
    "input_scale": ({"module_params": {"input_scale": True}}, 1.1, None),
}
# Rows, features and classes; epochs, rounds, and options. The second has the size of iris.
OPTION_SIZES = (
    ((5_000, 50, 5), 10, 11, tuple(OPTIONS)),
    ((150, 4, 3), 50, 15, ("a callback at the end of each epoch",)),
)


def time_option(
    name: str,
    size: tuple[int, int, int],
    epochs: int,
    rounds: int,
    n_threads: int | None,
) -> Results:
    """Seconds of a fit with an option and of one without, in every round."""
    X, y = make_table(*size)
    params, must, aim = OPTIONS[name]
    runs: dict[str, Run] = {
        "with": lambda: default_ensemble(epochs, n_threads=n_threads, **params).fit(X, y),
        "without": lambda: default_ensemble(epochs, n_threads=n_threads).fit(X, y),
    }
    return {
        "option": name,
        "size": f"{size[0]:,} x {size[1]}, {epochs} epochs",
        **threads_of(n_threads),
        "must": must,
        "aim": aim,
        "seconds": time_in_turns(runs, rounds, digits=5, n_threads=n_threads),
    }


def option_measurements(scale: Scale) -> Measurements:
    """Times of each option, size and number of threads."""
    found: Measurements = {}
    for size, epochs, rounds, options in OPTION_SIZES:
        for option in options:
            for name, n_threads in THREADS.items():
                found[f"{option}, {size[0]} rows, {name}"] = partial(
                    time_option, option, size, epochs, scale.few(rounds), n_threads
                )
    return found


def report_options(results: Results) -> str:
    """The figures with their targets, in Markdown."""
    rows = []
    for part in results["parts"].values():
        with_option, without = part["seconds"]["with"], part["seconds"]["without"]
        what = (
            f"{part['size']}: with {part['option']}, {part['threads']} / without, {part['threads']}"
        )
        line = Line.of(what, ratio_of(with_option, without), part["must"], part["aim"])
        rows.append([what, str(len(without)), f"{median(without):.3g}", line.shown, line.verdict()])
    header = ["what", "rounds", "without, s", "ratio (quartiles)", "target"]
    caption = "A whole fit of the default ensemble with an option over one without, in turns."
    return f"{caption} {about_threads(results)}\n\n{plain_markdown(header, rows)}"


# Twenty configurations of the default ensemble, which stops early.
GRID: dict[str, list[Any]] = {
    "alpha": [0.02, 0.05, 0.1, 0.2, 0.5],
    "eta": [0.1, 1.0],
    "lr": [0.002, 0.005],
}
SEARCHED: dict[str, Any] = {"max_epochs": 20, "min_steps": 0, "device": "cpu", "random_state": 0}
# Rows and rounds; the bound and the goal.
SEARCH_SIZES, SEARCH_TARGET = ((500, 5), (2_000, 3)), (0.8, 0.6)
N_HELD_OUT = 1_000


def by_fit_many(is_one: bool, params: dict[str, Any], X: Any, y: Any, n_train: int) -> list[float]:
    """The accuracy of each configuration on the held-out samples."""
    models = [MixupEClassifier(**params | own) for own in ParameterGrid(GRID)]
    train, test = slice(n_train), slice(n_train, None)
    if is_one:
        fit_many(models, X[train], y[train])
    else:
        for model in models:
            model.fit(X[train], y[train])
    return [model.score(X[test], y[test]) for model in models]


def by_search(is_one: bool, params: dict[str, Any], X: Any, y: Any, n_train: int) -> list[float]:
    """The same by the search, whose trials are those of a grid in any order."""
    from mixupe_sklearn import MixupESearchCV  # needs Optuna

    search = MixupESearchCV(
        MixupEClassifier(**params),
        GRID,
        cv=[(np.arange(n_train), np.arange(n_train, len(y)))],
        refit=False,
        vectorize=is_one,
        error_score="raise",
    ).fit(X, y)
    found = search.cv_results_

    def key(own: dict[str, Any]) -> str:
        return " ".join(str(own[name]) for name in GRID)

    scores = dict(zip(map(key, found["params"]), found["mean_test_score"], strict=True))
    return [scores[key(own)] for own in ParameterGrid(GRID)]


SEARCHES = {"fit_many": by_fit_many, "MixupESearchCV": by_search}


def time_search(way: str, n_rows: int, rounds: int, n_threads: int | None) -> Results:
    """Seconds of a search as one and of one fit after the other, and the scores of both."""
    X, y = make_table(n_rows + N_HELD_OUT, N_FEATURES, N_CLASSES)
    params = SEARCHED | {"n_threads": n_threads}
    scores: dict[str, list[float]] = {}

    def search(name: str, is_one: bool) -> None:
        scores[name] = SEARCHES[way](is_one, params, X, y, n_rows)

    runs: dict[str, Run] = {
        "as one": partial(search, "as one", True),
        "one by one": partial(search, "one by one", False),
    }
    times = time_in_turns(runs, rounds, digits=5, n_threads=n_threads)
    differences = np.abs(np.subtract(scores["as one"], scores["one by one"]))
    return {
        "way": way,
        "rows": n_rows,
        "configurations": len(differences),
        "n_equal": int((differences == 0).sum()),
        **threads_of(n_threads),
        "seconds": times,
    }


def search_measurements(scale: Scale) -> Measurements:
    """Times of each way, size and number of threads."""
    return {
        f"{way}, {n_rows} rows, {name}": partial(
            time_search, way, n_rows, scale.few(rounds), n_threads
        )
        for n_rows, rounds in SEARCH_SIZES[: 1 if scale.is_short else None]
        for way in SEARCHES
        for name, n_threads in THREADS.items()
    }


def report_search(results: Results) -> str:
    """The figures with their target, in Markdown."""
    rows = []
    for part in results["parts"].values():
        as_one, one_by_one = part["seconds"]["as one"], part["seconds"]["one by one"]
        what = (
            f"{part['rows']:,} x {N_FEATURES}, `{part['way']}`: as one, {part['threads']} / "
            f"one by one, {part['threads']}"
        )
        line = Line.of(what, ratio_of(as_one, one_by_one), *SEARCH_TARGET)
        figures = [f"{median(as_one):.3g}", f"{median(one_by_one):.3g}", line.shown]
        equal = f"{part['n_equal']} of {part['configurations']}"
        rows.append([what, str(len(as_one)), *figures, line.verdict(), equal])
    header = ["what", "rounds", "as one, s", "one by one, s", "ratio (quartiles)", "target"]
    caption = (
        "A search over the default ensemble: configurations trained as one over one fit after the "
        "other, and how many scores on held-out samples are equal."
    )
    return (
        f"{caption} {about_threads(results)}\n\n{plain_markdown([*header, 'equal scores'], rows)}"
    )
