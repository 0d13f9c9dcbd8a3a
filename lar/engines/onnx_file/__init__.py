"""What an `.onnx` file says, for every engine that takes such files."""
