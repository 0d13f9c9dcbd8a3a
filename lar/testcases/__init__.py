"""Testcases: inputs that stand with a model, and the outputs that should come of them."""
