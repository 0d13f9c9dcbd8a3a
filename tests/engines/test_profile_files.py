"""Files that engines have written themselves, and how they may be damaged."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from lar.engines.operator_times import OperatorTimes, decode_any, executions_in
from lar.errors import UsageError
from lar.records.profile import ProfiledOperator, Step, Times
from tests.tables import each_row

NODE = 'CompNode("cpu0:0" from "cpu0:0")'


def megengine_file(**times: float) -> bytes:
    """What MegEngine writes of one operator, with some of its times."""
    own = {"start": 0.001, "kern": 0.002, "end": 0.004} | times
    operator = {"id": "1", "type": "Relu", "name": "relu", "input": [], "output": []}
    content: dict[str, Any] = {
        "profiler": {"device": {"1": {NODE: own}}, "host": {}, "opr_footprint": {}},
        "graph_exec": {"operator": {"1": operator}, "var": {}, "comp_seq": ["1"], "mem_chunk": {}},
    }
    return json.dumps(content).encode()


def test_megengines_file_is_read() -> None:
    (execution,) = decode_any(megengine_file(), "raw.json").executions
    assert (execution.duration_ns, execution.wait_ns) == (3_000_000, 1_000_000)


def onnxruntime_file(**args: Any) -> bytes:
    """What ONNX Runtime writes of one run of one node, with some of what it tells of the node."""
    shapes = {"input_type_shape": [{"float": [2, 3]}], "output_type_shape": [{"float": [2]}]}
    told = {"op_name": "Relu", "provider": "CPUExecutionProvider", "node_index": "0"}
    times = {"ph": "X", "pid": 7, "tid": 7}
    events = [
        {"cat": "Node", "name": "relu_kernel_time", "ts": 2, "dur": 3, **times},
        {"cat": "Session", "name": "model_run", "ts": 1, "dur": 5, **times},
    ]
    events[0]["args"] = {**told, **shapes, **args}
    return json.dumps(events).encode()


def test_onnxruntimes_file_is_read() -> None:
    profile = decode_any(onnxruntime_file(), "raw.json")
    assert [fact.shape for fact in profile.operators[0].inputs] == [(2, 3)]


@each_row("engines/damaged_profiles/nodes")
def test_what_onnxruntime_tells_of_a_node_may_be_damaged(args: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"raw\.json: is damaged, or .*: expected `"):
        decode_any(onnxruntime_file(**args), "raw.json")


@pytest.mark.parametrize(
    "opening",
    [b'{"more":', b'{"graph_exec":{"more":', b'[{"cat":"Node","args":{"input_type_shape":'],
)
def test_a_file_that_is_nested_too_deeply_is_refused(opening: bytes) -> None:
    content = opening + b"[" * 3000 + b"]" * 3000
    with pytest.raises(UsageError, match=r"raw\.json: is not a profile: it is nested too deeply"):
        decode_any(content, "raw.json")


@each_row("engines/damaged_profiles/times")
def test_times_that_cannot_be_are_told(times: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode_any(megengine_file(**times), "raw.json")
    assert caught.value.message.startswith("raw.json: is damaged")
    assert said in caught.value.message


@each_row("engines/damaged_profiles/others")
def test_other_files_are_refused_in_one_line(content: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode_any(content.encode("latin-1"), "raw.json")
    assert caught.value.message.startswith("raw.json: ")
    assert said in caught.value.message
    assert "\n" not in caught.value.message


# The profile of an engine that gives durations alone


OPERATORS = [ProfiledOperator(id=name, type="Conv", name=name) for name in ("a", "b")]


def taken(times: Times, *durations: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """The executions of two iterations, the second of which begins at 100."""
    left = list(durations)
    profiler = OperatorTimes(OPERATORS, lambda: left.pop(0), times)
    for number in (0, 1):
        at = 100 * number
        profiler.take(Step(number, at, at + 60), at + 10, at + 20, at + 60)
    found = profiler.finish()
    assert (found.operators, found.times) == (tuple(OPERATORS), times)
    return [(it.operator, it.step, it.start_ns, it.end_ns) for it in found.executions]


def test_operators_stand_one_behind_the_other_from_the_dispatch_on() -> None:
    assert taken("each", (20, 5), (1, 30)) == [
        (0, 0, 10, 30),
        (1, 0, 30, 35),
        (0, 1, 110, 111),
        (1, 1, 111, 141),
    ]


def test_means_are_read_once_when_the_last_iteration_has_ended() -> None:
    assert taken("mean", (20, 5)) == [
        (0, 0, 10, 30),
        (1, 0, 30, 35),
        (0, 1, 110, 130),
        (1, 1, 130, 135),
    ]


@pytest.mark.parametrize("durations", [(60, 40), (1, 99), (0, 51), (50, 50, 50)])
def test_what_is_longer_than_its_iteration_is_fitted_into_it(durations: tuple[int, ...]) -> None:
    found = [*executions_in(Step(0, 0, 60), 10, durations)]
    assert (found[0].start_ns, found[-1].end_ns) == (10, 60)
    for one, next_one in itertools.pairwise(found):
        assert one.start_ns <= one.end_ns == next_one.start_ns
