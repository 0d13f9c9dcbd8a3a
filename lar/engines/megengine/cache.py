"""Reads, writes and edits MegEngine's fast-run cache files.

A search writes one entry for each operator. The entry holds the algorithms that are worth keeping,
each with its time and its workspace size. A run that reads the file uses the first algorithm that
the run's policy and workspace limit allow. So the first algorithm of an entry is the chosen
algorithm. All drivers of MegEngine, and MegEngine's program load_and_run, use this file format.

Numbers have 32 bits, little endian. A `blob` is a length, followed by that number of bytes.

A file begins with the number of its categories. Each category consists of its name (a blob), the
number of its entries, and the entries. An entry consists of a key (a blob) and a value (a blob).
The value of an entry that a search has written begins with the number of algorithms. Each algorithm
consists of a description (a blob) and a result (a blob). A description consists of a handle, a
type, the length of the parameters, the length of the name, the parameters, and the name. A result
is the text ":ATTRIBUTE;SECONDS;WORKSPACE_BYTES:", followed by a zero byte.

The category of a search is named `profile:DEVICE:OPERATORvVERSIONSET`, for example
`profile:plat=cpu:ConvBiasForwardv5X0`. SET is the family of algorithms, such as X0 for x86. For
CUDA, DEVICE also contains the name of the device. A comment in this module describes the keys of
entries. lar never changes the values in categories that do not belong to searches, nor the values
that another version of the search has written.

In MegEngine 1.13, the format of the file is defined in
src/core/impl/utils/infile_persistent_cache.cpp, and the format of a value in persistent_cache.cpp
beside that file. The description is defined in src/rdnn/impl/algo_chooser.cpp. The names of
winograd algorithms are defined in dnn/src/common/conv_bias.cpp.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from lar.engines import caches as files
from lar.engines.caches import Algorithm, Operand, Operator, Preference, matching
from lar.errors import UsageError
from lar.files.input_file import read_input

SEARCH = re.compile(r"profile:(.*):(\w+?)v5(?!\d).*")  # only values of version 5 are read
WINOGRAD = re.compile(r"WINOGRAD(?:_NCHW\d+)?:[^:]+:(\d+):(\d+):(\d+):(\d+)$")
RESULT = re.compile(rb":(\d{1,10});(\d+(?:\.\d+)?(?:e[+-]\d+)?);(\d{1,20}):\0")
DESCRIPTION = struct.Struct("<8xII")  # after handle and type
LONGEST_CATEGORY = 255  # the engine reads a name into a buffer of 256 bytes, unchecked
# The properties of an algorithm, by their bits.
ATTRIBUTES = {1: "reproducible", 2: "naive", 4: "depends on shape", 8: "depends on batch"}
LARGEST_FILE = 1 << 28  # far above any cache; a model named by mistake is not read into memory


def winograd_of(algorithm: str) -> str:
    """Return the kind of a winograd algorithm, such as F(2,3), empty for other algorithms.

    F(m,r) computes m outputs of a filter of size r by transforming tiles of size m+r-1. The four
    numbers in the name WINOGRAD:MATMUL:4:2:16:3 are the channels in a block (4), m (2), the tiles
    in a unit of work (16) and r (3).
    """
    if match := WINOGRAD.search(algorithm):
        return f"F({match[2]},{match[4]})"
    return "winograd" if "WINOGRAD" in algorithm else ""


Place: TypeAlias = tuple[str, bytes]
"""The name of a category, and a key in it."""

Entry: TypeAlias = "tuple[Algorithm, ...] | bytes"
"""The algorithms for an operator, the chosen one first; or the bytes of another kind of value."""

AlgorithmCache: TypeAlias = Mapping[Place, Entry]
"""The content of a cache file, in the order of the file, without empty categories.

`{**older, **newer}` joins two of them, with the entries of `newer` where both have one."""


class Reader:
    """Reads bytes from the first to the last; a read beyond the end raises a ValueError."""

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

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Read a number, and then that number of pairs of blobs."""
        return [(self.blob(), self.blob()) for _ in range(self.number())]

    def end(self) -> None:
        """Check that all bytes have been read."""
        if self.offset < len(self.data):
            raise ValueError(f"{len(self.data) - self.offset} bytes too many")


def read_cache(path: str | Path, flag: str = "") -> AlgorithmCache:
    """Read a fast-run cache file.

    Raises:
        UsageError: the file cannot be read, or is not a whole cache file.
    """
    data = read_input(path, flag, what="fast-run cache", limit=LARGEST_FILE)
    return cache_of(data, str(path), flag)


