"""What ``predict_proba`` costs for a single row.

Calls with one row run in turns in one process with one thread, a hundred calls per turn. They are
compared with the forward pass of the fitted networks: a loop over their modules, in inference
mode, on a tensor of the right type. ``to_torch``, onnxruntime and the pipeline from a data frame
are timed as well.
"""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from benchmarks._harness.paired_timing import (
    Run,
    at_most,
    median,
    ratio_of,
    threads,
    time_in_turns,
)
from benchmarks._harness.report_tables import plain_markdown
from benchmarks._harness.results_file import Results
from mixupe_sklearn import make_mixupe_pipeline, onnx_inputs, to_onnx, to_torch
from mixupe_sklearn.datasets import load_embedded

BOUND = 3.0
N_CALLS = 100
ROOT = pathlib.Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "one_row.json"
PAGE = ROOT / "docs" / "user_guide" / "serving.md"
BLOCK_NAME = "one-row"
# One member: the default settings but for those that need several members.
ONE = {"n_members": 1, "alpha": 0.2, "eta": 1.0, "early_stopping": False}


class Size(NamedTuple):
    """A dataset, the number of members, and how many rounds."""

    data: str
    n_members: int
    rounds: int


FULL = tuple(Size(data, count, 41) for count in (1, 8) for data in ("iris", "digits"))
QUICK = (Size("iris", 1, 2),)


def calls_of(size: Size) -> dict[str, Callable[[], object]]:
    """A call with one row for each candidate."""
    import onnxruntime

    found = load_embedded(size.data)
    params: dict[str, Any] = ONE if size.n_members == 1 else {}
    # The length of the training does not change the time of a forward pass.
    pipeline = make_mixupe_pipeline(random_state=0, max_epochs=2, min_steps=0, **params)
    pipeline.fit(found.X, found.y)
    frame, estimator = found.X.iloc[:1], pipeline[-1]
    row = pipeline[0].transform(frame)
    modules = [net.module_.eval() for net in estimator.nets_]
    tensor = torch.tensor(row, dtype=torch.float32)
    exported, rows = to_torch(estimator), torch.tensor(row)
    model = to_onnx(pipeline).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
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


def measure_size(size: Size) -> Results:
    """Seconds of a call of each candidate in every round."""

    def many(call: Callable[[], object]) -> Run:
        def run() -> None:
            for _ in range(N_CALLS):
                call()

        return run

    with threads(1):
        runs = {name: many(call) for name, call in calls_of(size).items()}
    times = time_in_turns(runs, size.rounds, n_units=N_CALLS)
    return {"data": size.data, "n_members": size.n_members, "seconds": times}


def measurements(is_quick: bool) -> dict[str, Callable[[], Results]]:
    """What is measured, by the name of the part in the results file."""
    return {
        f"{size.data}, {size.n_members}": partial(measure_size, size)
        for size in (QUICK if is_quick else FULL)
    }


def report(results: Results) -> str:
    """The figures with their bound, in Markdown."""
    others = ("to_torch", "onnxruntime", "pipeline")
    header = ["data", "members", "rounds", "forward, ms", "predict_proba (quartiles)", ""]
    header.append("of to_torch (quartiles)")
    rows = []
    for part in results["parts"].values():
        seconds = part["seconds"]
        base = seconds["forward"]
        ratio = ratio_of(seconds["predict_proba"], base)
        own = [part["data"], str(part["n_members"]), str(len(base)), f"{1000 * median(base):.3f}"]
        more = [f"{ratio_of(seconds[name], base).median:.2f}" for name in others]
        of_torch = ratio_of(seconds["predict_proba"], seconds["to_torch"])
        rows.append([*own, str(ratio), at_most(ratio, BOUND), str(of_torch), *more])
    caption = (
        "One row, as a multiple of the forward of all members' modules, one thread, in turns; "
        "`predict_proba` also as a multiple of `to_torch`, which centres and averages as well."
    )
    return f"{caption}\n\n{plain_markdown([*header, *others], rows)}"
