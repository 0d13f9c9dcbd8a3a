"""Decides the next step of a search for the fastest settings, only from the results so far.

1. Measure the plain run of each model, so that engines compete from the start.
2. Measure the first choice of each dimension, beginning with the engine that leads.
3. Play rounds of the best candidate so far, candidates that may still beat it, and new candidates.
   New candidates are of three kinds in turn: combinations of choices that helped, other single
   choices, and candidates that differ from the best in one choice. lar tries candidates that differ
   from the best in one choice, since some choices help only together with other choices. If there
   is time, the engine itself searches for algorithms.
4. At the end, measure the best candidate beside the plain run, until the candidate is proven to be
   faster or the time is spent.

The candidates of a model are single choices, combinations, and neighbours, which differ from
another candidate in one choice. Some candidates have a cache.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, starmap, zip_longest
from typing import Literal, NamedTuple

from lar.records.run import RunResult
from lar.records.tuning import (
    BASELINE,
    Candidate,
    Choice,
    Ending,
    ModelSpace,
    OptionValue,
    TuneRequest,
    choices_by_name,
)
from lar.tuning.evidence import Evidence, RoundKind, Trial, best_first, order_of


def choices_in(candidate: Candidate, space: ModelSpace) -> list[Choice]:
    """Return a candidate's choices."""
    by_name = choices_by_name(space)
    return [by_name[name] for name in candidate.choices]


def name_of(candidate: Candidate, spaces: Sequence[ModelSpace]) -> str:
    """Return a candidate's name in tables, such as `plain` or `nchw88 + 2 threads`.

    If several models or engines compete, the name starts with the engine's name.
    """
    name = " + ".join(candidate.choices) or "plain"
    return f"{spaces[candidate.model].engine}: {name}" if len(spaces) > 1 else name


def options_of(candidate: Candidate, space: ModelSpace) -> dict[str, OptionValue]:
    """Return the options of a candidate's run, without the names of cache files.

    The values of a repeatable option are joined.
    """
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
        """Yield candidates with one choice.

        The first choices of all dimensions come first, and then the second choices of all
        dimensions.
        """
        for row in zip_longest(*(each.choices for each in self.space.dimensions)):
            yield from (self.make([choice.name]) for choice in row if choice)

    def combine(self, names: Sequence[str]) -> Iterator[Candidate]:
        """Yield the candidates with two or more of these choices, those with few choices first."""
        for count in range(2, len(names) + 1):
            for chosen in itertools.combinations(names, count):
                if len({self.dimension_of[name] for name in chosen}) == count:
                    yield self.make(chosen)

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Yield a given candidate, and the candidates that differ from it in one dimension."""
        for number, dimension in enumerate(self.space.dimensions):
            others = [it for it in candidate.choices if self.dimension_of[it] != number]
            yield self.make(others)
            yield from (self.make([*others, choice.name]) for choice in dimension.choices)

    def add(self, candidate: Candidate, choice: str) -> Candidate:
        """Return a candidate with a choice added; a choice of the same dimension is replaced."""
        own = self.dimension_of[choice]
        others = (it for it in candidate.choices if self.dimension_of[it] != own)
        return self.make([*others, choice])

    def cache_of(self, candidate: Candidate) -> str:
        """Return the file name of a candidate's cache; empty if the candidate has no cache.

        Candidates share a cache if they agree in all choices on which the content of the cache
        depends.
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


# The figures below were measured on two cores of an AMD EPYC beside other work, with mobilenet_v2
# in both formats, ResNet50 .mge and digits_cnn .mge. Times are in seconds.

# The most candidates of a round, besides the plain run. A round of eight processes of mobilenet_v2
# took 15 s, a round of two took 4 to 9 s. More than eight processes are never alive at once.
MOST_BESIDE = 7

# How many rivals of the best candidate a round measures again: ROOM_FOR_RIVALS while new candidates
# wait, MOST_RACERS otherwise. First measurements of one candidate differed by up to a factor of 5,
# second ones much less. With two rivals, searches of 60 s for ResNet50 ended before they had tried
# all choices that help it.
ROOM_FOR_RIVALS = 1
MOST_RACERS = 4

