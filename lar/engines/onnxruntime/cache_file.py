"""The cache file of ONNX Runtime: an optimised model, with a record of what it was made for.

It is an ONNX file whose larger weights stand in a second file beside it, some of them rearranged
as the operators of this processor take them. The last field of the file is an entry of the
model's metadata whose value is JSON:

    format        "lar.onnxruntime.cache/1"
    key           what the model was made for, by name: all texts
    weights       the files with weights of the original model, beside it
    graph_crc32   of the bytes before the entry
    data          name of the second file, empty where there is none
    data_bytes, data_crc32   of the second file
    prepacked     whether weights are rearranged

CRC-32 finds damage, which is all that it is for: nothing is gained by forging a cache of one's
own. It is read three times as fast as a SHA-256, and the file may hold gigabytes.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.engines.formats import begins_like_onnx
from lar.engines.onnxruntime.model_fields import ENTRY_KEY, ENTRY_VALUE, external_data_in, mapped
from lar.engines.onnxruntime.wire import Field, bytes_field, fields_in, texts_in
from lar.errors import UsageError

# History of the format (`CacheRecord.format`):
#   lar.onnxruntime.cache/1  first version
CACHE_FORMAT = "lar.onnxruntime.cache/1"
METADATA = 14  # of a model: its field with entries of metadata
METADATA_KEY = "lar.cache"
DATA_NAME = re.compile(r"[^/\0]+\.[0-9a-f]{8}\.data")
ANOTHER_FILE = "choose another file, or remove this one"


@dataclass(frozen=True, kw_only=True)
class CacheRecord:
    """What a cache file says of itself, as the module describes it."""

    key: Mapping[str, str]
    weights: tuple[str, ...] = ()
    graph_crc32: int
    data: str = ""
    data_bytes: int = 0
    data_crc32: int = 0
    prepacked: bool = True
    format: str = CACHE_FORMAT


@dataclass(frozen=True)
class ModelCache:
    """What a cache file holds: the model, its record, and the folder where the second file is."""

    model: bytes
    record: CacheRecord
    folder: Path


def read_cache(path: str | Path) -> ModelCache:
    """Read a cache file; its second file is checked to be whole, not to be undamaged.

    Raises:
        UsageError: it cannot be read, or is not a whole cache file that lar made.
    """
    real = Path(os.path.realpath(path))
    if real.is_dir():
        raise UsageError(f"{path}: is a folder; give a file name")
    if real.exists() and not real.is_file():  # opening a pipe would wait for its writer
        raise UsageError(f"{path}: is not a regular file", "give a file name")
    foreign = UsageError(
        f"{path}: is not a cache that lar made for ONNX Runtime, or is damaged", ANOTHER_FILE
    )
    try:
        with mapped(real) as data:
            *_, last = fields_in(data)
            record = record_in(data, last)
            # Not before: a large model that is named by mistake is not read into memory.
            model = bytes(data[: last.begin])
        if zlib.crc32(model) != record.graph_crc32:
            raise foreign
        # A cache made by somebody else must not have other files of this machine read.
        if any(each.location != record.data for each in external_data_in(model)):
            raise foreign
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {reason_of(error)}") from None
    except (ValueError, TypeError, LookupError):
        raise foreign from None
    cache = ModelCache(model, record, real.parent)
    check_data(path, cache)
    return cache


def record_in(data: memoryview, field: Field) -> CacheRecord:
    """Return the record in the last field of a file.

    Raises:
        ValueError, TypeError, LookupError: it holds none.
    """
    entry = (field.value, field.end)
    if field.number != METADATA or texts_in(data, ENTRY_KEY, *entry) != [METADATA_KEY]:
        raise ValueError("another field")
    fields: dict[str, Any] = json.loads("".join(texts_in(data, ENTRY_VALUE, *entry)))
    record = CacheRecord(**fields | {"weights": tuple(fields["weights"])})
    if record.format != CACHE_FORMAT or (record.data and not DATA_NAME.fullmatch(record.data)):
        raise ValueError("another format")
    return record


def check_data(path: str | Path, cache: ModelCache) -> None:
    """Refuse a cache whose second file is not there or cut short.

    Raises:
        UsageError: naming the file.
    """
    record = cache.record
    if not record.data:
        return
    try:
        size = (cache.folder / record.data).stat().st_size
    except OSError as error:
        raise UsageError(
            f"{path}: its file {record.data} cannot be read: {reason_of(error)}", ANOTHER_FILE
        ) from None
    if size != record.data_bytes:
        raise UsageError(f"{path}: its file {record.data} is cut short or changed", ANOTHER_FILE)


def with_record(model: bytes, record: CacheRecord) -> bytes:
    """Return the bytes of a cache file."""
    value = json.dumps(asdict(record)).encode()
    entry = bytes_field(ENTRY_KEY, METADATA_KEY.encode()) + bytes_field(ENTRY_VALUE, value)
    return model + bytes_field(METADATA, entry)


def differing_fields(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the names of what two keys differ in, in their order."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


class ModelCaches(CacheFiles):
    """Optimised models, each with what it was made for."""

    def begins(self, head: bytes) -> bool:
        return begins_like_onnx(head)

    def show(self, path: str, operator: str, *, every_algorithm: bool) -> CacheReport:
        for flag, is_given in (("--operator", operator), ("--all", every_algorithm)):
            if is_given:
                self.check_editable(path, f"show by {flag}")
        cache = read_cache(path)
        record = cache.record
        rows: list[list[str | Size]] = [
            [name, value] for name, value in record.key.items() if value
        ]
        rows.append(["size of the model", Size(len(cache.model))])
        if record.data:
            kind = "as operators take them" if record.prepacked else "not rearranged for operators"
            rows.append(["size of its weights", Size(record.data_bytes, f", {kind}")])
            rows.append(["file of its weights", record.data])
        content = {
            "key": dict(record.key),
            "model_bytes": len(cache.model),
            "data": record.data,
            "data_bytes": record.data_bytes,
            "prepacked": record.prepacked,
        }
        return CacheReport([CacheTable(("made for", ""), rows)], content)

    def compare(self, first: str, second: str) -> CacheReport:
        keys = [read_cache(name).record.key for name in (first, second)]
        differing = differing_fields(*keys)
        lines: list[str | CacheTable] = []
        if differing:
            rows = [
                [name.replace("_", " "), *(key.get(name, "") for key in keys)] for name in differing
            ]
            lines.append(CacheTable(("differs in", first, second), rows))
        lines.append(f"the same: {len({**keys[0], **keys[1]}) - len(differing)}")
        return CacheReport(lines, differs=bool(differing))

    def check_editable(self, path: str, action: str) -> NoReturn:
        read_cache(path)  # a damaged one is refused for that
        raise UsageError(
            f"{path}: a cache of ONNX Runtime holds one model and no algorithms to {action}",
            "`lar cache show` and `diff` print what it was made for",
        )

    def merge(self, paths: Sequence[str], output: str) -> NoReturn:
        self.check_editable(paths[0], "merge")

    def pick(self, path: str, operator: str, algorithm: str, output: str | None) -> NoReturn:
        self.check_editable(path, "pick from")


CACHES = ModelCaches()
