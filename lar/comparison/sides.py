"""Compares several sides at once: each with the first, to find the odd one out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lar.records.comparison import Comparison, ComparisonOfSides, TensorComparison, TensorOfSides

Keys = dict[str, TensorComparison]


def compare_sides(count: int, compare: Callable[[int, int], Comparison]) -> ComparisonOfSides:
    """Compare three or more sides; `compare` takes the numbers of two, the expected one last.

    Tensors are matched with those of the first side. Two others are compared if both differ from
    it.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    against_first = [compare(number, 0) for number in range(1, count)]
    by_key: list[Keys] = [{it.expected.key: it for it in each.tensors} for each in against_first]
    between: dict[tuple[int, int], Keys] = {}
    for one, found in enumerate(against_first):
        for other in range(one):
            if not found.same and not against_first[other].same:
                across = compare(one + 1, other + 1)
                agreeing = (it for it in across.tensors if it.passed or across.same)
                between[other, one] = {it.actual.key: it for it in agreeing}
    passed = [found.same for found in against_first]
    keys = dict.fromkeys(it.expected.key for found in against_first for it in found.tensors)
    rows = ([found.get(key) for found in by_key] for key in keys)
    tensors = (tensor_of_sides(row, passed, between) for row in rows)
    return ComparisonOfSides(
        sides=(against_first[0].expected, *(found.actual for found in against_first)),
        tolerance=against_first[0].tolerance,
        comparisons=tuple(against_first),
        tensors=tuple(sorted(tensors, key=lambda it: (it.constant, it.depth))),
    )


def tensor_of_sides(
    row: Sequence[TensorComparison | None],
    passed: Sequence[bool],
    between: dict[tuple[int, int], Keys],
) -> TensorOfSides:
    """Return a tensor of the first side with its twins.

    `passed` tells which other sides are the same as a whole, `between` has the pairs of two other
    sides that agree.
    """
    known = [(side, pair) for side, pair in enumerate(row, 1) if pair is not None]
    groups: list[list[int]] = [[0]]
    for side, pair in known:
        if pair.passed or passed[side - 1]:
            groups[0].append(side)
            continue
        for group in groups[1:]:
            twin = row[group[0] - 1]
            agreeing = between.get((group[0] - 1, side - 1), {}).get(pair.actual.key)
            if twin and agreeing and agreeing.expected.key == twin.actual.key:
                group.append(side)
                break
        else:
            groups.append([side])
    main = known[0][1]
    return TensorOfSides(
        tensors=(main.expected, *(pair.actual if pair else None for pair in row)),
        figures=(None, *(pair.figures if pair else None for pair in row)),
        groups=tuple(map(tuple, groups)),
        odd=odd_of(groups),
        depth=main.depth,
        constant=main.constant,
    )


def odd_of(groups: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the sides that differ from most, empty if no group is the largest."""
    sizes = sorted(map(len, groups), reverse=True)
    if len(sizes) < 2 or sizes[0] == sizes[1]:
        return ()
    return tuple(sorted(side for group in groups if len(group) < sizes[0] for side in group))
