"""A model with the settings that are best for it in one file: lite's packed model.

Such a file holds a model, a fast-run cache and some of lite's options. It cannot hold
layouts: the graph driver first writes the model anew with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lar.engines.engine import Deployment, WritingRun
from lar.engines.megengine.cache import bytes_of, read_cache
from lar.engines.megengine.cache_operators import prefer_winograd
from lar.engines.megengine.lite_fields import GRAPH_ARGUMENTS, LITE_FIELDS
from lar.engines.megengine.packed_settings import Options
from lar.options import table
from lar.options.option import Option

# Those that hold for any run of the file, of which a packed model says them.
HELD = {
    option: fields
    for option, fields in LITE_FIELDS.items()
    if option is not table.FAKE_FIRST and fields.keys() <= set(Options.__struct_fields__)
}
# What the graph driver does to a graph that it writes.
IN_GRAPH = tuple(option for option in GRAPH_ARGUMENTS if option not in HELD)
# What a run needs to load and compute the model at all.
FOR_LOADING = (table.ENGINE_FIX, table.C_OPR_LIB)
IN_PLACE = (table.CPU_DEFAULT, table.MULTITHREAD_DEFAULT)
THREADS = (table.MULTITHREAD, table.MULTITHREAD_DEFAULT)
FORMAT = "lar.packed/1"
OLDEST = "1.13.0"  # lite takes three numbers alone


def deploy(settings: Mapping[str, Any], model: Path, folder: Path, version: str) -> Deployment:
    """Return how a model is packed with settings, and write what lite reads of them."""

    def given(*options: Option[Any]) -> dict[str, Any]:
        return {it.key: settings[it.key] for it in options if it.is_given(settings)}

    loading = given(*FOR_LOADING)
    rewritten, writes = given(*IN_GRAPH), table.MODEL_DUMP
    if not rewritten:
        rewritten, writes = given(table.LAYOUT_TRANSFORM), table.LAYOUT_TRANSFORM_DUMP
    runs = [WritingRun({**loading, **rewritten}, writes)] if rewritten else []
    in_file = {**rewritten, **given(*HELD, *IN_PLACE, *THREADS, table.CUDA, table.CPU)}
    held = (*in_file, *given(table.FAST_RUN_ALGO_POLICY))
    left_out = tuple(key for key in settings if key not in held)
    info = {
        "name": model.stem,
        "valid": True,
        "version": version or OLDEST,
        "device": device_of(settings),
        "options": {
            name: value if name.endswith("_level") else bool(value)
            for option in HELD
            if option.is_given(settings)
            for name, value in HELD[option].items()
        },
        "extra_info": {
            "format": FORMAT,
            "held": in_file,
            "not_held": {key: settings[key] for key in left_out},
        },
    }
    place = folder / "info.json"
    place.write_text(json.dumps(info))
    packing, note = {**loading, table.PACK_INFO_JSON.key: str(place)}, ""
    if cache := table.FAST_RUN_ALGO_POLICY.of(settings):
        if table.WINOGRAD_TRANSFORM.is_given(settings):
            preferred = bytes_of(prefer_winograd(read_cache(cache)))
            cache = str(folder / "winograd.cache")
            Path(cache).write_bytes(preferred)
        packing[table.PACK_CACHE.key] = cache
        note = "a program of its own takes the cache with LITE_ALGO_PROFILE | LITE_ALGO_HEURISTIC"
    runs.append(WritingRun(packing, table.PACKED_MODEL_DUMP))
    return Deployment(runs=tuple(runs), held=held, left_out=left_out, note=note)


def device_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device and the threads, as lite's settings have them."""
    if table.CUDA.is_given(settings):
        return {"type": "CUDA", "device_id": table.CUDA.of(settings)}
    device: dict[str, Any] = {"type": "CPU"}
    if threads := table.one_of(THREADS, settings):
        device["number_threads"] = threads.of(settings)
    if table.one_of(IN_PLACE, settings):
        device["enable_inplace_model"] = True
    return device
