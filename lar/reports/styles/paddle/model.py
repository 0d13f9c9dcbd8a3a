"""Paddle's table of the iteration's phases: the time of each, and the rest of the step."""

from __future__ import annotations

from dataclasses import replace

from lar.profiles.totals import totals_of
from lar.records.profile import Span, Step
from lar.reports.model import Table
from lar.reports.styles.paddle.device import WorkSums
from lar.reports.styles.paddle.layout import (
    CALLS,
    LAYOUT,
    Section,
    TimeRow,
    Times,
    both_times,
    format_unit,
    name_column,
    times_of,
)
from lar.reports.styles.paddle.run import Settings, TimedRun

MODEL_NOTES = (
    "In this table, GPU time is the sum of all device(GPU) events called in the phase.",
    "Unlike overview summary, if two device(GPU) events execute on different streams with overlap "
    "time, we sum them directly here.",
    "",
)
PHASE_ORDER = ("Dataloader", "InputCopy", "Forward", "OutputCopy")
NAME_WIDTH = 15


def phase_calls(run: TimedRun) -> tuple[dict[str, list[list[Span]]], dict[str, list[list[Span]]]]:
    """Return the phases within timed steps and those outside, by the name of their row: a list of
    calls, each a list of spans. Dispatch and wait of a step are one Forward."""
    steps = {step.number: step for step in run.steps}
    inside: dict[str, list[list[Span]]] = {}
    outside: dict[str, list[list[Span]]] = {}
    forward: dict[int, list[Span]] = {}
    for span in run.profile.spans_of("phase", timed=False):
        name = "Forward" if span.name == "wait" else camel_case(span.name)
        step = steps.get(span.step) if span.step is not None else None
        if span.step is None:
            outside.setdefault(name, []).append([span])
        elif step is None or span.warmup:
            continue
        elif not is_within(span, step):
            outside.setdefault(name, []).append([span])
        elif name != "Forward":
            inside.setdefault(name, []).append([span])
        elif step.number in forward:
            forward[step.number].append(span)
        else:
            forward[step.number] = [span]
            inside.setdefault(name, []).append(forward[step.number])
    return inside, outside


def is_within(span: Span, step: Step) -> bool:
    """Return whether a span has time in common with a step, or lasts no time within it."""
    start, end = max(span.start_ns, step.start_ns), min(span.end_ns, step.end_ns)
    return start < end or start == end == span.start_ns == span.end_ns


def camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def phase_rows(run: TimedRun) -> list[TimeRow]:
    """Return the phases of the timed steps: times on the host, and of the kernels begun in them,
    as plain sums; the ratio on a device is that to all kernels."""
    inside, _ = phase_calls(run)
    kernels = [each for each in run.activities if each.kind == "Kernel"]
    work = WorkSums((each.launch_ns, each.duration_ns) for each in kernels)
    whole_ns = sum(each.duration_ns for each in kernels)
    known = [name for name in PHASE_ORDER if name in inside]
    rows = []
    for name in [*known, *(name for name in inside if name not in known)]:
        calls = inside[name]
        cpu = totals_of(sum(span.duration_ns for span in spans) for spans in calls)
        gpu = totals_of(
            sum(work.total_between(*span.interval) for span in spans) for spans in calls
        )
        cells = times_of(cpu, run.step_ns), times_of(gpu, whole_ns)
        rows.append(TimeRow(name, len(calls), *cells, level=1))
    return rows


def model_rows(run: TimedRun) -> list[TimeRow]:
    """Return the steps, their phases, the rest of the steps, and the phases outside, which have no
    ratio."""
    kernel_ns = {step.number: 0 for step in run.steps}
    for each in run.activities:
        if each.kind == "Kernel" and each.step in kernel_ns:
            kernel_ns[each.step] += each.duration_ns
    step, gpu = totals_of(each.duration_ns for each in run.steps), totals_of(kernel_ns.values())
    whole = TimeRow(
        "ProfileStep", step.calls, times_of(step, run.step_ns), times_of(gpu, gpu.total_ns)
    )
    phases = phase_rows(run)
    left_ns = step.total_ns - sum(row.cpu.total_ns or 0 for row in phases if row.cpu)
    gpu_left_ns = gpu.total_ns - sum(row.gpu.total_ns or 0 for row in phases if row.gpu)
    gpu_ratio = gpu_left_ns / gpu.total_ns if gpu.total_ns else 0.0
    others = TimeRow(
        "Others",
        None,
        Times(left_ns, ratio=left_ns / run.step_ns),
        Times(gpu_left_ns, ratio=gpu_ratio),
        level=1,
    )
    return [whole, *phases, others, *outside_rows(run)]


def outside_rows(run: TimedRun) -> list[TimeRow]:
    """Return the phases outside the timed steps, the warm-up iterations among them."""
    _, outside = phase_calls(run)
    durations = {name: [each[0].duration_ns for each in calls] for name, calls in outside.items()}
    if "Warmup" not in durations:
        warmup = [step.duration_ns for step in run.profile.steps if step.warmup]
        durations |= {"Warmup": warmup} if warmup else {}
    return [
        TimeRow(name, len(values), times_of(totals_of(values), 0)._replace(ratio=None), None)
        for name, values in durations.items()
    ]


def model_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return the times of the iteration's phases, none where the profile has no phases."""
    rows, unit = model_rows(run), settings.unit
    if not phase_rows(run):
        return []
    table = Table(
        name="model",
        title="Model Summary",
        columns=(
            name_column(NAME_WIDTH, lambda row: "  " * row.level + row.name),
            CALLS,
            *both_times(unit),
        ),
        rows=tuple(rows),
        notes=MODEL_NOTES[:-1],
        layout=LAYOUT,
        above=(format_unit(unit),),
    )
    return [Section(table, (replace(table, notes=MODEL_NOTES),))]
