"""Threads of MegEngine that spin while they wait for work, which is CPU time too.

The thread that computes asks for its next task again and again for 5 ms, and sleeps after that
(`SCQueueSynchronizer::max_spin`, src/core/impl/utils/thread.cpp of MegEngine). A caller that is
not given a CPU at once makes it do so in each iteration.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lar.options.table import CPU_DEFAULT, NO_SPINNING

SPIN_SECONDS = 5e-3
SPIN_VARIABLE = "MGB_WORKER_MAX_SPIN"  # how often it asks


def find_spin_seconds(settings: Mapping[str, Any]) -> float:
    """Return how much CPU time a thread spends at most while it waits for work."""
    sleeps = NO_SPINNING.of(settings) or os.environ.get(SPIN_VARIABLE) == "0"
    return 0.0 if CPU_DEFAULT.of(settings) or sleeps else SPIN_SECONDS
