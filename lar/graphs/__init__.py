"""Graphs of operators and tensors, and which parts of two of them are twins."""
