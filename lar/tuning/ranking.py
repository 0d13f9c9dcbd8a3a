"""The ranking of the candidates of a search, and what each choice contributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from lar.measurement.differences import FIRST_LOOK, compare_pairs
from lar.measurement.objectives import score_of_process
from lar.measurement.statistics import percentile_of
from lar.measurement.summary import summarize
from lar.measurement.turns import join_turns
from lar.records.run import RunResult, RunSpec
from lar.records.summary import Difference, Summary
from lar.records.tuning import (
    BASELINE,
    NOT_FASTER,
    Candidate,
    Contribution,
    RankedCandidate,
    Trial,
    TrialRow,
    TuneRequest,
    name_of,
    options_of,
)
from lar.tuning.evidence import Evidence, gather_evidence


def rank_candidates(request: TuneRequest, trials: Sequence[Trial]) -> tuple[RankedCandidate, ...]:
    """Return all candidates that were tried, the winner first, then by how fast they are.

    The winner was shown to be better than the plain run; where none was, it is the plain run. The
    intervals hold together, those of all candidates.
    """
    evidence = gather_evidence(request, trials)
    rows: dict[Candidate, list[TrialRow]] = {BASELINE: []}
    for trial in trials:
        for row in trial.rows:
            rows.setdefault(row.candidate, []).append(row)
    values = evidence.means
    differences = compare_all(evidence)
    winner = find_winner(evidence, differences)
    order = sorted(rows, key=lambda each: rank_key(each, evidence, values, winner))
    return tuple(rank(each, rows[each], evidence, differences.get(each), winner) for each in order)


def rank_key(
    candidate: Candidate, evidence: Evidence, values: dict[Candidate, float], winner: Candidate
) -> tuple[bool, bool, float]:
    """Return what the ranking is sorted by: the winner, those that work, the others."""
    fate = evidence.fates.get(candidate, "ok")
    return candidate != winner, fate not in ("ok", "too slow"), values.get(candidate, math.inf)


def compare_all(evidence: Evidence) -> dict[Candidate, Difference]:
    """Return how each candidate differs from the plain run; the intervals hold together. One that
    fresh processes alone have shown to be better has what these say: no winner's interval has 1."""
    candidates = evidence.values
    found = {}
    for candidate, values in candidates.items():
        known = evidence.compare(BASELINE, candidate, comparisons=len(candidates))
        is_shown = known is not None and known.verdict == "faster"
        if not is_shown and evidence.confirmations.get(candidate) == "better":
            known = evidence.proofs[candidate]
        found[candidate] = known or Difference(
            ratio=math.exp(values[0]),
            interval=None,
            verdict="no difference shown",
            smallest_detectable=None,
            processes=len(values),
            pairs=len(values),
        )
    return found


def find_winner(evidence: Evidence, differences: dict[Candidate, Difference]) -> Candidate:
    """Return the best that was shown to be better than the plain run, in fresh processes if it came
    so far; else the plain run."""
    able = [each for each in differences if evidence.fates.get(each, "ok") == "ok"]
    known = evidence.confirmations
    shown = [each for each in able if known.get(each) == "better"] or [
        each
        for each in able
        if differences[each].verdict == "faster" and known.get(each) != "not better"
    ]
    return min(shown, key=lambda each: differences[each].ratio, default=BASELINE)


def rank(
    candidate: Candidate,
    rows: Sequence[TrialRow],
    evidence: Evidence,
    difference: Difference | None,
    winner: Candidate,
) -> RankedCandidate:
    """Return a row of the ranking."""
    request = evidence.request
    space = request.spaces[candidate.model]
    fate = evidence.fates.get(candidate, rows[-1].status if rows else "interrupted")
    measured = [row for row in rows if row.turns]
    scores = sorted(filter(None, (score_of_process(request.objective, row) for row in rows)))
    memory = [row.peak_memory_bytes for row in rows if row.peak_memory_bytes]
    known = RankedCandidate(
        candidate=candidate,
        name=name_of(candidate, request.spaces),
        options=options_of(candidate, space),
        status=fate,
        # One with what a search found before its time ended works, though the search failed.
        failure=None if fate == "ok" else next((row.failure for row in rows if row.failure), None),
        value=percentile_of(scores, 50) if scores else None,
        difference=difference,
        output_difference=next(
            (row.output_difference for row in rows if row.output_difference), None
        ),
        latency=summarize_rows(measured),
        peak_memory_bytes=max(memory, default=None),
        looks=len(measured),
    )
    return replace(known, verdict=verdict_of(known, evidence, winner))


def verdict_of(known: RankedCandidate, evidence: Evidence, winner: Candidate) -> str:
    """Return why a candidate is not the winner; empty where its status says it."""
    if known.candidate == winner or known.status != "ok":
        return ""
    if known.candidate not in evidence.means:
        return "not measured"
    if evidence.confirmations.get(known.candidate) == "not better":
        return NOT_FASTER
    found = evidence.compare(winner, known.candidate, comparisons=len(evidence.values))
    if found is None:
        return "measured once" if known.looks == 1 else "not measured beside the winner"
    if found.verdict == "faster":
        return "not confirmed in fresh processes"
    return "slower than the winner" if found.verdict == "slower" else found.verdict


def summarize_rows(rows: Sequence[TrialRow]) -> Summary | None:
    """Return the summary of the iterations of all processes of a candidate."""
    samples = join_turns(turn for row in rows for turn in row.turns)
    spec = RunSpec(model="", engine="", driver="")
    return summarize(RunResult(spec=spec, status="ok", phase="done", samples=samples))


def contributions_of(request: TuneRequest, trials: Sequence[Trial]) -> tuple[Contribution, ...]:
    """Return what each choice does, from the pairs of candidates that differ in it alone."""
    evidence = gather_evidence(request, trials)
    values = evidence.means
    found: dict[tuple[int, str], list[float]] = {}
    processes: dict[tuple[int, str], list[list[float]]] = {}
    for candidate in values:
        for name in candidate.choices:
            others = tuple(each for each in candidate.choices if each != name)
            without = Candidate(model=candidate.model, choices=others)
            if without in values:
                gap = values[candidate] - values[without]
                ratios = evidence.ratios(without, candidate).rounds
                if ratios:
                    gap = math.fsum(math.fsum(it) / len(it) for it in ratios) / len(ratios)
                key = (candidate.model, name)
                found.setdefault(key, []).append(gap)
                processes.setdefault(key, []).extend(each for each in ratios if each)
    return tuple(
        Contribution(
            model=model,
            choice=choice,
            ratio=math.exp(math.fsum(gaps) / len(gaps)),
            low=math.exp(min(gaps)),
            high=math.exp(max(gaps)),
            pairs=len(gaps),
            difference=difference_of(processes[model, choice], len(found)),
        )
        for (model, choice), gaps in sorted(
            found.items(), key=lambda item: math.fsum(item[1]) / len(item[1])
        )
    )


def difference_of(log_ratios: Sequence[Sequence[float]], comparisons: int) -> Difference | None:
    """Return what pairs of processes show of a choice; None where they are fewer than `lar bench`
    looks at."""
    if len(log_ratios) < FIRST_LOOK:
        return None
    return compare_pairs(log_ratios, comparisons=comparisons)
