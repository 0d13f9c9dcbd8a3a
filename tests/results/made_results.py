"""Results made of a few facts and times, for tests of tables and stores."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lar.records.run import (
    EngineFacts,
    Failure,
    MachineFacts,
    ModelFile,
    RunResult,
    RunSpec,
    Samples,
    Setting,
)


def make_result(
    times: Sequence[float] = (),
    *,
    model: str = "net.onnx",
    sha256: str = "a" * 64,
    engine: str = "fake",
    processor: str | None = "a processor",
    started_at: str = "2025-06-01T12:00:00+00:00",
    queue_delay: Sequence[float | None] = (),
    **settings: Setting,
) -> RunResult:
    """A run of those times; of no times a run that crashed."""
    count = len(times)
    machine = MachineFacts(
        system="Linux 6.1",
        processor=processor or "",
        cores=4,
        usable_cores=2,
        memory_bytes=8 << 30,
        governor="",
        python="3.10.13",
    )
    return RunResult(
        spec=RunSpec(model=f"models/{model}", engine=engine, driver="fake", settings=settings),
        status="ok" if times else "crashed",
        phase="done" if times else "load",
        lar_version="0.1.0",
        started_at=started_at,
        engine=EngineFacts(name=engine, version="1.0", driver="fake", device="cpu"),
        machine=machine if processor is not None else None,
        model=ModelFile(path=f"models/{model}", size_bytes=100, sha256=sha256),
        samples=Samples(
            end_to_end=tuple(times),
            host=tuple(times),
            device=(None,) * count,
            queue_delay=tuple(queue_delay) or (0.0,) * count,
        ),
        failure=None if times else Failure("it broke"),
    )


def make_runs(
    count: int, seconds: float, seed: int = 0, between: float = 0.003, **facts: Setting
) -> list[RunResult]:
    """Runs of 40 samples around a time; their medians differ by `between`, relative to it."""
    draw = random.Random(seed)
    runs = []
    for _ in range(count):
        centre = seconds * (1 + draw.gauss(0, between))
        times = [centre * (1 + abs(draw.gauss(0, 0.01))) for _ in range(40)]
        runs.append(make_result(times, **facts))  # type: ignore[arg-type]
    return runs
