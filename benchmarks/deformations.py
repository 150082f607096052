"""Accuracy on deformed test pictures: ``python -m benchmarks.deformations [--data FILE.npz]``.

Networks that were trained on pictures as they are see test pictures that are turned, sheared and
zoomed, as in the paper's table. Every row of ``benchmarks.images`` has these figures; this command
makes the fits of Mixup, Manifold Mixup and MixupE that are missing, and reports on the three. All
of them see the same deformed pictures.
"""

import sys
from collections.abc import Sequence

from benchmarks._signals.command import run_and_report
from benchmarks._signals.options import configs_of, make_parser
from benchmarks._signals.report import Report
from benchmarks._signals.sections import Section
from benchmarks._signals.tables import deformations_sheet
from benchmarks._tabular.report.sheets import Sheet

METHODS = ("mixup", "manifold-mixup", "mixupe")
EXAMPLES = """\
  python -m benchmarks.deformations                               digits, a few minutes
  python -m benchmarks.deformations --data cifar10_subset.npz --epochs 12
  python -m benchmarks.deformations --data cifar10_subset.npz --report-only"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    description = "Mixup, Manifold Mixup and MixupE on deformed test pictures."
    parser = make_parser("deformations", "image", description, EXAMPLES, has_methods=False)
    parser.set_defaults(methods=METHODS)
    options = parser.parse_args(arguments)

    def sheets(section: Section) -> list[Sheet | None]:
        configs = configs_of(options)
        return [deformations_sheet(section, network, configs) for network in section.networks]

    report = Report("deformations", "Deformed test pictures", sheets)
    return run_and_report(options, configs_of, report)


if __name__ == "__main__":
    sys.exit(main())
