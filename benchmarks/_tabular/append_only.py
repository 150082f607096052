"""Moved to ``benchmarks._harness.results_file``; kept until all callers have followed."""

from benchmarks._harness.results_file import ResultsFile, Schema
from benchmarks._harness.results_file import complete_lines as whole_lines

__all__ = ["AppendOnly", "whole_lines"]


class AppendOnly(ResultsFile):
    def __init__(self, path, columns, patience=0):
        super().__init__(path, Schema(tuple(columns), frozenset()), patience)

    def write(self, text):
        import csv

        rows = csv.reader(text.splitlines())
        self.add(dict(zip(self.schema.columns, row, strict=True)) for row in rows)
