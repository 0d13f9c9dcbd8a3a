"""A run in its process: several runners at once, and what an iteration includes."""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lar_scripted.script import FakeDriver

import lar
from lar.measurement.rows import open_rows
from lar.records.run import RunContext, RunSpec
from lar.reports.styles import paddle
from lar.worker.execution import Copies, compare_runners, summarize_outputs
from tests.command_lines import ROOT, run_lar, run_python
from tests.running.isolated_runs import known
from tests.tables import each_row

MODELS = ROOT / "models"
DIGITS = {
    "megengine": str(MODELS / "digits_cnn.mge"),
    "onnxruntime": str(MODELS / "digits_cnn.onnx"),
}
each_engine = pytest.mark.parametrize("engine", DIGITS)

SCRIPT = {
    "inputs": [{"name": "data", "dtype": "float32", "shape": [2]}],
    "outputs": {"sum": [0.5]},
    "times": [[0.05, 0.01, None]],
}


@functools.cache
def run_alone(engine: str) -> lar.RunResult:
    return lar.run(DIGITS[engine], iter=1)


@each_row("worker/cases/threads of runners")
def test_runners_compute_what_one_alone_does(engine: str, others: dict[str, Any]) -> None:
    result = lar.run(DIGITS[engine], iter=5, warmup_iter=2, thread=3, **others)
    assert (result.status, result.warnings) == ("ok", ())
    assert result.samples.runner == (0,) * 5 + (1,) * 5 + (2,) * 5
    assert len(result.warmup.end_to_end) == 6
    (ours,), (expected,) = result.outputs, run_alone(engine).outputs
    assert ours.maximum == pytest.approx(expected.maximum, rel=1e-5)
    assert ours.mean == pytest.approx(expected.mean, rel=1e-5)
    assert known(result.iterations_seconds) >= max(
        sum(result.samples.of_runner(runner).end_to_end) for runner in range(3)
    )


def test_each_runner_of_megengine_computes_in_its_own_thread() -> None:
    # Networks that share the engine's one thread would wait for each other in it.
    samples = lar.run(str(MODELS / "mobilenet_v2.mge"), iter=5, thread=2).samples
    assert sum(samples.host) > 0.9 * sum(samples.end_to_end)
    assert any(device is not None for device in samples.device)  # where a reading tells it


def test_runners_run_at_the_same_time(write_script: Callable[..., str]) -> None:
    result = lar.run(write_script(**SCRIPT, real_time=True), iter=8, thread=4)
    # Four times as much, but for what a busy machine takes away; one by one, no more.
    assert sum(result.samples.end_to_end) > 2 * known(result.iterations_seconds)
    assert known(result.iterations_seconds) >= 8 * 0.05


def test_the_lines_of_runners(write_script: Callable[..., str]) -> None:
    lines = run_lar(write_script(**SCRIPT), "--thread", "2", "--iter", "2").stdout.splitlines()
    for runner in (0, 1):
        own = [line for line in lines if line.endswith(f"[runner {runner}]")]
        begun = [line.split(":")[0] for line in own]
        assert begun == ["warmup 0", "iter 0/2", "iter 1/2", "=== finished test #0"]
    line = "throughput: 40.000 iterations/s over 2 runners, pauses between iterations included"
    assert line in lines


@each_engine
def test_a_runners_thread_is_bound_to_its_core(engine: str) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two cores")
    code = f"""
import json, os
from lar.engines import engine_named
from lar.worker.execution import Copies
from lar.measurement.rows import open_rows
from lar.records.run import RunContext, RunSpec
entry = engine_named({engine!r})
settings = {{"thread": 2, "multi_thread_core_ids": "{cores[1]},{cores[0]}"}}
spec = RunSpec(model={DIGITS[engine]!r}, engine={engine!r}, driver=entry.drivers[0].name,
               settings=settings)
copies = Copies(spec, RunContext(), open_rows(-1, 2, 2))
copies.load()
print(json.dumps(copies.threads.each(lambda runner: sorted(os.sched_getaffinity(0)))), flush=True)
os._exit(0)
"""
    done = run_python("-c", code)
    assert json.loads(done.stdout) == [[cores[1]], [cores[0]]], done.stderr


def test_a_runner_that_crashes_leaves_what_was_measured(write_script: Callable[..., str]) -> None:
    faults = [{"at": "start", "index": 3, "do": "abort"}]
    result = lar.run(write_script(**SCRIPT, faults=faults, real_time=True), iter=5, thread=2)
    assert result.status == "crashed"
    assert set(result.samples.runner) == {0, 1}
    assert 3 <= len(result.samples.end_to_end) <= 5
    assert result.iterations_seconds is None


