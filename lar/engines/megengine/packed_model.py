"""lite's packed model files: a model, settings for it and a fast-run cache in one file.

    file        "packed_model", then a FlatBuffers buffer whose root is a PackModel
    PackModel   0 models: [Model], of which lite takes one
    Model       0 header: ModelHeader, 1 info: ModelInfo, 2 data: ModelData
    ModelHeader strings: 0 name, 1 info_decryption_method, 2 info_parse_method,
                3 model_decryption_method, 4 info_cache_parse_method; 5 is_fast_run_cache: bool
    ModelInfo   0 data, the settings as JSON: [ubyte], 1 algo_policy, the cache: [ubyte]
    ModelData   0 data, a model file: [ubyte]

The numbers are the fields' places in the tables. lite follows all offsets without a check, so
that a damaged file would crash it: here everything that it follows is checked.
Read from MegEngine 1.13: lite/src/parse_model/pack_model.fbs, model_parser.cpp beside it.

`--packed-model-dump` writes such a file. When a run loads one, lite reads its settings last: they
take the place of what the options have set. An option that would be lost that way is refused.
"""

from __future__ import annotations

import io
import json
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.formats import BROKEN
from lar.engines.megengine.cache import bytes_of, cache_of, read_cache
from lar.engines.megengine.lite_fields import LITE_FIELDS
from lar.engines.megengine.packed_settings import check_info, read_info_file
from lar.errors import LarError, UsageError, first_line
from lar.options import table
from lar.options.option import Option

if TYPE_CHECKING:
    from lar.engines.driver import Driver

PACKED_MAGIC = b"packed_model"
NOT_ENCRYPTED = "NONE"
# FlatBuffers' offsets have 31 bits; the rest leaves room for all but the model.
LARGEST_MODEL = 2**31 - 2**24


@dataclass(frozen=True)
class PackedModel:
    """The contents of a packed file; the model, a view into the file, begins at byte `start` of it.

    `info` and `cache` are None where there are none. An encrypted part is as it stands in the
    file.
    """

    name: str
    graph: memoryview
    start: int
    info: bytes | None
    cache: bytes | None
    info_encrypted: bool
    graph_encrypted: bool


class Table:
    """A table of a FlatBuffers buffer; whatever would lead out of it is a ValueError."""

    def __init__(self, data: memoryview, position: int) -> None:
        self.data, self.position = data, position
        self.fields = position - self.number("<i", position)
        self.fields_size = self.number("<H", self.fields)

    def number(self, kind: str, position: int) -> int:
        if not 0 <= position <= len(self.data) - struct.calcsize(kind):
            raise ValueError(f"it points to byte {position} of {len(self.data)}")
        return int(struct.unpack_from(kind, self.data, position)[0])

    def field(self, index: int) -> int | None:
        """Return the position of a field's value, None where it is left out."""
        entry = 4 + 2 * index
        if entry + 2 > self.fields_size:
            return None
        offset = self.number("<H", self.fields + entry)
        return self.position + offset if offset else None

    def pointed(self, index: int) -> int | None:
        """Return the position that a field points to."""
        position = self.field(index)
        return None if position is None else position + self.number("<I", position)

    def table(self, index: int) -> Table | None:
        position = self.pointed(index)
        return None if position is None else Table(self.data, position)

    def blob(self, index: int) -> tuple[int, memoryview] | None:
        """Return a vector of bytes and its position."""
        position = self.pointed(index)
        if position is None:
            return None
        start, size = position + 4, self.number("<I", position)
        if size > len(self.data) - start:
            raise ValueError(f"{size} bytes should follow byte {start} of {len(self.data)}")
        return start, self.data[start : start + size]

    def text(self, index: int) -> str:
        """Return a string, an empty one where it is left out."""
        found = self.blob(index)
        if found is None:
            return ""
        start, raw = found
        if self.number("<B", start + len(raw)) != 0:
            raise ValueError("a text does not end")
        return bytes(raw).decode()  # a UnicodeDecodeError is a ValueError


def is_packed(path: str | Path) -> bool:
    """Return whether a file's first bytes are those of a packed file."""
    with open(path, "rb") as file:
        return file.read(len(PACKED_MAGIC)) == PACKED_MAGIC


def open_packed(path: str | Path) -> PackedModel:
    """Map a packed file, which must not be empty, and read it.

    Raises:
        UsageError: it is damaged, or not what lite reads.
    """
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return unpack_model(data, str(path))


def unpack_model(data: memoryview | bytes, name: str = "the file") -> PackedModel:
    """Read a packed file's content.

    Raises:
        UsageError: it is damaged, or not what lite reads.
    """
    try:
        return read_buffer(memoryview(data)[len(PACKED_MAGIC) :])
    except ValueError as error:
        raise UsageError(f"a packed model that is damaged: {error}", BROKEN, subject=name) from None


def read_buffer(buffer: memoryview) -> PackedModel:
    if len(buffer) < 4:
        raise ValueError("it is cut short")
    root = Table(buffer, struct.unpack_from("<I", buffer)[0])
    models = root.pointed(0)
    if models is None or root.number("<I", models) != 1:
        raise ValueError("it holds no model, or several")
    model = Table(buffer, models + 4 + root.number("<I", models + 4))
    header, info, data = model.table(0), model.table(1), model.table(2)
    graph = data.blob(0) if data else None
    if header is None or graph is None or len(graph[1]) == 0:
        raise ValueError("it holds no model")
    if any(header.pointed(index) is None for index in range(4)):
        raise ValueError("its header is not whole")
    cache = info.blob(1) if info else None
    if cache and (header.text(4) != "LITE_parse_cache" or not is_set(header, 5)):
        raise ValueError("its cache is not one of fast-run")
    settings = info.blob(0) if info else None
    return PackedModel(
        name=header.text(0),
        graph=graph[1],
        start=len(PACKED_MAGIC) + graph[0],
        info=bytes(settings[1]) if settings else None,
        cache=bytes(cache[1]) if cache else None,
        info_encrypted=settings is not None and header.text(1) != NOT_ENCRYPTED,
        graph_encrypted=header.text(3) != NOT_ENCRYPTED,
    )


