"""How far both sides of a comparison are from the truth: what the model should give.

Compares several sides at once: each with the first, to find the odd one out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lar.dumps import Dump
from lar.records.comparison import (
    Comparison,
    ComparisonOfSides,
    Findings,
    TensorComparison,
    TensorOfSides,
    Truth,
    TruthErrors,
)

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


# At most so many reasons for a missing truth are listed.
MOST_REASONS = 3


def judge_by_truth(
    found: Comparison, against: Sequence[Comparison], truth: Dump, *, nearest: int
) -> Comparison:
    """Return a comparison of two dumps with the distance of both from the truth, `against` which
    each was compared.

    Twins in the truth are found for the side that is `nearest` to its model, 0 or 1.
    """
    mine, theirs = (
        {it.actual.key: it for it in against[side].tensors if not it.constant} for side in (0, 1)
    )

    def add_truth(tensor: TensorComparison) -> TensorComparison:
        one, other = mine.get(tensor.actual.key), theirs.get(tensor.expected.key)
        twin = (one, other)[nearest] or one or other
        if tensor.constant or twin is None:
            return tensor
        actual, expected = (it.figures if it else None for it in (one, other))
        errors = TruthErrors(tensor=twin.expected, actual=actual, expected=expected)
        return replace(tensor, truth=errors)

    sides = [without_doubt(found, against[side], side) for side in (0, 1)]
    doubted = dict.fromkeys(kind for _, kinds in sides for kind in kinds)
    return replace(
        found,
        tensors=tuple(map(add_truth, found.tensors)),
        culprits=tuple(culprit.with_tensors(add_truth) for culprit in found.culprits),
        truth=Truth(side=against[nearest].expected, actual=sides[0][0], expected=sides[1][0]),
        notes=(
            *found.notes,
            *(f"no truth for {kind} here (both engines differ from it alike)" for kind in doubted),
            *dict.fromkeys(list(truth.index.left_out.values())[:MOST_REASONS]),
        ),
    )


def without_doubt(found: Comparison, against: Comparison, side: int) -> tuple[Findings, list[str]]:
    """Return how a side differs from the truth, and the types of operators whose truth is in doubt.

    It is in doubt if both sides agree with each other but not with the truth: a side is at fault
    only if the sides differ too.
    """
    blamed = {(it.output.actual, it.output.expected)[side].key for it in found.culprits}
    compared = {(it.actual, it.expected)[side].key for it in found.tensors}
    kept, doubted = [], []
    for culprit in against.culprits:
        key = culprit.output.actual.key
        if key in blamed or (key not in compared and not found.same):
            kept.append(culprit)
        else:
            doubted += [culprit.actual[0].type] if culprit.actual else []
    finding = against.finding
    if not kept and (doubted or (found.same and finding != "same")):
        finding = "nothing"
    return Findings(finding=finding, culprits=tuple(kept)), doubted


def has_coarse_tensors(dump: Dump) -> bool:
    """Return whether a dump has quantised tensors or tensors of half precision.

    Its model may have them too, as one that was made from another model.
    """
    return any(it.quantization is not None or it.dtype in ("float16", "BFloat16") for it in dump)
