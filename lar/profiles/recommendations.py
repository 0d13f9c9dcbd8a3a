"""Suggestions of what to try next, each with its figure and the flags to try.

The thresholds of data input, device utilization and memory are those of the PyTorch profiler's
TensorBoard plugin; the others speak of what an inference run can change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lar.options.option import Option
from lar.options.table import (
    BATCH_SIZE,
    INPUT,
    LAYOUT_CHOICES,
    MULTITHREAD,
    OPTIONS,
    THREAD,
    WORKSPACE_LIMIT,
    one_of,
)
from lar.profiles.breakdown import KERNEL, breakdown_of, dispatch_intervals, steps_of
from lar.profiles.devices import device_kind
from lar.profiles.intervals import (
    intersect_intervals,
    merge_intervals,
    subtract_intervals,
    total_of,
)
from lar.profiles.operator_filter import only_moves
from lar.profiles.totals import group_by_type
from lar.records.profile import Interval, Profile

DATA_INPUT_LIMIT = 0.05
DISPATCH_LIMIT = 0.10
COPIES_LIMIT = 0.10
THREADS_LIMIT = 0.50  # of what the threads could use
UTILIZATION_LIMIT = 0.50
DOMINATING_LIMIT = 0.50
MEMORY_LIMIT = 0.90

DOMINATING = "dominating type"

# Flags that are set already and can be set otherwise.
ADJUSTABLE = (INPUT, BATCH_SIZE, MULTITHREAD, THREAD, WORKSPACE_LIMIT)


class Advice(NamedTuple):
    """The options that an engine's run can change: for each rule those to try, the best first.

    `of_cpus` are those that mean nothing on a device, `of_devices` those that mean nothing on a
    CPU's; `values` are what to give the flags that need a value.
    """

    flags: Mapping[str, tuple[Option[Any], ...]] = {}
    of_cpus: tuple[Option[Any], ...] = ()
    of_devices: tuple[Option[Any], ...] = ()
    values: Mapping[Option[Any], str] = {}


@dataclass(frozen=True)
class Recommendation:
    """One suggestion.

    `rule` is a key of `Advice.flags`; `share` is the figure it rests on, from 0 to 1, beyond
    `limit`; `text` is the whole sentence, figure included, for a person; `flags` are those of
    `lar run`.
    """

    rule: str
    share: float
    limit: float
    text: str
    flags: tuple[str, ...]


class Finding(NamedTuple):
    """The finding of a rule: its figure, the sentence about it, and what to do."""

    rule: str
    share: float
    limit: float
    text: str
    advice: str


def recommendations_of(profile: Profile, advice: Advice) -> tuple[Recommendation, ...]:
    """Return what fits a profile, in the order of the rules; a rule whose figure is not known gives
    none. The advice is that of the profile's engine."""
    findings = (
        recommend_data_input(profile),
        recommend_dispatch(profile),
        recommend_copies(profile),
        recommend_threads(profile),
        recommend_utilization(profile),
        recommend_algorithms(profile),
        recommend_memory(profile),
    )
    found = (recommendation_of(profile, each, advice) for each in findings if each is not None)
    # There is always an operator type that takes the most: without a flag to try, it says nothing.
    return tuple(each for each in found if each.flags or each.rule != DOMINATING)


def recommendation_of(profile: Profile, finding: Finding, advice: Advice) -> Recommendation:
    """Put a finding and the flags to try together."""
    flags = flags_for(profile, finding.rule, advice)
    tries = f": {', '.join(flags)}" if flags else ""
    text = f"{finding.text}; {finding.advice}{tries}"
    return Recommendation(finding.rule, finding.share, finding.limit, text, flags)


def flags_for(profile: Profile, rule: str, advice: Advice) -> tuple[str, ...]:
    """Return the flags of a rule that the engine honours and the run has not set. Left out are
    other layouts if the run has chosen one, flags for a CPU on a device, and more threads than the
    machine has cores."""
    facts = profile.facts
    chosen = {option for option in OPTIONS if option.is_given(facts.options)}
    if one_of(LAYOUT_CHOICES, facts.options):
        chosen |= set(LAYOUT_CHOICES)
    unfit = {
        *(advice.of_cpus if profile.on_device else advice.of_devices),
        *(chosen - set(ADJUSTABLE)),
    }
    if rule == DOMINATING and (facts.threads or facts.cpu.count) >= facts.cpu.count:
        unfit.add(MULTITHREAD)
    options = (each for each in advice.flags.get(rule, ()) if each not in unfit)
    return tuple(" ".join(filter(None, (each.flag, advice.values.get(each)))) for each in options)


