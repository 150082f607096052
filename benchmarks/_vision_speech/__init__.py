"""What the benchmarks of images and speech share."""
