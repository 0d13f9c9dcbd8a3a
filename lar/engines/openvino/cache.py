"""The cache file of OpenVINO: a compiled model, as the engine exports it, behind a record.

The first line is `lar.openvino.cache/1`, a space and JSON: the `key` of what the model was made
for, all texts, and the `crc32` of the bytes behind the line, which finds damage.

A run loads the cache where it fits, and builds it where it is missing or was made for another run.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.engines.openvino.messages import last_line
from lar.engines.openvino.model_files import files_beside
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.files.report_file import OutputFile
from lar.measurement.machine import read_processor
from lar.options.table import FAST_RUN, FAST_RUN_ALGO_POLICY

if TYPE_CHECKING:
    from lar.engines.openvino.driver import CompiledDriver

# History of the format:
#   lar.openvino.cache/1  first version
FORMAT = b"lar.openvino.cache/1 "
FLAG = FAST_RUN_ALGO_POLICY.flag
ANOTHER_FILE = "choose another file, or remove this one"

# Properties that change nothing of a compiled model.
REPORTING = ("PERF_COUNT", "LOG_LEVEL")


class Cache(NamedTuple):
    """What a cache file holds: what it was made for, and the compiled model."""

    key: Mapping[str, str]
    content: bytes


def read_cache(path: str | Path) -> Cache:
    """Read a cache file.

    Raises:
        UsageError: it cannot be read, or is not a whole cache file that lar made.
    """
    line, _, content = read_input(path, what="cache").partition(b"\n")
    try:
        record = json.loads(line.removeprefix(FORMAT)) if line.startswith(FORMAT) else {}
        if record["crc32"] == zlib.crc32(content):
            return Cache({str(name): str(text) for name, text in record["key"].items()}, content)
    except (ValueError, LookupError, AttributeError):
        pass
    raise UsageError(
        "is not a cache that lar made for OpenVINO, or is damaged", ANOTHER_FILE, subject=path
    )


def differing(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the names of what two keys differ in, in their order."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


class CompiledModels(CacheFiles):
    """Compiled models, each with what it was made for."""

    holds = "one model and no algorithms"

    def begins(self, head: bytes) -> bool:
        return head.startswith(FORMAT)

    def show(self, paths: Sequence[str], operator: str, *, every_algorithm: bool) -> CacheReport:
        cache = read_cache(paths[0])
        if operator or every_algorithm or len(paths) > 1:
            raise self.refusal(paths[0], "show by operator or beside others")
        rows: list[list[str | Size]] = [[name, text] for name, text in cache.key.items() if text]
        rows.append(["size of the model", Size(len(cache.content))])
        record = {"key": dict(cache.key), "model_bytes": len(cache.content)}
        return CacheReport([CacheTable(("made for", ""), rows)], record)

    def compare(self, first: str, second: str) -> CacheReport:
        keys = [read_cache(name).key for name in (first, second)]
        names = differing(*keys)
        rows = [[name, *(key.get(name, "") for key in keys)] for name in names]
        table = [CacheTable(("differs in", first, second), rows)] if rows else []
        same = len({**keys[0], **keys[1]}) - len(names)
        return CacheReport([*table, f"the same: {same}"], differs=bool(names))


CACHES = CompiledModels()


def use_cache(driver: CompiledDriver, place: str) -> None:
    """Have a driver load its compiled model from a cache file."""
    driver.open = lambda: open_cached(driver, place)


def open_cached(driver: CompiledDriver, place: str) -> Any:
    """Return the driver's model as the cache file has it; build the file if need be.

    Raises:
        UsageError: the file is missing and there is no --fast-run, is foreign or damaged, or
            cannot be written.
    """
    key, path = key_of(driver), Path(place)
    cache = read_cache(path) if path.exists() else None
    if cache is None and not FAST_RUN.is_given(driver.spec.settings):
        raise UsageError(
            "no such file", "make it with --fast-run, then run without", flag=FLAG, subject=path
        )
    if cache is not None and not (names := differing(cache.key, key)):
        try:
            return driver.core.import_model(cache.content, driver.device, driver.config)
        except RuntimeError as error:
            said = f"OpenVINO cannot load it: {last_line(str(error))}"
            raise UsageError(said, ANOTHER_FILE, subject=path) from error
    if cache is not None:
        what = ", ".join(names)
        driver.notes.append(
            f"{FLAG}: {path}: was made for a run that differs in {what}: it is built again"
        )
    with OutputFile(place, FLAG) as output:
        compiled = driver.compile(driver.model)
        content = compiled.export_model().getvalue()
        record = {"key": key, "crc32": zlib.crc32(content)}
        output.write(FORMAT + json.dumps(record).encode() + b"\n" + content)
    return compiled


def key_of(driver: CompiledDriver) -> dict[str, str]:
    """Return what a cache must be made for to serve this run."""
    config = [f"{name}={text}" for name, text in driver.config.items() if name not in REPORTING]
    model = Path(driver.spec.model)
    return {
        "model": driver.context.model_sha256,
        "weights": ", ".join(describe_file(model.parent / name) for name in files_beside(model)),
        "openvino": driver.openvino.get_version(),
        "device": driver.core.get_property(driver.device, "FULL_DEVICE_NAME"),
        "processor": read_processor(),
        "config": " ".join(sorted(config)),
    }


def describe_file(path: Path) -> str:
    """Return a file's name, size and time: a hash of gigabytes would take longer than the load."""
    try:
        status = path.stat()
    except OSError:
        return f"{path.name} missing"
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"
