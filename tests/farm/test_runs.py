"""Runs that a farm's workers make: what travels, what is refused, what fails."""

from __future__ import annotations

import io
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lar
from lar.errors import LarError
from lar.farm import farm as farm_module
from lar.farm import worker as worker_module
from lar.farm.farm import Farm
from lar.farm.runs import make_on_farm, run_many
from lar.farm.sending import Answer, Sending
from lar.farm.worker import Stream, Task
from lar.records.run import RunContext, RunResult, RunSpec
from lar.running.plan import plan_run
from tests.conftest import RunLar, WriteScript
from tests.farm.conftest import LABELS, LocalCluster, planned
from tests.refusals import refused
from tests.tables import each_row

MODEL = "models/digits_cnn.onnx"


def run_on(farm: Farm, spec: RunSpec, on: str = "") -> RunResult:
    return make_on_farm(farm, on, spec, RunContext())


def script(write_script: WriteScript, **fields: Any) -> str:
    inputs = [{"name": "data", "dtype": "float32", "shape": [1, 4]}]
    times = [[0.25, 0.01, 0.2], [0.5, 0.01, 0.4]]
    outputs = {"prob": [0.25, 0.75]}
    return write_script(**{"inputs": inputs, "outputs": outputs, "times": times, **fields})


def test_a_run_looks_as_if_it_were_made_here(
    cluster: LocalCluster, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    model = script(write_script, prints="hello")
    np.save(tmp_path / "one.npy", np.ones((1, 4), np.float32))
    words = [model, "--iter", "2", "--input", "data:one.npy", "--json", "result.json", "--verbose"]
    here = run_lar(*words, cwd=tmp_path)
    before = json.loads((tmp_path / "result.json").read_text())
    there = run_lar(*words, "--scheduler", cluster.address, "--on", "arm", cwd=tmp_path)
    after = json.loads((tmp_path / "result.json").read_text())
    assert here.returncode == there.returncode == 0, there.stderr
    lines = [
        [line for line in done.stdout.splitlines() if not line.startswith(("peak", "note"))]
        for done in (here, there)
    ]
    assert lines[0] == lines[1]
    assert "hello" in here.stderr
    assert here.stderr == there.stderr
    for key in ("spec", "model", "fed", "outputs", "samples", "status", "warnings"):
        assert before[key] == after[key]
    assert str(cluster.folder) not in json.dumps(after)


def test_files_travel_once_to_each_worker_and_leave_nothing(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, paths = Sending.read, list[str]()

    def count(sending: Sending, identity: str) -> bytes:
        paths.append(sending.paths[identity])
        return read(sending, identity)

    monkeypatch.setattr(Sending, "read", count)
    spec = planned(script(write_script))
    for on in ("x86", "x86", "arm"):
        assert run_on(farm, spec, on).status == "ok"
    assert paths == [spec.model] * 2
    assert not [*cluster.folder.rglob("lar-*")]


def test_dumps_come_back_whole(
    farm: Farm, cluster: LocalCluster, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    spec = planned(MODEL, bin_io_dump=str(tmp_path / "there"), input="inputs/digit_7.npy")
    assert run_on(farm, spec).status == "ok"
    here = lar.run(MODEL, "inputs/digit_7.npy", bin_io_dump=tmp_path / "here", iter=2)
    assert here.status == "ok"
    assert lar.compare(tmp_path / "there", tmp_path / "here").same
    assert lar.open_dump(tmp_path / "there").index.model == MODEL
    assert str(cluster.folder) not in (tmp_path / "there.index.json").read_text()
    refused("not empty", run_on, farm, spec)


def test_a_profile_comes_back_with_the_names_of_here(
    farm: Farm, cluster: LocalCluster, write_script: WriteScript, tmp_path: Path
) -> None:
    operators = [{"name": "conv", "type": "Convolution", "part": 0.75}]
    place = tmp_path / "profile.json"
    spec = planned(script(write_script, operators=operators), profile=str(place))
    assert run_on(farm, spec).status == "ok"
    assert len(lar.read_profile(place).operators) == 1
    assert str(cluster.folder) not in place.read_text()


def test_a_cache_is_sent_and_comes_back_when_it_has_changed(
    farm: Farm, write_script: WriteScript, tmp_path: Path
) -> None:
    effects = [{"when": {"fast_run_algo_policy": True}, "factor": 0.5}]
    model, cache = script(write_script, effects=effects, search_seconds=1), tmp_path / "found"
    plain = run_on(farm, planned(model))
    search = planned(model, fast_run=True, fast_run_algo_policy=str(cache))
    assert run_on(farm, search).status == "ok"
    written = cache.read_bytes()
    later = run_on(farm, planned(model, fast_run_algo_policy=str(cache)), "arm")
    assert later.latency.median == plain.latency.median / 2
    assert cache.read_bytes() == written


def test_weights_beside_a_model_travel_with_it(
    farm: Farm, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = onnx.load(str(root / MODEL))
    onnx.save_model(
        model, "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    assert run_on(farm, planned("m.onnx")).status == "ok"
    monkeypatch.setattr(onnx.checker, "check_model", lambda *_, **__: None)
    for tensor in (model := onnx.load("m.onnx", load_external_data=False)).graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = str(tmp_path / "weights.bin")
    onnx.save_model(model, "absolute.onnx")
    spec = planned("absolute.onnx", allow_external_data=str(tmp_path))
    refused(r"absolute\.onnx: .* other machines have no such path", run_on, farm, spec)


def test_data_sets_and_testcases_travel(farm: Farm, root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    digit = np.load(root / "inputs" / "digit_7.npy")
    for number in range(3):
        np.save(folder / f"{number}.npy", digit)
    dump = tmp_path / "outputs"
    spec = planned(str(root / MODEL), input=str(folder), iter=1, bin_out_dump=str(dump))
    result = run_on(farm, spec)
    assert len(result.samples.end_to_end) == 3
    assert len([*dump.iterdir()]) == 4  # with the warm-up
    packed = tmp_path / "packed"
    done = lar.run(root / MODEL, digit, iter=1, keep_outputs=True)
    (packed / "test_data_set_0").mkdir(parents=True)
    write_tensor(packed / "test_data_set_0" / "input_0.pb", digit)
    write_tensor(packed / "test_data_set_0" / "output_0.pb", next(iter(done.arrays.values())))
    (packed / "model.onnx").write_bytes((root / MODEL).read_bytes())
    result = run_on(farm, planned(str(packed), iter=1))
    assert [case.passed for case in result.cases] == [True]


def write_tensor(path: Path, array: np.ndarray[Any, Any]) -> None:
    path.write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())


def test_what_fails_there_fails_here(
    cluster: LocalCluster, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    elsewhere = ("--scheduler", cluster.address)
    (tmp_path / "damaged.npy").write_text("no array")
    crash = script(write_script, faults=[{"at": "start", "index": 1, "do": "abort"}])
    here, there = run_lar(crash, "--iter", "2"), run_lar(crash, "--iter", "2", *elsewhere)
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr)
    assert there.returncode == 4
    words = (script(write_script), "--input", f"data:{tmp_path / 'damaged.npy'}")
    here, there = run_lar(*words), run_lar(*words, *elsewhere)
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr)
    assert there.returncode == 2
    there = run_lar(script(write_script), *elsewhere, "--on", "riscv")
    assert there.stderr.endswith("has the label 'riscv'\nhint: known labels: arm, x86\n")
    assert there.returncode == 2


def test_many_runs_are_shared_out_and_stay_in_order(farm: Farm, write_script: WriteScript) -> None:
    specs = [planned(script(write_script), iter=2 + number) for number in range(3)]
    crash = planned(script(write_script, faults=[{"at": "start", "index": 1, "do": "abort"}]))
    *results, crashed = run_many([*specs, crash], farm)
    assert [len(each.samples.end_to_end) for each in results] == [2, 3, 4]
    assert [each.spec for each in results] == specs
    assert crashed.status == "crashed"


def test_versions_must_agree(
    farm: Farm, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm_module, "Task", partial(Task, version="9.9"))
    with pytest.raises(LarError, match=r"has lar .*, and this is lar 9\.9"):
        run_on(farm, planned(script(write_script)))


@pytest.mark.parametrize(
    "place",
    ["{}/../../model", "{}/../..", "../model", "/model", "{}/./a", "{}/\0", "{}/link/model"],
)
def test_a_worker_writes_nowhere_else(tmp_path: Path, place: str) -> None:
    sending = Sending()
    written = sending.add_written("bin_io_dump", str(tmp_path / "dump"))
    (tmp_path / "model").write_text("kept")
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "link").symlink_to(tmp_path)
    sending.add(str(tmp_path / "model"))
    known = written.split("/", 2)[2]
    for wrong in (place.format(known), *sending.files):
        with pytest.raises(LarError, match=r"is outside|did not ask"):
            sending.receive(Answer(root="/x", written={wrong: b"changed"}))
    assert (tmp_path / "model").read_text() == "kept"
    sending.receive(Answer(root="/x", written={known + "/0": b"tensor"}))
    assert (tmp_path / "dump" / "0").read_bytes() == b"tensor"


def test_what_a_worker_sends_as_a_profile_is_one(tmp_path: Path) -> None:
    sending = Sending()
    known = sending.add_written("profile", str(tmp_path / "p.json")).split("/", 2)[2]
    with pytest.raises(LarError, match=r"p\.json: the worker has sent a damaged profile"):
        sending.receive(Answer(root="/x", written={known: b"\xff"}))
    assert os.listdir(tmp_path) == []


def test_a_job_is_laid_out_in_its_folder_alone(farm: Farm, write_script: WriteScript) -> None:
    sending = Sending()
    sending.add(script(write_script))
    sending.files["../outside"] = next(iter(sending.files.values()))
    with pytest.raises(LarError, match=r"\.\./outside: is outside the folder"):
        farm.play(sending, print)


def test_two_platforms_are_compared(cluster: LocalCluster, run_lar: RunLar, root: Path) -> None:
    sides = [f"{MODEL} --on {label}" for label in LABELS]
    done = run_lar("compare", *sides, "--scheduler", cluster.address, cwd=root, code=0)
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith(f"A: {MODEL} ")
    assert second.startswith(f"B: {MODEL} ")


def test_a_bench_is_made_on_one_worker(
    cluster: LocalCluster, write_script: WriteScript, run_lar: RunLar
) -> None:
    effects = [{"when": {"multithread": 2}, "factor": 0.5}]
    model = script(write_script, effects=effects, times=[[0.25, 0.01, 0.2]])
    words = (model, "--vary", "multithread=1,2", "--budget", "50", "--json", "-")
    done = run_lar("bench", *words, "--scheduler", cluster.address, "--on", "arm", code=0)
    bench = lar.read_bench(done.stdout)
    assert bench.differences["multithread=2"].verdict == "faster"
    assert bench.variants[0].spec is not None
    assert bench.variants[0].spec.model == model


def test_operators_are_run_alone_on_this_machine(
    cluster: LocalCluster, run_lar: RunLar, root: Path
) -> None:
    words = ("compare", MODEL, MODEL, "--isolate", "--scheduler", cluster.address)
    assert "runs operators on this machine" in run_lar(*words, cwd=root, code=2).stderr


def test_no_engine_is_needed_here(
    write_script: WriteScript, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lar.engines.onnxruntime.ENGINE.distribution", "no_such_package")
    with pytest.raises(LarError, match="not installed"):
        plan_run(str(root / MODEL), {})
    assert plan_run(str(root / MODEL), {"scheduler": "dask://x"}).engine == "onnxruntime"


@each_row("farm/cases/addresses")
def test_addresses(typed: str, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str, **_: object) -> None:
        raise OSError(address)

    monkeypatch.setattr("distributed.Client", refuse)
    with pytest.raises(LarError, match=f"no scheduler answers at {re.escape(taken)}: "):
        Farm(typed)


@each_row("farm/cases/options with files")
def test_options_with_their_places_on_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, sent: list[Any]
) -> None:
    """Their value there, the files that go with them, and what may come back."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.npy", "raw.bin"):
        Path(name).touch()
    sending = Sending()
    there = sending.rewrite_settings({key: value})[key]
    found = json.dumps([there, [*sending.files], [*sending.wanted]])
    assert json.loads(found.replace(str(tmp_path), "/HERE")) == sent


def test_news_waits_a_little_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "FLUSH_SECONDS", 3600.0)
    file = io.BytesIO()
    stream, sizes = Stream(file), [0]
    for now in (False, False, True):
        stream.add("news", now=now)
        sizes.append(file.tell())
    assert sizes[0] < sizes[1] == sizes[2] < sizes[3]
