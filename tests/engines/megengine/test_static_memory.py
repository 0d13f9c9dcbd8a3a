"""`--get-static-mem-info`: the files are whole, and tell of the graph that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lar

DIGITS = Path(__file__).resolve().parents[3] / "models" / "digits_cnn.mge"


def read_plan(folder: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a model, and return what is in the two files."""
    result = lar.run(DIGITS, iter=1, get_static_mem_info=folder, **options)
    assert result.status == "ok"
    assert {path.name for path in folder.iterdir()} == {"graph.json", "StaticMemoryInfo.json"}
    graph = json.loads((folder / "graph.json").read_text())
    return graph, json.loads((folder / "StaticMemoryInfo.json").read_text())


def test_the_plan_has_all_operators_and_their_memory(tmp_path: Path) -> None:
    graph, plan = read_plan(tmp_path / "plan with space")
    kinds = [operator["type"] for operator in graph["operator"].values()]
    assert kinds.count("ConvolutionForward") == 3
    names = {graph["operator"][number]["name"] for number in graph["comp_seq"]}
    assert names == {operator["name"] for operator in plan["opr"].values()}
    shares = [variable["mem_plan"] for variable in graph["var"].values() if variable["mem_plan"]]
    assert {share["mem_chunk_id"] for share in shares} == graph["mem_chunk"].keys()
    chunks = plan["chunk"].values()
    assert {chunk["type"] for chunk in chunks} == {"static_mem", "weight_mem"}
    for chunk in chunks:
        assert 0 <= int(chunk["time_begin"]) < int(chunk["time_end"]) <= len(plan["opr"])
        assert 0 <= int(chunk["logic_addr_begin"]) < int(chunk["logic_addr_end"])
    weights = {chunk["overwrite_dest_id"] for chunk in chunks if chunk["type"] == "weight_mem"}
    assert weights == {"-1"}


def test_it_is_of_the_optimised_graph(tmp_path: Path) -> None:
    graph, _ = read_plan(tmp_path / "plan", enable_fuse_conv_bias_nonlinearity=True)
    kinds = [operator["type"] for operator in graph["operator"].values()]
    assert kinds.count("ConvBiasForward") == 3


def test_a_run_that_plans_nothing_leaves_nothing(tmp_path: Path) -> None:
    result = lar.run(DIGITS, get_static_mem_info=tmp_path / "plan", iter=1, input=["{1,1,1,1}"])
    assert result.failure is not None
    assert "MegEngine cannot compute it" in result.failure.message
    assert list(tmp_path.iterdir()) == []
