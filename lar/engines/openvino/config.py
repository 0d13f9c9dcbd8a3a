"""The configuration that a model is compiled with: OpenVINO's properties, from lar's options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lar.errors import UsageError, nearest
from lar.options.table import (
    CPU_DEFAULT,
    ENGINE_OPTION,
    HINT,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    PRECISION,
    PROFILE,
    PROVIDER,
    STREAMS,
    VERBOSE,
)
from lar.options.values import pairs_in

# Of --precision, the engine's names.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}

# How properties begin that devices besides the CPU have. Those of the CPU stand in properties.txt:
# all that a model may be compiled with, but for what is the business of lar's own options alone.
OF_DEVICES = ("GPU_", "NPU_", "NPUW_", "MULTI_", "AUTO_", "DEVICE_")


def precision_of(name: str) -> str:
    """Return lar's name of a type that the engine names."""
    return next((key for key, known in PRECISIONS.items() if known == name), name)


def device_of(settings: Mapping[str, Any]) -> str:
    """Return the engine's name of the device that is asked for."""
    return str(PROVIDER.of(settings) or "CPU").upper()


def config_of(settings: Mapping[str, Any], copies: int) -> dict[str, str]:
    """Return the properties that a model is compiled with."""
    # The engine's own choice is bfloat16 on CPUs that have it, and it does not say so.
    found = {"INFERENCE_PRECISION_HINT": PRECISIONS[PRECISION.of(settings) or "float32"]}
    threads = MULTITHREAD.of(settings) or MULTITHREAD_DEFAULT.of(settings)
    if CPU_DEFAULT.of(settings) or (copies > 1 and not threads):
        threads = 1
    if threads:
        found["INFERENCE_NUM_THREADS"] = str(threads * copies)
    if copies > 1:
        found["NUM_STREAMS"] = str(copies)
    if STREAMS.is_given(settings):
        found["NUM_STREAMS"] = str(STREAMS.of(settings))
    if HINT.is_given(settings):
        found["PERFORMANCE_HINT"] = str(HINT.of(settings)).upper()
    if PROFILE.is_given(settings):
        found["PERF_COUNT"] = "YES"
    if VERBOSE.of(settings):
        found["LOG_LEVEL"] = "LOG_DEBUG"
    return {**found, **pairs_in(str(settings.get(ENGINE_OPTION.key, "")).splitlines())}


def check_property(key: str) -> None:
    """Refuse a property that OpenVINO does not have.

    Raises:
        UsageError: naming the property that was probably meant.
    """
    known = Path(__file__).with_name("properties.txt").read_text().split()
    if key not in known and not key.startswith(OF_DEVICES):
        near = nearest(key.upper(), known)
        raise UsageError(
            f"OpenVINO has no property {key!r}",
            f"did you mean {near}?" if near else "names are as ENABLE_CPU_PINNING",
            flag=ENGINE_OPTION.flag,
        )
