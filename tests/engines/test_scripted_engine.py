"""The scripted engine plays what its script says, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lar_scripted.script import FakeDriver, read_script

from lar.engines import engine_named
from lar.measurement.loop import take_samples
from lar.measurement.rows import SampleRows
from lar.records.run import RunContext, RunSpec, Samples

WriteScript = Callable[..., str]
INPUT = {"name": "data", "dtype": "float32", "shape": [1, None]}


def driver_of(script: str, **settings: Any) -> FakeDriver:
    spec = RunSpec(model=script, engine="fake", driver="script", settings=settings)
    return FakeDriver(spec, engine_named("fake").rows)


def played(script: str, warmups: int, iterations: int) -> tuple[Samples, Samples]:
    """The samples of a run, taken as a worker takes them."""
    driver = driver_of(script)
    driver.load()
    driver.feed({})
    meter, rows = driver.meter(), SampleRows.anonymous(warmups + iterations)
    take_samples(driver, warmups, rows, meter)
    take_samples(driver, iterations, rows, meter)
    return rows.samples(0, warmups), rows.samples(warmups, warmups + iterations)


def test_times_are_played_in_order_and_again_from_the_first(write_script: WriteScript) -> None:
    script = write_script(times=[[0.5, 0.25, 0.375], [0.75, 0.5, 0.625]])
    warmup, samples = played(script, 1, 4)
    assert (warmup.end_to_end, warmup.host, warmup.device) == ((0.5,), (0.25,), (0.375,))
    assert samples.end_to_end == (0.75, 0.5, 0.75, 0.5)
    assert samples.host == (0.5, 0.25, 0.5, 0.25)
    assert samples.device == (0.625, 0.375, 0.625, 0.375)


@pytest.mark.parametrize(("warmups", "iterations"), [(1, 3), (0, 4), (2, 2)])
def test_queue_delays_are_those_of_the_iterations_in_order(
    write_script: WriteScript, warmups: int, iterations: int
) -> None:
    delays = (0.125, 0.25, 0.375, 0.5)
    script = write_script(times=[[1, 0.5, None]], queue_delays=delays)
    warmup, samples = played(script, warmups, iterations)
    assert warmup.queue_delay + samples.queue_delay == delays


def test_load_and_prepare_take_the_scripts_time(write_script: WriteScript) -> None:
    driver = driver_of(write_script(load_seconds=0.5, prepare_seconds=0.25))
    assert driver.clock() == 0
    driver.load()
    assert driver.clock() == 0.5
    driver.feed({})
    assert driver.clock() == 0.75


def test_progress_is_the_scripts(write_script: WriteScript) -> None:
    for script, text in ((write_script(progress="3 of 4"), "3 of 4"), (write_script(), "")):
        spec = RunSpec(model=script, engine="fake", driver="script")
        assert engine_named("fake").describe_progress(spec, RunContext()) == text
    gone = RunSpec(model="gone.fake", engine="fake", driver="script")
    assert engine_named("fake").describe_progress(gone, RunContext()) == ""


def test_values_are_the_outputs(write_script: WriteScript) -> None:
    driver = driver_of(write_script(outputs={"a": [1, 2.5], "b": []}))
    outputs = driver.outputs()
    assert {name: (array.dtype, array.tolist()) for name, array in outputs.items()} == {
        "a": ("float32", [1, 2.5]),
        "b": ("float32", []),
    }


@pytest.mark.parametrize("at", ["load", "feed", "outputs"])
def test_a_fault_happens_where_the_script_says(write_script: WriteScript, at: str) -> None:
    driver = driver_of(write_script(faults=[{"at": at, "do": "raise"}]))
    steps = {"load": driver.load, "feed": lambda: driver.feed({}), "outputs": driver.outputs}
    for name, step in steps.items():
        if name == at:
            with pytest.raises(RuntimeError, match="scripted failure"):
                step()
        else:
            step()


def test_a_fault_happens_at_its_iteration(write_script: WriteScript) -> None:
    with pytest.raises(RuntimeError, match="scripted failure"):
        played(write_script(faults=[{"at": "start", "do": "raise", "index": 2}]), 1, 2)
    played(write_script(faults=[{"at": "start", "do": "raise", "index": 3}]), 1, 2)


def test_the_example_of_the_documentation_is_a_script(tmp_path: Path) -> None:
    import lar_scripted.script as module

    text = (module.__doc__ or "").partition("A script:")[2].partition("`times`")[0]
    json.loads(text)
    path = tmp_path / "a.fake"
    path.write_text(text)
    assert read_script(path).load_seconds == 0.198


def test_what_the_script_prints_is_the_engines_log(
    write_script: WriteScript, run_lar: Callable[..., Any]
) -> None:
    script = write_script(prints="hello from the engine")
    quiet, verbose = run_lar(script), run_lar(script, "--verbose")
    assert "hello" not in quiet.stdout + quiet.stderr
    assert "hello from the engine" not in verbose.stdout
    assert verbose.stderr.count("hello from the engine") == 2
