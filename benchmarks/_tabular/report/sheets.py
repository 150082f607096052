"""Moved to ``benchmarks._harness.report_tables``; kept until all callers have followed."""

from benchmarks._harness.report_tables import (
    Cell,
    Column,
    number,
    p_value,
    pick,
    plus_minus,
    seconds,
    short,
    signed,
    span,
    without,
)
from benchmarks._harness.report_tables import ReportTable as Sheet

__all__ = ["Cell", "Column", "Sheet", "number", "p_value", "pick", "plus_minus"]
__all__ += ["seconds", "short", "signed", "span", "without"]