def recommend_data_input(profile: Profile) -> Finding | None:
    spans = profile.spans_of("phase")
    loading = [span.interval for span in spans if span.name in ("dataloader", "input_copy")]
    share = share_of_steps(profile, loading)
    if share is None or share <= DATA_INPUT_LIMIT:
        return None
    return Finding(
        "data input",
        share,
        DATA_INPUT_LIMIT,
        f"reading and copying the input takes {share:.1%} of the iterations",
        "feed arrays of the model's own type and layout",
    )


def recommend_dispatch(profile: Profile) -> Finding | None:
    dispatch = merge_intervals(dispatch_intervals(profile))
    computing = merge_intervals(each.interval for each in profile.executions)
    alone = subtract_intervals(dispatch, computing)  # in one thread, it is around the execution
    share = share_of_steps(profile, alone)
    if share is None or share <= DISPATCH_LIMIT:
        return None
    return Finding(
        "dispatch",
        share,
        DISPATCH_LIMIT,
        f"operators are dispatched for {share:.1%} of the iterations while none computes",
        "make the dispatch cheaper, or each operator larger",
    )


def recommend_copies(profile: Profile) -> Finding | None:
    copying = [
        each.computation
        for each in profile.executions
        if only_moves(profile.operators[each.operator].type)
    ]
    copying += [span.interval for span in profile.spans_of("relayout", "memcpy", "memset")]
    share = share_of_steps(profile, copying)
    if share is None or share <= COPIES_LIMIT:
        return None
    return Finding(
        "copies",
        share,
        COPIES_LIMIT,
        f"copies and changes of layout take {share:.1%} of the iterations",
        "keep the operators in one layout",
    )


def recommend_threads(profile: Profile) -> Finding | None:
    threads, cpu = profile.facts.threads, profile.facts.cpu
    used, busy = cpu.process_percent, cpu.system_percent
    if profile.on_device or used is None or threads is None or threads < 2:
        return None
    usable = threads * 100.0
    if busy is not None and cpu.count:
        # What other processes held, no thread of this one could have.
        usable = min(usable, used + cpu.count * (100 - busy))
    share = used / usable if usable else 1.0
    if share >= THREADS_LIMIT:
        return None
    return Finding(
        "threads",
        share,
        THREADS_LIMIT,
        f"the process uses {used:.0f}% of a CPU, and its {threads} threads could use {usable:.0f}%",
        "run on fewer threads, or bind them to cores",
    )


def recommend_utilization(profile: Profile) -> Finding | None:
    if not profile.on_device:
        return None
    share = breakdown_of(profile).share(KERNEL)
    if share is None or share >= UTILIZATION_LIMIT:
        return None
    return Finding(
        "utilization",
        share,
        UTILIZATION_LIMIT,
        f"the device computes for {share:.1%} of the iterations",
        "give it more at once",
    )


def recommend_algorithms(profile: Profile) -> Finding | None:
    times = {
        name: sum(each.compute_ns for each in executions)
        for name, executions in group_by_type(profile).items()
    }
    total = sum(times.values())
    if len(times) < 2 or not total:
        return None
    name = max(times, key=lambda name: times[name])
    share = times[name] / total
    if share <= DOMINATING_LIMIT:
        return None
    return Finding(
        DOMINATING,
        share,
        DOMINATING_LIMIT,
        f"operators of the type {name} take {share:.1%} of the operators' time",
        "try other algorithms, layouts or types for them",
    )


def recommend_memory(profile: Profile) -> Finding | None:
    kind = device_kind(profile.facts.device)
    capacity = next((d.memory_bytes for d in profile.devices if d.kind == kind), None)
    if capacity is None and not profile.on_device:
        capacity = profile.facts.machine.get("memory_bytes")
    # The process's own memory is the host's, and says nothing about a device's.
    used = (
        profile.memory_plan.static_bytes if profile.on_device else profile.facts.peak_memory_bytes
    )
    if used is None or not capacity:
        return None
    share = used / capacity
    if share <= MEMORY_LIMIT:
        return None
    what = "device" if profile.on_device else "machine"
    return Finding(
        "memory",
        share,
        MEMORY_LIMIT,
        f"the run takes {used / 2**30:.1f} GiB, {share:.1%} of the {what}'s memory",
        "make the batch or the algorithms' workspace smaller",
    )


def share_of_steps(profile: Profile, intervals: Iterable[Interval]) -> float | None:
    """Return the share of the timed steps that the union of intervals takes, from 0 to 1; None if
    nothing was timed."""
    steps = merge_intervals(step.interval for step in steps_of(profile))
    total = total_of(steps)
    return (
        total_of(intersect_intervals(merge_intervals(intervals), steps)) / total if total else None
    )
