"""The profiler of operators in a lite network: what it knows, and where it is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lar.dumps import OperatorFact
from lar.engines.megengine.dumps import PROFILE, operators_of, order_of
from lar.engines.megengine.symbols import attach_profiler, graph_of
from tests.engines.megengine.programs import MODELS


def profile_twice(model: str, folder: str) -> tuple[bool, list[OperatorFact], list[OperatorFact]]:
    """Return whether the profiler refuses another build's graph, and the operators by the
    profiler and by lite's own profile."""
    from lar.engines.megengine.lite import import_lite

    network = import_lite().LiteNetwork()
    network.load(model)
    refused = graph_of(network, 1) is None
    network.enable_profile_performance(folder + "/lite.json")
    read = attach_profiler(network)
    assert read is not None
    for name in network.get_all_input_name():
        tensor = network.get_io_tensor(name)
        tensor.set_data_by_copy(np.ones(tensor.layout.shapes[: tensor.layout.ndim], np.float32))
    network.forward()
    network.wait()
    Path(folder + "/own" + PROFILE).write_bytes(read())
    lites = json.loads(Path(folder + "/lite.json").read_bytes())
    order, known = lites["graph_exec"]["comp_seq"], lites["profiler"]["opr_footprint"]
    facts = [OperatorFact(int(key), known.get(key, {}).get("param") or {}) for key in order]
    return refused, operators_of(Path(folder) / "own"), facts


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="it is for x86-64")
def test_the_operators_are_those_of_lites_own_profile(
    elsewhere: Callable[..., Any], tmp_path: Path
) -> None:
    model = str(MODELS / "digits_cnn.mge")
    refused, own, lites = elsewhere(profile_twice, model, str(tmp_path))
    assert refused
    assert own == lites
    assert len(own) > 15
    assert any("pad_h" in operator.parameters for operator in own)


@pytest.mark.parametrize("address", [0, 8, 1 << 47, (1 << 64) - 256, 1 << 64])
def test_an_address_that_is_none_is_not_followed(address: int) -> None:
    assert graph_of(SimpleNamespace(_network=SimpleNamespace(value=address)), 0) is None


def test_operators_stand_in_the_order_in_which_their_first_thread_began() -> None:
    times = {
        "9": {"main": {"start": 0.3}},
        "10": {"main": {"start": 0.9}, "other": {"start": 0.1}},
        "2": {"main": {"start": 0.2}},
    }
    assert order_of(times) == ["10", "2", "9"]
