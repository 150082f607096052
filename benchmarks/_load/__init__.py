"""The parts of ``python -m benchmarks.load``."""
