"""Suggestions of what to try next, each with its figure and the flags to try.

The thresholds of data input, device utilization and memory are those of the PyTorch profiler's
TensorBoard plugin; the others speak of what an inference run can change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


class Figure(NamedTuple):
    """The figure of a rule, from 0 to 1, and the sentence about it."""

    share: float
    text: str


class Rule(NamedTuple):
    """A rule applies if its figure is above `limit` or, if that `is_least`, below it; `figure` is
    None for a profile that does not have it."""

    name: str
    figure: Callable[[Profile], Figure | None]
    limit: float
    advice: str
    is_least: bool = False

    def applies(self, share: float) -> bool:
        return share < self.limit if self.is_least else share > self.limit


def recommendations_of(profile: Profile, advice: Advice) -> tuple[Recommendation, ...]:
    """Return what fits a profile, in the order of the rules. The advice is that of the profile's
    engine."""
    found = []
    for rule in RULES:
        figure = rule.figure(profile)
        if figure is None or not rule.applies(figure.share):
            continue
        flags = flags_for(profile, rule.name, advice)
        # There is always an operator type that takes the most: without a flag to try, it says
        # nothing.
        if flags or rule.name != DOMINATING:
            tries = f": {', '.join(flags)}" if flags else ""
            text = f"{figure.text}; {rule.advice}{tries}"
            found.append(Recommendation(rule.name, figure.share, rule.limit, text, flags))
    return tuple(found)


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


def figure_of_input(profile: Profile) -> Figure | None:
    spans = profile.spans_of("phase")
    loading = [span.interval for span in spans if span.name in ("dataloader", "input_copy")]
    share = share_of_steps(profile, loading)
    return (
        None
        if share is None
        else Figure(share, f"reading and copying the input takes {share:.1%} of the iterations")
    )


def figure_of_dispatch(profile: Profile) -> Figure | None:
    dispatch = merge_intervals(dispatch_intervals(profile))
    computing = merge_intervals(each.interval for each in profile.executions)
    alone = subtract_intervals(dispatch, computing)  # in one thread, it is around the execution
    share = share_of_steps(profile, alone)
    return (
        None
        if share is None
        else Figure(
            share, f"operators are dispatched for {share:.1%} of the iterations while none computes"
        )
    )


def figure_of_copies(profile: Profile) -> Figure | None:
    copying = [
        each.computation
        for each in profile.executions
        if only_moves(profile.operators[each.operator].type)
    ]
    copying += [span.interval for span in profile.spans_of("relayout", "memcpy", "memset")]
    share = share_of_steps(profile, copying)
    return (
        None
        if share is None
        else Figure(share, f"copies and changes of layout take {share:.1%} of the iterations")
    )


def figure_of_threads(profile: Profile) -> Figure | None:
    threads, cpu = profile.facts.threads, profile.facts.cpu
    used, busy = cpu.process_percent, cpu.system_percent
    if profile.on_device or used is None or threads is None or threads < 2:
        return None
    usable = threads * 100.0
    if busy is not None and cpu.count:
        # What other processes held, no thread of this one could have.
        usable = min(usable, used + cpu.count * (100 - busy))
    return Figure(
        used / usable if usable else 1.0,
        f"the process uses {used:.0f}% of a CPU, and its {threads} threads could use {usable:.0f}%",
    )


def figure_of_utilization(profile: Profile) -> Figure | None:
    share = breakdown_of(profile).share(KERNEL) if profile.on_device else None
    if share is None:
        return None
    return Figure(share, f"the device computes for {share:.1%} of the iterations")


def figure_of_algorithms(profile: Profile) -> Figure | None:
    times = {
        name: sum(each.compute_ns for each in executions)
        for name, executions in group_by_type(profile).items()
    }
    total = sum(times.values())
    if len(times) < 2 or not total:
        return None
    name = max(times, key=lambda name: times[name])
    share = times[name] / total
    return Figure(share, f"operators of the type {name} take {share:.1%} of the operators' time")


def figure_of_memory(profile: Profile) -> Figure | None:
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
    what = "device" if profile.on_device else "machine"
    return Figure(
        used / capacity,
        f"the run takes {used / 2**30:.1f} GiB, {used / capacity:.1%} of the {what}'s memory",
    )


def share_of_steps(profile: Profile, intervals: Iterable[Interval]) -> float | None:
    """Return the share of the timed steps that the union of intervals takes, from 0 to 1; None if
    nothing was timed."""
    steps = merge_intervals(step.interval for step in steps_of(profile))
    total = total_of(steps)
    return (
        total_of(intersect_intervals(merge_intervals(intervals), steps)) / total if total else None
    )


RULES = (
    Rule("data input", figure_of_input, 0.05, "feed arrays of the model's own type and layout"),
    Rule(
        "dispatch", figure_of_dispatch, 0.10, "make the dispatch cheaper, or each operator larger"
    ),
    Rule("copies", figure_of_copies, 0.10, "keep the operators in one layout"),
    # Of what the threads could use.
    Rule(
        "threads",
        figure_of_threads,
        0.50,
        "run on fewer threads, or bind them to cores",
        is_least=True,
    ),
    Rule("utilization", figure_of_utilization, 0.50, "give it more at once", is_least=True),
    Rule(DOMINATING, figure_of_algorithms, 0.50, "try other algorithms, layouts or types for them"),
    Rule("memory", figure_of_memory, 0.90, "make the batch or the algorithms' workspace smaller"),
)
