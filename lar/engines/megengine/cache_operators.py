"""The operators in fast-run caches: decoded, found, compared, and joined of several searches.

The key of an entry of a search:

    SHAPE[;STRIDES];DTYPE|...PARAMETERS   1,8,32,32;Float32|16,8,3,3;Float32|... raw struct

The parameters are the operator's C struct, its fields in the order of its definition; a size of 0
in a shape stands for any batch. Neither the threads, the workspace limit nor the preprocessing of
weights is part of a key, and of the machine only the kind of device. Read from MegEngine 1.13:
src/core/impl/utils/persistent_cache.cpp (key), dnn/scripts/opr_param_defs.py (parameters).

A search times each algorithm once, so that two searches of a busy machine choose differently. The
median of an algorithm's times is more certain than any of them. In the file of a search the
algorithms stand in the order of their times. If the first one of an entry is not its fastest, a
person has chosen it, and no search overrules that.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lar.engines import caches as files
from lar.engines.caches import Algorithm, Operand, Operator, Preference, matching
from lar.engines.megengine.cache import (
    SEARCH,
    AlgorithmCache,
    Entry,
    Place,
    read_cache,
    update_cache,
)
from lar.errors import UsageError

T = TypeVar("T")
Searches = Sequence[tuple[Algorithm, ...]]
MOST_TOLD = 9  # operators in one message

OPERAND = re.compile(rb"(\d+(?:,\d+)*)?(?:;(-?\d+(?:,-?\d+)*))?;([A-Za-z]\w*)\|")


FACTS = json.loads(Path(__file__).with_name("cache_keys.json").read_bytes())
# The fields of each type of operators; what stands before a dot distinguishes fields of one name.
FIELDS: Mapping[str, str] = FACTS["fields"]
STRUCTS: Mapping[str, str] = FACTS["structs"]  # their layout, where it is not 32 bits a field
VALUES: Mapping[str, str] = FACTS["values"]  # what the numbers of a field stand for, from 0 on
# A field is printed unless it has its default, which is 0 for all but these.
DEFAULTS: Mapping[str, int | None] = FACTS["defaults"]


def read_key(name: str, key: bytes) -> tuple[str, tuple[Operand, ...], dict[str, int | str]]:
    """Return what a key says of an operator, as {1,8,32,32} {16,8,3,3} -> {1,16,32,32} Float32,
    pad 1, without defaults; its operands, and its settings."""
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
    """Read 1,8,32,32."""
    return tuple(map(int, text.split(b","))) if text else ()


def value_of(field: str, number: int) -> int | str:
    """Return the value of a field, by name where it has names."""
    names = VALUES.get(field, "").split()
    return names[number] if number < len(names) else number


def format_settings(settings: Mapping[str, int]) -> list[str]:
    """Format the settings that are not the default ones; sizes of a plane come last."""
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
    """Return the searched operators of one cache in its order, or those of several caches joined by
    the medians."""
    operators: list[Operator] = []
    for place, entries in gather(caches).items():
        searched, searches = SEARCH.fullmatch(place[0]), searches_among(entries)
        if searched and searches:
            device, name = searched.groups()
            known = (len(operators) + 1, place, device, name, *read_key(name, place[1]))
            joined = tuple(with_searches(join_searches(searches), searches))
            operators.append(Operator(*known, joined))
    return operators


def with_searches(algorithms: Iterable[Algorithm], searches: Searches) -> Iterator[Algorithm]:
    """Yield algorithms, each with its times and the searches that have chosen it."""
    times, chosen = times_in(searches), [entry[0].blob for entry in searches]
    for each in algorithms:
        chosen_by = tuple(at for at, blob in enumerate(chosen) if blob == each.blob)
        yield replace(each, times=times[each.blob], chosen_by=chosen_by)


def gather(caches: Iterable[AlgorithmCache]) -> dict[Place, list[Entry]]:
    """Return the entries that the caches have for each operator, in the order of the caches."""
    found: dict[Place, list[Entry]] = {}
    for cache in caches:
        for place, entry in cache.items():
            found.setdefault(place, []).append(entry)
    return found


def searches_among(entries: Iterable[Entry]) -> list[tuple[Algorithm, ...]]:
    return [entry for entry in entries if not isinstance(entry, bytes)]


def join_caches(caches: Iterable[AlgorithmCache], prefer: Preference) -> AlgorithmCache:
    """Return what any of the caches knows; `prefer` is for the operators that several know."""

    def join(entries: Sequence[Entry]) -> Entry:
        searches = searches_among(entries)
        if prefer in ("first", "last") or len(searches) < len(entries):
            return entries[0 if prefer == "first" else -1]
        return join_searches(searches, prefer)

    return {place: join(entries) for place, entries in gather(caches).items()}


def join_searches(searches: Searches, prefer: Preference = "median") -> tuple[Algorithm, ...]:
    """Return one entry, joined from those that several searches have made for one operator.

    An algorithm is described as the last file describes it. One that fewer than half of the
    searches have kept comes after the others.
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
    """Return the times of each algorithm, by its blob, the earliest file's first."""
    times: dict[bytes, tuple[float, ...]] = {}
    for entry in searches:
        for each in entry:
            times[each.blob] = (*times.get(each.blob, ()), each.seconds)
    return times


