"""A model with the settings that are best for it in one file: lite's packed model.

Such a file holds a model, a fast-run cache and some of lite's options. Layouts are none of those:
the model is written anew with them first, as the graph driver optimises it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lar.engines.engine import Deployment, WritingRun
from lar.engines.megengine.cache import bytes_of, read_cache
from lar.engines.megengine.cache_operators import prefer_winograd
from lar.options.option import Option
from lar.options.table import (
    C_OPR_LIB,
    CONST_SHAPE,
    CPU,
    CPU_DEFAULT,
    CUDA,
    ENABLE_CHWN4,
    ENABLE_FUSE_CONV_BIAS_NONLINEARITY,
    ENABLE_FUSE_CONV_BIAS_WITH_Z,
    ENABLE_FUSE_PREPROCESS,
    ENABLE_IOC16,
    ENABLE_JIT,
    ENABLE_NCHW4,
    ENABLE_NCHW32,
    ENABLE_NCHW44,
    ENABLE_NCHW44_DOT,
    ENABLE_NCHW64,
    ENABLE_NCHW88,
    ENGINE_FIX,
    FAST_RUN_ALGO_POLICY,
    LAYOUT_TRANSFORM,
    LAYOUT_TRANSFORM_DUMP,
    MODEL_DUMP,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    NO_SANITY_CHECK,
    OPTIMIZE_FOR_INFERENCE,
    PACK_CACHE,
    PACK_INFO_JSON,
    PACKED_MODEL_DUMP,
    RECORD_COMP_SEQ,
    RECORD_COMP_SEQ2,
    WEIGHT_PREPROCESS,
    WINOGRAD_TRANSFORM,
)

# The fields of lite's options that an option sets, in the settings of a packed model.
FIELDS: Mapping[Option[Any], Mapping[str, bool | int]] = {
    WEIGHT_PREPROCESS: {"weight_preprocess": True},
    WINOGRAD_TRANSFORM: {"weight_preprocess": True},
    ENABLE_FUSE_PREPROCESS: {"fuse_preprocess": True},
    CONST_SHAPE: {"const_shape": True},
    NO_SANITY_CHECK: {"var_sanity_check_first_run": False},
    ENABLE_JIT: {"jit_level": 1},
    RECORD_COMP_SEQ: {"comp_node_seq_record_level": 1},
    RECORD_COMP_SEQ2: {
        "comp_node_seq_record_level": 2,
        "var_sanity_check_first_run": False,
        "const_shape": True,
    },
}
# What the graph driver does to a graph that it writes.
IN_GRAPH: tuple[Option[Any], ...] = (
    *(ENABLE_NCHW4, ENABLE_CHWN4, ENABLE_NCHW44, ENABLE_NCHW44_DOT, ENABLE_NCHW88),
    *(ENABLE_NCHW32, ENABLE_NCHW64, OPTIMIZE_FOR_INFERENCE, ENABLE_IOC16),
    *(ENABLE_FUSE_CONV_BIAS_NONLINEARITY, ENABLE_FUSE_CONV_BIAS_WITH_Z),
)
# What a run needs to load and compute the model at all.
FOR_LOADING = (ENGINE_FIX, C_OPR_LIB)
IN_PLACE = (CPU_DEFAULT, MULTITHREAD_DEFAULT)
THREADS = (MULTITHREAD, MULTITHREAD_DEFAULT)
FORMAT = "lar.packed/1"
OLDEST = "1.13.0"  # lite takes three numbers alone


def deploy(settings: Mapping[str, Any], model: Path, folder: Path, version: str) -> Deployment:
    """Return how a model is packed with settings, and write what lite reads of them."""

    def given(options: tuple[Option[Any], ...]) -> dict[str, Any]:
        return {it.key: settings[it.key] for it in options if it.is_given(settings)}

    loading = given(FOR_LOADING)
    cache = FAST_RUN_ALGO_POLICY.of(settings)
    runs = []
    rewritten = given(IN_GRAPH)
    if rewritten:
        runs.append(WritingRun({**loading, **rewritten}, MODEL_DUMP))
    elif LAYOUT_TRANSFORM.is_given(settings):
        rewritten = given((LAYOUT_TRANSFORM,))
        runs.append(WritingRun({**loading, **rewritten}, LAYOUT_TRANSFORM_DUMP))
    fields = {
        name: value for it in FIELDS if it.is_given(settings) for name, value in FIELDS[it].items()
    }
    held = [*rewritten, *given((*FIELDS, *IN_PLACE, *THREADS, CUDA, CPU))]
    if cache is not None:
        held.append(FAST_RUN_ALGO_POLICY.key)
    left_out = [key for key in settings if key not in held]
    info = {
        "name": model.stem,
        "valid": True,
        "version": version or OLDEST,
        "device": device_of(settings),
        "options": fields,
        "extra_info": {
            "format": FORMAT,
            "held": {key: settings[key] for key in held if key != FAST_RUN_ALGO_POLICY.key},
            "not_held": {key: settings[key] for key in left_out},
        },
    }
    place = folder / "info.json"
    place.write_text(json.dumps(info))
    packing = {**loading, PACK_INFO_JSON.key: str(place)}
    if cache is not None:
        packing[PACK_CACHE.key] = str(cache)
        if WINOGRAD_TRANSFORM.is_given(settings):
            preferred = folder / "winograd.cache"
            preferred.write_bytes(bytes_of(prefer_winograd(read_cache(cache))))
            packing[PACK_CACHE.key] = str(preferred)
    runs.append(WritingRun(packing, PACKED_MODEL_DUMP))
    return Deployment(
        runs=tuple(runs),
        held=tuple(held),
        left_out=tuple(left_out),
        note="a program of its own takes the cache with LITE_ALGO_PROFILE | LITE_ALGO_HEURISTIC"
        if cache is not None
        else "",
    )


def device_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device and the threads, as lite's settings have them."""
    if CUDA.is_given(settings):
        return {"type": "CUDA", "device_id": CUDA.of(settings)}
    device: dict[str, Any] = {"type": "CPU"}
    counts = [option.of(settings) for option in THREADS if option.is_given(settings)]
    if counts:
        device["number_threads"] = counts[0]
    if any(option.is_given(settings) for option in IN_PLACE):
        device["enable_inplace_model"] = True
    return device