def cache_of(data: bytes, name: str = "the cache", flag: str = "") -> AlgorithmCache:
    """Decode the bytes of a fast-run cache file.

    Raises:
        UsageError: the bytes are not a whole cache file.
    """
    reader = Reader(data)
    cache: dict[Place, Entry] = {}
    names: set[str] = set()
    try:
        for _ in range(reader.number()):
            category = text_of(raw := reader.blob())
            if len(raw) > LONGEST_CATEGORY:
                raise ValueError("the name of a category is too long")
            if category in names:
                raise ValueError("a category is there twice")
            names.add(category)
            for key, value in reader.pairs():
                if (category, key) in cache:
                    raise ValueError("an entry is there twice")
                cache[category, key] = entry_of(category, value)
        reader.end()
    except ValueError as error:
        raise UsageError(
            f"is not a fast-run cache of MegEngine, or is damaged: {error}",
            "remove the file, or choose another file; an empty cache consists of 4 zero bytes",
            flag=flag,
            subject=name,
        ) from None
    return cache


def entry_of(category: str, value: bytes) -> Entry:
    if not SEARCH.fullmatch(category):
        return value
    reader = Reader(value)
    algorithms = tuple(algorithm_of(*pair) for pair in reader.pairs())
    reader.end()
    if not algorithms:
        raise ValueError("an operator has no algorithm")
    return algorithms


def algorithm_of(blob: bytes, result: bytes) -> Algorithm:
    parts = Reader(blob)
    parameter_size, name_size = DESCRIPTION.unpack(parts.take(DESCRIPTION.size))
    parts.take(parameter_size)
    name = text_of(parts.take(name_size))
    parts.end()
    match = RESULT.fullmatch(result)
    seconds = float(match[2]) if match else math.inf
    if not match or math.isinf(seconds):
        raise ValueError(f"{result[:40]!r} is not the result of a search")
    names = tuple(name for bit, name in ATTRIBUTES.items() if bit & int(match[1]))
    return Algorithm(name, seconds, int(match[3]), names, winograd_of(name), blob, result)


def text_of(raw: bytes) -> str:
    """Decode a name, which must be printable."""
    text = raw.decode(errors="replace")
    if not text or not text.isprintable() or "\N{REPLACEMENT CHARACTER}" in text:
        raise ValueError(f"{raw[:16]!r} is not a name")
    return text


def bytes_of(cache: AlgorithmCache) -> bytes:
    """Encode a cache as the bytes of a cache file, which `cache_of` can decode."""
    categories: dict[str, list[tuple[bytes, bytes]]] = {}
    for (category, key), entry in cache.items():
        if not isinstance(entry, bytes):
            entry = pair_bytes([(each.blob, each.result) for each in entry])
        categories.setdefault(category, []).append((key, entry))
    parts = [blob_bytes(name.encode()) + pair_bytes(its) for name, its in categories.items()]
    return number_bytes(len(parts)) + b"".join(parts)


