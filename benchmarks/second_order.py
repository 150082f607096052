"""What the second-order term does to the error: ``python -m benchmarks.second_order``.

MixupE as it is, with the second-order term, with the exact first order, with both, and Mixup: once
with ``preset("paper")``, and once with a strong penalty. How candidates are compared is told in
``benchmarks/_paired.py``. ``--timing ROUNDS`` measures what the term costs instead.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks._paired import AGAIN, Study, load
from benchmarks._speed.timing import ratio_of, take_turns, threads

FIRST = "first order"
STUDY = Study(
    name="second_order",
    settings={"default": {}, "strong": {"alpha": 1.0, "eta": 1.0}},
    candidates={
        FIRST: {},
        "second order": {"penalty_order": 2},
        "exact first": {"penalty": "directional"},
        "exact first and second": {"penalty": "directional", "penalty_order": 2},
        "Mixup": {"method": "mixup"},
        AGAIN: {},
    },
    told=(
        *("method", "penalty", "penalty_order", "alpha", "eta", "lr", "max_epochs"),
        "batch_size",
    ),
    description="What the second-order term does to the error.",
)


def measure_time(data: str, n_rounds: int, epochs: int) -> str:
    """What a fit with each candidate takes of one with the first order, in turns."""
    table = load(data)
    X, y = table.X.to_numpy(dtype="float32"), table.y

    def fit(candidate: str) -> Any:
        how = {"max_epochs": epochs, "n_threads": 1, "random_state": 0, "device": "cpu"}
        model = STUDY.model("default", candidate, **how)
        return lambda: model.fit(X, y)

    names = [name for name in STUDY.candidates if name != AGAIN]
    with threads(1):
        times = take_turns({name: fit(name) for name in names}, n_rounds)
    lines = [f"{name}: {ratio_of(times[name], times[FIRST])}" for name in names]
    told = f"Time of a fit on {data} over that of the first order, {n_rounds} rounds in turns:"
    return "\n".join([told, *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure times where that is asked for, else run the study."""
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--timing", type=int, metavar="ROUNDS")
    own.add_argument("--epochs", type=int, default=5)
    options, others = own.parse_known_args(arguments)
    if options.timing is None:
        return STUDY.main(others)
    print(measure_time("digits", options.timing, options.epochs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
