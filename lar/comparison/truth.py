"""How far both sides of a comparison are from the truth, which is what the model should give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lar.dumps.dump import Dump
from lar.records.comparison import (
    AgainstTruth,
    Comparison,
    TensorComparison,
    Truth,
    TruthErrors,
)

# Compares a dump with another, the expected one, given twins that are known by their names.
Compare = Callable[[Dump, Dump, Mapping[str, str]], Comparison]


def judge_by_truth(
    found: Comparison, dumps: Sequence[Dump], truth: Dump, compare: Compare, *, nearest: int
) -> Comparison:
    """Return a comparison of two dumps with the distance of both from the truth.

    The side that is `nearest` to the truth's model, 0 or 1, is matched with it first; where the
    other side has a twin on that side, it has the same one in the truth.

    Raises:
        DumpError: a tensor is missing or damaged.
    """
    against = {nearest: compare(dumps[nearest], truth, {})}
    names = names_by_way_of(found, against[nearest], nearest)
    against[1 - nearest] = compare(dumps[1 - nearest], truth, names)
    mine, theirs = (
        {it.actual.key: it for it in against[side].tensors if not it.constant} for side in (0, 1)
    )

    def add_truth(tensor: TensorComparison) -> TensorComparison:
        one, other = mine.get(tensor.actual.key), theirs.get(tensor.expected.key)
        twin = (one, other)[nearest] or one or other
        if tensor.constant or twin is None:
            return tensor
        errors = TruthErrors(
            tensor=twin.expected,
            actual=one.figures if one else None,
            expected=other.figures if other else None,
        )
        return replace(tensor, truth=errors)

    return replace(
        found,
        tensors=tuple(map(add_truth, found.tensors)),
        culprits=tuple(
            replace(
                culprit,
                inputs=tuple(map(add_truth, culprit.inputs)),
                output=add_truth(culprit.output),
            )
            for culprit in found.culprits
        ),
        truth=Truth(
            side=against[nearest].expected,
            actual=against_truth(against[0]),
            expected=against_truth(against[1]),
        ),
    )


def has_coarse_tensors(dump: Dump) -> bool:
    """Return whether a dump has quantised tensors, or some of half precision: the model that it was
    made from may have the same of another one."""
    return any(it.quantization is not None or it.dtype in ("float16", "BFloat16") for it in dump)


def against_truth(found: Comparison) -> AgainstTruth:
    return AgainstTruth(finding=found.finding, culprits=found.culprits)


def names_by_way_of(found: Comparison, against: Comparison, nearest: int) -> dict[str, str]:
    """Return the names of the other side's tensors with those of their twins' twins in the truth;
    names that occur twice are left out, and so are tensors to which one side adds a bias later."""
    twins = {it.actual.key: it.expected for it in against.tensors if not it.constant}
    names: dict[str, str] = {}
    for pair in found.tensors:
        other, near = (pair.actual, pair.expected)[:: 1 if nearest else -1]
        there = twins.get(near.key)
        if there is None or pair.constant:
            continue
        if other.name not in names and there.name not in names.values():
            names[other.name] = there.name
    return names