# How long a round measures each process: a dozen turns of 10 ms. This is a tenth of the time that
# a process of mobilenet_v2 takes to start.
LOOK_SECONDS = 0.12

# How long a proof measures: as long as its two processes take to start on a quiet machine.
PROOF_SECONDS = 1.0

# The fewest pairs of processes for a verdict. Their time is reserved, up to PART_FOR_PROOF of the
# budget: in searches of 30 s a pair took up to 9 s.
PROOF_PAIRS = 3
PART_FOR_PROOF = 0.3

# After this many pairs, two equally good candidates are no longer compared: if processes of one
# candidate differ by 1 %, eight pairs show a difference of 1 %.
MOST_LOOKS = 8

# The choices of an engine that is three times as slow are tried last. The largest gain of a single
# choice was a factor of 3.2: nchw88 for ResNet50.
FAR = math.log(3)

# A combination is tried if its expected time is within this factor of the best. The time of nchw88
# with one more choice was 0.91 to 0.94 of the time that the effects of both alone predict.
COMBINED_SPREAD = math.log(1.25)

# One more choice changed the time of nchw88 by 10 % at most.
NEAR = math.log(1.1)

# How many of the choices that helped most are combined: six give at most 57 candidates. A choice
# must help by about as much as measurements of one candidate differ: 1 to 6 % for ResNet50.
MOST_HELPING = 6
LEAST_HELP = math.log(1.03)

# Single choices are measured until this part of the budget is spent. The rest of the budget is for
# combinations and for the proof.
PART_FOR_SINGLES = 0.5

# A search with fast-run took as long as 340 plain iterations of mobilenet_v2, or 150 of ResNet50.
# Its algorithms made iterations 2.5 times as fast.
SEARCH_ITERATIONS = 400
SEARCH_GAIN = math.log(2.5)
LEAST_SEARCH_SECONDS = 2.0

# A search may take half of the time that is left, since its result has to be measured and proven.
PART_FOR_SEARCH = 0.5

# With layout-transform, loading measures each operator in each layout. This takes as long as
# LOAD_ITERATIONS iterations of a small model. `quick` allows a load 3 % of the budget.
LOAD_ITERATIONS = 5000
PART_FOR_LOAD = 0.03

# The assumed time of a process and its turns, until one was measured: that of a small model.
START_SECONDS = 2.0
IsValid = Callable[[Candidate], bool]


class Step(NamedTuple):
    """The next step of a search: candidates that are measured together.

    `seconds` is the expected time of the step; for an engine's search, this is the time limit.
    """

    kind: RoundKind
    candidates: tuple[Candidate, ...]
    seconds: float


class Ended(NamedTuple):
    """The end of a search, with the reason."""

    ending: Ending


def next_step(
    request: TuneRequest, trials: Sequence[Trial], is_valid: IsValid, left_seconds: float
) -> Step | Ended:
    """Return the next step of a search, or its end.

    Args:
        request: what to search for.
        trials: the processes that were measured until now.
        is_valid: returns whether the rules of options and engines allow a candidate.
        left_seconds: how much of the budget is left.
    """
    survey = Survey(request, Evidence(request.objective, trials), is_valid)
    if survey.fate(BASELINE) != "ok":
        return Ended("failed")
    if left_seconds <= 0:
        return Ended("budget")
    if (plains := survey.plain_runs()) is not None:
        return plains
    may_look = left_seconds > (1 - PART_FOR_SINGLES) * request.budget_seconds
    left = left_seconds - survey.seconds_to_prove
    wanted = survey.find_step(left, may_look=may_look)
    if wanted is not None and (step := survey.shorten(wanted, left)) is not None:
        return step
    proof = survey.prove(left_seconds)
    if proof is not None:
        return proof
    return Ended("settled" if wanted is None else "budget")


