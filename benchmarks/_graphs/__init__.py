"""Parts of ``benchmarks.graphs``."""
