"""Measuring: the timed loop, the disturbances of iterations, and the statistics of samples."""
