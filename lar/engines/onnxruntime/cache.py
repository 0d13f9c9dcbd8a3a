"""The cache file of ONNX Runtime, which holds an optimised model and a key (facts about a run).

The cache file is JSON (`ModelCache`) and holds the graph of the model. The larger weights are in a
second file beside the cache file. Some weights are stored in a rearranged form, as this processor's
kernels need them. The cache file contains the name of the second file, so a run that replaces the
cache file replaces both files.

A CRC-32 detects damage, but not forgery. Protection against forgery is not needed, as nobody gains
by forging their own cache. A CRC-32 is computed three times as fast as a SHA-256, which matters if
the second file has gigabytes.

A run loads the cache if the key of the cache fits this run. If the cache is missing or was made for
another run, the run builds it again. A new cache is first written to a folder beside the old cache.
After the new cache has been loaded once, the new cache replaces the old cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lar.engines import caches
from lar.engines.caches import Size
from lar.engines.onnx_file.fields import (
    Message,
    SavedModel,
    files_beside,
    place_of,
    tensors_outside,
)
from lar.engines.onnxruntime.providers import one_line
from lar.engines.onnxruntime.saving import open_saved, save_optimized
from lar.errors import UsageError, writing
from lar.files.input_file import open_input, read_input
from lar.files.locks import locked
from lar.files.report_file import OutputFile
from lar.files.work_folders import remove_leftovers, work_folder
from lar.measurement.machine import read_instruction_sets, read_processor
from lar.options.table import C_OPR_LIB, ENGINE_OPTION, FAST_RUN_ALGO_POLICY
from lar.records.run import RunContext, RunSpec

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

# History of the format (`ModelCache.format`):
#   lar.onnxruntime.cache/2  JSON; version 1 was an ONNX file with the record in its metadata
CACHE_FORMAT = "lar.onnxruntime.cache/2"
BEGIN = b'{"format":"lar.o'  # lar recognises a cache file by its first 16 bytes
DATA_NAME = re.compile(r"[^/\0]+\.[0-9a-f]{8}\.data")

# The instruction sets by which the engine chooses its code, as Linux names them. Rearranged weights
# fit only that code.
INSTRUCTION_SETS = (
    *("sse4_1", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512dq"),
    *("avx512vl", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "svei8mm"),
)


@dataclass(frozen=True, kw_only=True)
class ModelCache:
    """The content of a cache file.

    Attributes:
        key: facts about the run for which the model was made, by name.
        model: the graph with the smaller weights. `model_crc32` is the checksum of `model`.
        data: the name of the second file, empty if there is no second file. `data_bytes` and
            `data_crc32` are the size and the checksum of the second file.
        prepacked: whether some weights are stored in a form that is rearranged for kernels.
        weights: the names of the weight files beside the original model.
    """

    format: str
    key: dict[str, str]
    model: bytes
    model_crc32: int
    data: str
    data_bytes: int
    data_crc32: int
    prepacked: bool
    weights: tuple[str, ...]


def read_cache(path: str | Path) -> ModelCache:
    """Read a cache file, and check the size of the second file without reading it.

    Raises:
        UsageError: a file cannot be read, or is not a complete cache file that lar made.
    """
    import msgspec  # slow to import, and the caches of other engines do not need it

    try:
        cache = msgspec.json.decode(read_input(path, what="cache"), type=ModelCache)
        outside = map(place_of, tensors_outside(Message("Model", cache.model)))
        is_whole = (
            cache.format == CACHE_FORMAT
            and (not cache.data or DATA_NAME.fullmatch(cache.data))
            and zlib.crc32(cache.model) == cache.model_crc32
            # A cache from somebody else must not make lar read other files of this machine.
            and {each.location for each in outside} <= {cache.data}
        )
    except (msgspec.MsgspecError, ValueError):
        is_whole = False
    if not is_whole:
        raise caches.damaged(path, "ONNX Runtime")
    if cache.data:
        open_data(path, cache).close()
    return cache


def open_data(path: str | Path, cache: ModelCache) -> BinaryIO:
    """Open the second file of a cache, which must be a regular file beside the first.

    Raises:
        UsageError: the file cannot be read, is a link, or has another size.
    """
    place = folder_of(path) / cache.data
    try:
        file = open_input(place)
    except UsageError as error:
        raise refusal(path, f"its file {cache.data}: {error.problem}") from None
    if place.is_symlink() or os.fstat(file.fileno()).st_size != cache.data_bytes:
        file.close()
        raise refusal(path, f"its file {cache.data} is cut short, changed or a link")
    return file


def refusal(path: str | Path, problem: str) -> UsageError:
    return UsageError(problem, caches.ANOTHER_FILE, subject=path)


def folder_of(path: str | Path) -> Path:
    """Return the folder of a cache file, after resolving symbolic links in the file's path."""
    return Path(os.path.realpath(path)).parent


