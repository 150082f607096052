"""What happens at scale: ``python -m benchmarks.load [--cases fits threads] [--quick] [--docs]``.

Ten thousand classes, a hundred thousand sparse columns, ten million rows in a file, a category of
fifty thousand levels, a thousand fits in one process, and two hundred predictions by sixteen
threads with one fitted model. Each case has a process of its own, so that memory, threads and open
files are its own, and says what it checked.

Each case is a line of a CSV file, and the table that is printed is made from these lines alone.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from benchmarks._load.child import CASES
from benchmarks._load.page import checks_list, load_table, write_docs
from benchmarks._speed.children import run_child
from benchmarks._speed.memory import can_measure
from benchmarks._speed.store import n_cores
from benchmarks._tabular.running import commit, versions_of

ROWS = pathlib.Path(__file__).parent / "results" / "load" / "rows.csv"
PAGE = pathlib.Path(__file__).parents[1] / "docs" / "load.md"
LISTS = ("settings", "checked", "wrong")


def run_case(name: str, scale: str) -> dict[str, Any]:
    """Run a case in a new process: its row."""
    found = run_child(["-m", "benchmarks._load.child", "--case", name, "--scale", scale])
    texts = {key: json.dumps(found[key], sort_keys=key == "settings") for key in LISTS}
    return {
        "case": name,
        **found,
        **texts,
        "scale": scale,
        "cores": n_cores(),
        "versions": versions_of(),
        "commit": commit(),
        "run": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def merged(old: pd.DataFrame, new: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows of all cases in their order; a case that was run again has its new row alone.

    Examples
    --------
    >>> old = pd.DataFrame([{"case": "fits", "seconds": 1}, {"case": "classes", "seconds": 2}])
    >>> merged(old, [{"case": "fits", "seconds": 3}])["seconds"].tolist()
    [2, 3]
    """
    by_case = {row["case"]: row for row in [*old.to_dict("records"), *new]}
    return pd.DataFrame([by_case[name] for name in CASES if name in by_case])


def measure(names: Sequence[str], scale: str, path: pathlib.Path) -> pd.DataFrame:
    """Run cases in turn; each is kept in the file as soon as it is over."""
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame()
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        print(f"{name} ...", flush=True)
        rows = merged(rows, [run_case(name, scale)])
        rows.to_csv(path, index=False)
    return pd.read_csv(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    made.add_argument("--quick", action="store_true", help="small sizes: for tests")
    made.add_argument("--output", type=pathlib.Path, help="file of the rows")
    made.add_argument("--report-only", action="store_true", help="run nothing, read the rows")
    made.add_argument("--docs", action="store_true", help="write the table into the docs")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, write their rows, print the table; 1 where something was wrong."""
    options = parser().parse_args(arguments)
    default = pathlib.Path("build/load.csv") if options.quick else ROWS
    path, scale = options.output or default, "small" if options.quick else "full"
    if not options.report_only and not can_measure():
        print("Got a system that does not tell memory, but expected Linux.", file=sys.stderr)
        return 2
    rows = pd.read_csv(path) if options.report_only else measure(options.cases, scale, path)
    print(f"\n{load_table(rows)}\n\n{checks_list(rows)}\n\nRows: {path}")
    if options.docs:
        write_docs(rows, PAGE)
    return int(any(json.loads(wrong) for wrong in rows["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
