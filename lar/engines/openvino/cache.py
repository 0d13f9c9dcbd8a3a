"""The cache file of OpenVINO: a line with JSON, followed by a compiled model.

The first line of a cache file is `lar.openvino.cache/1`, a space and JSON. In the JSON, `key` has
texts that say for which run the model was compiled. `crc32` is the checksum of the compiled model,
by which lar detects a damaged file.

A run loads the cache if the key of the cache fits this run. If the cache is missing or was made for
another run, the run builds it again.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines import caches
from lar.engines.caches import Contents, Size
from lar.engines.formats import is_onnx
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.files.report_file import OutputFile
from lar.measurement.machine import read_processor

if TYPE_CHECKING:
    from lar.engines.openvino.driver import CompiledDriver

# History of the format:
#   lar.openvino.cache/1  first version
FORMAT = b"lar.openvino.cache/1 "

# Properties that do not change a compiled model.
REPORTING = ("PERF_COUNT", "LOG_LEVEL")


def read_cache(path: str | Path) -> tuple[dict[str, str], bytes]:
    """Return the key and the compiled model in a cache file.

    Raises:
        UsageError: the file cannot be read, or is not a complete cache file that lar made.
    """
    line, _, content = read_input(path, what="cache").partition(b"\n")
    try:
        record = json.loads(line.removeprefix(FORMAT)) if line.startswith(FORMAT) else {}
        if record["crc32"] == zlib.crc32(content):
            return {str(name): str(text) for name, text in record["key"].items()}, content
    except (ValueError, LookupError, AttributeError):
        pass
    raise caches.damaged(path, "OpenVINO")


class CompiledModels(caches.ModelCacheFiles):
    """The cache files of OpenVINO, which hold compiled models."""

    def begins(self, head: bytes) -> bool:
        return head.startswith(FORMAT)

    def read(self, path: str) -> Contents:
        key, content = read_cache(path)
        size = len(content)
        return Contents(key, [("size of the model", Size(size))], {"model_bytes": size})


CACHES = CompiledModels()


def use_cache(driver: CompiledDriver, place: str) -> None:
    """Have a driver load its compiled model from a cache file."""
    driver.open = lambda: open_cached(driver, place)


def open_cached(driver: CompiledDriver, place: str) -> Any:
    """Return the compiled model in a cache file.

    If the file is missing, or was made for another run, the file is built first.

    Raises:
        UsageError: the file is missing and --fast-run is not given, or the file is damaged, is not
            a cache, or cannot be written.
    """
    key, path = key_of(driver), Path(place)
    made_for: caches.Key | None = None
    if path.exists():
        made_for, content = read_cache(path)
    if caches.serves(driver, path, made_for, key):
        try:
            return driver.core.import_model(content, driver.device, driver.config)
        except RuntimeError as error:
            from lar.engines.driver import last_line  # `lar cache` needs no driver

            said = f"OpenVINO cannot load it: {last_line(str(error))}"
            raise UsageError(said, caches.ANOTHER_FILE, subject=path) from error
    with OutputFile(place, caches.FLAG, is_text=False) as output:
        compiled = driver.compile(driver.model)
        content = compiled.export_model().getvalue()
        record = {"key": key, "crc32": zlib.crc32(content)}
        output.write(FORMAT + json.dumps(record).encode() + b"\n" + content)
    return compiled


def key_of(driver: CompiledDriver) -> dict[str, str]:
    """Return the key that a cache file for this run has."""
    from lar.engines.onnx_file import fields
    from lar.engines.openvino import model_file

    model = Path(driver.spec.model)
    files = (fields if is_onnx(model) else model_file).files_beside(model)
    config = [f"{name}={text}" for name, text in driver.config.items() if name not in REPORTING]
    return {
        "model": driver.context.model_sha256,
        "weights": ", ".join(caches.describe_file(model.parent / name) for name in files),
        "openvino": driver.openvino.get_version(),
        "device": driver.core.get_property(driver.device, "FULL_DEVICE_NAME"),
        "processor": read_processor(),
        "config": " ".join(sorted(config)),
    }
