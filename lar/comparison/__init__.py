"""Compares two dumps: which tensor is which, how far apart they are, which operator is at fault."""
