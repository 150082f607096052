"""ERM, Mixup and MixupE on pictures: ``python -m benchmarks.images [--data FILE.npz]``.

Small networks on a subset of a data set, three seeds: errors with deviations, and what an epoch of
MixupE takes of one of Mixup. Each fit is a line of ``rows.csv`` in the output folder, with its
accuracy on deformed test pictures, which ``benchmarks.deformations`` reports on; the report is made
from these lines alone. A run that ends early goes on where it was when the same command is given
again, and fits are made seed by seed: what is there can be compared.
"""

import sys
from collections.abc import Sequence

from benchmarks._signals.command import run_and_report
from benchmarks._signals.options import configs_of, make_parser
from benchmarks._signals.report import Report, all_methods

EXAMPLES = """\
  python -m benchmarks.images                                     digits, a few minutes
  python -m benchmarks.images --data cifar10_subset.npz --epochs 12
  python -m benchmarks.images --data cifar-10-batches-py --layout cifar10 --networks preactresnet18
  python -m benchmarks.images --data cifar10_subset.npz --report-only"""
REPORT = Report("images", "Images", all_methods)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    description = "ERM, Mixup and MixupE on pictures."
    options = make_parser("images", "image", description, EXAMPLES).parse_args(arguments)
    return run_and_report(options, configs_of, REPORT)


if __name__ == "__main__":
    sys.exit(main())
