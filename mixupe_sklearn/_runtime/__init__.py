"""The machine: devices, threads, compilation and seeds."""
