"""Events travel as lines, and each adds its part to the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings

from lar.engines.listener import Listener
from lar.measurement.rows import SampleRows
from lar.records.events import (
    EVENTS,
    LAST_EVENTS,
    Classified,
    EngineStarted,
    Event,
    Failed,
    Fed,
    Finished,
    Judged,
    Loaded,
    PhaseEntered,
    Prepared,
    ScenarioEnded,
    apply_event,
    event_of,
    line_of,
)
from lar.records.run import CaseResult, ItemClasses, RunResult, RunSpec, Verdict
from lar.running.isolation import next_of
from tests.records.test_run import values_of

SPEC = RunSpec(model="m", engine="fake", driver="script")
RESULT = RunResult(spec=SPEC, status="failed", phase="start", warnings=("before",))

# The fields of the result that events set to their own; the others set none.
SET: Mapping[type[Event], str] = {
    EngineStarted: "engine",
    PhaseEntered: "phase",
    Loaded: "load_seconds inputs",
    Fed: "fed warnings",
    Prepared: "prepare_seconds sources noise_sources",
    ScenarioEnded: "scenario",
    Finished: "outputs peak_memory_bytes iterations_seconds warnings uncached_operators stopped",
    Classified: "items",
    Failed: "failure",
}


@pytest.mark.parametrize("kind", EVENTS.values())
def test_an_event_is_one_line_that_reads_back_and_sets_its_fields_alone(kind: type[Event]) -> None:
    @settings(max_examples=20)
    @given(values_of(kind))
    def check(event: Event) -> None:
        line = line_of(event)
        assert line.index(b"\n") == len(line) - 1
        assert event_of(line) == event
        if kind is Judged:
            return
        fields: dict[str, Any] = {name: getattr(event, name) for name in SET.get(kind, "").split()}
        if "warnings" in fields:
            fields["warnings"] = ("before", *fields["warnings"])
        if kind is Failed:
            fields["status"] = "failed"
        elif kind in LAST_EVENTS:
            fields |= {"status": "ok", "phase": "done"}
        assert vars(apply_event(RESULT, event)) == vars(RESULT) | fields

    check()


def test_verdicts_and_classes_are_added() -> None:
    verdict = Verdict(output="y", name="y", id=0, shown=True, error=0.5, limit=1e-4, passed=False)
    result = apply_event(RESULT, Judged(0, "testcase 0", (verdict,)))
    assert result.cases == (CaseResult(name="testcase 0", passed=False, verdicts=(verdict,)),)
    for number in (0, 1):
        result = apply_event(result, Classified((classes_of_item(number),)))
    assert [each.number for each in result.items] == [0, 1]


def classes_of_item(number: int) -> ItemClasses:
    return ItemClasses(number=number, name="cat.jpg", classes=(), scores=())


def test_classes_that_wait_one_after_the_other_are_one_event() -> None:
    first, second, third = (Classified((classes_of_item(number),)) for number in range(3))
    waiting = deque([first, second, PhaseEntered("finish"), third])
    assert next_of(waiting) == Classified((*first.items, *second.items))
    assert [next_of(waiting), next_of(waiting)] == [PhaseEntered("finish"), third]
    assert not waiting


NO_EVENTS = """
engine noise
["Loaded"]
["Loaded", {}]
["Loaded", {"load_seconds": "soon", "inputs": []}]
["Loaded", {"load_seconds": 0.5, "inp
["Unknown", {}]
{"Loaded": 1}
["PhaseEntered", {"phase": "no phase"}]"""


@pytest.mark.parametrize("line", NO_EVENTS.split("\n"))
def test_what_is_no_event_is_a_failure_of_the_engine(line: str) -> None:
    event = event_of(line.encode())
    assert isinstance(event, Failed)
    assert "the pipe of lar's events: not an event" in event.failure.problem


def test_a_listener_may_listen_to_nothing() -> None:
    listener, result = Listener(), RESULT
    listener.on_event(PhaseEntered("load"), result)
    listener.on_rows(SampleRows.anonymous(1), 0, 0, result)
    listener.on_log(b"noise")
