"""The command of a small benchmark that measures some sizes and writes a table into a page."""

import argparse
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks._candidates import page
from benchmarks._speed.store import Figures, Store, describe_run, read


@dataclass(frozen=True)
class Command:
    """What such a command is made of.

    Parameters
    ----------
    name : str
        The last word of its module; with hyphens it names the table in the page.
    told : str
        What it measures, in a line.
    sizes, quick : iterable of tuple
        What is measured, in full and for tests; the last entry of each is its number of rounds.
    measure : callable
        Returns the figures of one size.
    report : callable
        Returns the table of all figures, in Markdown.
    results, page : path
        Where figures are kept, and where the table goes.
    """

    name: str
    told: str
    sizes: Iterable[Any]
    quick: Iterable[Any]
    measure: Callable[[Any], Figures]
    report: Callable[[Figures], str]
    results: pathlib.Path
    page: pathlib.Path

    def parser(self) -> argparse.ArgumentParser:
        """The command line."""
        made = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}", description=self.told
        )
        made.add_argument("--quick", action="store_true", help="iris, two rounds: for tests")
        made.add_argument("--json", type=pathlib.Path, metavar="FILE", help="file of results")
        made.add_argument("--fresh", action="store_true", help="measure all again")
        made.add_argument(
            "--report-only", action="store_true", help="measure nothing, read the file"
        )
        made.add_argument("--docs", action="store_true", help="write the table into its page")
        return made

    def run(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, print, and write the page if asked to."""
        options, word = self.parser().parse_args(arguments), self.name.replace("_", "-")
        quick = pathlib.Path(f"build/{word}-quick.json")
        path = options.json or (quick if options.quick else self.results)
        try:
            if not options.report_only:
                scale = "quick" if options.quick else "full"
                self._measure(Store(path, describe_run(scale), options.fresh), options.quick)
            results = read(path)
        except (OSError, ValueError, RuntimeError) as error:
            print(f"Error: {error}", file=sys.stderr)
            return 2
        print(self.report(results))
        if options.docs:
            page.write(word, self.report(results), self.page)
        return 0

    def _measure(self, store: Store, is_quick: bool) -> None:
        for size in self.quick if is_quick else self.sizes:
            *key, rounds = size
            name = ", ".join(map(str, key))
            print(f"{name}, {rounds} rounds ...", file=sys.stderr, flush=True)
            store.part(name, lambda size=size: self.measure(size))  # type: ignore[misc]
