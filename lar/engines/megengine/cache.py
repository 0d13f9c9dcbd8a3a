"""MegEngine's fast-run cache files: what they hold, read without guessing, written byte for byte.

A search leaves one entry for each operator: the algorithms that are worth keeping, each with its
time and workspace. A run with the file takes the first one that its policy and workspace limit
allow, so that one is the choice. All drivers of MegEngine and load_and_run share the format;
numbers are 32 bits, little endian, and `blob` is a length and that many bytes:

    file        number of categories; for each its name (blob), number of entries, the entries
    entry       key (blob), value (blob)
    value       of a search: number of algorithms; for each its description (blob), result (blob)
    description handle, type, length of parameters, length of name, parameters, name
    result      ":ATTRIBUTE;SECONDS;WORKSPACE_BYTES:" and a zero

Values of other categories, and of other versions of the search, are kept as they are.
Read from MegEngine 1.13: src/core/impl/utils/infile_persistent_cache.cpp (file),
persistent_cache.cpp beside it (value), src/rdnn/impl/algo_chooser.cpp (description).

The name of a category of a search, and the key of an entry in it:

    profile:DEVICE:OPERATORvVERSIONSET    profile:plat=cpu:ConvBiasForwardv5X0
    SHAPE[;STRIDES];DTYPE|...PARAMETERS   1,8,32,32;Float32|16,8,3,3;Float32|... raw struct

SET names the family of algorithms (X0: x86). The parameters are the operator's C struct, its
fields in the order of its definition; a size of 0 in a shape stands for any batch. Neither the
threads, the workspace limit nor the preprocessing of weights is part of a key, and of the machine
only `plat=cpu` (for CUDA the device's name, too). Read from MegEngine 1.13: persistent_cache.cpp
(key), dnn/scripts/opr_param_defs.py (parameters), dnn/src/common/conv_bias.cpp (names of winograd
algorithms).

Several processes may write a file at once: each takes its lock, and a file takes its place whole.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lar.errors import UsageError, error_of_write
from lar.files.input_file import read_input

CATEGORY = re.compile(r"profile:(.*):(\w+?)v(\d+)(.*)")
OPERAND = re.compile(rb"(\d+(?:,\d+)*)?(?:;(-?\d+(?:,-?\d+)*))?;([A-Za-z]\w*)\|")
WINOGRAD = re.compile(r"WINOGRAD(?:_NCHW\d+)?:[^:]+:(\d+):(\d+):(\d+):(\d+)$")

# The attribute of an algorithm is a sum of these.
ATTRIBUTES: Mapping[int, str] = {
    1: "reproducible",
    2: "naive",
    4: "depends on shape",
    8: "depends on batch",
}


@dataclass(frozen=True)
class Field:
    """One field of an operator's parameters; printed unless it has its default."""

    name: str
    default: int | None = None
    names: tuple[str, ...] = ()


PLANE = tuple(
    Field(f"{name}_{axis}", default)
    for name, default in (("pad", 0), ("stride", 1), ("dilate", 1))
    for axis in "hw"
)
MODE = Field("mode", 0, ("CROSS_CORRELATION", "CONVOLUTION"))
SPARSE = Field("sparse", 0, ("DENSE", "GROUP"))
COMPUTE = Field("compute_mode", 0, ("DEFAULT", "FLOAT32"))
FORMAT = Field(
    "format",
    0,
    (
        "NCHW",
        "NHWC",
        "NHWCD4",
        "NCHW4",
        "NCHW8",
        "NCHW32",
        "NCHW88",
        "NCHW44",
        "NCHW44_DOT",
        "NCHW4_NCHW32",
        "NCHW32_NCHW4",
        "NCHW4_NCHW",
        "NHWC_NCHW",
        "NHWC_NCHW4_IC_SMALL",
        "NCHW_NCHW4_IC_SMALL",
        "CHWN4",
        "NCHW64",
        "NCHW4_NHWC",
    ),
)
NONLINEAR = Field("nonlinear", 0, ("IDENTITY", "RELU", "SIGMOID", "H_SWISH"))
NO_YES = ("no", "yes")

