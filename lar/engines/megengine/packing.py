"""Writes packed models (`--packed-model-dump` and options for it), and checks packed models.

A packed model holds a model, a fast-run cache and some of lite's options. `deploy` packs a model
with the best settings that a search has found. A packed model cannot hold layouts, so the graph
driver first writes the model with its layouts changed.

When a run loads a packed model, lite reads the settings in the file last. The settings in the
packed model replace the settings that come from the run's options. Therefore lar refuses an option
that the settings in the packed model would override.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from lar.engines.engine import Deployment, WritingRun
from lar.engines.megengine.cache import bytes_of, cache_of, prefer_winograd, read_cache
from lar.engines.megengine.lite_fields import GRAPH_ARGUMENTS, LITE_FIELDS
from lar.engines.megengine.packed_model import graph_in, is_packed, open_packed, write_packed
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.measurement.machine import installed_version
from lar.options import table
from lar.options.option import Option

if TYPE_CHECKING:
    from lar.engines.driver import Driver

# The settings in a packed model, as JSON: the fields that lite 1.13 reads (`--pack-info-json`).
#
# packed_settings.txt has the fields of each object. A star after a field's kind marks a list, and a
# question mark a field that may be missing. An unknown field is refused, as it is probably a
# spelling mistake. `Options` has some of the fields of lite's options.
# Read from MegEngine 1.13: lite/src/parse_info/default_parse.h.

KINDS: dict[str, Any] = {
    "whole": Annotated[int, msgspec.Meta(ge=0, lt=2**31)],
    "version": Annotated[str, msgspec.Meta(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")],
    **{"flag": bool, "text": str, "any": Any},
}


def kind_named(name: str) -> Any:
    """Return the Python type of a setting, given its kind in packed_settings.txt.

    A kind such as `CPU|CUDA` lists the allowed values.
    """
    words: Any = Literal
    return words[tuple(name.split("|"))] if "|" in name else KINDS[name]


def add_kinds(text: str) -> None:
    """Add to `KINDS` the kinds of objects that the lines of packed_settings.txt define."""
    for line in text.strip().replace("\n  ", " ").splitlines():
        name, _, fields = line.partition(": ")
        found: list[Any] = []
        for key, kind in map(str.split, fields.split(", ")):
            of_one = kind_named(kind.rstrip("*?"))
            missing = [None] if kind.endswith("?") else []
            found.append((key, GenericAlias(list, of_one) if "*" in kind else of_one, *missing))
        KINDS[name] = msgspec.defstruct(name, found, forbid_unknown_fields=True)


add_kinds(Path(__file__).with_name("packed_settings.txt").read_text())
OPTIONS: tuple[str, ...] = KINDS["Options"].__struct_fields__


def read_info_file(path: str) -> bytes:
    """Read a JSON file of settings for a packed model, and check that lite can read it.

    Raises:
        UsageError: the file cannot be read, or lite would not read it.
    """
    data = read_input(path, table.PACK_INFO_JSON.flag)
    try:
        check_info(data)
    except ValueError as error:
        hint = "correct the file"
        raise UsageError(str(error), hint, flag=table.PACK_INFO_JSON.flag, subject=path) from None
    return data


def check_info(data: bytes) -> dict[str, Any]:
    """Check the settings of a packed model and return them.

    Raises:
        ValueError: the settings are not JSON in UTF-8, or lite would not read them.
    """
    try:
        settings = msgspec.json.decode(data, type=KINDS["Settings"])
        info: dict[str, Any] = json.loads(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"lite does not read it: {error}") from None
    if not settings.valid:
        raise ValueError("says that it is not valid, so lite would leave it unread")
    if settings.has_compression:
        raise ValueError("says that the model is compressed, which it is not")
    return info


# Packing, and runs of packed models

# The options of the threads, and those of the device.
THREADS: tuple[Option[int], ...] = (table.MULTITHREAD, table.MULTITHREAD_DEFAULT)
DEVICES: tuple[Option[Any], ...] = (table.CPU_DEFAULT, table.MULTITHREAD_DEFAULT, table.CUDA)


def dump_packed(driver: Driver, _: str) -> None:
    """Write a packed file with the run's model, without changing the model.

    If the model file is already packed, the new file has the old settings unless the user gives
    other settings. The new file also has the old cache, joined with a cache that the user gives.

    Raises:
        UsageError: lite would not read a given file, or the model is encrypted.
    """
    if driver.runner:
        return
    model, named, settings = driver.model_file, driver.spec.model, driver.spec.settings
    name, info, cache = Path(named).stem, None, None
    if is_packed(model):
        packed = open_packed(model)
        name, info, cache = packed.name, packed.info, packed.cache
        if packed.info_encrypted:
            raise UsageError("its settings are encrypted", "give the unpacked model", subject=named)
    if given := table.PACK_INFO_JSON.of(settings):
        info = read_info_file(given)
    if info is not None:
        name = json.loads(info)["name"]  # lite wants the same name in both places
    if given := table.PACK_CACHE.of(settings):
        cache = read_cache_file(given, cache)
    place = driver.context.written[table.PACKED_MODEL_DUMP.key]
    write_packed(place, graph_in(model), name, info, cache)


def read_cache_file(path: str, known: bytes | None = None) -> bytes:
    """Return the content of a cache file, joined with the cache `known` if `known` is given.

    Raises:
        UsageError: the file is not a whole cache file.
    """
    cache = read_cache(path, table.PACK_CACHE.flag)
    return bytes_of({**cache_of(known), **cache} if known else cache)


def check_packed_model(driver: Driver, lite_options: Mapping[str, int]) -> bool:
    """Check a packed model, and refuse options that the settings in the model would override.

    The check is needed because lite itself does not check packed models.

    Returns:
        Whether the packed model has a fast-run cache.

    Raises:
        UsageError: the packed model is damaged, or its settings override an option.
    """
    model, settings = driver.spec.model, driver.spec.settings
    packed = open_packed(driver.model_file)
    if packed.cache is not None:
        check_packed_cache(driver, packed.cache)
    if packed.info is not None and not packed.info_encrypted:
        try:
            info = check_info(packed.info)
        except ValueError as error:
            raise UsageError(f"its settings: {error}", "pack it again", subject=model) from None
        refuse_lost_options(model, settings, lite_options, info)
    return packed.cache is not None


def check_packed_cache(driver: Driver, cache: bytes) -> None:
    """Check the cache in a packed model.

    Raises:
        UsageError: the cache is damaged, or an option names another cache.
    """
    model, settings = driver.spec.model, driver.spec.settings
    try:
        cache_of(cache)
    except UsageError:
        raise UsageError("has a damaged fast-run cache", "pack it again", subject=model) from None
    if table.FAST_RUN_ALGO_POLICY.is_given(settings):
        # In the steps of --winograd-transform, lar has set the cache file, not the user.
        is_winograd = table.WINOGRAD_TRANSFORM.is_given(settings)
        option = table.WINOGRAD_TRANSFORM if is_winograd else table.FAST_RUN_ALGO_POLICY
        problem = f"MegEngine would use only the fast-run cache inside {model}"
        hint = "leave the flag out: MegEngine reads the cache in the model"
        raise UsageError(problem, hint, flag=option.flag)


def refuse_lost_options(
    model: str, settings: Mapping[str, Any], fields: Mapping[str, int], info: Mapping[str, Any]
) -> None:
    """Refuse options that the settings of a packed model would override.

    Raises:
        UsageError: an option would be overridden; the error names the option and the setting.
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


