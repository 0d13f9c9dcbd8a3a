"""Testcases: inputs that come with a model, and the outputs that should result."""
