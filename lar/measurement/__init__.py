"""Measuring: the timed loop, what disturbs it, and the statistics of what it gave."""
