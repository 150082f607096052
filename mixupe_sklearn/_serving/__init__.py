"""Models without this package: as one torch module, or as an ONNX graph."""
