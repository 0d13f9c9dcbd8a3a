"""The candidates of a space: single choices, neighbours, combinations, and the caches they need."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from lar.records.tuning import Candidate, ModelSpace


class CacheKey(NamedTuple):
    """What distinguishes a cache: candidates with the same key share one.

    `others` are the choices that decide what it holds, beside the one that is searched for.
    """

    model: int
    choice: str
    others: tuple[str, ...]


class Combinations:
    """The candidates of one model of a search."""

    def __init__(self, model: int, space: ModelSpace) -> None:
        self.model = model
        self.space = space
        self.dimension_of = {
            choice.name: number
            for number, dimension in enumerate(space.dimensions)
            for choice in dimension.choices
        }
        self.searched = {
            choice.name: choice
            for dimension in space.dimensions
            for choice in dimension.choices
            if choice.search
        }
        self.measured_at_load = {
            choice.name
            for dimension in space.dimensions
            for choice in dimension.choices
            if choice.measures_at_load
        }

    @property
    def plain(self) -> Candidate:
        """The plain run of the model."""
        return Candidate(model=self.model)

    @property
    def count(self) -> int:
        """The number of candidates, those included that rules may refuse."""
        return math.prod(len(each.choices) + 1 for each in self.space.dimensions)

    def make(self, choices: Iterable[str]) -> Candidate:
        """Return the candidate with these choices, in the order of the dimensions."""
        ordered = sorted(choices, key=self.dimension_of.__getitem__)
        return Candidate(model=self.model, choices=tuple(ordered))

    def singles(self) -> Iterator[Candidate]:
        """Yield the candidates with one choice: the first of each dimension, the second ones, and
        so on."""
        for row in zip_longest(*(each.choices for each in self.space.dimensions)):
            yield from (Candidate(model=self.model, choices=(it.name,)) for it in row if it)

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield the candidates that differ from one in one dimension."""
        for number, dimension in enumerate(self.space.dimensions):
            others = [it for it in candidate.choices if self.dimension_of[it] != number]
            if len(others) < len(candidate.choices):
                yield self.make(others)
            for choice in dimension.choices:
                if choice.name not in candidate.choices:
                    yield self.make([*others, choice.name])

    def join(self, first: Candidate, second: Candidate) -> Candidate:
        """Return the candidate with the choices of the first, and those of the second in the
        dimensions where the first has none."""
        of = self.dimension_of
        return self.make({of[it]: it for it in (*second.choices, *first.choices)}.values())

    def every(self) -> Iterator[Candidate]:
        """Yield all candidates but the plain run, those with few choices first."""
        names = [[choice.name for choice in each.choices] for each in self.space.dimensions]
        for count in range(1, len(names) + 1):
            for chosen in itertools.combinations(names, count):
                for choices in itertools.product(*chosen):
                    yield Candidate(model=self.model, choices=choices)

    @cached_property
    def deciding(self) -> dict[str, frozenset[str]]:
        """For each choice that needs a search, the choices that decide what its cache holds."""
        return {
            name: frozenset(
                other.name
                for dimension in self.space.dimensions
                if dimension.name in choice.cache_depends
                for other in dimension.choices
                if other.name != name
            )
            for name, choice in self.searched.items()
        }

    def cache_keys(self, candidate: Candidate) -> list[CacheKey]:
        """Return the caches that a candidate needs."""
        return [
            CacheKey(
                self.model,
                name,
                tuple(it for it in candidate.choices if it in self.deciding[name]),
            )
            for name in candidate.choices
            if name in self.searched
        ]


def combinations_of(spaces: Sequence[ModelSpace]) -> list[Combinations]:
    """Return the candidates of each model."""
    return [Combinations(model, space) for model, space in enumerate(spaces)]
