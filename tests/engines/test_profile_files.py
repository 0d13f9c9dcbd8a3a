"""Files that engines have written themselves, and how they may be damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lar.engines.profile_files import decode_any
from lar.errors import UsageError

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


@pytest.mark.parametrize(
    "args",
    [
        {"input_type_shape": [{"float": ["N", 3]}]},
        {"input_type_shape": [{"float": [-1]}]},
        {"input_type_shape": [{"float": [10**30]}]},
        {"output_type_shape": [{"float": None}]},
        {"output_type_shape": {"float": [2]}},
        {"thread_scheduling_stats": {"sub_threads": {"12": {"num_run": "4"}}}},
        {"thread_scheduling_stats": {"sub_threads": [12]}},
    ],
)
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


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"end": 0.0005}, "relu ends before it begins to compute"),
        ({"kern": 0.0005}, "or computes before it begins"),
        ({"end": 1e305}, "expected `float` <= 4000000000"),
    ],
)
def test_times_that_cannot_be_are_told(times: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode_any(megengine_file(**times), "raw.json")
    assert caught.value.message.startswith("raw.json: is damaged")
    assert said in caught.value.message
