"""How much of everything a run measures: all of it, or a quick look."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks._speed.memory import KINDS
from benchmarks._speed.sizes import REFERENCE, Size, all_sizes, some_sizes, thread_sizes


@dataclass(frozen=True)
class Scale:
    """The amounts of a run."""

    name: str
    #: The size of the promises, and how long it is trained on.
    reference: Size
    epochs: int
    n_rounds: int
    #: Further sizes, and the seconds that the rounds of one may take together.
    cells: Sequence[Size]
    n_cell_rounds: int
    cell_seconds: float
    #: Networks that are trained with one thread and with two, and seconds of a fit there.
    thread_sizes: Sequence[Size]
    thread_seconds: float
    #: Rows to predict, rows and kinds of the tables whose memory is measured, single rows in a row.
    n_predicted: int
    n_large: int
    kinds: Sequence[str]
    n_single: int
    #: Rounds of imports, each of which takes seconds.
    n_imports: int
    #: Sizes along which growth is fitted.
    rows: Sequence[int] = (1_000, 3_000, 10_000, 30_000, 100_000)
    features: Sequence[int] = (16, 50, 200, 784)
    n_growth_rows: int = 10_000


FULL = Scale(
    name="full",
    reference=REFERENCE,
    epochs=10,
    n_rounds=9,
    cells=all_sizes(),
    n_cell_rounds=3,
    cell_seconds=10.0,
    thread_sizes=thread_sizes(),
    thread_seconds=0.4,
    n_predicted=100_000,
    n_large=1_000_000,
    kinds=tuple(KINDS),
    n_single=300,
    n_imports=7,
)
QUICK = replace(
    FULL,
    name="quick",
    epochs=3,
    n_rounds=3,
    cells=some_sizes(),
    n_cell_rounds=3,
    cell_seconds=4.0,
    thread_sizes=[thread_sizes()[0], thread_sizes()[-1]],
    n_large=100_000,
    kinds=("float32",),
    n_single=100,
    n_imports=3,
)
