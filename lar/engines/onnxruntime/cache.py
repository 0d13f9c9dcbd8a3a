"""Runs with a cache file: loaded where it fits, built where it is missing or made for another run.

`cache_file` describes the file. What is built stands in a folder beside the cache until it is
whole, and has been loaded once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from lar.engines.onnxruntime.cache_file import (
    ANOTHER_FILE,
    CacheRecord,
    ModelCache,
    differing_fields,
    read_cache,
    with_record,
)
from lar.engines.onnxruntime.messages import one_line
from lar.engines.onnxruntime.model_fields import is_ort_format, mapped, weights_files
from lar.engines.onnxruntime.saving import SavedModel, open_saved, save_optimized
from lar.errors import LarError, UsageError, error_of_write
from lar.measurement.machine import CPUINFO, read_field, read_processor
from lar.records.run import RunContext, RunSpec

FLAG = "--fast-run-algo-policy"

# What the engine chooses its code by, as Linux names it; weights are arranged for that code.
INSTRUCTION_SETS = (
    *("sse4_1", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512dq"),
    *("avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "svei8mm"),
)


def open_cached(driver: Any, path: Path) -> Any:
    """Return a session of the driver's model as the cache file has it; build the file if need be.

    Raises:
        UsageError: the file is missing and there is no --fast-run, is foreign or damaged, or
            cannot be written.
    """
    real = Path(os.path.realpath(path))  # so that a link to a cache stays one
    with locked(real.parent, fcntl.LOCK_SH):  # its second file stays until it is loaded
        cache = read_if_there(path)
        if cache is None and "fast_run" not in driver.spec.settings:
            raise UsageError(
                f"{FLAG}: {path}: no such file", "make it with --fast-run, then run without"
            )
        key = key_of(driver, cache)
        if cache is not None and cache.record.key == key:
            driver.unverified = open_data(cache)
            try:
                return open_for_good(driver, SavedModel(cache.model, cache.folder))
            except Exception as error:  # the engine has no one kind for these
                raise UsageError(
                    f"{path}: ONNX Runtime cannot load it: {one_line(str(error))}", ANOTHER_FILE
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
    """Read a cache file, None where there is none.

    Raises:
        UsageError: it is foreign or damaged.
    """
    return read_cache(path) if path.exists() else None


def open_for_good(driver: Any, model: SavedModel) -> Any:
    """Open the session that the driver runs."""
    session = open_saved(driver, model)
    driver.saved = model
    return session


# What a cache is made for


def key_of(driver: Any, cache: ModelCache | None) -> dict[str, str]:
    """Return what a cache must be made for to serve this run."""
    spec, settings = driver.spec, driver.spec.settings
    model, flags = Path(spec.model), set(instruction_flags())
    if cache is not None and cache.record.key.get("model") == driver.context.model_sha256:
        weights: Sequence[str] = cache.record.weights
    else:
        weights = weights_files_of(model)
    operators = settings.get("c_opr_lib")
    return {
        "model": driver.context.model_sha256,
        "weights": ", ".join(describe_file(model.parent / name) for name in weights),
        "onnxruntime": driver.onnxruntime.__version__,
        "provider": driver.asked_provider(),
        "optimization": str(settings.get("graph_optimization_level", "all")),
        "disabled_optimizers": " ".join(driver.disabled_optimizers),
        "operators": hashlib.sha256(Path(operators).read_bytes()).hexdigest() if operators else "",
        "processor": read_processor(),
        "instruction_sets": " ".join(name for name in INSTRUCTION_SETS if name in flags),
        "threads": str(driver.options.intra_op_num_threads or len(os.sched_getaffinity(0))),
    }


def instruction_flags() -> list[str]:
    """Return this processor's flags, by their names on x86 or on ARM."""
    flags = read_field(CPUINFO, "flags") or read_field(CPUINFO, "Features")
    return flags.split()


def weights_files_of(model: Path) -> tuple[str, ...]:
    """Return the files beside a model that hold weights of it; ORT's own format has none."""
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


def build(driver: Any, path: Path, key: dict[str, str]) -> Any:
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
        record = CacheRecord(
            key=key,
            weights=weights_files_of(Path(driver.spec.model)),
            graph_crc32=zlib.crc32(driver.saved.content),
            prepacked=prepacked,
        )
        if (folder / data).exists():  # a model without large constants has none
            with (folder / data).open("rb") as file:
                checksum = checksum_of(file)
                record = replace(record, data=data, data_bytes=file.tell(), data_crc32=checksum)
        publish(folder, path, with_record(driver.saved.content, record), record)
        driver.saved = driver.saved._replace(folder=path.parent)
        return session
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def save_and_open(driver: Any, folder: Path, data: str, *, prepacked: bool) -> Any:
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
    if place := spec.settings.get("fast_run_algo_policy"):
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


def verify_data(driver: Any) -> None:
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
        place = driver.spec.settings["fast_run_algo_policy"]
        raise UsageError(f"{place}: its file {record.data} is damaged", ANOTHER_FILE)
