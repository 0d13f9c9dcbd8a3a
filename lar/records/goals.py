"""The objectives of a search for the fastest settings, and the permissions for a search."""

from __future__ import annotations

from typing import Literal

Objective = Literal["latency", "throughput", "memory", "p99"]
"""The figure that a search makes as small as possible:

latency     the median time of an iteration
throughput  the time of all copies of the model together, divided by the iterations that they made
memory      the most memory that a process held
p99         the 99th percentile of the times of iterations
"""

Allowed = Literal["engine-fixes", "engine-env", "reduced-precision"]
"""What a search tries only if the user allows it:

engine-fixes       defects of the engine are mended in memory (`--engine-fix`)
engine-env         environment variables are set for the engine (`--engine-env`)
reduced-precision  tensors are computed in a coarser type than the model's
"""
