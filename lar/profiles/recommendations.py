"""What a profile shows that a run can change: the figures, and suggestions that rest on them.

A suggestion with a setting to try comes from an engine (`Engine.prospects`), which knows its own
settings and defects. Those that concern every engine, such as its inputs, stand here.

The thresholds of data input, device utilization and memory are those of the PyTorch profiler's
TensorBoard plugin; the others speak of what an inference run can change.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from lar.options.option import Option
from lar.options.table import BATCH_SIZE, INPUT, NO_ARENA, THREAD, WORKSPACE_LIMIT
from lar.profiles.breakdown import KERNEL, breakdown_of, dispatch_intervals, steps_of
from lar.profiles.devices import device_kind
from lar.profiles.disturbance import disturbed_steps
from lar.profiles.intervals import (
    intersect_intervals,
    merge_intervals,
    subtract_intervals,
    total_of,
)
from lar.profiles.operator_filter import only_moves
from lar.profiles.times import iteration_times_of
from lar.records.choices import Choice, OptionValue
from lar.records.profile import Execution, Interval, Profile, ProfiledOperator, Step

# A setting that is not expected to save so much of an iteration is not suggested.
LEAST_GAIN = 0.03
# So many calm iterations say how long one takes.
FEWEST_CALM = 3


@dataclass(frozen=True)
class Recommendation:
    """One suggestion.

    Attributes:
        rule: its name.
        share: the figure that it rests on, from 0 to 1, beyond `limit`.
        text: the whole sentence, figure and flags included, for a person.
        flags: those of `lar run`; all of them together.
        gain: the part of an iteration that it is expected to save; None for a note, which names
            no setting that could be tried against the run.
        choice: the setting, None for a note.
        without: the keys of options that the run has set and that the setting takes the place of.
    """

    rule: str
    share: float
    limit: float
    text: str
    flags: tuple[str, ...]
    gain: float | None = None
    choice: Choice | None = None
    without: tuple[str, ...] = ()

    @property
    def options(self) -> Mapping[str, OptionValue]:
        """The options that it sets."""
        return self.choice.options if self.choice else {}


class Figure(NamedTuple):
    """The figure of a rule, from 0 to 1, and the sentence about it."""

    share: float
    text: str


class Prospect(NamedTuple):
    """A setting of an engine that a profile speaks for.

    `gain` is the part of an iteration that it is expected to save; `advice` is what it does, in
    words that the flags follow. `without` are the keys of options that it takes the place of. A
    note has no choice.
    """

    rule: str
    choice: Choice | None
    gain: float
    figure: Figure
    limit: float
    advice: str
    without: tuple[str, ...] = ()


class Note(NamedTuple):
    """A rule of all engines: it applies if its figure is above `limit` or, if that `is_least`,
    below it; `figure` is None for a profile that does not have it. `flags` are those that may
    help, of which an engine honours some."""

    name: str
    figure: Callable[[Profile], Figure | None]
    limit: float
    advice: str
    flags: tuple[Option[Any], ...] = ()
    is_least: bool = False

    def applies(self, share: float) -> bool:
        return share < self.limit if self.is_least else share > self.limit


class Shown:
    """Where the time of a profile's iterations goes; times are nanoseconds of one iteration."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    @cached_property
    def iteration_times(self) -> Mapping[int, int]:
        """How long each timed iteration took, without the loading of its item, by the number of its
        step; that of all operators where the profile has no steps."""
        steps, times = self.profile.timed_steps(), iteration_times_of(self.profile)
        known = {step.number: time for step, time in zip(steps, times, strict=True)}
        return known or {step.number: step.duration_ns for step in steps_of(self.profile)}

    @cached_property
    def iteration_ns(self) -> float:
        """The median iteration, 0 if nothing was timed."""
        return statistics.median(self.iteration_times.values()) if self.iteration_times else 0.0

    @cached_property
    def unprofiled_ns(self) -> float:
        """The median calm iteration without the profiler, as far as it was measured."""
        cost = self.profile.facts.cost
        return cost.calm[1] * 1e9 if cost else self.iteration_ns

    @cached_property
    def calm_steps(self) -> list[Step]:
        """The iterations that nothing disturbed, as far as that was recorded."""
        disturbed = disturbed_steps(self.profile)
        return [step for step in steps_of(self.profile) if step.number not in disturbed]

    @property
    def calm_ns(self) -> float:
        """The median iteration of those, 0 without any."""
        durations = [self.iteration_times[step.number] for step in self.calm_steps]
        return statistics.median(durations) if durations else 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether too few iterations were calm."""
        cost = self.profile.facts.cost
        return len(self.calm_steps) < min(FEWEST_CALM, len(steps_of(self.profile))) or (
            cost is not None and cost.disturbed
        )

    @cached_property
    def single_ns(self) -> Mapping[int, float]:
        """The median time of a single execution of each operator, by its place."""
        return {
            place: statistics.median(each.compute_ns for each in executions)
            for place, executions in self._executions.items()
        }

    @cached_property
    def operator_ns(self) -> Mapping[int, float]:
        """The time of each operator in an iteration, by its place: disturbed ones count little."""
        steps = max(1, len(steps_of(self.profile)))
        return {
            place: self.single_ns[place] * len(executions) / steps
            for place, executions in self._executions.items()
        }

    @cached_property
    def whole_ns(self) -> float:
        """An iteration that nothing disturbs, or all of its operators where several run at once.

        It is the median calm one, without the profiler if that was faster. Where too few were calm
        it is the operators alone: their medians are those of calm executions all the same.
        """
        if self.is_disturbed and self.computing_ns:
            return self.computing_ns
        return max(min(self.calm_ns, self.unprofiled_ns), self.computing_ns)

    def part(self, share: float) -> str:
        """Return a part of `whole_ns` in words: 20.0% of an iteration."""
        if self.is_disturbed and self.computing_ns:
            return f"{share:.1%} of the operators' time"
        is_calm = len(self.calm_steps) < len(steps_of(self.profile))
        return f"{share:.1%} of an {'undisturbed ' if is_calm else ''}iteration"

    @property
    def computing_ns(self) -> float:
        """The time of all operators together."""
        return sum(self.operator_ns.values())

    def share(self, accepts: Callable[[ProfiledOperator], bool], least_ns: float = 0.0) -> float:
        """Return the part of an iteration that some operators take, of which one execution takes
        `least_ns` at least."""
        operators = self.profile.operators
        found = sum(
            total
            for place, total in self.operator_ns.items()
            if self.single_ns[place] >= least_ns and accepts(operators[place])
        )
        return found / self.whole_ns if self.whole_ns else 0.0

    @cached_property
    def calls(self) -> float:
        """The executions of operators in an iteration."""
        steps = max(1, len(steps_of(self.profile)))
        return sum(len(each) for each in self._executions.values()) / steps

    @cached_property
    def _executions(self) -> Mapping[int, list[Execution]]:
        return self.profile.executions_by_operator

    @property
    def idle_cpus(self) -> float | None:
        """How many CPUs of the machine stood idle on average, None if that was not measured."""
        cpu = self.profile.facts.cpu
        if cpu.system_percent is None or not cpu.count:
            return None
        return min(max(0.0, cpu.count * (100 - cpu.system_percent) / 100), cpu.count)


def notes_of(profile: Profile, honoured: Collection[str]) -> tuple[Recommendation, ...]:
    """Return what fits a profile of any engine, in the order of the rules; `honoured` are the keys
    of the options that its engine takes."""
    found = []
    for note in NOTES:
        figure = note.figure(profile)
        if figure is None or not note.applies(figure.share):
            continue
        flags = tuple(
            each.flag for each in note.flags if not each.by_engine or each.key in honoured
        )
        tries = f": {', '.join(flags)}" if flags else ""
        text = f"{figure.text}; {note.advice}{tries}"
        found.append(Recommendation(note.name, figure.share, note.limit, text, flags))
    return tuple(found)


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


NOTES = (
    Note(
        "data input",
        figure_of_input,
        0.05,
        "feed arrays of the model's own type and layout",
        (INPUT,),
    ),
    Note(
        "dispatch",
        figure_of_dispatch,
        0.10,
        "for more items in a second, make each operator larger",
        (BATCH_SIZE,),
    ),
    Note("copies", figure_of_copies, 0.10, "keep the operators in one layout"),
    Note(
        "utilization",
        figure_of_utilization,
        0.50,
        "give it more at once",
        (BATCH_SIZE, THREAD),
        is_least=True,
    ),
    Note(
        "memory",
        figure_of_memory,
        0.90,
        "make the batch or the algorithms' workspace smaller",
        (WORKSPACE_LIMIT, NO_ARENA, BATCH_SIZE),
    ),
)
