"""Parts of the tabular benchmark; ``benchmarks.tabular`` is its command line."""
