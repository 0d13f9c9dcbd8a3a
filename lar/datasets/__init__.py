"""Data sets: inputs that stand for many items, and the classes of the items."""
