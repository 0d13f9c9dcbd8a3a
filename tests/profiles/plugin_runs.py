"""Runs whose traces the TensorBoard plugin is given."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import itemgetter
from typing import Any

import msgspec

from lar.records.profile import (
    Allocation,
    DeviceFacts,
    Execution,
    MemoryPlan,
    Profile,
    Span,
    Step,
)
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import (
    HOST,
    STREAM,
    WORKER,
    execution_of,
    profile_of,
    span_of,
    step_of,
)
from tests.reports.styles import tensorboard_sample as sample

TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Elemwise"}
TIMES = {"conv1": 300, "conv2": 500, "relu": 7}


def timed_run(**fields: Any) -> Profile:
    return profile_of_times(TYPES, [TIMES] * 3, step_us=1000, warmup=1, **fields)


def device_run() -> Profile:
    """Kernels by name on a stream, copies, and calls of the runtime within dispatches."""
    operators = [
        operator_of("loop", "Loop"),
        operator_of("conv", "Conv"),
        operator_of("copy", "Copy"),
    ]
    executions: list[Execution] = []
    spans: list[Span] = []
    for step in (3, 4):
        at = step * 1000
        given: dict[str, Any] = {"step": step, "device": "cuda0", "stream": STREAM}
        executions += [
            execution_of(0, at + 10, at + 20, step=step, thread=STREAM, dispatch=(at, at + 100)),
            execution_of(
                1, at + 60, at + 300, step=step, thread=STREAM, dispatch=(at + 20, at + 50)
            ),
            execution_of(
                2, at + 300, at + 400, step=step, thread=STREAM, dispatch=(at + 110, at + 120)
            ),
        ]
        spans += [
            span_of("kernel", "gemm", at + 60, at + 200, operator=1, **given),
            span_of("kernel", "gemm", at + 210, at + 300, operator=1, **given),
            span_of("kernel", "nobody's", at + 305, at + 310, **given),
            span_of("memcpy", "HtoD", at + 300, at + 400, operator=2, **given),
            span_of("memset", "zero", at + 420, at + 430, **given),
            span_of("runtime", "launch", at + 30, at + 37, step=step, operator=1),
            span_of("runtime", "synchronise", at + 500, at + 900, step=step),
            span_of("phase", "dataloader", at + 910, at + 960, step=step),
        ]
    return profile_of(
        operators,
        [step_of(3, 3000, 4000), step_of(4, 4000, 5000)],
        executions,
        spans,
        device="cuda0",
        devices=(DeviceFacts(0, "cuda", "a device", 24 << 30, 7, 5),),
    )


def untidy_run() -> Profile:
    """As clocks of two threads really give it: nanoseconds, gaps between iterations, operators
    that last no time or beyond their iteration, that overlap, and that nest."""
    draw = random.Random(11)
    operators = [
        operator_of(f"op{n}", f"Type{n % 7}", shape=(1, n % 3 + 1, 4, 4)) for n in range(40)
    ]
    executions: list[Execution] = []
    steps: list[Step] = []
    spans: list[Span] = []
    now = 1_000_003
    for number in range(6):
        start = now
        spans.append(loading_span(start, start + 7_777, number))
        now += 9_001
        dispatched = now
        for operator in range(len(operators)):
            length = draw.choice([0, 1000, draw.randrange(1, 90_000)])
            begin, done = dispatched, dispatched + draw.randrange(0, 4_000)
            dispatched = done + draw.randrange(0, 300)
            thread = draw.choice([WORKER] * 9 + [HOST + 7])
            executions.append(
                Execution(operator, number, thread, now, now + length, 0, begin, done, HOST)
            )
            inner = max(0, length // 3)
            if operator % 10 == 0:  # one within it, of another type
                other = (operator + 1) % 40
                executions.append(
                    Execution(other, number, thread, now + inner, now + 2 * inner, None)
                )
            now += max(0, length - draw.choice([0, 0, 0, min(length, 500)]))
        end = now - (300 if number == 2 else -2_000)  # the third ends within an operator
        steps.append(Step(number, start, end))
        now += draw.randrange(3_000, 20_000)
    return profile_of(operators, steps, executions, spans)


def kernels_of_sample() -> Profile:
    """Those kernels, an operator that the plugin needs, and a moment when nothing is done: in a
    step that one bucket fills, the plugin counts the others as if it were empty."""
    profile = sample.profile_of_kernels()
    end = profile.steps[0].end_ns
    return replace(
        profile,
        operators=(operator_of("a", "A"),),
        steps=(Step(0, 0, end + 1_000_000),),
        executions=(execution_of(0, 0, 5, dispatch=(0, 5)),),
    )


def memory_run() -> Profile:
    allocations = (
        Allocation(2_010_000, 4096, 0, 100, "cpu", "static plan"),
        Allocation(2_305_000, 1024, 1, 200, "cpu", "static plan"),
    )
    return replace(timed_run(), allocations=allocations, memory_plan=MemoryPlan(8192))


def plan_of(
    executions: list[Execution], draw: random.Random, device: str
) -> tuple[Allocation, ...]:
    """What each operator takes when it begins, until it or a later one of its step ends; some of
    it of no operator. Of what happens at one time, that of an earlier operator comes first."""
    found: list[tuple[int, int, Allocation]] = []
    for index, own in enumerate(executions):
        near = range(index, min(index + 5, len(executions)))
        last = draw.choice([at for at in near if executions[at].step == own.step])
        size, address = draw.randrange(1, 9) * 512, 10_000 + index
        taker = None if index % 11 == 5 else own.operator
        for at, time_ns, operator, signed in (
            (index, own.start_ns, taker, size),
            (last, max(own, executions[last], key=end_of).end_ns, executions[last].operator, -size),
        ):
            each = Allocation(time_ns, signed, operator, address, device, "static plan")
            found.append((time_ns, at, each))
    return tuple(each for *_, each in sorted(found, key=itemgetter(0, 1)))


def end_of(execution: Execution) -> int:
    return execution.end_ns


def memory_of_untidy() -> Profile:
    """Operators that nest and overlap too."""
    run = untidy_run()
    return replace(run, allocations=plan_of([*run.executions], random.Random(3), "cpu"))


def memory_of_short_operators(device: str = "cpu") -> Profile:
    """Operators one right after the other, some that last no time, some that wait: what they
    release when they end and the next one begins is theirs. The first iteration is the warm-up."""
    draw = random.Random(5)
    operators = [operator_of(f"op{n}", f"Type{n % 7}") for n in range(20)]
    executions: list[Execution] = []
    steps: list[Step] = []
    now = 1_000_000
    for number in range(4):
        start = now
        for operator in range(len(operators)):
            length = draw.choice([0, 0, 1000, 2000, 9000])
            wait = draw.choice([0, length, length // 2])
            own = Execution(operator, number, WORKER, now, now + length, wait, warmup=not number)
            if device != "cpu":
                at = start + 100 * operator
                own = msgspec.structs.replace(
                    own, dispatch_start_ns=at, dispatch_end_ns=at + 100, dispatch_thread=HOST
                )
            executions.append(own)
            now += length
        now += 20_000
        steps.append(Step(number, start, now, number == 0))
    allocations = plan_of(executions, draw, device)
    profile = profile_of(operators, steps, executions, device=device)
    return replace(profile, allocations=allocations)


def loading_span(start_ns: int, end_ns: int, step: int) -> Span:
    return Span(
        category="phase",
        name="dataloader",
        start_ns=start_ns,
        end_ns=end_ns,
        thread=HOST,
        step=step,
    )


RUNS = {
    "cpu": timed_run(),
    "cpu with a worker": timed_run(dispatch_us=5),
    "cuda": timed_run(device="cuda0", dispatch_us=5),
    "kernels": device_run(),
    "operators of the sample": sample.profile_of_operators(),
    "kernels of the sample": kernels_of_sample(),
    "untidy": untidy_run(),
    "memory": memory_run(),
}
# Of these the memory alone is compared: operators with no time between them, and such as overlap.
MEMORY_RUNS = {
    "memory": memory_run(),
    "memory of short operators": memory_of_short_operators(),
    "memory of a device": memory_of_short_operators("cuda0"),
    "memory of untidy operators": memory_of_untidy(),
}
