"""Moved to ``benchmarks._harness.report_tables``; kept until all callers have followed."""

from benchmarks._harness.report_tables import (
    escape_latex,
    escape_markdown,
    markdown_code,
    printable,
    printable_lines,
)

__all__ = ["escape_latex", "escape_markdown", "markdown_code", "printable", "printable_lines"]
