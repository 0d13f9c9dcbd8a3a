"""Files of MNN that a stranger has made."""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import pytest

from lar.engines.mnn.model_file import files_beside
from tests.refusals import refused


@pytest.mark.parametrize("is_inside", [False, True])  # a subgraph
def test_an_operator_names_no_file(is_inside: bool, tmp_path: Path) -> None:
    builder = flatbuffers.Builder(0)

    def table(slot: int, value: int) -> int:
        builder.StartObject(12)
        builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        return int(builder.EndObject())

    def vector(value: int) -> int:
        builder.StartVector(4, 1, 4)
        builder.PrependUOffsetTRelative(value)
        return int(builder.EndVector())

    operators = vector(table(7, builder.CreateString("/dev/zero")))
    net = table(10, vector(table(4, operators))) if is_inside else table(3, operators)
    builder.Finish(net)
    path = tmp_path / "net.mnn"
    path.write_bytes(builder.Output())
    refused("an operator names the file '/dev/zero'", files_beside, path)
