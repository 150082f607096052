"""What only ``python -m benchmarks.speed`` needs."""
