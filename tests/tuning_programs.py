"""Programs that tests of tuning start in other processes and kill."""

import sys

import search_programs

from benchmarks import tabular


def tune(folder, *arguments):
    """Tune on iris, in this process; a killed worker is noticed after two seconds."""
    search_programs.quick_heartbeats()
    options = ["--names", "iris", "--tune", "optuna", "--space", "paper", "--jobs", "1", "--quiet"]
    sys.exit(tabular.main([*options, "--output", str(folder), *arguments]))
