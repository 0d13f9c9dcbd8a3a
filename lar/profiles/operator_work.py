"""Whether operators of two runs do the same work, as far as shapes and parameters show it.

Engines count what is fused into an operator or not, and several operators may do what one does
elsewhere. So it is compared how many products of numbers are computed. Where channels fill up
blocks this is known within bounds, and those of two runs must overlap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from lar.graphs.operator_kinds import HEAVY, OperatorKinds
from lar.records.profile import ProfiledOperator

# Work that differs by more is not the same.
MOST_APART = 1.1

GEOMETRY = re.compile(r"(stride|pad|dilat|window|kernel)\w*", re.IGNORECASE)

Shape = tuple[int, ...]


class Work(NamedTuple):
    """Operators of one run, the shapes of their tensors by key, what its operators do, and how many
    items an iteration computes; the shapes are those of one item, in plain axes."""

    operators: Sequence[ProfiledOperator]
    shapes: Mapping[str, Shape]
    kinds: OperatorKinds
    items: int = 1

    def of(self, places: Sequence[int]) -> Work:
        """Return the work of some of the operators."""
        return self._replace(operators=[self.operators[place] for place in places])

    def heavy(self) -> list[ProfiledOperator]:
        return [each for each in self.operators if self.kinds.kind_of(each.type) in HEAVY]

    def bounds_of(self, operator: ProfiledOperator) -> tuple[float, float]:
        """Return the least and the most products of numbers that a convolution or product computes
        for an item; 0 where nothing shows it."""
        taken = [
            (key, fact)
            for key, fact in zip(operator.reads, operator.inputs, strict=False)
            if key not in operator.weights
        ][:1]
        given = [*zip(operator.writes, operator.outputs, strict=False)][:1]
        counts = [operator.flops / 2 / self.items] if operator.flops else []
        kind = self.kinds.kind_of(operator.type)
        shapes = [self.shapes.get(key, ()) for key, _ in (taken if kind == "deconv" else given)]
        if kind != "matmul" and len(operator.inputs) > 1 and any(len(it) > 2 for it in shapes):
            # Some of the channels may only fill blocks.
            used = prod(
                prod(self.shapes[key]) * self.items / max(prod(fact.shape), 1)
                for key, fact in (*given, *taken)
                if key in self.shapes
            )
            count = shapes[0][0] * prod(shapes[0][2:]) * prod(operator.inputs[1].shape)
            counts += [count, used * count]
        return min(counts, default=0), max(counts, default=0)

    def ends(self) -> tuple[int, int]:
        """Return the elements of the largest tensors that the operators take from others and that
        they give, 0 where these are not known."""
        made = {key for each in self.operators for key in each.writes}
        read = {key for each in self.operators for key in each.reads if key not in each.weights}
        taken, given = (
            max((prod(self.shapes[key]) for key in keys if key in self.shapes), default=0)
            for keys in (read - made, made - read)
        )
        return taken, given


def do_same_work(one: Work, other: Work) -> bool:
    """Return whether operators of one run do what those of the other do together, in an item; True
    where nothing is known against it."""
    heavy = one.heavy(), other.heavy()
    if any(heavy):
        if not do_bounds_overlap(
            [one.bounds_of(each) for each in heavy[0]], [other.bounds_of(each) for each in heavy[1]]
        ):
            return False
    elif not all(map(are_near, one.ends(), other.ends())):
        return False
    if len(one.operators) != 1 or len(other.operators) != 1:
        return True
    (left,), (right,) = one.operators, other.operators
    return left.type != right.type or have_same_geometry(left, right)


def do_bounds_overlap(
    one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]
) -> bool:
    """Return whether the sums of what lies within bounds may be equal; of unknown work it is
    believed where both runs have one operator for it."""
    if not all(most for _, most in (*one, *other)):
        return len(one) == len(other) == 1
    totals = [[sum(ends) for ends in zip((0, 0), *side, strict=True)] for side in (one, other)]
    (least, most), (least_there, most_there) = totals
    return bool(least <= MOST_APART * most_there and least_there <= MOST_APART * most)


def are_near(one: int, other: int) -> bool:
    """Return whether two numbers are about equal, or one of them is unknown."""
    return 0 in (one, other) or max(one, other) <= MOST_APART * min(one, other)


def have_same_geometry(one: ProfiledOperator, other: ProfiledOperator) -> bool:
    """Return whether two operators of a type have the same windows, strides and paddings."""
    sides = geometry_of(one), geometry_of(other)
    return all(sides[1].get(name, value) == value for name, value in sides[0].items())


def geometry_of(operator: ProfiledOperator) -> dict[str, Any]:
    """Return those parameters of an operator that say which elements it takes."""
    return {name: value for name, value in operator.parameters.items() if GEOMETRY.fullmatch(name)}