CONVOLUTION = ("<10I", (MODE, *PLANE, SPARSE, FORMAT, COMPUTE))
POOLING = (
    "<8I",
    (
        Field("mode", None, ("MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING")),
        *PLANE[:2],
        *(Field(f"{name}_{axis}") for name in ("stride", "window") for axis in "hw"),
        FORMAT,
    ),
)
MATRIX_MUL = (
    "<??2xII",
    (
        Field("transpose_a", 0, NO_YES),
        Field("transpose_b", 0, NO_YES),
        COMPUTE,
        Field("format", 0, ("DEFAULT", "MK4", "MK8", "MK4_DOT", "N32K4_DOT")),
    ),
)
PARAMETERS: Mapping[str, tuple[str, tuple[Field, ...]]] = {
    "ConvBiasForward": ("<11I", (NONLINEAR, MODE, SPARSE, FORMAT, *PLANE, COMPUTE)),
    "BatchConvBiasForward": ("<11I", (NONLINEAR, MODE, *PLANE, SPARSE, FORMAT, COMPUTE)),
    "ConvolutionForward": CONVOLUTION,
    "ConvolutionBackwardData": CONVOLUTION,
    "ConvolutionBackwardFilter": CONVOLUTION,
    "DeformableConvForward": CONVOLUTION,
    "DeformableConvBackwardData": CONVOLUTION,
    "DeformableConvBackwardFilter": CONVOLUTION,
    "PoolingForward": POOLING,
    "PoolingBackward": POOLING,
    "MatrixMul": MATRIX_MUL,
    "BatchedMatrixMul": MATRIX_MUL,
}


@dataclass(frozen=True)
class Profile:
    """The facts in the name of a search's category."""

    device: str
    operator: str
    version: int


@dataclass(frozen=True)
class Operand:
    """One input or output; the strides are given where they are not the dense ones."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Key:
    """A decoded key. Without known parameters `settings` is empty."""

    operands: tuple[Operand, ...]
    settings: tuple[tuple[Field, int], ...] = field(default=())


def profile_of(category: str) -> Profile | None:
    """Read the name of a category, None for one that holds no search."""
    match = CATEGORY.fullmatch(category)
    return match and Profile(match[1], match[2], int(match[3]))


def key_of(operator: str, blob: bytes) -> Key:
    """Decode a key as far as it is understood."""
    operands, end = [], 0
    while match := OPERAND.match(blob, end):
        operands.append(Operand(numbers_of(match[1]), numbers_of(match[2]), match[3].decode()))
        end = match.end()
    layout, fields = PARAMETERS.get(operator, ("", ()))
    if struct.calcsize(layout) != len(blob) - end:
        return Key(tuple(operands))
    values = map(int, struct.unpack(layout, blob[end:]))
    return Key(tuple(operands), tuple(zip(fields, values, strict=True)))


def numbers_of(text: bytes | None) -> tuple[int, ...]:
    """Read 1,8,32,32."""
    return tuple(map(int, text.split(b","))) if text else ()


def value_of(part: Field, number: int) -> int | str:
    """Return the value of a field, by name where it has names."""
    return part.names[number] if number < len(part.names) else number


def format_key(key: Key) -> str:
    """Format {1,8,32,32} {16,8,3,3} -> {1,16,32,32} Float32, pad 1; the defaults are left out."""
    given = [operand for operand in key.operands if operand.shape]
    if not given:
        return "unknown shapes"
    *before, last = map(format_operand, given)
    dtypes = "/".join(dict.fromkeys(operand.dtype for operand in given))
    shapes = f"{' '.join(before)} -> {last} {dtypes}" if before else f"{last} {dtypes}"
    return ", ".join([shapes, *format_settings(key)])


def format_operand(operand: Operand) -> str:
    """Format a shape as {?,8,32,32}, ? where any size goes."""
    shape = "{" + ",".join(str(size) if size else "?" for size in operand.shape) + "}"
    strides = ",".join(map(str, operand.strides))
    return f"{shape} strides {{{strides}}}" if strides else shape


def format_settings(key: Key) -> list[str]:
    """Format the settings that are not the default ones, a pair of equal sizes as one."""
    others = {part.name: number for part, number in key.settings if number != part.default}
    both = dict.fromkeys(name[:-2] for name in others if name.endswith(("_h", "_w")))
    numbers = {part.name: number for part, number in key.settings}
    lines = [
        f"{part.name} {value_of(part, number)}"
        for part, number in key.settings
        if part.name in others and part.name[:-2] not in both
    ]
    for name in both:
        height, width = numbers[f"{name}_h"], numbers[f"{name}_w"]
        lines.append(f"{name} {height}" if height == width else f"{name} {height}x{width}")
    return lines


def winograd_of(algorithm: str) -> str:
    """Return which winograd an algorithm is, empty for none.

    F(m,r) computes m outputs of a filter of r by transforming tiles of m+r-1; the numbers in
    WINOGRAD:MATMUL:4:2:16:3 are the channels in a block, m, the tiles in a unit of work, and r.
    """
    if match := WINOGRAD.search(algorithm):
        return f"F({match[2]},{match[4]})"
    return "winograd" if "WINOGRAD" in algorithm else ""


def attributes_of(attribute: int) -> tuple[str, ...]:
    """Return the names of an algorithm's attributes."""
    return tuple(name for bit, name in ATTRIBUTES.items() if attribute & bit)