# The options that a packed model can hold, with the fields that they set.
HELD = {
    option: fields
    for option, fields in LITE_FIELDS.items()
    if option is not table.FAKE_FIRST and fields.keys() <= set(OPTIONS)
}
# The options that the graph driver applies to a model that it writes.
IN_GRAPH = tuple(option for option in GRAPH_ARGUMENTS if option not in HELD)
# The options without which a run may fail to load or compute the model.
FOR_LOADING = (table.ENGINE_FIX, table.C_OPR_LIB)
IN_PLACE = (table.CPU_DEFAULT, table.MULTITHREAD_DEFAULT)
FORMAT = "lar.packed/1"
OLDEST = "1.13.0"  # lite takes only a version of three numbers


def deploy(settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment:
    """Write lite's file of settings, and return the runs that pack a model with the settings."""

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
        "version": installed_version("megengine") or OLDEST,
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
        note = "another program reads the cache only with LITE_ALGO_PROFILE | LITE_ALGO_HEURISTIC"
    runs.append(WritingRun(packing, table.PACKED_MODEL_DUMP))
    return Deployment(runs=tuple(runs), held=held, left_out=left_out, note=note)


def device_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device and the threads in the form of lite's settings."""
    if table.CUDA.is_given(settings):
        return {"type": "CUDA", "device_id": table.CUDA.of(settings)}
    device: dict[str, Any] = {"type": "CPU"}
    if threads := table.one_of(THREADS, settings):
        device["number_threads"] = threads.of(settings)
    if table.one_of(IN_PLACE, settings):
        device["enable_inplace_model"] = True
    return device
