"""What only ``python -m benchmarks.graphs`` needs."""
