"""The cache file of ONNX Runtime: an optimised model, with a record of what it was made for.

It is an ONNX file whose larger weights stand in a second file beside it, some of them rearranged
as the operators of this processor take them. The last field of the file is an entry of the
model's metadata whose value is JSON:

    format        "lar.onnxruntime.cache/1"
    key           what the model was made for, by name: all texts
    weights       the files with weights of the original model, beside it
    graph_crc32   of the bytes before the entry
    data          name of the second file, empty without one
    data_bytes, data_crc32   of the second file
    prepacked     whether weights are rearranged

CRC-32 finds damage, which is all that it is for: nothing is gained by forging a cache of one's
own. It is read three times as fast as a SHA-256, and the file may hold gigabytes.

A run loads the cache where it fits, and builds it where it is missing or was made for another run.
The build stands in a folder beside the cache until it is whole and has been loaded once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lar.engines.engine import CacheFiles, CacheReport, CacheTable, Size
from lar.engines.formats import begins_like_onnx
from lar.engines.onnx_file.fields import (
    ENTRY_KEY,
    ENTRY_VALUE,
    Field,
    SavedModel,
    bytes_field,
    external_data_in,
    fields_in,
    is_ort_format,
    mapped,
    texts_in,
    weights_files,
)
from lar.engines.onnxruntime.messages import one_line
from lar.engines.onnxruntime.saving import open_saved, save_optimized
from lar.errors import LarError, UsageError, error_of_write
from lar.files.report_file import OutputFile
from lar.measurement.machine import CPUINFO, read_field, read_processor
from lar.options.table import C_OPR_LIB, ENGINE_OPTION, FAST_RUN, FAST_RUN_ALGO_POLICY
from lar.records.run import RunContext, RunSpec

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

# History of the format (`CacheRecord.format`):
#   lar.onnxruntime.cache/1  first version
CACHE_FORMAT = "lar.onnxruntime.cache/1"
METADATA = 14  # of a model: its field with entries of metadata
METADATA_KEY = "lar.cache"
DATA_NAME = re.compile(r"[^/\0]+\.[0-9a-f]{8}\.data")
ANOTHER_FILE = "choose another file, or remove this one"


@dataclass(frozen=True, kw_only=True)
class CacheRecord:
    """The record in a cache file, as the module's docstring describes it."""

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
    """The contents of a cache file: the model, its record, and the folder of the second file."""

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
        raise UsageError("is a folder; give a file name", subject=path)
    if real.exists() and not real.is_file():  # opening a pipe would wait for its writer
        raise UsageError("is not a regular file", "give a file name", subject=path)
    foreign = UsageError(
        "is not a cache that lar made for ONNX Runtime, or is damaged", ANOTHER_FILE, subject=path
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
        raise UsageError(f"cannot be read: {reason_of(error)}", subject=path) from None
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
            f"its file {record.data} cannot be read: {reason_of(error)}", ANOTHER_FILE, subject=path
        ) from None
    if size != record.data_bytes:
        raise UsageError(
            f"its file {record.data} is cut short or changed", ANOTHER_FILE, subject=path
        )


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

    holds = "one model and no algorithms"

    def begins(self, head: bytes) -> bool:
        return begins_like_onnx(head)

    def show(self, paths: Sequence[str], operator: str, *, every_algorithm: bool) -> CacheReport:
        path, *others = paths
        if others or operator or every_algorithm:
            flag = "beside others" if others else "by --operator" if operator else "by --all"
            raise self.refusal(path, f"show {flag}")
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

    def companions(self, path: str) -> tuple[str, ...]:
        data = read_cache(path).record.data
        return (data,) if data else ()

    def copy(self, path: str, place: str, flag: str) -> None:
        real = Path(os.path.realpath(place))
        with locked(Path(os.path.realpath(path)).parent, fcntl.LOCK_SH):
            new = read_cache(path)
            old = read_cache(real) if real.exists() else None
            # The second file first: whoever reads the first one must find it.
            if new.record.data:
                with OutputFile(str(real.with_name(new.record.data)), flag) as output:
                    output.write((new.folder / new.record.data).read_bytes())
            super().copy(path, place, flag)
        if old is not None and old.record.data not in ("", new.record.data):
            real.with_name(old.record.data).unlink(missing_ok=True)


CACHES = ModelCaches()


FLAG = "--fast-run-algo-policy"

