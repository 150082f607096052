"""The report of the tabular benchmark, from the rows alone: what was chosen, tests, figures."""

from benchmarks._tabular.report.write import Report, make_report

__all__ = ["Report", "make_report"]
