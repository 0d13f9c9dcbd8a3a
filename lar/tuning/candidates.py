"""The candidates of a model: single choices, combinations and neighbours, and their caches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from lar.records.choices import Choice
from lar.records.tuning import Candidate, ModelSpace


class Combinations:
    """The candidates of one model of a search."""

    def __init__(self, model: int, space: ModelSpace) -> None:
        self.model = model
        self.space = space
        self.plain = Candidate(model=model)
        self.choices: dict[str, Choice] = {}
        self.dimension_of: dict[str, int] = {}
        for number, dimension in enumerate(space.dimensions):
            for choice in dimension.choices:
                self.choices[choice.name] = choice
                self.dimension_of[choice.name] = number

    def make(self, choices: Iterable[str]) -> Candidate:
        """Return the candidate with these choices, in the order of the dimensions."""
        ordered = sorted(choices, key=self.dimension_of.__getitem__)
        return Candidate(model=self.model, choices=tuple(ordered))

    def singles(self) -> Iterator[Candidate]:
        """Yield the candidates with one choice: first that of each dimension, then the second."""
        for row in zip_longest(*(each.choices for each in self.space.dimensions)):
            yield from (self.make([choice.name]) for choice in row if choice)

    def combine(self, names: Sequence[str]) -> Iterator[Candidate]:
        """Yield the candidates with two or more of these choices, those with few first."""
        for count in range(2, len(names) + 1):
            for chosen in itertools.combinations(names, count):
                if len({self.dimension_of[name] for name in chosen}) == count:
                    yield self.make(chosen)

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield the candidates that differ from one in one dimension."""
        for number, dimension in enumerate(self.space.dimensions):
            others = [it for it in candidate.choices if self.dimension_of[it] != number]
            if len(others) < len(candidate.choices):
                yield self.make(others)
            for choice in dimension.choices:
                if choice.name not in candidate.choices:
                    yield self.make([*others, choice.name])

    def add(self, candidate: Candidate, choice: str) -> Candidate:
        """Return a candidate with one more choice; it replaces a choice of the same dimension."""
        own = self.dimension_of[choice]
        others = (it for it in candidate.choices if self.dimension_of[it] != own)
        return self.make([*others, choice])

    def cache_of(self, candidate: Candidate) -> str:
        """Return the name of a candidate's cache, fit for a file, empty without a cache.

        Candidates that agree in all that decides what the cache holds share it.
        """
        name = next((it for it in candidate.choices if self.choices[it].cache), "")
        if not name:
            return ""
        depends = self.choices[name].cache_depends
        deciding = [
            other
            for other in candidate.choices
            if other != name and self.space.dimensions[self.dimension_of[other]].name in depends
        ]
        words = (f"{self.space.engine}-{self.model}", name, *deciding)
        return "+".join(re.sub(r"[^\w.-]", "-", word) for word in words)

    def needs_search(self, candidate: Candidate) -> bool:
        """Return whether a candidate reads a cache that a search fills."""
        return any(self.choices[name].search for name in candidate.choices)
