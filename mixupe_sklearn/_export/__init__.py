"""Models without this package: torch modules and ONNX graphs."""
