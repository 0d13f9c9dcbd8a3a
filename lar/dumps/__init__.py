"""Dumps: the tensors of a run, each in a file, and the graph between them."""
