"""What a search for the fastest settings makes small, and what it asks permission for."""

from __future__ import annotations

from typing import Literal

Objective = Literal["latency", "throughput", "memory", "p99"]
"""What is made small:

latency     the median time of an iteration
throughput  the time of all copies of the model together, divided by the iterations that they made
memory      the most memory that a process held
p99         the 99th percentile of the times of iterations
"""

Allowed = Literal["engine-fixes", "engine-env", "reduced-precision"]
"""What a search tries only where the user allows it:

engine-fixes       defects of the engine are mended in memory (`--engine-fix`)
engine-env         environment variables are set for the engine (`--engine-env`)
reduced-precision  tensors are computed in a coarser type than the model's
"""
