"""The copies of a model that ran at once: the part of a profile that belongs to each."""

from __future__ import annotations

from dataclasses import replace

from lar.records.profile import THREADS_OF_A_COPY, Profile, Span


def split_copies(profile: Profile) -> list[Profile]:
    """Return the profile of each copy: its iterations, its executions and the spans on its threads.

    With only one copy it is the whole profile. Counters and memory are the process's: the first
    copy has them.
    """
    copies = sorted({step.copy for step in profile.steps})
    if len(copies) < 2:
        return [profile]
    owner = {step.number: step.copy for step in profile.steps}

    def owner_of(span: Span) -> int:
        return span.thread // THREADS_OF_A_COPY if span.step is None else owner.get(span.step, 0)

    return [
        replace(
            profile,
            steps=tuple(step for step in profile.steps if step.copy == copy),
            executions=tuple(
                each for each in profile.executions if owner.get(each.step, 0) == copy
            ),
            spans=tuple(span for span in profile.spans if owner_of(span) == copy),
            counters=() if copy else profile.counters,
            allocations=() if copy else profile.allocations,
        )
        for copy in copies
    ]
