"""Files that engines have written themselves, and how they may be damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lar.errors import UsageError
from lar.profiling.foreign import read_foreign

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
    (execution,) = read_foreign(megengine_file(), "raw.json").executions
    assert (execution.duration_ns, execution.wait_ns) == (3_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"end": 0.0005}, "relu ends before it begins to compute"),
        ({"kern": 0.0005}, "or computes before it begins"),
        ({"end": 1e305}, "it tells of an infinite time"),
    ],
)
def test_times_that_cannot_be_are_told(times: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_foreign(megengine_file(**times), "raw.json")
    assert caught.value.message.startswith("raw.json: is damaged: ")
    assert said in caught.value.message
