"""The parts of ``python -m benchmarks.speed``."""
