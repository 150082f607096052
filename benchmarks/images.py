"""ERM, Mixup and MixupE on images: ``python -m benchmarks.images [--data FILE.npz]``.

Each fit is a row of ``rows.csv``, from which the reports are made; the same command resumes a run.
``--ablation`` and ``--deformations`` share the rows and run only the missing fits.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks._harness.report_tables import ReportTable
from benchmarks._tabular.protocol import Config
from benchmarks._vision_speech.command import configs_of, make_parser, run_and_report
from benchmarks._vision_speech.fits import config_of
from benchmarks._vision_speech.report import (
    CELLS,
    Report,
    Section,
    ablation_table,
    all_methods,
    deformations_table,
    eta_table,
)

DEFORMED_METHODS = ("mixup", "manifold-mixup", "mixupe")
ETAS = (1e-4, 1e-3, 1e-2, 1e-1)
EXAMPLES = """\
  python -m benchmarks.images                                     digits, a few minutes
  python -m benchmarks.images --data cifar10_subset.npz --epochs 12
  python -m benchmarks.images --data cifar10_subset.npz --epochs 12 --ablation
  python -m benchmarks.images --data cifar-10-batches-py --layout cifar10 --networks preactresnet18
  python -m benchmarks.images --data cifar10_subset.npz --report-only"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = make_parser("image", "ERM, Mixup and MixupE on images.", EXAMPLES)
    group = made.add_argument_group("other comparisons").add_mutually_exclusive_group()
    words = "ERM, Mixup, ERM with the penalty and MixupE, and MixupE by its eta"
    group.add_argument("--ablation", action="store_true", help=words)
    words = "Mixup, Manifold Mixup and MixupE on deformed test images"
    group.add_argument("--deformations", action="store_true", help=words)
    return made


def by_eta(options: argparse.Namespace) -> list[Config]:
    """MixupE with each eta, that of the four cells included."""
    etas = dict.fromkeys([options.eta, *ETAS])
    return [config_of("mixupe", alpha=options.alpha, eta=eta) for eta in etas]


def wanted(options: argparse.Namespace) -> list[Config]:
    """The methods that are run."""
    if options.ablation:
        return list(dict.fromkeys([*configs_of(options, CELLS), *by_eta(options)]))
    return configs_of(options, DEFORMED_METHODS if options.deformations else None)


def report_of(options: argparse.Namespace) -> Report:
    """The report that is written."""

    def ablation(section: Section) -> list[ReportTable | None]:
        cells = configs_of(options, CELLS)
        mixup = next(config for config in cells if config.method == "mixup")
        return [ablation_table(section, cells), eta_table(section, mixup, by_eta(options))]

    def deformations(section: Section) -> list[ReportTable | None]:
        configs = configs_of(options, DEFORMED_METHODS)
        return [deformations_table(section, network, configs) for network in section.networks]

    if options.ablation:
        return Report("ablation", "Ablation", ablation, "ablation.md")
    if options.deformations:
        return Report("deformations", "Deformed test images", deformations, "deformations.md")
    return Report("images", "Images", all_methods)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report, and return the exit status."""
    options = parser().parse_args(arguments)
    return run_and_report(options, wanted, report_of(options))


if __name__ == "__main__":
    sys.exit(main())