def is_set(table: Table, index: int) -> bool:
    position = table.field(index)
    return position is not None and table.number("<B", position) != 0


def plain_graph(packed: PackedModel, name: str) -> memoryview:
    """Return the model in a packed file.

    Raises:
        UsageError: it is encrypted.
    """
    if packed.graph_encrypted:
        raise UsageError(
            "the model in it is encrypted", "give the model it was made of", subject=name
        )
    return packed.graph


def write_packed(
    path: str | Path,
    graph: memoryview | bytes,
    name: str,
    info: bytes | None = None,
    cache: bytes | None = None,
) -> None:
    """Write a packed file: a model file, and settings and a cache where they are given.

    Raises:
        UsageError: the model is larger than the format holds.
        LarError: the library that writes the format does not load.
    """
    try:
        import flatbuffers
    except ImportError as error:
        raise LarError(f"flatbuffers cannot be imported: {first_line(error)}") from error
    if len(graph) > LARGEST_MODEL:
        raise UsageError(
            "the model is too large, a file holds 2 GiB at most", flag="--packed-model-dump"
        )
    builder: Any = flatbuffers.Builder(len(graph) + len(info or b"") + len(cache or b"") + 4096)

    def add_table(*fields: int | None) -> int:
        builder.StartObject(len(fields))
        for index, field in enumerate(fields):
            if field is not None:
                builder.PrependUOffsetTRelativeSlot(index, field, 0)
        return int(builder.EndObject())

    texts = (name, NOT_ENCRYPTED, "LITE_default", NOT_ENCRYPTED, "LITE_parse_cache")
    places = [builder.CreateString(text) for text in texts]
    builder.StartObject(6)
    for index, place in enumerate(places):
        builder.PrependUOffsetTRelativeSlot(index, place, 0)
    builder.PrependBoolSlot(5, cache is not None, False)
    header = builder.EndObject()
    blobs = [None if blob is None else builder.CreateByteVector(blob) for blob in (info, cache)]
    settings = add_table(*blobs) if any(blobs) else None
    data = add_table(builder.CreateByteVector(bytes(graph)))
    model = add_table(header, settings, data)
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(model)
    builder.Finish(add_table(builder.EndVector()))
    with open(path, "wb") as file:
        file.write(PACKED_MAGIC)
        file.write(memoryview(builder.Bytes)[builder.Head() :])


# The options of the threads, and those of the device.
THREADS: tuple[Option[int], ...] = (table.MULTITHREAD, table.MULTITHREAD_DEFAULT)
DEVICES: tuple[Option[Any], ...] = (table.CPU_DEFAULT, table.MULTITHREAD_DEFAULT, table.CUDA)


def open_model(path: str) -> io.BytesIO:
    """Return what MegEngine's load_graph takes for a model file, which may be a packed one.

    Of a path it would leave the file open.

    Raises:
        UsageError: the packed file is damaged or encrypted.
    """
    if not is_packed(path):
        return io.BytesIO(Path(path).read_bytes())
    return io.BytesIO(plain_graph(open_packed(path), path))


def dump_packed(driver: Driver, _: str) -> None:
    """Pack the spec's model file as it is; of a packed one, the parts that are not given anew.

    Raises:
        UsageError: an input file is not what lite reads, or the model is encrypted.
    """
    if driver.runner:
        return
    model, settings = Path(driver.model_file), driver.spec.settings
    graph: memoryview | bytes
    name, info, cache = Path(driver.spec.model).stem, None, None
    if is_packed(model):
        packed = open_packed(model)
        name, graph = packed.name, plain_graph(packed, driver.spec.model)
        info, cache = packed.info, packed.cache
        if packed.info_encrypted:
            raise UsageError(
                "its settings are encrypted", "pack the plain model", subject=driver.spec.model
            )
    else:
        graph = model.read_bytes()
    if table.PACK_INFO_JSON.is_given(settings):
        info = read_info_file(str(settings[table.PACK_INFO_JSON.key]))
    if info is not None:
        name = json.loads(info)["name"]  # lite wants the same name in both places
    if table.PACK_CACHE.is_given(settings):
        cache = read_cache_file(str(settings[table.PACK_CACHE.key]), cache)
    write_packed(driver.context.written[table.PACKED_MODEL_DUMP.key], graph, name, info, cache)


def read_cache_file(path: str, known: bytes | None = None) -> bytes:
    """Read a cache file, over what is known already.

    Raises:
        UsageError: it is not a whole cache file.
    """
    try:
        cache = read_cache(path)
    except UsageError as error:
        raise UsageError(
            error.problem, error.hint, flag="--pack-cache", subject=error.subject
        ) from None
    return bytes_of({**cache_of(known), **cache} if known else cache)


def check_packed_model(driver: Driver, lite_options: Mapping[str, int]) -> bool:
    """Read the packed model that is to be run, and refuse options that would be lost on it.

    Returns whether it has a fast-run cache in it.

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
    if packed.info is None or packed.info_encrypted:
        return packed.cache is not None
    try:
        info = check_info(packed.info)
    except ValueError as error:
        raise UsageError(f"its settings: {error}", "pack it again", subject=model) from None
    refuse_lost_options(model, settings, lite_options, info)
    return packed.cache is not None


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