@dataclass
class Survey:
    """Finds the steps that are left to do, from the evidence so far."""

    request: TuneRequest
    evidence: Evidence
    is_valid: IsValid
    combinations: list[Combinations] = field(init=False)

    def __post_init__(self) -> None:
        self.combinations = [*starmap(Combinations, enumerate(self.request.spaces))]

    def fate(self, candidate: Candidate) -> str:
        return self.evidence.fates.get(candidate, "ok")

    @cached_property
    def ordered(self) -> list[Candidate]:
        """The candidates that may win, the best first.

        Each candidate in the list, except the baseline, seems better than the plain run by at least
        the margin.
        """
        able = best_first(self.evidence, self.evidence.able)
        limit = -math.log1p(self.request.margin)
        return [it for it in able if it == BASELINE or self.evidence.levels[it] <= limit]

    @property
    def best(self) -> Candidate:
        return self.ordered[0] if self.ordered else BASELINE

    # The next step

    def plain_runs(self) -> Step | None:
        """Return the step that measures the plain run of each model, or None after this step."""
        if BASELINE in self.evidence.scores:
            return None
        plains = tuple(it.plain for it in self.combinations if self.fate(it.plain) == "ok")
        return Step("round", plains, LOOK_SECONDS * len(plains))

    def find_step(self, left: float, *, may_look: bool) -> Step | None:
        """Return the most useful next step for the time left, or None if no step can help.

        If `may_look` is true, the step may measure single choices.
        """
        if may_look and (firsts := self.pick(self.singles("first"))):
            return self.round_of(firsts, 0)  # rivals wait
        if searched := self.pick(self.searched_ones()):
            return self.round_of(searched, ROOM_FOR_RIVALS)
        combined = self.pick(self.combined())
        others = self.pick(self.singles("other")) if may_look else []
        if not combined and not others and (search := self.search(left)) is not None:
            return search
        near = self.pick(self.beside_best()) if len(self.best.choices) > 1 or not combined else []
        found = [*dict.fromkeys(filter(None, chain(*zip_longest(combined, others, near))))]
        if may_look:
            found += self.pick(it for it in self.singles("far") if it not in found)
        if found:
            return self.round_of(found, ROOM_FOR_RIVALS)
        return self.round_of([], MOST_RACERS) if self.rivals() else None

    def prove(self, left: float) -> Step | None:
        """Return a round that measures the best candidates beside the plain run, to prove them.

        Return None if nothing is left to prove, or no time is left.
        """
        levels = self.evidence.levels
        limit = levels[self.best] + math.log1p(self.request.margin)
        as_good = (it for it in self.rivals() if levels[it] < limit)
        near = [it for it in (self.best, *as_good) if not self.evidence.is_proven(it)]
        if self.best == BASELINE or not near:
            return None
        members = (BASELINE, *near[: 1 + ROOM_FOR_RIVALS])
        return self.shorten(Step("proof", members, PROOF_SECONDS), left)

    def rivals(self) -> list[Candidate]:
        """Return the candidates that may still beat the best by the margin, the likeliest first."""
        best = self.best
        return [
            it
            for it in self.ordered
            if it not in (best, BASELINE)
            and self.evidence.may_beat(it, best)
            and not self.is_settled(it)
        ]

    def is_settled(self, candidate: Candidate) -> bool:
        """Return whether it is useless to measure more processes of a candidate.

        Further processes are useless if the processes so far are enough to show a difference as
        large as the margin, or if the candidate has already had the largest allowed number of
        processes.
        """
        found = self.evidence.compare(self.best, candidate)
        if found is None:
            return False
        smallest = found.smallest_detectable
        is_fine = smallest is not None and smallest < self.request.margin
        return is_fine or found.processes >= MOST_LOOKS

    def round_of(self, picked: Sequence[Candidate], most_rivals: int) -> Step:
        """Return a round: the plain run, the best candidate so far, new candidates and rivals."""
        best = [self.best] if self.best != BASELINE else []
        rivals = self.rivals()[:most_rivals] if most_rivals else []
        room = MOST_BESIDE - len(best) - len(rivals)
        members = (BASELINE, *best, *picked[:room], *rivals)
        return Step("round", members, LOOK_SECONDS * len(members))

    # The candidates that may be tried

    def pick(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the new and allowed candidates, at most as many as a round may have."""
        new = (it for it in candidates if self.is_new(it) and self.is_valid(it))
        return [*islice(dict.fromkeys(new), MOST_BESIDE)]

    def is_new(self, candidate: Candidate) -> bool:
        """Return whether a candidate is untried and can be run.

        A candidate that contains a failed choice cannot be run. A candidate can be run only if its
        cache is filled, and if loading the candidate fits into the budget.
        """
        space = self.combinations[candidate.model]
        return (
            candidate not in self.evidence.fates
            and not self.evidence.is_excluded(candidate)
            and (not space.needs_search(candidate) or self.has_cache(candidate))
            and self.can_load(candidate)
        )

    @cached_property
    def searched(self) -> dict[str, RunResult]:
        """The results of all searches that were made, by the name of their cache."""
        return {
            self.combinations[each.model].cache_of(each): result
            for each, result in self.evidence.searches.items()
        }

    def has_cache(self, candidate: Candidate) -> bool:
        """Return whether a search has filled the cache of a candidate, at least in part."""
        found = self.searched.get(self.combinations[candidate.model].cache_of(candidate))
        return found is not None and found.status in ("ok", "timed_out")

    def can_load(self, candidate: Candidate) -> bool:
        """Return whether a candidate loads in time; measuring operators makes loading slow."""
        space = self.combinations[candidate.model]
        if not any(space.choices[name].measures_at_load for name in candidate.choices):
            return True
        seconds = LOAD_ITERATIONS * self.plain_seconds(candidate.model)
        part = PART_FOR_LOAD if self.request.extent == "quick" else PART_FOR_SINGLES
        return seconds <= part * self.request.budget_seconds

    def singles(self, which: Literal["first", "other", "far"]) -> Iterator[Candidate]:
        """Yield candidates with one choice, beginning with the model whose plain run is fastest.

        `first` and `other` are for models whose plain run is nearly as fast as the fastest plain
        run. `first` stands for the first choice of each dimension, and `other` for the other
        choices. `far` stands for all choices of the slower models. Choices that the user has to
        allow come first, since such choices repair a defect.
        """
        levels = self.evidence.levels
        plains = [each for each in self.combinations if each.plain in levels]
        plains.sort(key=lambda each: levels[each.plain])
        for each in plains:
            is_far = levels[each.plain] - levels[plains[0].plain] > FAR
            names = {it.choices[0].name for it in each.space.dimensions if it.choices}
            found = sorted(each.singles(), key=lambda it: not each.choices[it.choices[0]].allow)
            wanted = names if which == "first" else each.choices.keys() - names
            if is_far == (which == "far"):
                yield from (it for it in found if is_far or it.choices[0] in wanted)

    def combined(self) -> Iterator[Candidate]:
        """Yield combinations of choices that helped alone, if the combination may beat the best.

        The most promising combinations come first.
        """
        found = chain.from_iterable(each.combine(self.helping(each)) for each in self.combinations)
        return self.promising(found, COMBINED_SPREAD)

    def beside_best(self) -> Iterator[Candidate]:
        """Yield the candidates that differ from the best in one choice, most promising first."""
        best = self.best
        return self.promising(self.combinations[best.model].neighbours(best), NEAR)

    def promising(self, candidates: Iterable[Candidate], spread: float) -> Iterator[Candidate]:
        """Yield the candidates expected to be at most `spread` slower than the best, best first."""
        expected = {each: self.expect(each) for each in candidates}
        limit = self.evidence.levels[self.best] + spread
        ordered = sorted(
            expected, key=lambda it: (expected[it] + LEAST_HELP * len(it.choices), *order_of(it))
        )
        return (each for each in ordered if expected[each] <= limit)

    def helping(self, space: Combinations) -> list[str]:
        """Return the best choice of each dimension in which a single choice beat the plain run.

        The choices with the largest effects come first. A cache that a search filled is a choice
        too.
        """
        effects = self.effects[space.model]
        helping = [name for name, effect in effects.items() if effect < -LEAST_HELP]
        helping.sort(key=effects.__getitem__, reverse=True)  # the best of a dimension is the last
        best = {space.dimension_of[name]: name for name in helping}
        return sorted(best.values(), key=effects.__getitem__)[:MOST_HELPING]

    @cached_property
    def effects(self) -> list[dict[str, float]]:
        """For each model, the logarithm of the factor by which one choice changes the time."""
        levels = self.evidence.levels
        return [
            {
                name: levels[single] - levels[space.plain]
                for name in space.choices
                if (single := space.make([name])) in levels and self.fate(single) == "ok"
            }
            for space in self.combinations
        ]

    def expect(self, candidate: Candidate) -> float:
        """Return a candidate's expected level, the log of its objective over the baseline's.

        Among the measured candidates that have only choices of `candidate`, the function finds the
        candidate with the most choices. The result is the level of this measured candidate, plus
        the effects of the choices that only `candidate` has.
        """
        levels, effects = self.evidence.levels, self.effects[candidate.model]
        choices = set(candidate.choices)
        parts = [
            each
            for each in self.evidence.able
            if each.model == candidate.model and choices >= {*each.choices}
        ]
        if not parts:
            return math.inf
        most = max(len(each.choices) for each in parts)
        return min(
            levels[each] + sum(effects.get(name, 0.0) for name in choices - {*each.choices})
            for each in parts
            if len(each.choices) == most
        )

    # Searches of the engine

    def searched_ones(self) -> Iterator[Candidate]:
        """Yield the candidates whose cache was filled by a search."""
        return (each for each in self.evidence.searches if self.has_cache(each))

    def search(self, left: float) -> Step | None:
        """Return the step of an engine's search for algorithms, or None if no search pays off.

        A search pays off if it fits into the time left, and if its expected gain would make the
        candidate faster than the best candidate so far.
        """
        for candidate in self.worth_searching():
            seconds = self.search_seconds(candidate)
            if seconds <= PART_FOR_SEARCH * left and self.is_valid(candidate):
                return Step("search", (candidate,), PART_FOR_SEARCH * left)
        return None

    def worth_searching(self) -> Iterator[Candidate]:
        """Yield the best candidate of each model, combined with each search still to be made."""
        levels = self.evidence.levels
        for space in self.combinations:
            own = (it for it in self.ordered if it.model == space.model)
            base = next((it for it in own if not space.needs_search(it)), None)
            if base is None or levels[base] - SEARCH_GAIN > levels[self.best]:
                continue
            searched = (space.add(base, it.name) for it in space.choices.values() if it.search)
            for found in searched:
                is_new = space.cache_of(found) not in self.searched
                if is_new and not self.evidence.is_excluded(found):
                    yield found

    def search_seconds(self, candidate: Candidate) -> float:
        """Return how many seconds a search will probably take.

        The result is the time of the model's last search, or a guess if the model has had no
        search.
        """
        known = [
            result.wall_seconds
            for other, result in self.evidence.searches.items()
            if other.model == candidate.model and result.status == "ok"
        ]
        guess = SEARCH_ITERATIONS * self.plain_seconds(candidate.model)
        return known[-1] if known else max(LEAST_SEARCH_SECONDS, guess)

    # Time

    def plain_seconds(self, model: int) -> float:
        """Return the shortest iteration of a model's plain run, in seconds."""
        return self.evidence.fastest(Candidate(model=model))

    @cached_property
    def start_seconds(self) -> float:
        """The seconds of the last round, divided by the number of its processes."""
        measured = [it for it in self.evidence.trials if it.kind != "search"]
        last = [it.result.wall_seconds for it in measured if it.number == measured[-1].number]
        return max(last) / len(last) if last else START_SECONDS

    def shorten(self, step: Step, left: float) -> Step | None:
        """Return a step with only as many candidates as there is time for.

        Return None if there is no time for one candidate beside the plain run. A search is not
        shortened.
        """
        if step.kind == "search":
            return step
        room = int(left / self.start_seconds)
        if room < 2:
            return None
        return step._replace(candidates=step.candidates[:room])

    @property
    def seconds_to_prove(self) -> float:
        """The seconds of the budget that are reserved for the proof of the best candidate.

        No time is reserved for the next round, since it measures the best candidate in any case.
        """
        if self.best == BASELINE or self.evidence.is_proven(self.best):
            return 0.0
        missing = PROOF_PAIRS - 1 - len(self.evidence.scores[self.best])
        part = PART_FOR_PROOF * self.request.budget_seconds
        return max(0.0, min(missing * 2 * self.start_seconds, part))
