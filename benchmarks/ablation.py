"""What Mixup and the penalty give alone and together: ``python -m benchmarks.ablation``.

The four cells of the paper's ablation (ERM, Mixup, ERM with the penalty, MixupE), and MixupE by its
eta against Mixup. The rows are those of ``benchmarks.images``: fits that it has made with the same
options are not made again.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks._signals.command import run_and_report
from benchmarks._signals.fits import Config, config_of
from benchmarks._signals.options import configs_of, make_parser
from benchmarks._signals.report import Report
from benchmarks._signals.sections import Section
from benchmarks._signals.tables import CELLS, ablation_sheet, eta_sheet
from benchmarks._tabular.report.sheets import Sheet

ETAS = (1e-4, 1e-3, 1e-2, 1e-1)
EXAMPLES = """\
  python -m benchmarks.ablation                                   digits, a few minutes
  python -m benchmarks.ablation --data cifar10_subset.npz --epochs 12
  python -m benchmarks.ablation --data cifar10_subset.npz --report-only"""


def by_eta(options: argparse.Namespace) -> list[Config]:
    """MixupE with each eta, that of the four cells included."""
    etas = dict.fromkeys([options.eta, *options.etas])
    return [config_of("mixupe", alpha=options.alpha, eta=eta) for eta in etas]


def wanted(options: argparse.Namespace) -> list[Config]:
    """The four cells, and MixupE with each eta that they do not have."""
    return list(dict.fromkeys([*configs_of(options), *by_eta(options)]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    description = "ERM, Mixup, ERM with the penalty and MixupE, and MixupE by its eta."
    parser = make_parser("ablation", "image", description, EXAMPLES, has_methods=False)
    parser.add_argument(
        "--etas",
        nargs="*",
        type=float,
        default=list(ETAS),
        metavar="ETA",
        help="of MixupE, against Mixup (0.0001 0.001 0.01 0.1)",
    )
    parser.set_defaults(methods=CELLS)
    options = parser.parse_args(arguments)

    def sheets(section: Section) -> list[Sheet | None]:
        cells = configs_of(options)
        mixup = next(config for config in cells if config.method == "mixup")
        return [ablation_sheet(section, cells), eta_sheet(section, mixup, by_eta(options))]

    return run_and_report(options, wanted, Report("ablation", "Ablation", sheets))


if __name__ == "__main__":
    sys.exit(main())