class ModelCaches(caches.ModelCacheFiles):
    """The cache files of ONNX Runtime, which hold optimised models."""

    def begins(self, head: bytes) -> bool:
        return head.startswith(BEGIN)

    def read(self, path: str) -> caches.Contents:
        cache = read_cache(path)
        facts: list[tuple[str, str | Size]] = [("size of the model", Size(len(cache.model)))]
        if cache.data:
            kind = "as operators take them" if cache.prepacked else "not rearranged for operators"
            facts.append(("size of its weights", Size(cache.data_bytes, f", {kind}")))
            facts.append(("file of its weights", cache.data))
        record = {it: getattr(cache, it) for it in ("data", "data_bytes", "prepacked")}
        return caches.Contents(cache.key, facts, {"model_bytes": len(cache.model), **record})

    def copy(self, path: str, place: str, flag: str) -> None:
        with loading(path):
            new, old = read_cache(path), read_if_there(place)
            # The second file is written first, so that it exists when the first file names it.
            if new.data:
                second = OutputFile(str(folder_of(place) / new.data), flag, is_text=False)
                with second as output, open_data(path, new) as file:
                    output.write(file.read(new.data_bytes))
            super().copy(path, place, flag)
        remove_data(old, place, new)


CACHES = ModelCaches()


def read_if_there(path: str | Path) -> ModelCache | None:
    """Read a cache file; return None if it does not exist.

    Raises:
        UsageError: the file is damaged, or is not a cache.
    """
    return read_cache(path) if os.path.exists(path) else None


def loading(path: str | Path) -> contextlib.AbstractContextManager[bool]:
    """While the `with` block runs, keep other runs from removing the second file of a cache.

    If the folder cannot be locked, the load may fail when another run replaces the cache.
    """
    return locked(str(folder_of(path)), shared=True, needed=False)


def remove_data(old: ModelCache | None, path: str | Path, new: ModelCache) -> None:
    """Remove the second file of an old cache, which a new cache has just replaced."""
    if old is not None and old.data not in ("", new.data):
        (folder_of(path) / old.data).unlink(missing_ok=True)


def use_cache(driver: SessionDriver, file: str) -> None:
    """Have a driver load its optimised model from a cache file."""
    driver.open = lambda: open_cached(driver, Path(file))


def open_cached(driver: SessionDriver, path: Path) -> Any:
    """Return a session of the model in a cache file.

    If the file is missing, or was made for another run, the file is built first.

    Raises:
        UsageError: the file is missing and --fast-run is not given, or the file is damaged, is not
            a cache, or cannot be written.
    """
    with loading(path):  # its second file stays until it is loaded
        cache = read_if_there(path)
        key = key_of(driver, cache)
        if caches.serves(driver, path, (cache.key if cache else None), key) and cache:
            if cache.data:  # opened now, as another run may replace it before it is verified
                driver.unverified = open_data(path, cache), cache
            model = SavedModel(cache.model, folder_of(path))
            try:
                session = open_saved(driver, model)
            except Exception as error:  # the engine has no one kind for these
                problem = f"ONNX Runtime cannot load it: {one_line(str(error))}"
                raise refusal(path, problem) from error
            driver.saved = model
            return session
    place = Path(os.path.realpath(path))
    with writing(path, caches.FLAG, "choose another file"):
        if not place.parent.is_dir():
            raise FileNotFoundError(2, "no such folder")
        # Open the output before the long work, to refuse a file that cannot be written.
        with OutputFile(str(place), caches.FLAG, is_text=False) as output:
            return build(driver, output, key)


