"""The configuration that a model is compiled with: OpenVINO's properties, from lar's options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lar.engines.engine import unknown_property
from lar.options import table
from lar.options.values import pairs_in

# The engine's names for --precision.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

# Beginnings of properties that devices besides the CPU have. Those of the CPU stand in
# properties.txt: all that a model may be compiled with, without those that lar's options set.
OF_DEVICES = ("GPU_", "NPU_", "NPUW_", "MULTI_", "AUTO_", "DEVICE_")


def config_of(settings: Mapping[str, Any], copies: int) -> dict[str, str]:
    """Return the properties that a model is compiled with."""
    threads = table.MULTITHREAD.of(settings) or table.MULTITHREAD_DEFAULT.of(settings) or 0
    if table.CPU_DEFAULT.of(settings) or (copies > 1 and not threads):
        threads = 1
    found = {
        # The engine's own choice is bfloat16 on CPUs that have it, and it does not say so.
        "INFERENCE_PRECISION_HINT": PRECISIONS[table.PRECISION.of(settings) or "float32"],
        "INFERENCE_NUM_THREADS": threads * copies,
        "NUM_STREAMS": table.STREAMS.of(settings) or (copies if copies > 1 else 0),
        "PERFORMANCE_HINT": (table.HINT.of(settings) or "").upper(),
        "PERF_COUNT": "YES" if table.PROFILE.is_given(settings) else "",
        "LOG_LEVEL": "LOG_DEBUG" if table.VERBOSE.of(settings) else "",
    }
    own = pairs_in(str(settings.get(table.ENGINE_OPTION.key, "")).splitlines())
    return {**{name: str(it) for name, it in found.items() if it}, **own}


def check_property(key: str, _: str) -> None:
    """Refuse a property that OpenVINO does not have.

    Raises:
        UsageError: naming the property that was probably meant.
    """
    known = Path(__file__).with_name("properties.txt").read_text().split()
    if key not in known and not key.startswith(OF_DEVICES):
        raise unknown_property("OpenVINO", key, known, "names are as ENABLE_CPU_PINNING")
