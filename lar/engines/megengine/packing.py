"""`--packed-model-dump`, `--pack-info-json` and `--pack-cache`, and runs of a packed model.

When a run loads such a file, lite reads its settings last: they take the place of what the options
have set. An option that would be lost that way is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.megengine.cache import bytes_of, cache_of, read_cache
from lar.engines.megengine.lite_fields import LITE_FIELDS
from lar.engines.megengine.packed_model import graph_in, is_packed, open_packed, write_packed
from lar.engines.megengine.packed_settings import check_info, read_info_file
from lar.errors import UsageError
from lar.options import table
from lar.options.option import Option

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.megengine.lite import LiteDriver

# The options of the threads, and those of the device.
THREADS: tuple[Option[int], ...] = (table.MULTITHREAD, table.MULTITHREAD_DEFAULT)
DEVICES: tuple[Option[Any], ...] = (table.CPU_DEFAULT, table.MULTITHREAD_DEFAULT, table.CUDA)


def dump_packed(driver: Driver, _: str) -> None:
    """Pack the spec's model file as it is; of a packed one, the parts that are not given anew.

    Raises:
        UsageError: an input file is not what lite reads, or the model is encrypted.
    """
    if driver.runner:
        return
    model, settings = driver.model_file, driver.spec.settings
    name, info, cache = Path(driver.spec.model).stem, None, None
    if is_packed(model):
        packed = open_packed(model)
        name, info, cache = packed.name, packed.info, packed.cache
        if packed.info_encrypted:
            raise UsageError(
                "its settings are encrypted", "pack the plain model", subject=driver.spec.model
            )
    if table.PACK_INFO_JSON.is_given(settings):
        info = read_info_file(str(settings[table.PACK_INFO_JSON.key]))
    if info is not None:
        name = json.loads(info)["name"]  # lite wants the same name in both places
    if table.PACK_CACHE.is_given(settings):
        cache = read_cache_file(str(settings[table.PACK_CACHE.key]), cache)
    place = driver.context.written[table.PACKED_MODEL_DUMP.key]
    write_packed(place, graph_in(model), name, info, cache)


def read_cache_file(path: str, known: bytes | None = None) -> bytes:
    """Read a cache file, over what is known already.

    Raises:
        UsageError: it is not a whole cache file.
    """
    cache = read_cache(path, table.PACK_CACHE.flag)
    return bytes_of({**cache_of(known), **cache} if known else cache)


def check_packed_model(driver: LiteDriver) -> None:
    """Check a packed model before lite, which does not, follows what stands in it; refuse options
    that would be lost on it, and have its cache read, at which lite looks for a search alone.

    Raises:
        UsageError: it is damaged, or an option is at odds with its settings.
    """
    model, settings = driver.spec.model, driver.spec.settings
    packed = open_packed(driver.model_file)
    if packed.cache is not None:
        try:
            cache_of(packed.cache)
        except UsageError:
            raise UsageError(
                "its fast-run cache is damaged", "pack it again", subject=model
            ) from None
        if table.FAST_RUN_ALGO_POLICY.is_given(settings):
            # The steps of --winograd-transform have the other set without the user's doing.
            option = table.one_of((table.WINOGRAD_TRANSFORM, table.FAST_RUN_ALGO_POLICY), settings)
            raise UsageError(
                f"{model} has a fast-run cache in it, which MegEngine would take instead",
                "leave the flag out: the one in the model is read",
                flag=option.flag if option else "",
            )
        if not driver.algorithms_chosen:
            strategies = driver.lite.LiteAlgoSelectStrategy
            cached = strategies.LITE_ALGO_PROFILE | strategies.LITE_ALGO_HEURISTIC
            driver.network.set_network_algo_policy(cached)
    if packed.info is None or packed.info_encrypted:
        return
    try:
        info = check_info(packed.info)
    except ValueError as error:
        raise UsageError(f"its settings: {error}", "pack it again", subject=model) from None
    refuse_lost_options(model, settings, driver.lite_options, info)


def options_of(field: str) -> tuple[Option[Any], ...]:
    """Return the options that set a field of lite's options."""
    found = tuple(option for option, fields in LITE_FIELDS.items() if field in fields)
    return found or (table.WORKSPACE_LIMIT,)  # which sets graph_opt_level


def refuse_lost_options(
    model: str, settings: Mapping[str, Any], fields: Mapping[str, int], info: Mapping[str, Any]
) -> None:
    """Refuse options in whose place lite would put the settings of a packed model.

    Raises:
        UsageError: naming both.
    """
    lost: list[tuple[tuple[Option[Any], ...], str, object]] = [
        (options_of(name), name, info["options"][name])
        for name, value in fields.items()
        if name in info.get("options", {}) and int(info["options"][name]) != value
    ]
    device = info.get("device", {})
    kind = "CUDA" if table.CUDA.is_given(settings) else "CPU"
    if device.get("type", kind) != kind:
        raise UsageError(
            f"it is packed for the device {device['type']}, not for {kind}",
            "give --cuda" if device["type"] == "CUDA" else "pack it again for this device",
            subject=model,
        )
    threads = device.get("number_threads", 1)
    if threads > 1 and any((option.of(settings) or threads) != threads for option in THREADS):
        lost.append((THREADS, "number_threads", threads))
    wanted = settings.get(table.CUDA.key, -1)
    if device.get("device_id", wanted) != wanted and not device.get("enable_inplace_model"):
        lost.append((DEVICES, "device_id", device["device_id"]))
    for options, name, value in lost:
        if option := table.one_of(options, settings):
            raise UsageError(
                f"{model} has settings in it that MegEngine takes instead: {name} is "
                f"{json.dumps(value)}",
                "leave the flag out, or pack the model without that setting",
                flag=option.flag,
            )