def key_of(driver: SessionDriver, cache: ModelCache | None) -> dict[str, str]:
    """Return the key that a cache file for this run has."""
    settings, features = driver.spec.settings, read_instruction_sets().split()
    model, operators = Path(driver.spec.model), C_OPR_LIB.of(settings)
    is_same = cache is not None and cache.key.get("model") == driver.context.model_sha256
    weights = cache.weights if cache is not None and is_same else weights_of(model)
    return {
        "model": driver.context.model_sha256,
        "weights": ", ".join(caches.describe_file(model.parent / name) for name in weights),
        "onnxruntime": driver.onnxruntime.__version__,
        "provider": driver.asked_provider(),
        "optimization": str(settings.get("graph_optimization_level", "all")),
        "disabled_optimizers": " ".join(driver.disabled_optimizers),
        "operators": hashlib.sha256(Path(operators).read_bytes()).hexdigest() if operators else "",
        "engine_option": (ENGINE_OPTION.of(settings) or "").replace("\n", " "),
        "processor": read_processor(),
        "instruction_sets": " ".join(name for name in INSTRUCTION_SETS if name in features),
        "threads": str(driver.options.intra_op_num_threads or len(os.sched_getaffinity(0))),
    }


def weights_of(model: Path) -> tuple[str, ...]:
    """Return the names of the files beside a model file that hold the model's weights."""
    try:
        return files_beside(model)
    except (OSError, ValueError):  # the engine reports the error when it loads the model
        return ()


# Building


def build(driver: SessionDriver, output: OutputFile, key: dict[str, str]) -> Any:
    """Make a cache file, open a session of the file's model, and move the file to its final path.

    Raises:
        UsageError: in the meantime, a file that is not a cache has been created at this path.
        OSError: the cache cannot be written.
    """
    import msgspec

    path = output.path
    data = f"{path.name}.{secrets.token_hex(4)}.data"
    with work_folder(str(path.parent)) as name:
        folder = Path(name)
        prepacked, content, session = save_and_open(driver, folder, data)
        size = checksum = 0
        # A model without large constants has no such file.
        with contextlib.suppress(FileNotFoundError), (folder / data).open("rb") as file:
            checksum, size = checksum_of(file), file.tell()
        cache = ModelCache(
            format=CACHE_FORMAT,
            key=key,
            model=content,
            model_crc32=zlib.crc32(content),
            data=data if size else "",
            data_bytes=size,
            data_crc32=checksum,
            prepacked=prepacked,
            weights=weights_of(Path(driver.spec.model)),
        )
        with locked(str(path.parent), needed=False) as is_alone:
            old = read_if_there(path)
            # The second file is moved first, so that it exists when the first file names it.
            if cache.data:
                os.replace(folder / data, path.with_name(data))
            output.write(msgspec.json.encode(cache))
            if is_alone:  # otherwise another run may still load the old file
                remove_data(old, path, cache)
    driver.saved = SavedModel(content, path.parent)
    return session


def save_and_open(driver: SessionDriver, folder: Path, data: str) -> tuple[bool, bytes, Any]:
    """Save the driver's model and open a session of the saved model.

    Some operators (QLinearConv in ONNX Runtime 1.23) cannot load rearranged weights from a file. If
    the saved model cannot be loaded with rearranged weights, the model is saved again without
    rearranged weights.

    Returns:
        Three values: whether the saved model has rearranged weights, the content of the model file,
        and the session.
    """
    for prepacked in (True, False):
        save_optimized(driver, folder / "model.onnx", data, prepacked=prepacked)
        content = (folder / "model.onnx").read_bytes()
        with contextlib.suppress(*([Exception] if prepacked else ())):
            return prepacked, content, open_saved(driver, SavedModel(content, folder))
        (folder / data).unlink(missing_ok=True)
    raise AssertionError


def remove_build(spec: RunSpec, _: RunContext) -> None:
    """Remove the unfinished cache of a killed worker; the parent process calls this function."""
    if place := FAST_RUN_ALGO_POLICY.of(spec.settings):
        remove_leftovers(str(folder_of(str(place))))


def checksum_of(file: BinaryIO) -> int:
    """Return the CRC-32 of a file.

    The file is read and not mapped, since a mapped file would count as memory of the run.
    """
    checksum = 0
    while chunk := file.read(1 << 20):
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def verify_data(driver: SessionDriver, _: object) -> None:
    """Check the second file of a cache before the model runs, and raise an error if it is damaged.

    Raises:
        UsageError: the second file is damaged; the error names the file.
    """
    if driver.unverified is not None:
        (file, cache), driver.unverified = driver.unverified, None
        with file:
            if checksum_of(file) != cache.data_crc32:
                place = str(driver.spec.settings[FAST_RUN_ALGO_POLICY.key])
                raise refusal(place, f"its file {cache.data} is damaged")
