"""Whether two runs computed the same: one model, inputs of the same shapes, one graph.

This is what costs little to see. Operators of runs with one graph are paired by their places; those
of others are aligned (`lar.profiles.pairing`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from lar.graphs.graph import INPUT_TYPES
from lar.profiles.operator_work import geometry_of
from lar.records.profile import Profile, ProfiledOperator

# What engines number anew in each session.
NUMBER = re.compile(r"\[\d+\]|_token_\d+")


@dataclass(frozen=True)
class OperatorPair:
    """Operators of both runs that do the same work, by their places in `Profile.operators`; one
    that has no partner stands alone."""

    baseline: tuple[int, ...] = ()
    experiment: tuple[int, ...] = ()

    @property
    def is_joined(self) -> bool:
        return bool(self.baseline and self.experiment)


def pair_by_places(profile: Profile) -> list[OperatorPair]:
    """Return the pairs of a run's operators and of those of another one with the same graph."""
    return [OperatorPair((place,), (place,)) for place in range(len(profile.operators))]


def have_equal_graphs(baseline: Profile, experiment: Profile) -> bool:
    """Return whether two runs executed the same operators on the same shapes, in the same order."""
    one, other = operators_of(baseline, experiment)
    return len(one) == len(other) and fingerprint_of(one) == fingerprint_of(other)


def operators_of(
    baseline: Profile, experiment: Profile
) -> tuple[Sequence[ProfiledOperator], Sequence[ProfiledOperator]]:
    """Return the operators of two runs; without their graph where one of them has none, since
    nothing of the other's can be compared with it."""
    sides = baseline.operators, experiment.operators
    if all(has_graph(side) for side in sides):
        return sides
    return without_graph(sides[0]), without_graph(sides[1])


def has_graph(operators: Sequence[ProfiledOperator]) -> bool:
    """Return whether operators say what they take and give."""
    return any(each.writes for each in operators)


def without_graph(operators: Sequence[ProfiledOperator]) -> tuple[ProfiledOperator, ...]:
    """Return operators as an earlier lar has recorded them, which reports no graph."""
    return tuple(
        msgspec.structs.replace(each, reads=(), writes=(), weights=()) for each in operators
    )


def fingerprint_of(operators: Sequence[ProfiledOperator]) -> list[tuple[object, ...]]:
    """Return what another run of the same command has in common: of each operator its type, name,
    shapes, windows, and where those stand whose results it takes."""
    makers = {key: place for place, each in enumerate(operators) for key in each.writes}
    return [
        (
            *(each.type, NUMBER.sub("", each.name), each.inputs, each.outputs),
            geometry_of(each),
            *(makers.get(key, -1) for key in each.reads),
        )
        for each in operators
    ]


def items_of(baseline: Profile, experiment: Profile) -> tuple[int, int]:
    """Return how many items an iteration of either run computes, by which their shapes differ; 1
    and 1 where both compute as many."""
    items = baseline.facts.batch or 1, experiment.facts.batch or 1
    return (1, 1) if items[0] == items[1] else items


def have_one_model(baseline: Profile, experiment: Profile) -> bool:
    """Return whether both runs are known to be of one model file."""
    sums = baseline.facts.model.sha256, experiment.facts.model.sha256
    return bool(sums[0]) and sums[0] == sums[1]


def are_fed_alike(baseline: Profile, experiment: Profile) -> bool:
    """Return whether two runs compute as much of a model: inputs of as many items and, where they
    are of one model file, of the same shapes."""
    if items_of(baseline, experiment) != (1, 1):
        return False
    if not have_one_model(baseline, experiment) or have_equal_graphs(baseline, experiment):
        return True
    shapes = shapes_fed_to(baseline), shapes_fed_to(experiment)
    return not all(shapes) or shapes[0] == shapes[1]


def shapes_fed_to(profile: Profile) -> set[tuple[int, ...]]:
    """Return the shapes of a run's inputs, as far as its operators show them."""
    from lar.graphs.profile_graph import graph_of  # slow to import, and few runs need it

    index = graph_of(profile.operators, profile.facts.engine).dump_index
    tensors = {each.key: each for each in index.tensors}
    return {
        tensors[key].shape
        for each in index.operators
        for key in each.outputs
        if each.type in INPUT_TYPES and not each.inputs and key in tensors and tensors[key].shape
    }
