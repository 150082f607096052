"""ERM, Mixup and MixupE on speech: ``python -m benchmarks.speech [--data FOLDER]``.

No speaker is in both training and test samples. All else is as in ``benchmarks.images``.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks._vision_speech.command import configs_of, make_parser, run_and_report
from benchmarks._vision_speech.report import Report, all_methods

EXAMPLES = """\
  python -m benchmarks.speech                                     tones, a few minutes
  python -m benchmarks.speech --data speech_commands --networks lenet 'vgg11(width=8)'
  python -m benchmarks.speech --data speech_commands --report-only"""
REPORT = Report("speech", "Speech", all_methods)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return make_parser("speech", "ERM, Mixup and MixupE on speech, split by speaker.", EXAMPLES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report, and return the exit status."""
    return run_and_report(parser().parse_args(arguments), configs_of, REPORT)


if __name__ == "__main__":
    sys.exit(main())