def pair_bytes(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    return number_bytes(len(pairs)) + b"".join(blob_bytes(a) + blob_bytes(b) for a, b in pairs)


def number_bytes(number: int) -> bytes:
    return number.to_bytes(4, "little")


def blob_bytes(data: bytes) -> bytes:
    return number_bytes(len(data)) + data


def update_cache(
    path: str | Path, change: Callable[[AlgorithmCache], AlgorithmCache], flag: str = ""
) -> tuple[AlgorithmCache, AlgorithmCache]:
    """Change a cache file; return its old and its new content.

    A file that does not exist counts as an empty cache. Processes that read the file see either the
    whole old file or the whole new file. Processes that write the file wait for each other.

    Raises:
        UsageError: the file is not a cache, or cannot be written, or its folder stays locked.
    """
    # Imported here, as a run of a packed model only reads its cache.
    from lar.files.locks import locked
    from lar.files.report_file import OutputFile

    real = os.path.realpath(path)  # the name `-` is an ordinary file here
    with locked(os.path.dirname(real), flag):
        is_new = not os.path.exists(real)
        old = {} if is_new else read_cache(real)
        new = change(old)
        if is_new or new != old:
            with OutputFile(real, flag, is_text=False) as file:
                file.write(bytes_of(new))
        return old, new


# The operators in fast-run caches: how they are decoded, found, compared and joined.
#
# The key of an entry of a search:
#
#     SHAPE[;STRIDES];DTYPE|...PARAMETERS   1,8,32,32;Float32|16,8,3,3;Float32|... raw struct
#
# The parameters are the operator's C struct, with its fields in the order of their definition. A
# size of 0 in a shape stands for any batch. A key contains neither the number of threads, nor the
# workspace limit, nor whether weights are preprocessed. Of the machine it contains only the kind of
# device. Read from MegEngine 1.13: src/core/impl/utils/persistent_cache.cpp (key),
# dnn/scripts/opr_param_defs.py (parameters).
#
# A search times each algorithm once, so two searches on a busy machine may choose differently. The
# median of an algorithm's times is more reliable than one time. In a search's file, algorithms are
# in the order of their times. If the first algorithm of an entry is not the fastest, a person has
# chosen it, and no search overrules that choice.


T = TypeVar("T")
Searches = Sequence[tuple[Algorithm, ...]]
MOST_TOLD = 9  # at most as many operators are named in one message

OPERAND = re.compile(rb"(\d+(?:,\d+)*)?(?:;(-?\d+(?:,-?\d+)*))?;([A-Za-z]\w*)\|")


FACTS = json.loads(Path(__file__).with_name("cache_keys.json").read_bytes())
# The fields of each type of operators; a prefix before a dot distinguishes fields of the same name.
FIELDS: Mapping[str, str] = FACTS["fields"]
STRUCTS: Mapping[str, str] = FACTS["structs"]  # the struct's layout, if not 32 bits for each field
VALUES: Mapping[str, str] = FACTS["values"]  # the names of a field's values, from 0 on
# A field is printed unless it has its default value. The default is 0 for fields not listed here.
DEFAULTS: Mapping[str, int | None] = FACTS["defaults"]


def read_key(name: str, key: bytes) -> tuple[str, tuple[Operand, ...], dict[str, int | str]]:
    """Decode the key of an operator.

    Returns:
        A tuple of three: a text such as `{1,8,32,32} {16,8,3,3} -> {1,16,32,32} Float32, pad 1`,
        without settings that have default values, then the operands, then all settings by name.
    """
    operands: list[Operand] = []
    begin = 0
    while match := OPERAND.match(key, begin):
        shape, strides, dtype = match.groups()
        operands.append(Operand(numbers_of(shape), numbers_of(strides), dtype.decode()))
        begin = match.end()
    fields = FIELDS.get(name, "").split()
    layout = STRUCTS.get(name, f"<{len(fields)}I")
    is_known = struct.calcsize(layout) == len(key) - begin
    numbers = map(int, struct.unpack_from(layout, key, begin)) if is_known else ()
    settings = dict(zip(fields, numbers, strict=is_known))
    given = [operand for operand in operands if operand.shape]
    shapes = [format_operands(given), *format_settings(settings)] if given else ["unknown shapes"]
    named = {it.rpartition(".")[2]: value_of(it, number) for it, number in settings.items()}
    return ", ".join(shapes), tuple(operands), named


def format_operands(operands: Sequence[Operand]) -> str:
    """Format operands, the output last: {1,8,32,32} {16,8,3,3} -> {1,16,32,32} Float32."""
    *before, last = map(str, operands)
    dtypes = "/".join(dict.fromkeys(operand.dtype for operand in operands))
    return " ".join([*before, *["->"] * bool(before), last, dtypes])


def numbers_of(text: bytes | None) -> tuple[int, ...]:
    """Parse numbers with commas between them, such as 1,8,32,32."""
    return tuple(map(int, text.split(b","))) if text else ()


def value_of(field: str, number: int) -> int | str:
    """Return the name of a field's value, or the number if the value has no name."""
    names = VALUES.get(field, "").split()
    return names[number] if number < len(names) else number


def format_settings(settings: Mapping[str, int]) -> list[str]:
    """Format the settings that differ from their defaults; pairs of height and width come last."""
    single, of_planes = [], []
    for field, number in settings.items():
        name, default = field.rpartition(".")[2], DEFAULTS.get(field, 0)
        if name.endswith("_h"):
            width = settings[f"{field[:-1]}w"]
            if (number, width) != (default, default):
                size = number if number == width else f"{number}x{width}"
                of_planes.append(f"{name[:-2]} {size}")
        elif number != default and not name.endswith("_w"):
            single.append(f"{name} {value_of(field, number)}")
    return single + of_planes


def operators_of(*caches: AlgorithmCache) -> list[Operator]:
    """Return those operators of caches that a search has measured, in the order of the caches.

    If an operator is in several caches, each algorithm has the median of its times in these caches.
    """
    operators: list[Operator] = []
    for place, entries in gather(caches).items():
        if searched := SEARCH.fullmatch(place[0]):
            (device, name), searches = searched.groups(), searches_among(entries)
            known = (len(operators) + 1, place, device, name, *read_key(name, place[1]))
            joined = tuple(with_searches(join_searches(searches), searches))
            operators.append(Operator(*known, joined))
    return operators


def with_searches(algorithms: Iterable[Algorithm], searches: Searches) -> Iterator[Algorithm]:
    """Yield each algorithm with its times filled in, and with the searches that have chosen it."""
    times, chosen = times_in(searches), [entry[0].blob for entry in searches]
    for each in algorithms:
        chosen_by = tuple(at for at, blob in enumerate(chosen) if blob == each.blob)
        yield replace(each, times=times[each.blob], chosen_by=chosen_by)


def gather(caches: Iterable[AlgorithmCache]) -> dict[Place, list[Entry]]:
    """Return all entries for each operator, in the order of the caches."""
    found: dict[Place, list[Entry]] = {}
    for cache in caches:
        for place, entry in cache.items():
            found.setdefault(place, []).append(entry)
    return found


def searches_among(entries: Iterable[Entry]) -> list[tuple[Algorithm, ...]]:
    return [entry for entry in entries if not isinstance(entry, bytes)]


def join_caches(caches: Iterable[AlgorithmCache], prefer: Preference) -> AlgorithmCache:
    """Return one cache with the operators of all caches.

    `prefer` says which entry to use for an operator that is in several caches.
    """

    def join(entries: Sequence[Entry]) -> Entry:
        searches = searches_among(entries)
        if prefer in ("first", "last") or len(searches) < len(entries):
            return entries[0 if prefer == "first" else -1]
        return join_searches(searches, prefer)

    return {place: join(entries) for place, entries in gather(caches).items()}


def join_searches(searches: Searches, prefer: Preference = "median") -> tuple[Algorithm, ...]:
    """Join the entries that several searches have made for one operator into one entry.

    The description of an algorithm is taken from the last search that has the algorithm. An
    algorithm that a person has chosen comes first. The other algorithms are sorted by their median
    times, or by their fastest times if `prefer` is "fastest". If `prefer` is "median", an algorithm
    comes last if fewer than half of the searches have stored it.
    """
    if len(searches) == 1:
        return searches[0]
    times = times_in(searches)
    taken = min if prefer == "fastest" else statistics.median
    decided = [entry[0].blob for entry in searches if is_decided(entry)][-1:]

    def rank(algorithm: Algorithm) -> tuple[bool, bool, float]:
        is_rare = prefer == "median" and 2 * len(times[algorithm.blob]) < len(searches)
        return algorithm.blob not in decided, is_rare, algorithm.seconds

    known = {each.blob: each for entry in searches for each in entry}
    timed = (with_seconds(each, taken(times[each.blob])) for each in known.values())
    return tuple(sorted(timed, key=rank))


def times_in(searches: Searches) -> dict[bytes, tuple[float, ...]]:
    """Return the times of each algorithm, in the order of the searches.

    The keys of the result are the blobs that describe the algorithms.
    """
    times: dict[bytes, tuple[float, ...]] = {}
    for entry in searches:
        for each in entry:
            times[each.blob] = (*times.get(each.blob, ()), each.seconds)
    return times


def is_decided(algorithms: Sequence[Algorithm]) -> bool:
    """Return whether a person has chosen the first algorithm.

    The result is true if another algorithm is faster than the first algorithm.
    """
    return min(each.seconds for each in algorithms) < algorithms[0].seconds


def with_seconds(algorithm: Algorithm, seconds: float) -> Algorithm:
    """Return an algorithm with its time replaced."""
    if seconds == algorithm.seconds:
        return algorithm
    text = f"{seconds:.6g}"
    attribute, _, workspace = algorithm.result.split(b";")
    result = b";".join((attribute, text.encode(), workspace))
    return replace(algorithm, seconds=float(text), result=result)


def find_operator(cache: AlgorithmCache, text: str) -> Operator:
    """Return the operator whose name is the given text, or else contains the given text.

    Raises:
        UsageError: the text matches no operator, or several operators.
    """
    operators = operators_of(cache)
    exact = [each for each in operators if text in (str(each), each.shapes)]
    found = exact if len(exact) == 1 else matching(operators, text)
    candidates = "; ".join(f"{each.number}: {each}" for each in (found or operators)[:MOST_TOLD])
    left_out = len(found or operators) - MOST_TOLD
    more = f"; and {left_out} more" if left_out > 0 else ""
    hint = f"operators: {candidates or 'none'}{more}"
    return the_one(found, f"{text!r} means {len(found)} operators, not one", hint)


def pick_entry(cache: AlgorithmCache, operator: str, algorithm: str) -> AlgorithmCache:
    """Return a cache that contains only one operator, with a given algorithm moved to the front.

    `algorithm` is the name of the algorithm, or a part of the name.

    Raises:
        UsageError: the text `operator` does not match exactly one operator, or the text `algorithm`
            does not match exactly one algorithm of this operator.
    """
    meant = find_operator(cache, operator)
    exact = [each for each in meant.algorithms if each.name == algorithm]
    found = exact or [it for it in meant.algorithms if algorithm.lower() in it.name.lower()]
    hint = f"algorithms: {', '.join(each.name for each in found or meant.algorithms)}"
    problem = f"{algorithm!r} means {len(found)} algorithms of {meant}, not one"
    return {meant.place: with_first(meant.algorithms, the_one(found, problem, hint))}


def the_one(found: Sequence[T], problem: str, hint: str) -> T:
    if len(found) != 1:
        raise UsageError(problem, hint)
    return found[0]


def with_first(algorithms: Sequence[Algorithm], first: Algorithm) -> tuple[Algorithm, ...]:
    return (first, *(each for each in algorithms if each is not first))


Fits = Callable[[Algorithm], object]


def best_of(algorithms: Sequence[Algorithm], is_fit: Fits) -> Algorithm | None:
    """Return the first algorithm if `is_fit` accepts it, else the fastest accepted algorithm.

    The first algorithm has priority, since a search or a person has chosen this algorithm.
    """
    if is_fit(algorithms[0]):
        return algorithms[0]
    return min(filter(is_fit, algorithms), key=lambda each: each.seconds, default=None)


def is_direct(algorithm: Algorithm) -> bool:
    return not algorithm.winograd


def prefer_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache with a winograd algorithm first for each operator that can use winograd."""
    return with_best(cache, lambda each: each.winograd, keeps=lambda _: True)


def without_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache without winograd algorithms; operators that have only these keep them."""
    return with_best(cache, is_direct, keeps=is_direct)


def with_best(cache: AlgorithmCache, is_fit: Fits, keeps: Fits) -> AlgorithmCache:
    """Return the cache, in which each operator begins with an algorithm that `is_fit` accepts.

    The operator's other algorithms are kept only if `keeps` accepts them. If `is_fit` accepts no
    algorithm of an operator, the operator is left unchanged.
    """
    changed = dict(cache)
    for place, entry in cache.items():
        if not isinstance(entry, bytes) and (first := best_of(entry, is_fit)):
            changed[place] = with_first([*filter(keeps, entry)], first)
    return changed


# Fast-run caches for `lar cache`, which reads, merges and edits them


class FastRunCaches(files.AlgorithmCacheFiles):
    """MegEngine's fast-run cache files, which have one format for all drivers of MegEngine."""

    def begins(self, head: bytes) -> bool:
        # The format has no mark: a file begins with the number of its categories and the length of
        # the first category's name, both small. Files of at most 4 bytes are taken for caches too,
        # and refused later if they are cut short.
        return head[2:4] == head[6:8] == bytes(2) if len(head) > 4 else True

    def read(self, paths: Sequence[str]) -> files.Searched:
        caches = [read_cache(path) for path in paths]
        unread = {place for it in caches for place, entry in it.items() if isinstance(entry, bytes)}
        return files.Searched(operators_of(*caches), Counter(category for category, _ in unread))

    def merge(self, paths: Sequence[str], output: str, prefer: Preference) -> files.Merged:
        caches = [read_cache(path) for path in paths]
        merged = join_caches(caches, prefer)
        is_among = os.path.realpath(output) in map(os.path.realpath, paths)

        def join_with(old: AlgorithmCache) -> AlgorithmCache:
            if is_among or prefer == "last":
                return {**old, **merged}
            return join_caches([old, *caches], prefer)

        after = operators_of(update_cache(output, join_with)[1])
        kept = files.compare_choices(after, operators_of(merged)).only_first
        return files.Merged(operators_of(*caches), len(after), len(kept))

    def pick(
        self, path: str, operator: str, algorithm: str, output: str | None
    ) -> list[files.Pair]:
        source = read_cache(path)

        def picked(old: AlgorithmCache) -> AlgorithmCache:
            edited = old if output is None else source
            return {**source, **old, **pick_entry(edited, operator, algorithm)}

        old, after = update_cache(path if output is None else output, picked)
        return files.compare_choices(operators_of({**source, **old}), operators_of(after)).differing


CACHES = FastRunCaches()