VERSION = 5  # of the search: the only one whose values are read
LONGEST_CATEGORY = 255  # the engine reads a name into a buffer of 256 bytes, unchecked
LARGEST_FILE = 1 << 28  # far above any cache; a model named by mistake is not read into memory
RESULT = re.compile(rb":(\d{1,10});(\d+(?:\.\d+)?(?:e[+-]\d+)?);(\d{1,20}):\0")


@dataclass(frozen=True)
class Algorithm:
    """One algorithm that was timed; `blob` describes it to the engine, `result` is its text."""

    name: str
    seconds: float
    workspace_bytes: int
    attribute: int
    blob: bytes
    result: bytes


@dataclass(frozen=True)
class Entry:
    """One key and its algorithms, the chosen one first; `other` is a value that is not read."""

    key: bytes
    algorithms: tuple[Algorithm, ...] = ()
    other: bytes = b""


@dataclass(frozen=True)
class Category:
    """The entries of one kind of operator on one kind of device."""

    name: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class AlgorithmCache:
    """The content of a cache file, in its order."""

    categories: tuple[Category, ...] = ()


class Reader:
    """Bytes from front to back; asking for more than there are is a ValueError."""

    def __init__(self, data: bytes) -> None:
        self.data, self.offset = data, 0

    def take(self, size: int) -> bytes:
        left = len(self.data) - self.offset
        if size > left:
            raise ValueError(f"{size} bytes should follow byte {self.offset}, {left} do")
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def number(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def blob(self) -> bytes:
        return self.take(self.number())

    def end(self) -> None:
        """Check that nothing is left."""
        if self.offset < len(self.data):
            raise ValueError(f"{len(self.data) - self.offset} bytes too many")


def read_cache(path: str | Path) -> AlgorithmCache:
    """Read a cache file.

    Raises:
        UsageError: it cannot be read, or is not a whole cache file.
    """
    return cache_of(read_input(path, what="fast-run cache", limit=LARGEST_FILE), str(path))


def cache_of(data: bytes, name: str = "the cache") -> AlgorithmCache:
    """Read the content of a cache file; nothing is guessed and nothing left out.

    Raises:
        UsageError: these bytes are not a whole cache file.
    """
    reader = Reader(data)
    try:
        categories = tuple(category_from(reader) for _ in range(reader.number()))
        reader.end()
        refuse_repeats([category.name for category in categories])
    except ValueError as error:
        raise UsageError(
            f"is not a fast-run cache of MegEngine, or is damaged: {error}",
            "remove it and search again, or choose another; an empty cache has 4 bytes, all zero",
            subject=name,
        ) from None
    return AlgorithmCache(categories)


def category_from(reader: Reader) -> Category:
    raw = reader.blob()
    if len(raw) > LONGEST_CATEGORY:
        raise ValueError("the name of a category is too long")
    name = text_of(raw)
    profile = profile_of(name)
    is_read = profile is not None and profile.version == VERSION
    entries = tuple(entry_from(reader, is_read) for _ in range(reader.number()))
    refuse_repeats([entry.key for entry in entries])
    return Category(name, entries)


def entry_from(reader: Reader, is_read: bool) -> Entry:
    key, value = reader.blob(), reader.blob()
    if not is_read:
        return Entry(key, other=value)
    algorithms = Reader(value)
    entry = Entry(key, tuple(algorithm_from(algorithms) for _ in range(algorithms.number())))
    algorithms.end()
    if not entry.algorithms:
        raise ValueError("an operator has no algorithm")
    return entry


def algorithm_from(reader: Reader) -> Algorithm:
    blob, result = reader.blob(), reader.blob()
    parts = Reader(blob)
    parts.take(8)  # handle and type
    parameter_size, name_size = parts.number(), parts.number()
    parts.take(parameter_size)
    name = text_of(parts.take(name_size))
    parts.end()
    match = RESULT.fullmatch(result)
    seconds = float(match[2]) if match else math.inf
    if not match or math.isinf(seconds):
        raise ValueError(f"{result[:40]!r} is not the result of a search")
    return Algorithm(name, seconds, int(match[3]), int(match[1]), blob, result)


def text_of(raw: bytes) -> str:
    """Read a name, which must be one that can be printed."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise ValueError(f"{raw[:16]!r} is not a name")
    return text


def refuse_repeats(names: list[str] | list[bytes]) -> None:
    if len(set(names)) < len(names):
        raise ValueError("an entry is there twice")


def bytes_of(cache: AlgorithmCache) -> bytes:
    """Return the file that `cache_of` reads, byte for byte."""
    parts = [number_bytes(len(cache.categories))]
    for category in cache.categories:
        parts += [blob_bytes(category.name.encode()), number_bytes(len(category.entries))]
        for entry in category.entries:
            parts += [blob_bytes(entry.key), blob_bytes(value_bytes(entry))]
    return b"".join(parts)


def value_bytes(entry: Entry) -> bytes:
    if not entry.algorithms:
        return entry.other
    pairs = [blob_bytes(each.blob) + blob_bytes(each.result) for each in entry.algorithms]
    return number_bytes(len(pairs)) + b"".join(pairs)


def number_bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")


def blob_bytes(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def merge_caches(base: AlgorithmCache, newer: AlgorithmCache) -> AlgorithmCache:
    """Return what either knows; where both know an operator, the newer's entry."""
    merged: dict[str, dict[bytes, Entry]] = {}
    for category in (*base.categories, *newer.categories):
        entries = merged.setdefault(category.name, {})
        entries.update((entry.key, entry) for entry in category.entries)
    return AlgorithmCache(
        tuple(Category(name, tuple(entries.values())) for name, entries in merged.items())
    )


def write_cache_merged(path: str | Path, new: AlgorithmCache, flag: str = "") -> None:
    """Add to a cache file what is new, whoever else does so at the same time.

    Raises:
        UsageError: the file is there and no cache, or cannot be written.
    """
    update_cache(path, lambda old: merge_caches(old, new), flag)


def update_cache(
    path: str | Path, change: Callable[[AlgorithmCache], AlgorithmCache], flag: str = ""
) -> tuple[AlgorithmCache, AlgorithmCache]:
    """Change a cache file, an empty one if it does not exist; return the old and the new contents.

    Readers see the old file or the new one, whole, at any time; other writers wait.

    Raises:
        UsageError: the file is there and no cache, or cannot be written.
    """
    real = Path(os.path.realpath(path))  # so that a link to a cache stays one
    try:
        with locked(real):
            old = read_cache(real) if real.exists() else AlgorithmCache()
            new = change(old)
            if new != old or not real.exists():
                replace_file(real, bytes_of(new))
            return old, new
    except OSError as error:
        raise error_of_write(error, flag=flag, subject=path, hint="choose another file") from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of a file away, by a lock on `PATH.lock`.

    The cache itself cannot carry the lock, as each writer replaces it. The lock file is removed
    after use; one that a killed process left behind carries no lock and is taken over.
    """
    lock = path.with_name(path.name + ".lock")
    descriptor = take_lock(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # still ours: whoever waits for it will notice, and retry
        os.close(descriptor)


def take_lock(lock: Path) -> int:
    """Wait for the lock and return its file, which closing releases."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        # Its holder removed this one meanwhile; a later one may be held by someone else.
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file at once, keeping its permissions; the lock is held."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # left behind by a killed process
    try:
        with open(temporary, "xb") as file:
            if path.exists():
                if not os.access(path, os.W_OK):
                    raise PermissionError(13, "permission denied")
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
