"""One network trained by several processes."""
