"""Caches that prefer or leave out winograd algorithms, and what a run's log says of the choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lar.engines.megengine.algorithm_log import LoggedChoice
from lar.engines.megengine.cache import Algorithm, AlgorithmCache, Entry
from lar.engines.megengine.cache_choices import Operator, operators_of
from lar.engines.megengine.cache_key import winograd_of
from lar.records.run import AlgorithmChoice

SAME_MIB = 0.01  # the log tells a workspace with two decimals


def is_winograd(algorithm: Algorithm) -> bool:
    return bool(winograd_of(algorithm.name))


def is_direct(algorithm: Algorithm) -> bool:
    return not is_winograd(algorithm)


def best_of(entry: Entry, fits: Callable[[Algorithm], bool]) -> Algorithm | None:
    """Return the fastest fitting algorithm, but the chosen one, perhaps by hand, where it fits."""
    fitting = [each for each in entry.algorithms if fits(each)]
    if fitting and fitting[0] is entry.algorithms[0]:
        return fitting[0]
    return min(fitting, key=lambda each: each.seconds, default=None)


def prefer_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache with a winograd algorithm first wherever there is one."""

    def prefer(entry: Entry) -> Entry:
        first = best_of(entry, is_winograd)
        others = tuple(each for each in entry.algorithms if each is not first)
        return replace(entry, algorithms=(first, *others)) if first else entry

    return change_entries(cache, prefer)


def without_winograd(cache: AlgorithmCache) -> AlgorithmCache:
    """Return the cache without winograd algorithms, but where there is no other."""

    def leave_out(entry: Entry) -> Entry:
        first = best_of(entry, is_direct)
        others = tuple(each for each in entry.algorithms if is_direct(each) and each is not first)
        return replace(entry, algorithms=(first, *others)) if first else entry

    return change_entries(cache, leave_out)


def change_entries(cache: AlgorithmCache, change: Callable[[Entry], Entry]) -> AlgorithmCache:
    return AlgorithmCache(
        tuple(
            replace(category, entries=tuple(map(change, category.entries)))
            for category in cache.categories
        )
    )


def without_operators(cache: AlgorithmCache, ran: Sequence[LoggedChoice]) -> AlgorithmCache:
    """Return the cache without the convolutions that ran."""
    keys = {
        (operator.category, operator.entry.key)
        for operator in operators_of(cache)
        if any(is_convolution(choice) and is_of(choice, operator) for choice in ran)
    }
    return AlgorithmCache(
        tuple(
            replace(
                category,
                entries=tuple(
                    each for each in category.entries if (category.name, each.key) not in keys
                ),
            )
            for category in cache.categories
        )
    )


def is_convolution(choice: LoggedChoice) -> bool:
    return "Conv" in choice.operator


def is_of(choice: LoggedChoice, operator: Operator) -> bool:
    """Tell whether a choice may be this operator's; the log does not tell all its parameters."""
    shapes = [operand.shape for operand in operator.key.operands]
    return (
        choice.operator == operator.name
        and len(shapes) == len(choice.shapes)
        and all(map(fits, choice.shapes, shapes))
    )


def fits(shape: tuple[int, ...], known: tuple[int, ...]) -> bool:
    """Tell whether a shape is the one that a key gives, in which 0 stands for any batch."""
    return len(shape) == len(known) and all(
        size in (real, 0) for size, real in zip(known, shape, strict=True)
    )


def pair_choices(
    ran: Sequence[LoggedChoice], cache: AlgorithmCache
) -> list[tuple[LoggedChoice, Operator | None, Algorithm | None]]:
    """Return the convolutions that ran with what the cache knows of each, each entry once."""
    left = operators_of(cache)
    pairs: list[tuple[LoggedChoice, Operator | None, Algorithm | None]] = []
    for choice in filter(is_convolution, ran):
        operator = next((each for each in left if is_known(choice, each)), None)
        if operator is None:
            pairs.append((choice, None, None))
            continue
        left.remove(operator)
        algorithms = operator.entry.algorithms
        algorithm = next(each for each in algorithms if each.name == choice.algorithm)
        pairs.append((choice, operator, algorithm))
    return pairs


def is_known(choice: LoggedChoice, operator: Operator) -> bool:
    """Tell whether a choice may be this operator's and is among its algorithms."""
    names = {each.name for each in operator.entry.algorithms}
    return choice.algorithm in names and is_of(choice, operator)


def was_searched_otherwise(ran: Sequence[LoggedChoice], cache: AlgorithmCache) -> bool:
    """Tell whether a convolution needs less workspace than the search noted: its weights were not
    transformed ahead then, which the cache's keys do not tell."""
    return any(
        algorithm.workspace_bytes / 2**20 > choice.workspace_mib + SAME_MIB
        for choice, _, algorithm in pair_choices(ran, cache)
        if algorithm
    )


def choices_of(ran: Sequence[LoggedChoice], cache: AlgorithmCache) -> tuple[AlgorithmChoice, ...]:
    """Return the record of each convolution that ran, with what the search measured."""
    records = []
    for choice, operator, algorithm in pair_choices(ran, cache):
        winograd = winograd_of(choice.algorithm)
        other = best_of(operator.entry, is_direct) if winograd and operator else None
        records.append(
            AlgorithmChoice(
                operator=choice.operator,
                shapes=operator.shapes if operator else choice.text,
                algorithm=choice.algorithm,
                winograd=winograd,
                seconds=algorithm.seconds if algorithm else None,
                other_algorithm=other.name if other else "",
                other_seconds=other.seconds if other else None,
            )
        )
    return tuple(records)
