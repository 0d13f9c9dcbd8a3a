"""ONNX Runtime, through IOBinding."""
