"""Profiles of runs: their file, and the figures that are computed from them."""
