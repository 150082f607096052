"""One case in a process of its own: ``python -m benchmarks._load.child --case fits``."""

import argparse
import json

from benchmarks._load import calls, tables
from benchmarks._load.finding import measured

CASES = tables.CASES | calls.CASES


def main() -> None:
    """Run one case in this process, and print its row as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--scale", choices=("full", "small"), default="full")
    options = parser.parse_args()
    print(json.dumps(measured(CASES[options.case][options.scale])))


if __name__ == "__main__":
    main()
