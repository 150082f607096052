"""Moved to ``benchmarks._harness.report_tables``; kept until all callers have followed."""

from benchmarks._harness.report_tables import (
    TERMINAL_WIDTH,
    as_latex,
    as_markdown,
    as_terminal,
    head_of,
)

__all__ = ["TERMINAL_WIDTH", "as_latex", "as_markdown", "as_terminal", "head_of"]
