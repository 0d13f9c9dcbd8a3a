"""What else on the machine disturbed the iterations of a profile, and which executions show it.

The parent of a run decides once which iterations were disturbed, for the run's own lines and for
the profile (`lar.measurement.statistics.causes_of`). An execution is disturbed if its iteration
was, and if it took longer than the operator does in the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from lar.errors import count_of
from lar.measurement.statistics import DISTURBED_SECONDS, DISTURBED_SHARE, causes_of, percentile_of
from lar.profiles.totals import group_by
from lar.records.profile import Profile, StepNoise, keep_with_profile

if TYPE_CHECKING:
    from lar.records.run import Samples

# Losing a CPU costs at least a part of a millisecond; a slow CPU slows down all operators alike.
LEAST_LOST_NS = round(DISTURBED_SECONDS * 1e9)
LEAST_SLOWED_NS = 10_000
SLOWING = frozenset({"frequency", "slow core"})

# At least so many undisturbed executions tell how long an operator takes.
FEWEST_CALM = 3

# What a cause did to iterations, in the words of the run's own lines.
CAUSES: Mapping[str, str] = {
    "queue delay": "waited for a CPU that other work held",
    "steal": "lost time to other guests of the host",
    "throttling": "were throttled",
    "frequency": "ran at a lower frequency than the others",
    "slow core": "ran on a core that others slowed down",
}


def noise_of(samples: Samples, copies: int = 1) -> tuple[StepNoise, ...]:
    """Return what disturbed the timed iterations of a run, by the numbers of their steps.

    `copies` of a model that run at once number their iterations in turn.
    """
    waits = samples.queue_delay or (None,) * len(samples.end_to_end)
    causes: dict[int, list[str]] = {}
    for cause, places in causes_of(samples).items():
        for place in places:
            causes.setdefault(place, []).append(cause)
    counts = [0] * copies
    found = []
    for place, wait in enumerate(waits):
        runner = samples.runner[place] if samples.runner else 0
        step = counts[runner] * copies + runner
        counts[runner] += 1
        waiting = None if wait is None else max(0, round(wait * 1e9))
        found.append(StepNoise(step, waiting, tuple(causes.get(place, ()))))
    return tuple(sorted(found, key=lambda each: each.step))


def waiting_by_step(profile: Profile) -> dict[int, int]:
    """Return how long a thread waited for a CPU in each timed step, in nanoseconds.

    It is the thread that waited longest, which the step may not have needed. Steps without a record
    are left out.
    """
    known = {each.step: each.waiting_ns for each in profile.facts.noise}
    return {
        step.number: min(waiting, step.duration_ns)
        for step in profile.timed_steps()
        if (waiting := known.get(step.number)) is not None
    }


def disturbed_steps(profile: Profile) -> dict[int, tuple[str, ...]]:
    """Return the causes for each step that was disturbed."""
    return {each.step: each.causes for each in profile.facts.noise if each.causes}


@keep_with_profile
def disturbed_executions(profile: Profile) -> frozenset[int]:
    """Return the places, among the timed executions, of those that something made longer.

    They are compared with the operator's median in the undisturbed steps.
    """
    steps, executions = disturbed_steps(profile), profile.timed_executions
    found: set[int] = set()
    if not steps:
        return frozenset()
    for own in group_by(enumerate(executions), lambda it: it[1].operator).values():
        calm = [each.compute_ns for _, each in own if each.step not in steps]
        # Even if every step is disturbed, only some of an operator's executions are.
        compared = calm if len(calm) >= FEWEST_CALM else [each.compute_ns for _, each in own]
        usual = percentile_of(sorted(compared), 50)
        for place, each in own:
            causes = steps.get(each.step, ())
            least = LEAST_SLOWED_NS if SLOWING.intersection(causes) else LEAST_LOST_NS
            if causes and each.compute_ns - usual > max(least, DISTURBED_SHARE * usual):
                found.add(place)
    return frozenset(found)


def describe_disturbance(profile: Profile) -> str:
    """Return how many timed iterations were disturbed and by what, without a full stop.

    It is empty if no iteration was disturbed, or if that was not recorded.
    """
    steps = disturbed_steps(profile)
    if not steps:
        return ""
    counts = Counter(chain.from_iterable(steps.values()))
    parts = {cause: f"{number} {CAUSES.get(cause, cause)}" for cause, number in counts.items()}
    longest = max(waiting_by_step(profile).values(), default=0)
    if longest and "queue delay" in parts:
        parts["queue delay"] += f", up to {longest / 1e6:.3f} ms"
    count = len(profile.facts.noise)
    verb, what = "was" if len(steps) == 1 else "were", "; ".join(parts.values())
    return f"{len(steps)} of {count_of(count, 'iteration')} {verb} disturbed: {what}"
