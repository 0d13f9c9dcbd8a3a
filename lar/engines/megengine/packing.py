"""`--packed-model-dump`, `--pack-info-json` and `--pack-cache`, and runs of a packed model.

When a run loads such a file, lite reads its settings last: they take the place of what the options
have set. An option that would be lost that way is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.megengine.algorithms import HEURISTIC, PROFILE
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
    model, named, settings = driver.model_file, driver.spec.model, driver.spec.settings
    name, info, cache = Path(named).stem, None, None
    if is_packed(model):
        packed = open_packed(model)
        name, info, cache = packed.name, packed.info, packed.cache
        if packed.info_encrypted:
            raise UsageError("its settings are encrypted", "pack the plain model", subject=named)
    if given := table.PACK_INFO_JSON.of(settings):
        info = read_info_file(given)
    if info is not None:
        name = json.loads(info)["name"]  # lite wants the same name in both places
    if given := table.PACK_CACHE.of(settings):
        cache = read_cache_file(given, cache)
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
        check_packed_cache(driver, packed.cache)
    if packed.info is None or packed.info_encrypted:
        return
    try:
        info = check_info(packed.info)
    except ValueError as error:
        raise UsageError(f"its settings: {error}", "pack it again", subject=model) from None
    refuse_lost_options(model, settings, driver.lite_options, info)


def check_packed_cache(driver: LiteDriver, cache: bytes) -> None:
    """Check the cache in a packed model, and have it read.

    Raises:
        UsageError: it is damaged, or another is given.
    """
    model, settings = driver.spec.model, driver.spec.settings
    try:
        cache_of(cache)
    except UsageError:
        raise UsageError("its fast-run cache is damaged", "pack it again", subject=model) from None
    if table.FAST_RUN_ALGO_POLICY.is_given(settings):
        # The steps of --winograd-transform have the other set without the user's doing.
        is_winograd = table.WINOGRAD_TRANSFORM.is_given(settings)
        option = table.WINOGRAD_TRANSFORM if is_winograd else table.FAST_RUN_ALGO_POLICY
        problem = f"{model} has a fast-run cache in it, which MegEngine would take instead"
        hint = "leave the flag out: the one in the model is read"
        raise UsageError(problem, hint, flag=option.flag)
    if not driver.algorithms_chosen:
        driver.network.set_network_algo_policy(PROFILE | HEURISTIC)


def refuse_lost_options(
    model: str, settings: Mapping[str, Any], fields: Mapping[str, int], info: Mapping[str, Any]
) -> None:
    """Refuse options in whose place lite would put the settings of a packed model.

    Raises:
        UsageError: naming both.
    """
    device, packed = info.get("device", {}), info.get("options", {})
    kind = "CUDA" if table.CUDA.is_given(settings) else "CPU"
    if device.get("type", kind) != kind:
        hint = "give --cuda" if device["type"] == "CUDA" else "pack it again for this device"
        problem = f"it is packed for the device {device['type']}, not for {kind}"
        raise UsageError(problem, hint, subject=model)
    lost: list[tuple[tuple[Option[Any], ...], str, object]] = []
    for name, value in fields.items():
        if int(packed.get(name, value)) != value:
            options = [option for option, its in LITE_FIELDS.items() if name in its]
            # The last one sets graph_opt_level.
            lost.append(((*options, table.WORKSPACE_LIMIT), name, packed[name]))
    threads = device.get("number_threads", 1)
    if threads > 1 and any((option.of(settings) or threads) != threads for option in THREADS):
        lost.append((THREADS, "number_threads", threads))
    wanted = settings.get(table.CUDA.key, -1)
    if device.get("device_id", wanted) != wanted and not device.get("enable_inplace_model"):
        lost.append((DEVICES, "device_id", device["device_id"]))
    for setting, name, given in lost:
        if option := table.one_of(setting, settings):
            instead = f"{name} is {json.dumps(given)}"
            problem = f"{model} has settings in it that MegEngine takes instead: {instead}"
            hint = "leave the flag out, or pack the model without that setting"
            raise UsageError(problem, hint, flag=option.flag)
