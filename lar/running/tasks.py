"""Other tasks of a worker than running a model: read it, unpack its testcases, find devices."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from lar.engines import engine_named
from lar.engines.listener import Listener
from lar.measurement.machine import read_model_file
from lar.records.events import DevicesFound, ModelRead
from lar.records.run import ModelInfo, RunContext, RunResult, RunSpec
from lar.running.isolation import Watch, start_for

A = TypeVar("A")


def info_of(
    spec: RunSpec, context: RunContext | None = None, *, at_shapes: bool = False
) -> ModelInfo:
    """Read what the model file of a spec holds, in a worker process and within the time limit; with
    `at_shapes`, FLOPs and bytes are those for the shapes that the spec gives to inputs.

    Raises:
        UsageError: the file is not a model, or is damaged.
        EngineMissing: the library that reads its format is not installed.
        LarError: the reader failed, or there was not time enough.
    """
    info = run_task("info_at" if at_shapes else "info", ModelRead, spec, context).info
    if spec.cases:
        info = replace(info, metadata={**info.metadata, "testcases": str(len(spec.cases))})
    return info


def find_devices(engine: str) -> tuple[str, ...]:
    """Find the devices that an engine can run on here, the CPU first.

    Raises:
        LarError: the engine cannot be loaded.
    """
    spec = RunSpec(model="", engine=engine_named(engine).name, driver="", iterations=0)
    return run_task("devices", DevicesFound, spec).devices


def run_task(task: str, answer: type[A], spec: RunSpec, context: RunContext | None = None) -> A:
    """Have a worker do a task for the spec's engine; return the event it answers with.

    Raises:
        LarError: it failed, crashed or hung.
    """
    if spec.model:
        read_model_file(Path(spec.model))  # a damaged file is found by its checksum first
    with contextlib.ExitStack() as stack:
        watch = Watch(start_for(spec, task, stack), spec, context or RunContext(), Listener())
        require_ok(watch.see_through(task))
    assert isinstance(watch.last, answer)
    return watch.last


def require_ok(result: RunResult, *, within: str = "", names: Mapping[str, str] = {}) -> None:
    """Refuse to go on with a run that did not end well. It is `within` the task that the user asked
    for; `names` are those that the user knows.

    Raises:
        KeyboardInterrupt: it was interrupted.
        LarError: any other reason.
    """
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status != "ok":
        assert result.failure is not None
        failure = result.failure.called(names)
        raise (failure.within(within) if within else failure).to_error()
