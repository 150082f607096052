"""Moved to ``benchmarks._harness.cli``; kept until all callers have followed."""

from benchmarks._harness.cli import INTERRUPTED
from benchmarks._harness.cli import run_command as end_in_order

__all__ = ["INTERRUPTED", "end_in_order"]
