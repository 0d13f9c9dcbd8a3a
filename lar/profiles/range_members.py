"""The executions, kernels and copies that belong to each range that the user has named.

To a range of `--range-by` belong the executions that it was made of, by their operators' names:
where a clock ticks in microseconds, what lasts less touches a range's ends without being of it. To
any other range belongs what began in its time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from lar.profiles.ranges import patterns_of, runs_of_pattern, span_of_run
from lar.records.profile import Execution, Profile, Span

# What a range of `--range-by` is known by: name, thread, step, begin and end.
RangeKey = tuple[str, int, int | None, int, int]
# Each thread and the time when a record began there, first the thread where it ran.
Starts = tuple[tuple[int, int], ...]
# The position of a record's execution among the timed ones, if it has one, and its begins.
Begun = tuple["int | None", Starts]


def members_of_ranges(profile: Profile, records: Iterable[Begun]) -> list[tuple[Span, list[int]]]:
    """Return the user's ranges with the positions of the records that belong to each, without those
    of the warm-up.

    By time, what began within a range on its thread belongs to it, whether it ran there or was
    dispatched from there. To a range on a thread where nothing did belongs all that began to run
    meanwhile.
    """
    spans = [it for it in profile.spans if it.category == "user_annotation" and not it.warmup]
    if not spans:
        return []  # what follows takes much memory for each record
    begun = [*records]
    made_of, starts = executions_by_range(profile), starts_by_thread(begun)
    parts: dict[int | None, list[int]] = {}
    for place, (execution, _) in enumerate(begun):
        parts.setdefault(execution, []).append(place)
    found = []
    for span in spans:
        if same := made_of.get(key_of(span)):
            # Ranges of one name that last no time may look the same.
            places = [place for execution in same.pop() for place in parts.get(execution, ())]
        else:
            known = starts.get(span.thread, starts[None])
            first = bisect_left(known, (span.start_ns, -1))
            last = bisect_left(known, (span.end_ns, -1))
            places = [place for _, place in known[first:last]]
        found.append((span, places))
    return found


def executions_by_range(profile: Profile) -> dict[RangeKey, list[list[int]]]:
    """Return the positions of the timed executions that ranges of `--range-by` were made of."""
    executions, found = profile.timed_executions, dict[RangeKey, list[list[int]]]()
    for pattern, name in patterns_of(profile.facts.options):
        for run in runs_of_pattern(pattern, profile.operators, executions):
            span = span_of_run(name, [executions[place] for place in run])
            found.setdefault(key_of(span), []).append(run)
    return found


def key_of(span: Span) -> RangeKey:
    return span.name, span.thread, span.step, *span.interval


def starts_of(execution: Execution) -> Starts:
    """Return on which thread an execution ran and on which it was dispatched, with the times."""
    starts = [(execution.thread, execution.start_ns)]
    if execution.dispatch_start_ns is not None and execution.dispatch_thread is not None:
        starts.append((execution.dispatch_thread, execution.dispatch_start_ns))
    return tuple(starts)


def starts_by_thread(begun: Sequence[Begun]) -> dict[int | None, list[tuple[int, int]]]:
    """Return the sorted begins by thread, of the records that ran there, else of those dispatched
    there; under None, of all that ran."""
    ran: dict[int | None, list[tuple[int, int]]] = {None: []}
    dispatched: dict[int | None, list[tuple[int, int]]] = {}
    for place, (_, ((thread, start_ns), *earlier)) in enumerate(begun):
        ran.setdefault(thread, []).append((start_ns, place))
        ran[None].append((start_ns, place))
        for thread, start_ns in earlier:
            dispatched.setdefault(thread, []).append((start_ns, place))
    return {thread: sorted(starts) for thread, starts in (dispatched | ran).items()}
