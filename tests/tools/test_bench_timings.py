"""The figures of lar's timings, and the disturbance that they are measured beside."""

from __future__ import annotations

from pathlib import Path

import bench_timings
import onnx
from disturbance import disturbed

from lar.records.run import Samples
from tests.command_lines import ROOT
from tests.running.isolated_runs import eventually
from tests.tables import each_row


def test_a_chain_has_as_many_layers_as_asked_for(tmp_path: Path) -> None:
    model = onnx.load(bench_timings.write_chain(tmp_path, 3))
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Conv"] * 3 + ["GlobalAveragePool"]


@each_row("tools/cases/peers")
def test_a_peer_takes_turns(peer: str, model: str) -> None:
    with bench_timings.peer_process(peer, str(ROOT / "models" / model)) as take_turn:
        times = [take_turn(count) for count in (1, 5)]
    assert all(0 < seconds < 10 for seconds in times)


def test_gaps_lie_between_iterations() -> None:
    samples = Samples(began=(0.0, 3.0, 5.5), end_to_end=(2.0, 2.0, 1.0))
    assert list(bench_timings.gaps_of(samples)) == [1.0, 0.5]


def test_hogs_compute_while_they_are_asked_to_and_are_gone_afterwards() -> None:
    def computed() -> float:
        return sum(float(busy_seconds(pid)) for pid in pids)

    with disturbed(seed=1, strength=100.0) as pids:
        began = computed()
        assert eventually(lambda: computed() > began + 0.1, 60)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def busy_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
