"""The candidates of a model: single choices, combinations and neighbours, and their caches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from lar.records.choices import Choice, OptionValue
from lar.records.tuning import Candidate, ModelSpace, choices_by_name


def choices_in(candidate: Candidate, space: ModelSpace) -> list[Choice]:
    """Return a candidate's choices."""
    by_name = choices_by_name(space)
    return [by_name[name] for name in candidate.choices]


def name_of(candidate: Candidate, spaces: Sequence[ModelSpace]) -> str:
    """Return a candidate's name in tables: `plain`, `nchw88 + 2 threads`; with the engine's name if
    several compete."""
    name = " + ".join(candidate.choices) or "plain"
    return f"{spaces[candidate.model].engine}: {name}" if len(spaces) > 1 else name


def options_of(candidate: Candidate, space: ModelSpace) -> dict[str, OptionValue]:
    """Return the options that a candidate is run with, without the names of caches' files. Values
    of an option that may be repeated are joined."""
    found = dict(space.options)
    for choice in choices_in(candidate, space):
        for key, value in choice.options.items():
            before = found.get(key)
            if isinstance(before, tuple) and isinstance(value, tuple):
                value = before + value
            found[key] = value
    return found


class Combinations:
    """The candidates of one model of a search."""

    def __init__(self, model: int, space: ModelSpace) -> None:
        self.model = model
        self.space = space
        self.plain = Candidate(model=model)
        self.choices = choices_by_name(space)
        numbered = enumerate(space.dimensions)
        self.dimension_of = {it.name: number for number, each in numbered for it in each.choices}

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
