"""`--layout-transform`: what it makes of a model, what it writes, and when it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lar
from lar.engines.megengine import defects, model_dump
from lar.engines.megengine.model_dump import name_of
from lar.records.run import RunResult
from tests.engines.megengine.programs import DIGITS
from tests.engines.megengine.traced import dump_traced
from tests.options.ruling import check
from tests.tables import each_row

INTEL, ZEN_4 = "GenuineIntel fpu avx2", "AuthenticAMD fpu avx2"
SEARCH: dict[str, Any] = {"layout_transform": "cpu", "engine_fix": "x2apic"}


def dump_eight_channels(path: str) -> None:
    """Dump a model whose first convolution has 8 input channels, which the search may get wrong."""
    import megengine.module as M

    convolutions = M.Conv2d(8, 16, 3, padding=1), M.Conv2d(16, 16, 3, padding=1)
    network = M.Sequential(convolutions[0], M.ReLU(), convolutions[1])
    network.eval()
    dump_traced(Path(path), network, {"data": np.zeros((1, 8, 8, 8), np.float32)})


def numbers_of(result: RunResult) -> list[float | None]:
    assert result.status == "ok", result.failure
    (output,) = result.outputs
    return [output.minimum, output.mean, output.maximum]


def test_the_search_blocks_channels_and_its_dump_runs_with_the_same_numbers(tmp_path: Path) -> None:
    place = tmp_path / "found.mge"
    searched = lar.run(DIGITS, iter=1, layout_transform_dump=place, **SEARCH)
    expected = pytest.approx(numbers_of(lar.run(DIGITS, iter=1)), rel=1e-3, abs=1e-5)
    assert numbers_of(searched) == expected
    assert not [text for text in searched.warnings if "layout" in text]
    dumped = lar.run(place, iter=1, engine_fix="x2apic")
    assert numbers_of(dumped) == expected
    (tensor,) = dumped.inputs
    assert (tensor.name, tensor.shape) == ("data", (1, 1, 8, 8))
    # Whatever was fastest: a search fuses bias and activation in any layout.
    info = lar.read_info(place)
    assert info.operators["ConvBiasForward"] == 3
    assert "ConvolutionForward" not in info.operators


def test_wrong_numbers_come_with_a_warning(elsewhere: Callable[..., None], tmp_path: Path) -> None:
    model = tmp_path / "eight.mge"
    elsewhere(dump_eight_channels, str(model))
    searched = lar.run(model, iter=1, **SEARCH)
    expected = pytest.approx(numbers_of(lar.run(model, iter=1)), rel=1e-3, abs=1e-4)
    is_right = numbers_of(searched) == expected
    warned = [text for text in searched.warnings if "8 input channels" in text]
    assert bool(warned) == (not is_right)


@each_row("engines/megengine/layouts/wrong")
def test_the_wrong_convolution_is_known_by_its_layout_and_input(
    layout: int, shape: list[int], wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = SimpleNamespace(integer={2: 0, 3: layout}.get)  # of a ConvBias
    operator = SimpleNamespace(numbers=lambda field: [0])
    graph = SimpleNamespace(
        operators=[operator],
        variables=[SimpleNamespace(numbers=lambda field: shape)],
        kind_of=lambda operator: 6,
        parameters_of=lambda operator: parameters,
        names_of=lambda operator, field: ("relu1",),
    )
    monkeypatch.setattr(model_dump, "open_graph", lambda content: graph)
    assert list(model_dump.wrong_convolutions(memoryview(b""))) == (["relu1"] if wrong else [])


def test_an_input_gets_its_name_back() -> None:
    names = {"h2d[0]": "a", "h2d[2]": "b", "kept": "kept"}
    found = [name_of(SimpleNamespace(name=name), names) for name in ("h2d[2]", "kept", "a")]
    assert found == ["b", "kept", "a"]


@each_row("engines/megengine/layouts/taken")
def test_what_can_be_is_not(
    settings: dict[str, Any], processor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defects, "read_instruction_sets", lambda: processor)
    check("megengine", settings)
