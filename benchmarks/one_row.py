"""What ``predict_proba`` costs for a single row: ``python -m benchmarks.one_row [--quick]``.

Calls of one row take turns in one process of one thread, a hundred calls a turn. What they are
compared with is the forward of the fitted networks themselves: a loop over their modules, in
inference mode, on a tensor of the right type that is there already. ``to_torch``, onnxruntime and
the pipeline from a data frame are timed beside it, for information.
"""

import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks._speed.by_size import Command
from benchmarks._speed.page import table
from benchmarks._speed.store import Figures
from benchmarks._speed.timing import Run, median, ratio_of, take_turns, threads
from mixupe_sklearn import make_mixupe_pipeline, onnx_inputs, to_onnx, to_torch
from mixupe_sklearn.datasets import load_embedded

BOUND = 3.0
N_CALLS = 100
RESULTS = pathlib.Path(__file__).parent / "results" / "one_row.json"
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "serving.md"
# What one member is: the settings of the default, but for those that several members need.
ONE = {"n_members": 1, "alpha": 0.2, "eta": 1.0, "early_stopping": False}


class Size(NamedTuple):
    """A table, the number of members, and how many rounds."""

    data: str
    n_members: int
    rounds: int


FULL = tuple(Size(data, count, 41) for count in (1, 8) for data in ("iris", "digits"))
QUICK = (Size("iris", 1, 2),)


def calls_of(size: Size) -> dict[str, Callable[[], object]]:
    """One row by each candidate."""
    import onnxruntime

    found = load_embedded(size.data)
    how: dict[str, Any] = ONE if size.n_members == 1 else {}
    # How long they were trained makes no difference to the time of a forward.
    pipeline = make_mixupe_pipeline(random_state=0, max_epochs=2, min_steps=0, **how)
    pipeline.fit(found.X, found.y)
    frame, estimator = found.X.iloc[:1], pipeline[-1]
    row = pipeline[0].transform(frame)
    modules = [net.module_.eval() for net in estimator.nets_]
    tensor = torch.tensor(row, dtype=torch.float32)
    whole, rows = to_torch(estimator), torch.tensor(row)
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
            whole(rows)

    return {
        "forward": forward,
        "predict_proba": lambda: estimator.predict_proba(row),
        "to_torch": torch_module,
        "onnxruntime": lambda: session.run(["probabilities"], fed),
        "pipeline": lambda: pipeline.predict_proba(frame),
    }


def measure_size(size: Size) -> Figures:
    """Seconds of a call by each candidate in every round."""

    def many(call: Callable[[], object]) -> Run:
        def run() -> None:
            for _ in range(N_CALLS):
                call()

        return run

    with threads(1):
        runs = {name: many(call) for name, call in calls_of(size).items()}
        take_turns(runs, 1)  # what is loaded on the way is not counted
        times = take_turns(runs, size.rounds)
    seconds = {name: [value / N_CALLS for value in values] for name, values in times.items()}
    return {"data": size.data, "n_members": size.n_members, "seconds": seconds}


def report(results: Figures) -> str:
    """The figures with their bound, in Markdown."""
    others = ("to_torch", "onnxruntime", "pipeline")
    header = ["data", "members", "rounds", "forward, ms", "predict_proba (quartiles)", ""]
    header.append("of to_torch (quartiles)")
    rows = []
    for part in results["parts"].values():
        seconds = part["seconds"]
        base = seconds["forward"]
        ratio = ratio_of(seconds["predict_proba"], base)
        held = f"at most {BOUND:g}: {'held' if ratio.median <= BOUND else 'not held'}"
        own = [part["data"], str(part["n_members"]), str(len(base)), f"{1000 * median(base):.3f}"]
        more = [f"{ratio_of(seconds[name], base).median:.2f}" for name in others]
        whole = ratio_of(seconds["predict_proba"], seconds["to_torch"])
        rows.append([*own, str(ratio), held, str(whole), *more])
    told = (
        "One row, as a multiple of the forward of all members' modules, one thread, in turns; "
        "`predict_proba` also as a multiple of `to_torch`, which centres and averages as well."
    )
    return f"{told}\n\n{table([*header, *others], rows)}"


COMMAND = Command(
    name="one_row",
    told=(__doc__ or "").splitlines()[0],
    sizes=FULL,
    quick=QUICK,
    measure=measure_size,
    report=report,
    results=RESULTS,
    page=PAGE,
)
main = COMMAND.run

if __name__ == "__main__":
    sys.exit(main())
