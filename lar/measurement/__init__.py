"""Measuring: the timed loop, what disturbs it, and the statistics of the samples."""
