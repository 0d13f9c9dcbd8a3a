"""Compares two dumps: pairs their tensors, measures the pairs, and finds the operator at fault."""
