"""Events travel as lines, and each adds its part to the result."""

from __future__ import annotations

from typing import Any

import pytest

from lar.measurement.listener import Listener
from lar.measurement.rows import SampleRows
from lar.records.dataset import ItemClasses
from lar.records.events import (
    EVENTS,
    LAST_EVENTS,
    CasesFound,
    CaseStarted,
    Classified,
    ComputedAlone,
    DevicesFound,
    EngineStarted,
    Event,
    Failed,
    Fed,
    Finished,
    Judged,
    Loaded,
    ModelRead,
    Packed,
    PhaseEntered,
    Prepared,
    ScenarioEnded,
    TurnEnded,
    Unpacked,
    apply_event,
    event_of,
    line_of,
)
from lar.records.facts import EngineFacts
from lar.records.run import (
    Failure,
    FedInput,
    ModelInfo,
    OutputSummary,
    RunResult,
    RunSpec,
    TensorInfo,
    TimeSources,
)
from lar.records.scenario import ScenarioResult
from lar.records.stopping import Stopped
from lar.records.testcase import Case, CaseResult, Expected, Verdict

ENGINE = EngineFacts(name="fake", version="1", driver="script", device="cpu")
INFO = TensorInfo(name="data", dtype="float32", shape=(None, 3))
FED = FedInput(name="data", dtype="float32", shape=(2, 3), source="zeros", generated=True)
SOURCES = TimeSources(end_to_end="clock", host="clock")
OUTPUT = OutputSummary(
    name="prob",
    dtype="float32",
    shape=(2,),
    minimum=0.25,
    maximum=0.75,
    mean=0.5,
    nonfinite_count=0,
    sha256="00",
)
MODEL = ModelInfo(
    engine="fake",
    inputs=(INFO,),
    outputs=(),
    operators={"Relu": 2},
    parameter_count=0,
    weight_bytes=0,
    flops=None,
)
FAILURE = Failure("broken: \n two lines, ünïcode", "mend it", 2, "detail")

VERDICT = Verdict(
    output="prob",
    name="assert_eq(prob:expect,prob)[7]",
    id=7,
    shown=True,
    error=0.5,
    limit=1e-4,
    passed=False,
    index=(0, 1),
    actual="0.75",
    expected="0.25",
)
STOPPED = Stopped(ending="target", met=True, seconds=1.5, reached=0.0078125, settled=True)
SCENARIO = ScenarioResult(version="6.0.17", valid=False, reasons=("too few",), figures={"a": 0.5})
CLASSES = ItemClasses(number=1, name="cat.jpg", classes=(7, 0), scores=(0.75, 0.25), label=7)
CASE = Case(name="testcase 0", inputs=(("data", "0.npy"),), expected=(Expected(file="1.npy"),))

# An event, and the fields of the result that it sets.
CASES: list[tuple[Event, dict[str, Any]]] = [
    (EngineStarted(ENGINE), {"engine": ENGINE}),
    (PhaseEntered("warmup"), {"phase": "warmup"}),
    (Loaded(0.5, (INFO,)), {"load_seconds": 0.5, "inputs": (INFO,)}),
    (Fed((FED,), ("odd",)), {"fed": (FED,), "warnings": ("before", "odd")}),
    (Prepared(0.25, SOURCES), {"prepare_seconds": 0.25, "sources": SOURCES}),
    (CasesFound(("assert_eq(prob:expect,prob)[7]{}",)), {}),
    (CaseStarted(1), {}),
    (TurnEnded(), {}),
    (
        Judged(0, "testcase 0", (VERDICT,)),
        {"cases": (CaseResult(name="testcase 0", passed=False, verdicts=(VERDICT,)),)},
    ),
    (Classified(CLASSES), {"items": (CLASSES,)}),
    (ScenarioEnded(SCENARIO), {"scenario": SCENARIO}),
    (
        Finished((OUTPUT,), 4096, stopped=STOPPED),
        {
            "status": "ok",
            "phase": "done",
            "outputs": (OUTPUT,),
            "peak_memory_bytes": 4096,
            "stopped": STOPPED,
        },
    ),
    (ModelRead(MODEL), {"status": "ok", "phase": "done"}),
    (DevicesFound(("cpu", "cuda:0")), {"status": "ok", "phase": "done"}),
    (Unpacked("model.mge", (CASE,)), {"status": "ok", "phase": "done"}),
    (Packed(((FED,),), (INFO,), ("odd",)), {"status": "ok", "phase": "done"}),
    (ComputedAlone(3, "it cannot be cut out"), {}),
    (Failed(FAILURE), {"status": "failed", "failure": FAILURE}),
]
each_event = pytest.mark.parametrize(
    ("event", "fields"), CASES, ids=[type(event).__name__ for event, _ in CASES]
)


def empty_result() -> RunResult:
    spec = RunSpec(model="m", engine="fake", driver="script")
    return RunResult(spec=spec, status="failed", phase="start", warnings=("before",))


def test_the_cases_are_all_events() -> None:
    assert [type(event) for event, _ in CASES] == list(EVENTS.values())
    assert set(LAST_EVENTS) < set(EVENTS.values())


@each_event
def test_an_event_is_one_line_and_reads_back(event: Event, fields: dict[str, Any]) -> None:
    line = line_of(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert event_of(line) == event


@each_event
def test_an_event_sets_its_fields_and_no_others(event: Event, fields: dict[str, Any]) -> None:
    before = empty_result()
    after = apply_event(before, event)
    assert vars(after) == vars(before) | fields


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"engine noise",
        b'["Loaded"]',
        b'["Loaded", {}]',
        b'["Loaded", {"load_seconds": "soon", "inputs": []}]',
        b'["Unknown", {}]',
        b'{"Loaded": 1}',
        b'["PhaseEntered", {"phase": "no phase"}]',
        line_of(Loaded(0.5, (INFO,)))[:-5],
    ],
)
def test_what_is_no_event_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="not an event"):
        event_of(line)


def test_a_listener_may_listen_to_nothing() -> None:
    listener, result = Listener(), empty_result()
    listener.on_event(PhaseEntered("load"), result)
    listener.on_rows(SampleRows.anonymous(1), 0, 0, result)
    listener.on_log(b"noise")
