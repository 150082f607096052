"""Smaller comparisons of ``benchmarks.speed --part``: ensembles, the monitor, and latency."""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks._harness.environment import ROOT
from benchmarks._harness.labels import present_label
from benchmarks._harness.paired_timing import Run, at_most, median, ratio_of, threads, time_in_turns
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import Results
from benchmarks._speed.ensembles import (
    Measurements,
    member_measurements,
    option_measurements,
    report_members,
    report_options,
    report_search,
    search_measurements,
)
from benchmarks._speed.sizes import Scale
from benchmarks._vision_speech.data import load_digit_images
from benchmarks._vision_speech.networks import network_of
from mixupe_sklearn import (
    MixupEClassifier,
    MixupEImageClassifier,
    make_mixupe_pipeline,
    onnx_inputs,
    preset,
    to_onnx,
    to_torch,
)
from mixupe_sklearn.datasets import load_embedded
from mixupe_sklearn.diagnostics import DerivativeMonitor

IMAGES, SYNTHETIC = "digits as images", "16,000 x 16"
MONITOR_SIZES = (("iris", 500, 15), ("digits", 50, 15), (SYNTHETIC, 8, 11), (IMAGES, 2, 7))


def samples_of(name: str) -> tuple[Any, np.ndarray]:
    """Samples and labels by name."""
    if name == IMAGES:
        images = load_digit_images()
        return images.X, images.y
    if name == SYNTHETIC:
        rng = np.random.default_rng(0)
        return rng.normal(size=(16_000, 16)), rng.integers(26, size=16_000)
    found = load_embedded(name)
    return found.X.to_numpy(dtype=float), found.y


def time_monitor(name: str, epochs: int, rounds: int) -> Results:
    """Seconds of both in every round, and the number of evaluated epochs."""
    X, y = samples_of(name)
    n_evaluated = 0

    def fit(callbacks: list[Any] | None) -> Run:
        params: dict[str, Any] = {"max_epochs": epochs, "callbacks": callbacks}
        params |= {"n_threads": 1, "random_state": 0}
        if name == IMAGES:
            network = network_of("small-preactresnet")
            params |= {"module": network.module, "module_params": network.module_params}
            model: Any = MixupEImageClassifier(**params, lr=0.05, batch_size=100)
        else:
            model = MixupEClassifier(**preset("paper") | params)

        def run() -> None:
            nonlocal n_evaluated
            model.fit(X, y)
            if callbacks:
                n_evaluated = sum(not np.isnan(row["q_abs"]) for row in model.history_)

        return run

    runs = {"plain": fit(None), "watched": fit([DerivativeMonitor()])}
    times = time_in_turns(runs, rounds, digits=5)
    return {"name": name, "epochs": epochs, "looks": n_evaluated, "seconds": times}


def monitor_measurements(scale: Scale) -> Measurements:
    """Times of each dataset."""
    return {
        f"{name}, {epochs}": partial(time_monitor, name, epochs, scale.few(rounds))
        for name, epochs, rounds in MONITOR_SIZES
    }


def report_monitor(results: Results) -> str:
    """The figures with their bound, in Markdown."""
    header = ["data", "epochs", "evaluated", "rounds", "an epoch, ms", "ratio (quartiles)", ""]
    rows = []
    for part in results["parts"].values():
        plain, monitored = part["seconds"]["plain"], part["seconds"]["watched"]
        ratio = ratio_of(monitored, plain)
        epoch = f"{1000 * median(plain) / part['epochs']:.3g}"
        counts = [str(part["epochs"]), str(part["looks"]), str(len(plain))]
        rows.append([present_label(part["name"]), *counts, epoch, str(ratio), at_most(ratio, 1.05)])
    caption = "A whole fit with the monitor over one without, one thread, in turns."
    return f"{caption}\n\n{plain_markdown(header, rows)}"


N_CALLS = 100
LATENCY_SIZES = tuple((data, count, 41) for count in (1, 8) for data in ("iris", "digits"))
# One member: the default settings but for those that need several members.
ONE = {"n_members": 1, "alpha": 0.2, "eta": 1.0, "early_stopping": False}


