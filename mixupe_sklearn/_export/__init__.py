"""Export to torch modules and ONNX graphs, which run without this package."""
