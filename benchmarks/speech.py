"""ERM, Mixup and MixupE on speech: ``python -m benchmarks.speech [--data FOLDER]``.

Spoken words in the layout of Google's Speech Commands, each seed with a split of its own in which
no speaker is on both sides; without a folder, tones made by rule. Spectrograms are made once and
kept. Rows, report and going on are those of ``benchmarks.images``.
"""

import sys
from collections.abc import Sequence

from benchmarks._signals.command import run_and_report
from benchmarks._signals.options import configs_of, make_parser
from benchmarks._signals.report import Report, all_methods

EXAMPLES = """\
  python -m benchmarks.speech                                     tones, a few minutes
  python -m benchmarks.speech --data speech_commands --networks lenet 'vgg11(width=8)'
  python -m benchmarks.speech --data speech_commands --report-only"""
REPORT = Report("speech", "Speech", all_methods)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line, run, and end with a sentence where something is wrong."""
    description = "ERM, Mixup and MixupE on speech, split by speaker."
    options = make_parser("speech", "speech", description, EXAMPLES).parse_args(arguments)
    return run_and_report(options, configs_of, REPORT)


if __name__ == "__main__":
    sys.exit(main())
