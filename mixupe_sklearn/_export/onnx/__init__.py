"""Conversion of pipelines and estimators to ONNX."""
