"""Runs on other machines, in a cluster without Dask: what travels, and what a lost worker means."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lar
from lar.errors import LarError, UsageError
from lar.farm import field, worker
from lar.farm.cluster import address_of
from lar.farm.field import Field, Job, Names
from lar.farm.runs import make_on_farm, run_many
from lar.farm.sending import Sending
from lar.measurement.machine import read_machine
from lar.records.facts import MachineFacts
from lar.records.run import RunContext, RunResult, RunSpec, record_to_json
from lar.running.plan import parse_values, plan_run
from tests.conftest import RunLar, WriteScript
from tests.farm.fake_cluster import FakeCluster, fake_farm

SCHEDULER = ("--scheduler", "dask://anywhere")
TWO = {"one": ("device", "x86"), "two": ("device", "arm")}
MODEL = "models/digits_cnn.onnx"


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    return FakeCluster(tmp_path / "workers", TWO)


@pytest.fixture
def farm(cluster: FakeCluster) -> Iterator[Field]:
    with fake_farm(cluster) as found:
        yield found


def planned(model: str, **options: Any) -> RunSpec:
    return plan_run(model, parse_values({"iter": 2, **options}), elsewhere=True)


def run_on(farm: Field, spec: RunSpec, on: str = "") -> RunResult:
    return make_on_farm(farm, on, spec, RunContext())


def script(write_script: WriteScript, **fields: Any) -> str:
    inputs = [{"name": "data", "dtype": "float32", "shape": [1, 4]}]
    times = [[0.25, 0.01, 0.2], [0.5, 0.01, 0.4]]
    outputs = {"prob": [0.25, 0.75]}
    return write_script(**{"inputs": inputs, "outputs": outputs, "times": times, **fields})


def test_a_run_looks_as_if_it_were_made_here(
    farm: Field, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    model = script(write_script)
    np.save(tmp_path / "one.npy", np.ones((1, 4), np.float32))
    words = [model, "--iter", "2", "--input", "data:one.npy", "--json", "result.json"]
    here = run_lar(*words, cwd=tmp_path)
    before = json.loads((tmp_path / "result.json").read_text())
    there = run_lar(*words, *SCHEDULER, "--on", "arm", cwd=tmp_path)
    after = json.loads((tmp_path / "result.json").read_text())
    assert here.returncode == there.returncode == 0, there.stderr
    lines = [
        [line for line in done.stdout.splitlines() if not line.startswith(("peak", "note"))]
        for done in (here, there)
    ]
    assert lines[0] == lines[1]
    assert here.stderr == there.stderr
    for key in ("spec", "model", "fed", "outputs", "samples", "status", "warnings"):
        assert before[key] == after[key]
    assert str(tmp_path / "workers") not in json.dumps(after)


def test_files_travel_once_to_each_worker_and_in_pieces(
    farm: Field,
    cluster: FakeCluster,
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(field, "PIECE_BYTES", 100)
    model = script(write_script, progress="x" * 250)
    spec = planned(model)
    assert run_on(farm, spec, "x86").status == "ok"
    pieces = cluster.count("add_piece")
    assert pieces == Path(model).stat().st_size // 100 + 1
    assert run_on(farm, spec, "x86").status == "ok"
    assert run_on(Field(cluster), spec, "x86").status == "ok"
    assert cluster.count("add_piece") == pieces
    assert run_on(farm, spec, "arm").status == "ok"
    assert cluster.count("add_piece") == 2 * pieces


def test_a_job_leaves_nothing_but_the_sent_files(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    assert run_on(farm, planned(script(write_script)), "x86").status == "ok"
    assert [*(cluster.folder / "one" / "jobs").iterdir()] == []
    assert len([*(cluster.folder / "one" / "store").iterdir()]) == 1


def test_dumps_come_back_whole(
    farm: Field, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setattr(worker, "INLINE_BYTES", 1000)
    spec = planned(MODEL, bin_io_dump=str(tmp_path / "there"), input="inputs/digit_7.npy")
    assert run_on(farm, spec).status == "ok"
    here = lar.run(MODEL, "inputs/digit_7.npy", bin_io_dump=tmp_path / "here", iter=2)
    assert here.status == "ok"
    assert lar.compare(tmp_path / "there", tmp_path / "here").same
    index = lar.open_dump(tmp_path / "there").index
    assert index.architecture
    assert index.model == MODEL
    assert "workers" not in (tmp_path / "there.index.json").read_text()
    with pytest.raises(UsageError, match="not empty"):
        run_on(farm, spec)


def test_a_profile_comes_back_with_the_names_of_here(
    farm: Field, write_script: WriteScript, tmp_path: Path
) -> None:
    operators = [{"name": "conv", "type": "Convolution", "part": 0.75}]
    place = tmp_path / "profile.json"
    spec = planned(script(write_script, operators=operators), profile=str(place))
    assert run_on(farm, spec).status == "ok"
    assert len(lar.read_profile(place).operators) == 1
    assert "workers" not in place.read_text()


def test_a_cache_is_sent_and_comes_back_when_it_has_changed(
    farm: Field, write_script: WriteScript, tmp_path: Path
) -> None:
    effects = [{"when": {"fast_run_algo_policy": True}, "factor": 0.5}]
    model, cache = script(write_script, effects=effects, search_seconds=1), tmp_path / "found"
    plain = run_on(farm, planned(model))
    searched = run_on(farm, planned(model, fast_run=True, fast_run_algo_policy=str(cache)))
    assert searched.status == "ok", searched.failure
    written = cache.read_bytes()
    later = run_on(farm, planned(model, fast_run_algo_policy=str(cache)), "arm")
    assert later.latency.median == plain.latency.median / 2
    assert cache.read_bytes() == written


def test_weights_beside_a_model_travel_with_it(
    farm: Field, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with pytest.raises(UsageError, match=r"absolute\.onnx: .* other machines have no such path"):
        run_on(farm, spec)


def test_data_sets_and_testcases_travel(farm: Field, root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "digits"
    folder.mkdir()
    digit = np.load(root / "inputs" / "digit_7.npy")
    for number in range(3):
        np.save(folder / f"{number}.npy", digit)
    dump = tmp_path / "outputs"
    spec = planned(str(root / MODEL), input=str(folder), iter=1, bin_out_dump=str(dump))
    result = run_on(farm, spec)
    assert result.status == "ok", result.failure
    assert len(result.samples.end_to_end) == 3
    assert len([*dump.iterdir()]) == 4  # with the warm-up
    packed = tmp_path / "packed"
    spec = planned(str(root / MODEL), input=str(root / "inputs" / "digits.npz"), iter=1)
    assert run_on(farm, spec).status == "ok"
    done = lar.run(root / MODEL, digit, iter=1, keep_outputs=True)
    packed.mkdir()
    (packed / "test_data_set_0").mkdir()
    write_tensor(packed / "test_data_set_0" / "input_0.pb", digit)
    write_tensor(packed / "test_data_set_0" / "output_0.pb", next(iter(done.arrays.values())))
    (packed / "model.onnx").write_bytes((root / MODEL).read_bytes())
    result = run_on(farm, planned(str(packed), iter=1))
    assert [case.passed for case in result.cases] == [True]


def write_tensor(path: Path, array: np.ndarray[Any, Any]) -> None:
    path.write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())


def test_what_fails_there_fails_here(
    farm: Field, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    crash = script(write_script, faults=[{"at": "start", "index": 1, "do": "abort"}])
    here, there = run_lar(crash, "--iter", "2"), run_lar(crash, "--iter", "2", *SCHEDULER)
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr)
    assert there.returncode == 4
    words = (script(write_script), "--input", "data:missing.npy")
    here, there = run_lar(*words), run_lar(*words, *SCHEDULER)
    assert (here.returncode, here.stderr) == (there.returncode, there.stderr)
    assert there.returncode == 2


def test_a_lost_worker_s_run_is_made_elsewhere(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.labels["three"] = ["device", "x86"]
    lost: list[str] = []

    def is_lost(name: str, address: str) -> bool:
        if name != "play" or lost:
            return False
        lost.append(address)
        return True

    cluster.lose = is_lost
    assert run_on(farm, planned(script(write_script)), "x86").status == "ok"
    first, second = [address for name, address in cluster.calls if name == "play"]
    assert {first, second} == {"one", "three"}
    assert [first] == lost


def test_a_run_that_loses_its_workers_is_given_up(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.labels |= {f"more{number}": ["device"] for number in range(4)}
    cluster.lose = lambda name, address: name == "play"
    results = run_many([planned(script(write_script))], farm)
    assert [result.status for result in results] == ["crashed"]
    assert results[0].failure is not None
    assert "the worker was lost, 3 times" in results[0].failure.message
    assert results[0].failure.exit_code == 4
    assert cluster.count("play") == field.MOST_LOSSES


def test_a_run_that_loses_the_last_worker_is_given_up(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    cluster.lose = lambda name, address: name == "play"
    result = run_on(farm, planned(script(write_script)), "arm")
    assert result.status == "crashed"
    assert result.failure is not None
    assert result.failure.message.endswith("no worker with the label 'arm' is left")


def test_many_runs_are_shared_out_and_stay_in_order(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    specs = [planned(script(write_script), iter=2 + number) for number in range(6)]
    ended: list[int] = []
    results = run_many(specs, farm, ended=lambda number, *_: ended.append(number))
    assert [len(each.samples.end_to_end) for each in results] == [2, 3, 4, 5, 6, 7]
    assert [each.spec for each in results] == specs
    assert sorted(ended) == [*range(6)]


def test_an_interrupt_while_files_are_sent(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    spec, sending = planned(script(write_script)), threading.Event()

    def interrupt_once(name: str, address: str) -> bool:
        if name == "add_piece":
            if not sending.is_set():
                sending.set()
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)
        return False

    cluster.lose = interrupt_once
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_on(farm, spec, "arm")
    assert time.monotonic() - began < field.END_SECONDS
    assert cluster.count("play") == 0


def test_a_run_takes_the_device_that_is_free(
    farm: Field, cluster: FakeCluster, write_script: WriteScript
) -> None:
    free, spec = threading.Event(), planned(script(write_script))

    def is_busy(name: str, address: str) -> bool:
        if name == "be_free" and address == "one":
            free.wait(60)
        return False

    cluster.lose = is_busy
    assert run_on(farm, spec).status == "ok"
    free.set()
    assert [address for name, address in cluster.calls if name == "play"] == ["two"]


def test_jobs_of_a_group_are_done_on_machines_that_are_alike(
    farm: Field,
    cluster: FakeCluster,
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = read_machine()

    def describe() -> dict[str, str]:
        processor = f"that of {cluster.at.worker.rstrip('0')}"
        return {"version": lar.__version__, "machine": machine_json(facts, processor)}

    monkeypatch.setattr(worker, "describe", describe)
    cluster.labels = {name: ["device"] for name in ("big", "big0", "small")}
    sending = Sending()
    spec = sending.rewrite_spec(planned(script(write_script)))
    request = json.dumps({"spec": json.loads(record_to_json(spec)), "context": {}}).encode()
    jobs = [Job("run", request, sending, group="a search") for _ in range(8)]
    outcomes = dict(farm.play(jobs))
    assert len({each.worker.rstrip("0") for each in outcomes.values()}) == 1
    assert all(each.record for each in outcomes.values())


def machine_json(facts: MachineFacts, processor: str) -> str:
    return record_to_json(replace(facts, processor=processor)).decode()


@pytest.mark.parametrize(
    ("labels", "on", "message"),
    [
        ({}, (), "lar: error: --scheduler: the scheduler tcp://fake:8786 has no workers\nhint: "),
        (
            {"one": ["x86"]},
            (),
            "lar: error: --scheduler: no worker of tcp://fake:8786 has a device\n"
            'hint: start them with --resources "device=1"\n',
        ),
        (
            TWO,
            ("--on", "riscv"),
            "lar: error: --on: no worker with a device has the label 'riscv'\n"
            "hint: labels: arm, x86\n",
        ),
    ],
)
def test_a_cluster_without_the_right_worker(
    cluster: FakeCluster,
    farm: Field,
    write_script: WriteScript,
    run_lar: RunLar,
    labels: Any,
    on: tuple[str, ...],
    message: str,
) -> None:
    cluster.labels = labels
    done = run_lar(script(write_script), *SCHEDULER, *on)
    assert done.stderr.startswith(message)
    assert done.returncode == (2 if on else 4)


def test_versions_must_agree(
    farm: Field, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "__version__", "9.9")
    with pytest.raises(LarError, match=r"has lar 9\.9, and this is lar 0\.1\.0"):
        run_on(farm, planned(script(write_script)))


def test_two_platforms_are_compared(farm: Field, run_lar: RunLar, root: Path) -> None:
    done = run_lar("compare", f"{MODEL} --on x86", f"{MODEL} --on arm", *SCHEDULER, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"A: {MODEL} ")
    assert "\nboth on: " in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((MODEL, f"{MODEL} --on x86"), "--on x86: needs --scheduler"),
        ((MODEL, f"{MODEL} --scheduler x", *SCHEDULER), "--scheduler: is for all sides"),
        ((MODEL, MODEL, *SCHEDULER, "--isolate"), "--isolate: runs operators on this machine"),
        ((*["inputs/digit_7.npy"] * 2, *SCHEDULER), "--scheduler: no side is a model"),
    ],
)
def test_comparisons_that_cannot_be_made_elsewhere(
    farm: Field, run_lar: RunLar, root: Path, words: tuple[str, ...], message: str
) -> None:
    done = run_lar("compare", *words, cwd=root)
    assert message in done.stderr
    assert done.returncode == 2


def test_a_bench_is_made_on_one_worker(
    farm: Field, cluster: FakeCluster, write_script: WriteScript, run_lar: RunLar, tmp_path: Path
) -> None:
    effects = [{"when": {"multithread": 2}, "factor": 0.5}]
    model = script(write_script, effects=effects, times=[[0.25, 0.01, 0.2]])
    words = (model, "--vary", "multithread=1,2", "--budget", "20", "--json", "-")
    done = run_lar("bench", *words, *SCHEDULER, "--on", "arm", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    bench = lar.read_bench(done.stdout)
    assert bench.differences["multithread=2"].verdict == "faster"
    assert bench.variants[0].spec is not None
    assert bench.variants[0].spec.model == model
    assert [address for name, address in cluster.calls if name == "play"] == ["two"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("{} --on x86", "{}", *SCHEDULER), "--on: is for all variants: results of different"),
        (("{}", "--on", "x86"), "--on needs --scheduler"),
    ],
)
def test_a_bench_never_mixes_machines(
    farm: Field,
    write_script: WriteScript,
    run_lar: RunLar,
    words: tuple[str, ...],
    message: str,
) -> None:
    model = script(write_script)
    done = run_lar("bench", *(word.format(model) for word in words))
    assert message in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "x86"), "--on needs --scheduler"),
        ((*SCHEDULER, "--in-process"), "the run is made on another machine"),
        ((*SCHEDULER, "--python", "."), "that Python is on this machine"),
        ((*SCHEDULER, "--model-info"), "a model is read on this machine"),
    ],
)
def test_flags_that_do_not_go_with_a_scheduler(
    write_script: WriteScript, run_lar: RunLar, words: tuple[str, ...], message: str
) -> None:
    done = run_lar(script(write_script), *words)
    assert message in done.stderr
    assert done.returncode == 2


def test_no_engine_is_needed_here(
    write_script: WriteScript, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lar.engines.onnxruntime.ENGINE.distribution", "no_such_package")
    with pytest.raises(LarError, match="not installed"):
        plan_run(str(root / MODEL), {})
    assert plan_run(str(root / MODEL), {"scheduler": "dask://x"}).engine == "onnxruntime"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("dask://board:8786", "tcp://board:8786"),
        ("tcp://10.0.0.1:99", "tcp://10.0.0.1:99"),
        ("tls://board", "tls://board:8786"),
        ("dask://[::1]:8786", "tcp://[::1]:8786"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["board:8786", "http://board", "dask://", "dask://a b", ""])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a scheduler"):
        address_of(text)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("data:a.npy", "data:{}/a.npy"),
        ("input:0:a.npy", "input:0:{}/a.npy"),
        ("a.npy;b:raw.bin,float32,1x3", "{}/a.npy;b:{}/raw.bin,float32,1x3"),
        ("[1.5,2]", "[1.5,2]"),
        ("data:{{1,3}};b:none.npy", "data:{{1,3}};b:none.npy"),
    ],
)
def test_inputs_with_their_places_on_the_worker(
    text: str, sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.npy", "raw.bin"):
        Path(name).write_text(name)
    sending = Sending()
    (found,) = sending.add_inputs([text.replace("{{", "{").replace("}}", "}")])
    assert found == sent.format(*[f"/@lar-job@/files{tmp_path}"] * 2)
    assert len(sending.files) == sent.replace("{{", "").count("{}")


def test_places_have_the_names_that_were_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path('a "b".npy').write_text("")
    sending = Sending()
    sending.add('a "b".npy')
    names = Names(sending, "/x/jobs/1")
    text = json.dumps(f'/x/jobs/1/files{tmp_path}/a "b".npy: /x/jobs/1/files/else')
    assert json.loads(names.in_text(text)) == 'a "b".npy: /else'
    assert names.path_of("written/profile/p") == ""


def test_a_full_store_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lar.farm import store
    from lar.farm.store import Store

    found = Store(tmp_path / "store")
    for number in range(3):
        (found.folder / f"{number}").write_text("x")
    monkeypatch.setattr(store, "FREE_SHARE", 1.1)
    found.add_piece("new", 0, b"data")
    assert [each.name for each in found.folder.iterdir()] == ["new.part"]
    assert not found.finish("new")
    assert found.find_missing(["new", "0"]) == ["new", "0"]
