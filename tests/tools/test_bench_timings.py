"""The figures of lar's timings, and the disturbance that they are measured beside."""

from __future__ import annotations

from pathlib import Path

import bench_timings
import onnx
import pytest
from disturbance import disturbed

from lar.records.run import Samples
from tests.running.isolated_runs import eventually


def run_figures(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench_timings.py", *words])
    return bench_timings.main()


def test_a_figure_is_one_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_figures(monkeypatch, "--count", "5000", "long-queue")
    *_, row = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == ["within 10 %", "5000"]
    assert code == (1 if "missed" in cells[3] else 0)


def test_an_unknown_figure_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run_figures(monkeypatch, "speed")
    assert "no figure speed" in capsys.readouterr().err


def test_a_chain_has_as_many_layers_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    bench_timings.write_chain(str(path), 3)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Conv"] * 3 + ["GlobalAveragePool"]


@pytest.mark.parametrize(
    ("peer", "model"),
    [
        ("bare-loop", "digits_cnn.mge"),
        ("bare-loop", "digits_cnn.onnx"),
        ("onnxruntime-test", "digits_cnn.onnx"),
    ],
)
def test_a_peer_takes_turns(peer: str, model: str, root: Path) -> None:
    with bench_timings.PeerProcess(peer, str(root / "models" / model)) as process:
        times = [process.take_turn(count) for count in (1, 5)]
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
