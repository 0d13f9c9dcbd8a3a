"""A made-up profile of a network of layers that holds all that a profile may hold."""

from __future__ import annotations

import random

from lar.records.profile import (
    Alignment,
    Allocation,
    Clock,
    Cost,
    CounterSample,
    CpuUse,
    Execution,
    MemoryPlan,
    ModelFacts,
    Peak,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Step,
)
from tests.profiles.synthetic import HOST, WORKER, number_of, operator_of, span_of

# The types of a layer's operators: how long one takes in microseconds, the operations in each of
# them, the bytes in each of them, the algorithm.
LAYER = (
    ("Convolution", 300, 120_000, 8_000, "IM2COL:X86_F32:192"),
    ("Elemwise", 20, 3_000, 24_000, None),
    ("RelayoutFormat", 15, None, 20_000, None),
    ("Pooling", 40, 9_000, 18_000, None),
)
PEAK = Peak(200e9, 40e9, 2, "numpy float32 product and copy")


def profile_of_layers(
    layers: int = 6, iterations: int = 5, *, warmup: int = 1, seed: int = 1
) -> Profile:
    """A CPU profile of four operators a layer that run on a worker's thread, some slower in one
    iteration than in another; each half of the layers is a range of the user's."""
    chance = random.Random(seed)
    operators: list[ProfiledOperator] = []
    for layer in range(layers):
        for type, _, flops, size, algorithm in LAYER:
            us = microseconds_of(type, layer)
            operators.append(
                operator_of(
                    f"layer{layer}.{type.lower()}",
                    type,
                    (1, 16 + layer, 28, 28),
                    module=f"layer{layer}",
                    flops=None if flops is None else flops * us,
                    size_bytes=size * us,
                    algorithm=algorithm,
                    workspace_bytes=1 << 20 if algorithm else None,
                    source="none" if flops is None else "measured",
                )
            )
    steps, executions, spans, counters = [], [], [], []
    allocations: list[Allocation] = []
    at = 1_000_000
    for position in range(warmup + iterations):
        is_warmup = position < warmup
        number = number_of(position, warmup)
        start = at
        copied = start + 30_000
        at, dispatched = copied, copied
        halves = [at]
        for place, operator in enumerate(operators):
            layer = place // len(LAYER)
            ns = round(microseconds_of(operator.type, layer) * chance.uniform(900, 1300))
            at = max(at, dispatched + 3000)
            executions.append(
                Execution(
                    *(place, number, WORKER, at, at + ns, chance.randrange(300)),
                    *(dispatched, dispatched + 2000, HOST, is_warmup),
                )
            )
            if number == 0:
                allocations.append(Allocation(at, 1 << 20, place, 4096 * place, "cpu", "engine"))
                if place >= 2:
                    allocations.append(
                        Allocation(at + ns, -(1 << 20), place - 2, 4096 * (place - 2))
                    )
            at, dispatched = at + ns, dispatched + 2500
            if place == len(operators) // 2 - 1:
                halves.append(at)
        halves.append(at)
        end = at + 40_000
        steps.append(Step(number, start, end, is_warmup))
        phases = (
            ("input_copy", start, copied),
            ("forward", copied, dispatched),
            ("wait", dispatched, at),
            ("output_copy", at, end),
        )
        given = {"step": number, "warmup": is_warmup}
        for name, a, b in phases:
            spans.append(span_of("phase", name, a, b, **given))
        spans.append(span_of("runtime", "LITE_forward", copied, dispatched, **given))
        spans.append(span_of("runtime", "LITE_wait", dispatched, at, **given))
        for name, color, a, b in (
            ("backbone", "blue", halves[0], halves[1]),
            ("head", "orange", halves[1], halves[2]),
        ):
            spans.append(
                span_of("user_annotation", name, a, b, thread=WORKER, color=color, **given)
            )
        counters.append(CounterSample("rss", start, 120e6 + 1e6 * position))
        counters.append(CounterSample("rss", end, 121e6 + 1e6 * position))
        at = end + 5000
    return Profile(
        facts=ProfileFacts(
            lar_version="0.1.0",
            engine="megengine",
            engine_version="1.13.0",
            driver="lite",
            model=ModelFacts("models/layers.mge", "0123456789abcdef" * 4, "mge"),
            arguments=("lar", "models/layers.mge", "--profile", "profile.json"),
            options={"multithread": 2},
            batch=1,
            iterations=iterations,
            warmup_iterations=warmup,
            threads=2,
            clock=Clock(align=(Alignment("device", 5_000, 210_000), Alignment("host", 0, None))),
            cpu=CpuUse(2, 151.0, 76.0),
            machine={"processor": "a CPU", "cores": 2, "memory_bytes": 16 << 30},
            peak_memory_bytes=130 << 20,
            cost=Cost(0.00312, 0.003, iterations, iterations),
            peak=PEAK,
            dropped=("the engine does not tell the algorithms of Pooling",),
        ),
        operators=tuple(operators),
        steps=tuple(steps),
        executions=tuple(executions),
        spans=tuple(spans),
        counters=tuple(counters),
        allocations=tuple(allocations),
        memory_plan=MemoryPlan(static_bytes=3 << 20),
        threads={HOST: "host", WORKER: "cpu0"},
    )


def microseconds_of(type: str, layer: int) -> int:
    return next(us for name, us, *_ in LAYER if name == type) * (1 + layer % 3)
