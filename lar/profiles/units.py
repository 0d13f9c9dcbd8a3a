"""Units of time."""

from __future__ import annotations

# The nanoseconds in each, the smallest first.
UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
