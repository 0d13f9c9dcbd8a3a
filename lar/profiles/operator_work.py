"""Whether operators of two runs do the same work, as far as shapes and parameters show it.

Layouts in blocks fill up channels, engines count what is fused into an operator or not, and several
may do what one does elsewhere. So more is compared than the engines' counts: of convolutions and
products the channels, the kernel and the size of the result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from lar.graphs.operator_kinds import HEAVY, OperatorKinds
from lar.records.profile import ProfiledOperator

# Work of two operators that differs by more is not the same.
MOST_APART = 1.1
# Sums over operators that do not correspond one to one are the same by more than chance.
MOST_SUMS_APART = 1.01

GEOMETRY = re.compile(r"(stride|pad|dilat|window|kernel)\w*", re.IGNORECASE)


class Shape(NamedTuple):
    """The plain axes of a tensor; where it is in blocks of `block` channels, some of them may only
    fill up the last."""

    axes: tuple[int, ...]
    block: int = 0

    @property
    def channels(self) -> int:
        return self.axes[1] if len(self.axes) > 1 else 1

    @property
    def elements(self) -> int:
        return prod(self.axes)

    @property
    def fewest_elements(self) -> float:
        """The elements without what may fill the last block."""
        return (
            self.elements * max(self.channels - max(self.block, 1) + 1, 1) / max(self.channels, 1)
        )

    def is_like(self, other: Shape) -> bool:
        """Return whether two shapes have as many elements, but for what fills blocks."""
        return (
            self.fewest_elements <= MOST_APART * other.elements
            and other.fewest_elements <= MOST_APART * self.elements
        )


class Work(NamedTuple):
    """Operators of one run, the shapes of their tensors by key, what its operators do, and how many
    items an iteration computes; the shapes are those of one item."""

    operators: Sequence[ProfiledOperator]
    shapes: Mapping[str, Shape]
    kinds: OperatorKinds
    items: int = 1

    def of(self, places: Sequence[int]) -> Work:
        """Return the work of some of the operators."""
        return self._replace(operators=[self.operators[place] for place in places])

    def kind_of(self, operator: ProfiledOperator) -> str:
        name = operator.type.lower()
        return self.kinds.kinds.get(name, name.removesuffix("forward"))

    def heavy(self) -> list[ProfiledOperator]:
        return [each for each in self.operators if self.kind_of(each) in HEAVY]

    def flops_of(self, operator: ProfiledOperator) -> float | None:
        return operator.flops / self.items if operator.flops else None

    def products_of(self, operator: ProfiledOperator) -> float | None:
        """Return how many products of numbers an operator computes, in an item; None where shapes
        do not show it."""
        flops = self.flops_of(operator)
        if self.kind_of(operator) == "matmul":
            return flops and flops / 2
        given = self.given_by(operator)
        if given is None or len(operator.inputs) < 2 or len(given.axes) < 3:
            return flops and flops / 2
        spatial = self.taken_by(operator) if self.kind_of(operator) == "deconv" else given
        if spatial is None:
            return flops and flops / 2
        return prod(spatial.axes[2:]) * spatial.axes[0] * prod(operator.inputs[1].shape)

    def given_by(self, operator: ProfiledOperator) -> Shape | None:
        return self.shapes.get(operator.writes[0]) if operator.writes else None

    def taken_by(self, operator: ProfiledOperator) -> Shape | None:
        keys = [key for key in operator.reads if key not in operator.weights]
        return self.shapes.get(keys[0]) if keys else None

    def ends(self) -> tuple[list[Shape], list[Shape]]:
        """Return what the operators take from others, and what they give."""
        made = {key for each in self.operators for key in each.writes}
        read = {key for each in self.operators for key in each.reads if key not in each.weights}
        return (
            [self.shapes[key] for key in read - made if key in self.shapes],
            [self.shapes[key] for key in made - read if key in self.shapes],
        )


def do_same_work(one: Work, other: Work) -> bool:
    """Return whether operators of one run do what those of the other do together, in an item; True
    where nothing is known against it."""
    heavy = one.heavy(), other.heavy()
    if any(heavy):
        if not are_alike(one, other, *heavy):
            return False
    elif not do_ends_fit(one.ends(), other.ends()):
        return False
    if len(one.operators) != 1 or len(other.operators) != 1:
        return True
    (left,), (right,) = one.operators, other.operators
    return left.type != right.type or have_same_geometry(left, right)


def do_ends_fit(
    one: tuple[Sequence[Shape], Sequence[Shape]], other: tuple[Sequence[Shape], Sequence[Shape]]
) -> bool:
    """Return whether the largest tensors that are taken and given are as large."""
    return all(
        not (left and right)
        or max(left, key=lambda it: it.elements).is_like(max(right, key=lambda it: it.elements))
        for left, right in zip(one, other, strict=True)
    )


def are_alike(
    one: Work,
    other: Work,
    left: Sequence[ProfiledOperator],
    right: Sequence[ProfiledOperator],
) -> bool:
    """Return whether convolutions and products are the same, one by one or, where one run has made
    one of several, in their sum."""
    free = [*right]
    for each in left:
        twin = next((it for it in free if is_same_product(one, other, each, it)), None)
        if twin is None:
            break
        free.remove(twin)
    else:
        if not free:
            return True
    sums = [
        [side.products_of(each) for each in heavy] for side, heavy in ((one, left), (other, right))
    ]
    if not all(map(all, sums)):
        return len(left) == len(right) == 1
    totals = [sum(it or 0 for it in side) for side in sums]
    return are_near(totals[0], totals[1], MOST_SUMS_APART)


def is_same_product(
    one: Work, other: Work, left: ProfiledOperator, right: ProfiledOperator
) -> bool:
    """Return whether two convolutions or products of matrices are the same."""
    kinds = one.kind_of(left), other.kind_of(right)
    if kinds[0] != kinds[1]:
        return False
    given = one.given_by(left), other.given_by(right)
    if given[0] and given[1] and not given[0].is_like(given[1]):
        return False
    flops = one.flops_of(left), other.flops_of(right)
    if flops[0] and flops[1] and are_near(flops[0], flops[1], MOST_APART):
        return True
    if kinds[0] == "matmul":
        return not all(flops)
    taken = one.taken_by(left), other.taken_by(right)
    if taken[0] and taken[1] and not taken[0].is_like(taken[1]):
        return False
    kernels = [
        kernels_of(each, given, taken)
        for each, given, taken in zip((left, right), given, taken, strict=True)
    ]
    if not all(kernels):
        return not all(flops)
    return any(are_near(a, b, MOST_APART) for a, b in zip(*kernels, strict=True))


def kernels_of(operator: ProfiledOperator, given: Shape | None, taken: Shape | None) -> list[float]:
    """Return the elements of a kernel for each output channel and, of each of them, for each input
    channel: what fills up channels changes one of them, of a depthwise convolution the other."""
    if given is None or taken is None or len(operator.inputs) < 2:
        return []
    for_each = prod(operator.inputs[1].shape) / max(given.channels, 1)
    return [for_each, for_each / max(taken.channels, 1)]


def are_near(one: float, other: float, most: float) -> bool:
    return max(one, other) <= most * min(one, other)


def have_same_geometry(one: ProfiledOperator, other: ProfiledOperator) -> bool:
    """Return whether two operators of a type have the same windows, strides and paddings."""
    sides = geometry_of(one), geometry_of(other)
    return all(sides[1].get(name, value) == value for name, value in sides[0].items())


def geometry_of(operator: ProfiledOperator) -> dict[str, Any]:
    """Return those parameters of an operator that say which elements it takes."""
    return {name: value for name, value in operator.parameters.items() if GEOMETRY.fullmatch(name)}