def calls_of(data: str, n_members: int) -> dict[str, Callable[[], object]]:
    """A call with one row for each candidate."""
    import onnxruntime

    found = load_embedded(data)
    params: dict[str, Any] = ONE if n_members == 1 else {}
    # The length of the training does not change the time of a forward pass.
    pipeline = make_mixupe_pipeline(random_state=0, max_epochs=2, min_steps=0, **params)
    pipeline.fit(found.X, found.y)
    frame, estimator = found.X.iloc[:1], pipeline[-1]
    row = pipeline[0].transform(frame)
    modules = [net.module_.eval() for net in estimator.nets_]
    tensor = torch.tensor(row, dtype=torch.float32)
    exported, rows = to_torch(estimator), torch.tensor(row)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        to_onnx(pipeline).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    fed = onnx_inputs(frame, session)

    def forward() -> None:
        with torch.inference_mode():
            for module in modules:
                module(tensor)

    def torch_module() -> None:
        with torch.inference_mode():
            exported(rows)

    return {
        "forward": forward,
        "predict_proba": lambda: estimator.predict_proba(row),
        "to_torch": torch_module,
        "onnxruntime": lambda: session.run(["probabilities"], fed),
        "pipeline": lambda: pipeline.predict_proba(frame),
    }


def time_latency(data: str, n_members: int, rounds: int) -> Results:
    """Seconds of a call of each candidate in every round."""

    def many(call: Callable[[], object]) -> Run:
        def run() -> None:
            for _ in range(N_CALLS):
                call()

        return run

    with threads(1):
        runs = {name: many(call) for name, call in calls_of(data, n_members).items()}
    times = time_in_turns(runs, rounds, n_units=N_CALLS)
    return {"data": data, "n_members": n_members, "seconds": times}


def latency_measurements(scale: Scale) -> Measurements:
    """Times of each dataset and number of members."""
    return {
        f"{data}, {count}": partial(time_latency, data, count, scale.few(rounds))
        for data, count, rounds in LATENCY_SIZES
    }


def report_latency(results: Results) -> str:
    """The figures with their bound, in Markdown."""
    others = ("to_torch", "onnxruntime", "pipeline")
    header = ["data", "members", "rounds", "forward, ms", "predict_proba (quartiles)", ""]
    header += ["of to_torch (quartiles)", *others]
    rows = []
    for part in results["parts"].values():
        seconds = part["seconds"]
        base = seconds["forward"]
        ratio = ratio_of(seconds["predict_proba"], base)
        own = [part["data"], str(part["n_members"]), str(len(base)), f"{1000 * median(base):.3f}"]
        more = [f"{ratio_of(seconds[name], base).median:.2f}" for name in others]
        of_torch = ratio_of(seconds["predict_proba"], seconds["to_torch"])
        rows.append([*own, str(ratio), at_most(ratio, 3.0), str(of_torch), *more])
    caption = (
        "One row, as a multiple of the forward of all members' modules, one thread, in turns; "
        "`predict_proba` also as a multiple of `to_torch`, which centres and averages as well."
    )
    return f"{caption}\n\n{plain_markdown(header, rows)}"


class Part(NamedTuple):
    """A comparison: its file of results, its page and block in the docs, and its functions."""

    file: str
    page: str
    block: str
    measurements: Callable[[Scale], Measurements]
    report: Callable[[Results], str]

    @property
    def results(self) -> pathlib.Path:
        """The committed file of results."""
        return ROOT / "benchmarks" / "results" / self.file


PARTS = {
    "members": Part(
        "members.json", "benchmarks/defaults.md", "members", member_measurements, report_members
    ),
    "options": Part(
        "options.json", "benchmarks/speed.md", "options", option_measurements, report_options
    ),
    "search": Part(
        "search_batched.json", "benchmarks/speed.md", "search", search_measurements, report_search
    ),
    "monitor": Part(
        "monitor.json", "user_guide/diagnostics.md", "monitor", monitor_measurements, report_monitor
    ),
    "latency": Part(
        "one_row.json", "user_guide/serving.md", "one-row", latency_measurements, report_latency
    ),
}
