"""Judges the candidates of a search by the processes that were measured.

Each process gives the result of a run (`RunResult`). In one round, the processes take turns on one
machine. One process of the round is the plain run of the first model. Since all processes of a
round meet the same state of the machine, the ratio of two processes hardly depends on that state.
`lar.measurement.differences` decides which candidate is faster.

The objective of a search is one number for each process: latency, throughput, memory or p99.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

from lar.measurement.differences import (
    FIRST_LOOK,
    Spread,
    compare_pairs,
    is_look,
    pool,
    usual_spread,
)
from lar.measurement.statistics import disturbed_of, percentile_of
from lar.records.goals import Objective
from lar.records.run import RunResult, Samples, Status
from lar.records.summary import Difference
from lar.records.tuning import BASELINE, Candidate

# With fewer undisturbed iterations than this, all iterations count.
FEWEST_CALM = 4


def score_of(objective: Objective, result: RunResult) -> float | None:
    """Return the value of the objective for a process, in seconds or bytes, or None if unknown.

    Latency is the median time of the undisturbed iterations. Throughput is returned as seconds per
    iteration: the time of the slowest copy, divided by the number of iterations of all copies.
    """
    if objective == "memory":
        return float(result.peak_memory_bytes) if result.peak_memory_bytes else None
    samples = result.samples
    if not samples.end_to_end:
        return None
    if objective == "p99":
        return percentile_of(sorted(samples.end_to_end), 99)
    if objective == "throughput":
        return time_of_slowest_copy(samples) / len(samples.end_to_end)
    return percentile_of(sorted(undisturbed(samples)), 50)


def undisturbed(samples: Samples) -> list[float]:
    """Return the times of the undisturbed iterations, or of all if few were undisturbed."""
    disturbed = {*disturbed_of(samples.end_to_end, samples.queue_delay)}
    calm = [each for index, each in enumerate(samples.end_to_end) if index not in disturbed]
    return calm if len(calm) >= min(FEWEST_CALM, len(samples.end_to_end)) else [*samples.end_to_end]


def time_of_slowest_copy(samples: Samples) -> float:
    """Return how long the slowest copy of the model computed, in seconds."""
    return max(math.fsum(samples.of_runner(it).end_to_end) for it in {*samples.runner} or {0})


RoundKind = Literal["round", "proof", "search"]
"""Why a process was started: to find the best candidate, to prove it, or to fill a cache."""

Fate = Status | Literal["wrong"]

# The assumed spread of the logarithms of a candidate's ratios between rounds. It is used until
# enough ratios were measured. Measured beside other work: 0.01 to 0.06 for ResNet50 on one engine;
# 0.2 to 0.9 between two engines, since other work disturbs their threads in different ways.
USUAL = Spread(0.12, 4)

# Other work makes iterations longer and never shorter. So an iteration that is shorter by this
# factor shows how fast its candidate can be. When 20 threads shared two cores, the medians of one
# candidate's processes differed by a factor of 20. The shortest iterations of six processes of one
# engine differed by a factor of 1.2.
FAR_SHORTER = 2.0

# A candidate with more measured processes than this was chosen for a proof.
FEWEST_LOOKS = 2


class Trial(NamedTuple):
    """A process that measured a candidate, with the number of its round."""

    kind: RoundKind
    number: int
    candidate: Candidate
    result: RunResult


@dataclass
class Evidence:
    """The processes of a search, by candidate."""

    objective: Objective
    trials: Sequence[Trial]
    scores: dict[Candidate, dict[int, float]] = field(default_factory=dict)
    fates: dict[Candidate, Fate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for trial in self.trials:
            if trial.kind == "search":
                continue
            fate = fate_of(trial.result)
            if self.fates.get(trial.candidate, "ok") == "ok" and fate != "interrupted":
                self.fates[trial.candidate] = fate
            score = score_of(self.objective, trial.result)
            if fate == "ok" and score:
                self.scores.setdefault(trial.candidate, {})[trial.number] = score

    def trials_of(self, candidate: Candidate) -> list[Trial]:
        """Return the processes that were started to measure a candidate."""
        return [it for it in self.trials if it.candidate == candidate and it.kind != "search"]

    def fastest(self, candidate: Candidate) -> float:
        """Return the shortest iteration of a candidate in seconds; 0 if it has no iterations."""
        times = (it.result.samples.end_to_end for it in self.trials_of(candidate))
        return min(filter(None, chain(*times)), default=0.0)

    @cached_property
    def searches(self) -> dict[Candidate, RunResult]:
        """The result of the last search of each candidate, even if the search filled no cache."""
        return {it.candidate: it.result for it in self.trials if it.kind == "search"}

    @property
    def able(self) -> list[Candidate]:
        """The candidates that were measured beside the plain run and gave right outputs."""
        return [each for each in self.scores if self.fates[each] == "ok" and each in self.levels]

    def log_ratios(self, first: Candidate, second: Candidate) -> list[float]:
        """Return log(second objective / first objective) for each round with both candidates."""
        ours, theirs = self.scores.get(second, {}), self.scores.get(first, {})
        return [math.log(ours[at] / theirs[at]) for at in ours if at in theirs]

    @cached_property
    def levels(self) -> dict[Candidate, float]:
        """For each candidate, log(objective of the candidate / objective of the baseline)."""
        found = {each: self.compare(BASELINE, each) for each in self.scores}
        return {each: math.log(it.ratio) for each, it in found.items() if it is not None}

    @cached_property
    def usual(self) -> dict[int, Spread | None]:
        """For each model, how much the ratios of its candidates differ between rounds.

        The candidates of different models are not pooled, since other work on the machine may
        disturb one model more than another model.
        """
        found: dict[int, Spread | None] = {}
        for model in {each.model for each in self.scores}:
            own = (it for it in self.scores if it.model == model and it != BASELINE)
            spread = usual_spread(self.log_ratios(BASELINE, each) for each in own)
            is_known = spread and spread.degrees >= USUAL.degrees
            found[model] = spread if is_known else pool([spread, USUAL])
        return found

    def judge(
        self, ratios: Sequence[float], candidate: Candidate, looks: int, *, once: bool = False
    ) -> Difference | None:
        """Return the difference that a candidate's ratios show, or None if there are no ratios.

        If there are few ratios, the spread of the model's other candidates is used too.
        """
        usual = self.usual.get(candidate.model) if len(ratios) <= FIRST_LOOK else None
        pairs = [[ratio] for ratio in ratios]
        return compare_pairs(pairs, usual=usual, comparisons=max(1, looks), once=once)

    def compare(
        self, first: Candidate, second: Candidate, *, comparisons: int = 1
    ) -> Difference | None:
        """Return how the second candidate differs from the first, or None if no round has both.

        The baseline is a candidate of the first model.
        """
        noisier = max(first, second, key=lambda each: each.model)
        return self.judge(self.log_ratios(first, second), noisier, comparisons)

    def proof_of(self, candidate: Candidate) -> tuple[list[float], int]:
        """Return the log ratios for the proof of a candidate, and how many candidates need a proof.

        If many candidates need a proof, each proof must have a smaller risk of error. The proof
        does not use the first process of a candidate, since the candidate was chosen by this
        process. For a plain run all ratios are used, since a plain run is not chosen by its first
        process.
        """
        ratios = self.log_ratios(BASELINE, candidate)
        if not candidate.choices:
            return ratios, 1
        proven = sum(len(scores) > FEWEST_LOOKS for scores in self.scores.values()) - 1
        return ratios[1:], max(1, proven)

    def proofs_of(self, candidate: Candidate) -> list[Difference]:
        """Return a candidate's differences from the baseline, one for each time that lar judges it.

        Verdicts on fewer than `FIRST_LOOK` ratios are stricter, so that all these early verdicts
        together are wrong no more often than a single verdict.
        """
        ratios, proven = self.proof_of(candidate)
        found = (
            self.judge(ratios[:count], candidate, proven * max(1, FIRST_LOOK - count))
            for count in range(1, len(ratios) + 1)
            if count < FIRST_LOOK or is_look(count)
        )
        return [each for each in found if each is not None]

    def is_proven(self, candidate: Candidate) -> bool:
        """Return whether the proof of a candidate shows that it is better than the baseline."""
        return any(each.verdict == "faster" for each in self.proofs_of(candidate))

    def likely(self, candidate: Candidate) -> Difference | None:
        """Return how a candidate differs from the baseline, judged once by all ratios.

        Return None if the ratios do not show that the candidate is better.
        """
        ratios, proven = self.proof_of(candidate)
        found = self.judge(ratios, candidate, proven, once=True)
        return found if found and found.verdict == "faster" else None

    def is_far_shorter(self, candidate: Candidate) -> bool:
        """Return whether the shortest iterations suggest that a candidate beats the baseline.

        Other work on the machine hardly affects the shortest iterations.
        """
        shortest = self.fastest(candidate)
        return self.objective == "latency" and 0 < shortest * FAR_SHORTER < self.fastest(BASELINE)

    def may_beat(self, candidate: Candidate, best: Candidate) -> bool:
        """Return whether a candidate may still be better than the best so far."""
        gap = self.levels[candidate] - self.levels[best]
        found = self.judge(self.log_ratios(best, candidate) or [gap], candidate, 1)
        return found is None or found.verdict != "slower"

    def is_excluded(self, candidate: Candidate) -> bool:
        """Return whether a candidate failed, or has a choice that failed without other choices."""
        failed = (each for each, fate in self.fates.items() if fate != "ok")
        choices = set(candidate.choices)
        return any(
            each.model == candidate.model
            and (each == candidate or (len(each.choices) == 1 and choices >= {*each.choices}))
            for each in failed
        )


def fate_of(result: RunResult) -> Fate:
    """Return how a process ended: its status, or "wrong" if only its outputs are wrong."""
    return "wrong" if result.status == "failed" and result.phase == "done" else result.status


def order_of(candidate: Candidate) -> tuple[int, int, tuple[str, ...]]:
    """Return the key that sorts equally fast candidates, simpler ones first."""
    return len(candidate.choices), candidate.model, candidate.choices


def best_first(evidence: Evidence, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates, the fastest first; among equal candidates, the simpler comes first."""
    return sorted(candidates, key=lambda it: (evidence.levels[it], *order_of(it)))