def is_decided(algorithms: Sequence[Algorithm]) -> bool:
    """Return whether the first algorithm stands there for another reason than its time."""
    return min(each.seconds for each in algorithms) < algorithms[0].seconds


def with_seconds(algorithm: Algorithm, seconds: float) -> Algorithm:
    """Return an algorithm with another time."""
    if seconds == algorithm.seconds:
        return algorithm
    text = f"{seconds:.6g}"
    attribute, _, workspace = algorithm.result.split(b";")
    result = b";".join((attribute, text.encode(), workspace))
    return replace(algorithm, seconds=float(text), result=result)


def find_operator(cache: AlgorithmCache, text: str) -> Operator:
    """Find the one operator that a text means; a whole name counts more than a piece of one.

    Raises:
        UsageError: none or more than one is meant.
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
    """Return a cache of one operator alone, whose first algorithm is the one that a name, or a
    piece of it, means.

    Raises:
        UsageError: none or more than one operator or algorithm is meant.
    """
    meant = find_operator(cache, operator)
    exact = [each for each in meant.algorithms if each.name == algorithm]
    part = algorithm.lower()
    found = exact or [each for each in meant.algorithms if part in each.name.lower()]
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
    """Return the chosen algorithm (perhaps by hand) if it fits, else the fastest that fits."""
    if is_fit(algorithms[0]):
        return algorithms[0]
    return min(filter(is_fit, algorithms), key=lambda each: each.seconds, default=None)


def is_direct(algorithm: Algorithm) -> bool:
    return not algorithm.winograd


def prefer_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache with a winograd algorithm first wherever there is one."""
    return with_best(cache, lambda each: each.winograd, keeps=lambda _: True)


def without_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache without winograd algorithms, except for operators that have no other."""
    return with_best(cache, is_direct, keeps=is_direct)


def with_best(cache: AlgorithmCache, is_fit: Fits, keeps: Fits) -> AlgorithmCache:
    """Return the cache with the best fitting algorithm first, wherever one fits, and behind it the
    others that `keeps` accepts."""
    changed = dict(cache)
    for place, entry in cache.items():
        if not isinstance(entry, bytes) and (first := best_of(entry, is_fit)):
            changed[place] = with_first([*filter(keeps, entry)], first)
    return changed


# Fast-run caches as `lar cache` reads, merges and edits them


class FastRunCaches(files.AlgorithmCacheFiles):
    """MegEngine's files, of which all drivers have the same."""

    def begins(self, head: bytes) -> bool:
        # Nothing marks such a file: it begins with the number of its categories, and the length
        # of the first one's name. An empty one, and what was cut short, are refused as that.
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