# What the engine chooses its code by, as Linux names it; weights are arranged for that code.
INSTRUCTION_SETS = (
    *("sse4_1", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512dq"),
    *("avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "svei8mm"),
)


def open_cached(driver: SessionDriver, path: Path) -> Any:
    """Return a session of the driver's model as the cache file has it; build the file if need be.

    Raises:
        UsageError: the file is missing and there is no --fast-run, is foreign or damaged, or
            cannot be written.
    """
    real = Path(os.path.realpath(path))  # so that a link to a cache stays one
    with locked(real.parent, fcntl.LOCK_SH):  # its second file stays until it is loaded
        cache = read_if_there(path)
        if cache is None and not FAST_RUN.is_given(driver.spec.settings):
            raise UsageError(
                "no such file", "make it with --fast-run, then run without", flag=FLAG, subject=path
            )
        key = key_of(driver, cache)
        if cache is not None and cache.record.key == key:
            driver.unverified = open_data(cache)
            try:
                return open_for_good(driver, SavedModel(cache.model, cache.folder))
            except Exception as error:  # the engine has no one kind for these
                raise UsageError(
                    f"ONNX Runtime cannot load it: {one_line(str(error))}",
                    ANOTHER_FILE,
                    subject=path,
                ) from error
    refuse_unwritable(path)
    if cache is not None:
        fields = ", ".join(differing_fields(cache.record.key, key)).replace("_", " ")
        driver.notes.append(
            f"{FLAG}: {path}: was made for a run that differs in {fields}: it is built again"
        )
    try:
        return build(driver, real, key)
    except OSError as error:
        raise cannot_write(path, error) from None


def read_if_there(path: Path) -> ModelCache | None:
    """Read a cache file; return None if it does not exist.

    Raises:
        UsageError: it is foreign or damaged.
    """
    return read_cache(path) if path.exists() else None


def open_for_good(driver: SessionDriver, model: SavedModel) -> Any:
    """Open the session that the driver runs."""
    session = open_saved(driver, model)
    driver.saved = model
    return session


# What a cache is made for


def key_of(driver: SessionDriver, cache: ModelCache | None) -> dict[str, str]:
    """Return what a cache must be made for to serve this run."""
    spec, settings = driver.spec, driver.spec.settings
    model, flags = Path(spec.model), set(instruction_flags())
    if cache is not None and cache.record.key.get("model") == driver.context.model_sha256:
        weights: Sequence[str] = cache.record.weights
    else:
        weights = weights_files_of(model)
    operators = C_OPR_LIB.of(settings)
    entries = settings.get(ENGINE_OPTION.key, "")
    return {
        "model": driver.context.model_sha256,
        "weights": ", ".join(describe_file(model.parent / name) for name in weights),
        "onnxruntime": driver.onnxruntime.__version__,
        "provider": driver.asked_provider(),
        "optimization": str(settings.get("graph_optimization_level", "all")),
        "disabled_optimizers": " ".join(driver.disabled_optimizers),
        "operators": hash_file(Path(str(operators))) if operators else "",
        "processor": read_processor(),
        "instruction_sets": " ".join(name for name in INSTRUCTION_SETS if name in flags),
        **({"engine_option": str(entries).replace("\n", " ")} if entries else {}),
        "threads": str(driver.options.intra_op_num_threads or len(os.sched_getaffinity(0))),
    }


def hash_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def instruction_flags() -> list[str]:
    """Return this processor's flags, by their names on x86 or on ARM."""
    flags = read_field(CPUINFO, "flags") or read_field(CPUINFO, "Features")
    return flags.split()


def weights_files_of(model: Path) -> tuple[str, ...]:
    """Return the files beside a model that hold its weights; ORT's own format has no such files."""
    try:
        with mapped(model) as data:
            return () if is_ort_format(data) else weights_files(data)
    except (OSError, ValueError):  # the engine will say what is wrong with it
        return ()


def describe_file(path: Path) -> str:
    """Return a file's name, size and time: a hash of gigabytes would take longer than the load."""
    try:
        status = path.stat()
    except OSError:
        return f"{path.name} missing"
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


# Building


def build(driver: SessionDriver, path: Path, key: dict[str, str]) -> Any:
    """Make a cache, open a session of it, and put it into its place.

    Raises:
        OSError: it cannot be written.
    """
    folder = build_folder(driver.context, path)
    folder.mkdir()
    try:
        data = f"{path.name}.{secrets.token_hex(4)}.data"
        session = save_and_open(driver, folder, data, prepacked=True)
        prepacked = session is not None
        if session is None:
            session = save_and_open(driver, folder, data, prepacked=False)
        saved = driver.saved
        assert saved is not None
        record = CacheRecord(
            key=key,
            weights=weights_files_of(Path(driver.spec.model)),
            graph_crc32=zlib.crc32(saved.content),
            prepacked=prepacked,
        )
        if (folder / data).exists():  # a model without large constants has no such file
            with (folder / data).open("rb") as file:
                checksum = checksum_of(file)
                record = replace(record, data=data, data_bytes=file.tell(), data_crc32=checksum)
        publish(folder, path, with_record(saved.content, record), record)
        driver.saved = saved._replace(folder=path.parent)
        return session
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def save_and_open(driver: SessionDriver, folder: Path, data: str, *, prepacked: bool) -> Any:
    """Save the driver's model and open a session of it, None where it cannot be prepacked.

    Some operators cannot take their rearranged weights from a file (QLinearConv in 1.23).
    """
    save_optimized(driver, folder / "model.onnx", data, prepacked=prepacked)
    model = SavedModel((folder / "model.onnx").read_bytes(), folder)
    try:
        return open_for_good(driver, model)
    except Exception:
        if not prepacked:
            raise
        (folder / data).unlink(missing_ok=True)
        return None


def publish(folder: Path, path: Path, content: bytes, record: CacheRecord) -> None:
    """Move a new cache from its folder into its place, and remove what it replaces.

    Raises:
        UsageError: another file has taken the place meanwhile.
        OSError: it cannot be written.
    """
    new = folder / "cache.onnx"
    new.write_bytes(content)
    with locked(path.parent, fcntl.LOCK_EX):
        old = read_if_there(path)
        if old is not None:
            new.chmod(stat.S_IMODE(path.stat().st_mode))
        # The second file first: whoever reads the first one must find it.
        if record.data:
            os.replace(folder / record.data, path.with_name(record.data))
        os.replace(new, path)
        if old is not None and old.record.data:
            path.with_name(old.record.data).unlink(missing_ok=True)


def build_folder(context: RunContext, path: Path) -> Path:
    """Return where a cache is built: named after the run's work folder, so that the parent knows
    it too."""
    return path.parent / f".{Path(context.work_folder).name}-cache"


def remove_build(spec: RunSpec, context: RunContext) -> None:
    """Remove what a worker that was killed has left of a cache: for the parent."""
    if place := FAST_RUN_ALGO_POLICY.of(spec.settings):
        path = Path(os.path.realpath(str(place)))
        shutil.rmtree(build_folder(context, path), ignore_errors=True)


def refuse_unwritable(path: Path) -> None:
    """Refuse a place that cannot be written before the work is done.

    Raises:
        UsageError: naming the file.
    """
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise cannot_write(path, FileNotFoundError(2, "no such folder"))
    if not os.access(real.parent, os.W_OK) or (real.exists() and not os.access(real, os.W_OK)):
        raise cannot_write(path, PermissionError(13, "permission denied"))


def cannot_write(path: Path, error: OSError) -> LarError:
    return error_of_write(error, flag=FLAG, subject=path, hint="choose another file")


@contextlib.contextmanager
def locked(folder: Path, kind: int) -> Iterator[None]:
    """Hold a lock on a folder: shared to load a cache in it, exclusive to replace one.

    Where the file system has no such locks, a load that another process disturbs fails.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # of no folder: whoever opens the file in it says so
            descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, kind)
        yield


# The second file


def open_data(cache: ModelCache) -> tuple[int, CacheRecord] | None:
    """Return what `verify_data` needs later: the second file, which another run may replace."""
    record = cache.record
    if not record.data:
        return None
    return os.open(cache.folder / record.data, os.O_RDONLY | os.O_CLOEXEC), record


def checksum_of(file: BinaryIO) -> int:
    """Return the CRC-32 of a file; read, not mapped, as the memory of a run would seem larger."""
    checksum = 0
    while chunk := file.read(1 << 20):
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def verify_data(driver: SessionDriver) -> None:
    """Refuse a cache whose second file is damaged: outside what is timed, before anything runs.

    Raises:
        UsageError: naming the file.
    """
    if driver.unverified is None:
        return
    descriptor, record = driver.unverified
    with open(descriptor, "rb") as file:
        checksum = checksum_of(file)
    driver.unverified = None
    if checksum != record.data_crc32:
        place = driver.spec.settings[FAST_RUN_ALGO_POLICY.key]
        raise UsageError(f"its file {record.data} is damaged", ANOTHER_FILE, subject=place)