def test_a_runner_that_fails_ends_the_run(write_script: Callable[..., str]) -> None:
    faults = [{"at": "start", "index": 1, "do": "raise"}]
    result = lar.run(write_script(**SCRIPT, faults=faults), iter=5, thread=2)
    assert result.status == "failed"
    assert "scripted failure" in known(result.failure).message


def fake_driver(write_script: Callable[..., str], value: float) -> FakeDriver:
    model = write_script(**{**SCRIPT, "outputs": {"sum": [value], "same": [1.0]}})
    return FakeDriver(RunSpec(model=model, engine="fake", driver="script"), {})


def test_a_runner_with_other_outputs_is_told(write_script: Callable[..., str]) -> None:
    first, second = fake_driver(write_script, 0.5), fake_driver(write_script, 0.25)
    outputs = [*summarize_outputs(first.outputs())]
    assert list(compare_runners([first, first], outputs)) == []
    assert list(compare_runners([first, first, second], outputs)) == [
        "runner 2 gave another sum than runner 0, bit by bit"
    ]


def copies_of(model: str, count: int, runners: int = 1, **fields: Any) -> Copies:
    """Copies of a model that are ready to run."""
    spec = RunSpec(model=model, engine="fake", driver="script", **fields)
    copies = Copies(spec, RunContext(), open_rows(-1, count, runners))
    copies.load()
    copies.prepare({})
    return copies


# --copy-to-host


@pytest.mark.parametrize("copied", [False, True])
def test_outputs_are_copied_in_each_iteration(
    copied: bool, write_script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(FakeDriver, "copy_outputs", lambda driver: calls.append(driver.step))
    copies_of(write_script(**SCRIPT), 3, copy_outputs=copied).run(3)
    assert calls == ([1, 2, 3] if copied else [])


@pytest.mark.parametrize(
    ("engine", "driver"), [("megengine", "lite"), ("megengine", "graph"), ("onnxruntime", None)]
)
def test_copying_the_outputs_is_told_and_changes_none(engine: str, driver: str | None) -> None:
    plain = lar.run(DIGITS[engine], iter=3, driver=driver)
    copied = lar.run(DIGITS[engine], iter=3, driver=driver, copy_to_host=True)
    assert copied.outputs == plain.outputs
    assert copied.sources.end_to_end == "clock around dispatch, wait and copy of the outputs"
    assert plain.sources.end_to_end == "clock around dispatch and wait"
    assert re.match("clock", copied.sources.host)


@pytest.mark.parametrize(
    ("batches", "batch", "rate"), [((2, 2), 2, "samples/s"), ((1, 64), None, "steps/s")]
)
def test_the_batch_is_known_where_all_items_have_the_same(
    tmp_path: Path, batches: tuple[int, int], batch: int | None, rate: str
) -> None:
    items = tmp_path / "items"
    items.mkdir()
    for number, size in enumerate(batches):
        np.save(items / f"{number}.npy", np.ones((size, 16), np.float32))
    path = tmp_path / "profile.json"
    lar.run(MODELS / "dynamic_batch.onnx", items, iter=1, profile=path)
    profile = lar.read_profile(path)
    assert profile.facts.batch == batch
    assert f"IPS Unit: {rate}" in paddle.build(profile, {"view": ["perf"]}).text


def test_one_runner_runs_in_the_calling_thread(write_script: Callable[..., str]) -> None:
    copies = copies_of(write_script(**SCRIPT), 1)
    assert copies.threads.each(lambda runner: (runner, threading.get_ident())) == [
        (0, threading.get_ident())
    ]


@pytest.mark.parametrize(
    ("alone", "ways"), [(False, ["together", "together"]), (True, ["each", "together"])]
)
def test_what_a_first_run_prepares_for_all_is_not_prepared_by_several_at_once(
    alone: bool, ways: list[str], write_script: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = copies_of(write_script(**SCRIPT), 2, runners=2, settings={"thread": 2})
    copies.drivers[0].begins_alone = alone
    ran: list[str] = []

    def record(name: str) -> None:
        way = getattr(copies.threads, name)

        def call_all(call: Callable[[int], Any]) -> Any:
            ran.append(name)
            return way(call)

        monkeypatch.setattr(copies.threads, name, call_all)

    record("each")
    record("together")
    copies.run(1)
    copies.run(1)
    assert ran == ways
    assert [table.count for table in copies.tables] == [2, 2]
