"""The cache file: what it gives, what it is made for, and what is never done to a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lar.engines.onnxruntime import cache as cache_module
from lar.engines.onnxruntime.cache import build_folder, remove_build
from lar.engines.onnxruntime.cache_file import CacheRecord, read_cache, with_record
from lar.errors import UsageError
from lar.records import RunSpec

if TYPE_CHECKING:
    from tests.conftest import RunLar
    from tests.engines.onnxruntime.conftest import MakeDriver, Outputs

REPOSITORY = Path(__file__).resolve().parents[3]
MODELS = REPOSITORY / "models"
DIGITS = MODELS / "digits_cnn.onnx"
INT8 = MODELS / "int8.onnx"
SMALL = MODELS / "multi_input.onnx"
EACH = sorted(MODELS.glob("*.onnx"))

Run = Callable[[Any], "Outputs"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a cache goes: a folder with nothing else in it."""
    (tmp_path / "caches").mkdir()
    return tmp_path / "caches" / "model.cache"


@pytest.fixture
def build(load_driver: MakeDriver, place: Path) -> Callable[..., Any]:
    """Load a model with --fast-run and the cache file."""

    def build(model: Path = DIGITS, **settings: Any) -> Any:
        return load_driver(model, fast_run=True, fast_run_algo_policy=str(place), **settings)

    return build


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same_bits(first: Outputs, second: Outputs) -> bool:
    return {name: array.tobytes() for name, array in first.items()} == {
        name: array.tobytes() for name, array in second.items()
    }


def optimizers_that_ran(log: str) -> set[str]:
    """The optimisers that looked at the graph, but for those that no level leaves out."""
    always = {
        "CastFloat16Transformer",
        "EnsureUniqueDQForNodeUnit",
        "MemcpyTransformer",
        "RemoveDuplicateCastTransformer",
    }
    return set(re.findall(r"GraphTransformer (\w+) modified", log)) - always


# What it gives


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
@pytest.mark.parametrize("model", EACH, ids=lambda path: path.stem)
def test_a_run_from_the_cache_gives_the_same_bits(
    load_driver: MakeDriver,
    build: Callable[..., Any],
    run_driver: Run,
    place: Path,
    model: Path,
    level: str,
) -> None:
    expected = run_driver(load_driver(model, graph_optimization_level=level))
    built = build(model, graph_optimization_level=level)
    before = content_of(place.parent)
    loaded = load_driver(model, fast_run_algo_policy=str(place), graph_optimization_level=level)
    assert same_bits(run_driver(built), expected)
    assert same_bits(run_driver(loaded), expected)
    assert not built.notes
    assert not loaded.notes
    assert content_of(place.parent) == before
    record = read_cache(place).record
    assert set(before) == {place.name, record.data} - {""}


def test_nothing_is_optimised_when_it_is_loaded(
    build: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    build(verbose=True)
    assert optimizers_that_ran(capfd.readouterr().err)
    build(verbose=True)
    assert not optimizers_that_ran(capfd.readouterr().err)


def test_the_weights_are_mapped_from_its_second_file(
    build: Callable[..., Any], run_driver: Run, place: Path
) -> None:
    run_driver(build())
    driver = build()
    data = place.with_name(read_cache(place).record.data)
    assert str(data) in Path("/proc/self/maps").read_text()
    assert data.stat().st_size > DIGITS.stat().st_size / 2
    assert place.stat().st_size < DIGITS.stat().st_size / 4
    run_driver(driver)


def test_weights_are_kept_as_operators_take_them_where_they_can_be(
    build: Callable[..., Any], place: Path
) -> None:
    build(DIGITS)
    cache = read_cache(place)
    assert cache.record.prepacked
    assert b"prepacked_0" in cache.model
    place.unlink()
    # QLinearConv cannot load what it saved.
    build(INT8)
    cache = read_cache(place)
    assert not cache.record.prepacked
    assert b"prepacked_0" not in cache.model


def test_a_second_driver_reads_what_the_first_has_built(
    build: Callable[..., Any], run_driver: Run, place: Path
) -> None:
    first = build()
    before = content_of(place.parent)
    second = build()
    assert content_of(place.parent) == before
    assert same_bits(run_driver(first), run_driver(second))


def test_a_link_to_a_cache_stays_one(load_driver: MakeDriver, place: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    for _ in range(2):
        load_driver(DIGITS, fast_run=True, fast_run_algo_policy=str(link))
    assert link.is_symlink()
    assert {path.name for path in place.parent.iterdir()} == {
        place.name,
        read_cache(link).record.data,
    }


def test_models_with_external_weights_and_in_the_ort_format(
    load_driver: MakeDriver, run_driver: Run, place: Path, tmp_path: Path
) -> None:
    external, ort = tmp_path / "external.onnx", tmp_path / "digits.ort"
    onnx.save(
        onnx.load(DIGITS),
        external,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    load_driver(DIGITS, model_dump=str(ort))
    expected = run_driver(load_driver(DIGITS))
    for model in (external, ort):
        built = load_driver(model, fast_run=True, fast_run_algo_policy=str(place))
        loaded = load_driver(model, fast_run_algo_policy=str(place))
        assert same_bits(run_driver(built), expected)
        assert same_bits(run_driver(loaded), expected)
        assert not loaded.notes
        place.unlink()
    load_driver(external, fast_run=True, fast_run_algo_policy=str(place))
    os.utime(tmp_path / "weights.bin", (1, 1))  # other weights
    changed = load_driver(external, fast_run_algo_policy=str(place))
    assert [note.split("was made for ")[1] for note in changed.notes] == [
        "another weights: it is built again"
    ]


# What it is made for


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"graph_optimization_level": "basic"}, "optimization"),
        ({"disable_optimizer": "NchwcTransformer"}, "disabled optimizers"),
        ({"multithread": 7}, "threads"),
        ({"model": INT8}, "model"),
    ],
)
@pytest.mark.parametrize("fast_run", [True, False])
def test_one_for_another_run_is_built_again_and_says_so(
    load_driver: MakeDriver,
    build: Callable[..., Any],
    run_driver: Run,
    place: Path,
    settings: dict[str, Any],
    field: str,
    fast_run: bool,
) -> None:
    build()
    before = content_of(place.parent)
    model = settings.get("model", DIGITS)
    others = {key: value for key, value in settings.items() if key != "model"}
    searching = {"fast_run": True} if fast_run else {}
    driver = load_driver(model, fast_run_algo_policy=str(place), **searching, **others)
    assert driver.notes == [
        f"--fast-run-algo-policy: {place}: was made for another {field}: it is built again"
    ]
    after = content_of(place.parent)
    assert len(after) == 2
    assert not before.items() & after.items()
    assert same_bits(run_driver(driver), run_driver(load_driver(model, **others)))
    again = load_driver(model, fast_run_algo_policy=str(place), **others)
    assert not again.notes
    assert content_of(place.parent) == after


def test_another_processor_or_engine_is_another_run(
    build: Callable[..., Any], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build()
    fields = {"model name": "Other", "flags": "avx avx2 rdtscp"}
    monkeypatch.setattr(cache_module, "read_field", lambda _, name: fields.get(name, ""))
    assert "another processor, instruction sets: it is built" in build().notes[0]
    key = read_cache(place).record.key
    assert (key["processor"], key["instruction_sets"]) == ("Other", "avx avx2")
    monkeypatch.setattr("onnxruntime.__version__", "1.99.0")
    assert "another onnxruntime: it is built" in build().notes[0]


def test_the_note_is_a_warning_of_the_run(run_lar: RunLar, place: Path) -> None:
    flags = ["--fast-run-algo-policy", str(place), "--iter", "0"]
    ended = run_lar(str(SMALL), "--fast-run", *flags)
    assert ended.returncode == 0, ended.stderr
    assert "built again" not in ended.stderr
    ended = run_lar(str(SMALL), *flags, "--graph-optimization-level", "basic", "--json", "-")
    assert f"lar: warning: --fast-run-algo-policy: {place}: was made for another" in ended.stderr
    (warning,) = json.loads(ended.stdout)["warnings"]
    assert warning.endswith("was made for another optimization: it is built again")


# What is refused


def test_a_missing_file_is_made_with_fast_run_alone(
    make_driver: MakeDriver, place: Path, run_lar: RunLar
) -> None:
    with pytest.raises(UsageError) as caught:
        make_driver(DIGITS, fast_run_algo_policy=str(place)).load()
    assert caught.value.message == f"--fast-run-algo-policy: {place}: no such file"
    assert caught.value.hint == "make it with --fast-run, then run without"
    ended = run_lar(str(DIGITS), "--fast-run")
    assert ended.returncode == 2
    assert "--fast-run: ONNX Runtime measures no algorithms here" in ended.stderr
    assert "add --fast-run-algo-policy FILE" in ended.stderr
    assert not content_of(place.parent)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x00\x00",
        b"garbage",
        DIGITS.read_bytes(),
        (REPOSITORY / "tests/data/digits_cnn.cache").read_bytes(),
        with_record(DIGITS.read_bytes(), CacheRecord(key={}, graph_crc32=1)),
    ],
    ids=["empty", "zeros", "garbage", "model", "MegEngine's", "wrong checksum"],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(
    build: Callable[..., Any], place: Path, content: bytes
) -> None:
    place.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        build()
    assert caught.value.message == (
        f"{place}: is not a cache that lar made for ONNX Runtime, or is damaged"
    )
    assert content_of(place.parent) == {place.name: content}


def test_a_damaged_cache_is_refused_and_left_as_it_is(
    build: Callable[..., Any], run_driver: Run, place: Path
) -> None:
    build()
    record = read_cache(place).record
    data = place.with_name(record.data)
    whole = data.read_bytes()
    for content, complaint in (
        (whole[:-1], "is cut short or changed"),
        (b"", "is cut short or changed"),
        (None, "cannot be read: no such file or directory"),
    ):
        data.unlink(missing_ok=True)
        if content is not None:
            data.write_bytes(content)
        before = content_of(place.parent)
        with pytest.raises(UsageError) as caught:
            build()
        assert caught.value.message == f"{place}: its file {record.data} {complaint}"
        assert content_of(place.parent) == before
    # Of the same size: found before the first iteration, not when the model is loaded.
    data.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    driver = build()
    with pytest.raises(UsageError, match=f"its file {record.data} is damaged"):
        run_driver(driver)
    data.write_bytes(whole)
    run_driver(build())


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A cache file without a second one."""
    key = {"model": "0" * 64, "threads": "2"}
    record = CacheRecord(key=key, graph_crc32=zlib.crc32(SMALL.read_bytes()))
    return with_record(SMALL.read_bytes(), record)


@given(share=st.floats(0, 1), flip=st.integers(1, 255), cut=st.booleans())
def test_any_damage_is_refused_or_makes_it_one_for_another_run(
    small_cache: bytes, tmp_path_factory: pytest.TempPathFactory, share: float, flip: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "model.cache"
    path.write_bytes(small_cache)
    whole = read_cache(path)
    place = min(int(share * len(small_cache)), len(small_cache) - 1)
    damaged = bytes([small_cache[place] ^ flip])
    path.write_bytes(small_cache[:place] + (b"" if cut else damaged + small_cache[place + 1 :]))
    try:
        found = read_cache(path)
    except UsageError:
        return
    assert not cut
    assert found.model == whole.model
    assert found.record != whole.record


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    build: Callable[..., Any], load_driver: MakeDriver, place: Path, monkeypatch: Any
) -> None:
    with pytest.raises(UsageError, match="is a folder; give a file name"):
        load_driver(DIGITS, fast_run=True, fast_run_algo_policy=str(place.parent))
    pipe = place.with_name("pipe")
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is not a regular file"):
        load_driver(DIGITS, fast_run=True, fast_run_algo_policy=str(pipe))
    pipe.unlink()
    missing = place.parent / "nowhere" / "model.cache"
    with pytest.raises(UsageError, match="cannot be written: no such folder"):
        load_driver(DIGITS, fast_run=True, fast_run_algo_policy=str(missing))
    build()
    before = content_of(place.parent)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root may write anything
    with pytest.raises(UsageError, match=f"{place}: cannot be written: permission denied"):
        build(graph_optimization_level="basic")
    build()  # it may still be read
    assert content_of(place.parent) == before


def test_full_run_is_not_for_this_engine(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--full-run")
    assert ended.returncode == 2
    assert "--full-run: ONNX Runtime cannot do this" in ended.stderr


# Several processes


def test_many_processes_at_once_lose_nothing(place: Path) -> None:
    """Each has its own level, so that each replaces what the others have made."""
    levels = ["all", "basic", "all", "extended"]
    runs = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "lar", str(DIGITS), "--iter", "1", "--fast-run"),
                *("--fast-run-algo-policy", str(place), "--graph-optimization-level", level),
            ],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for level in levels
    ]
    for process in runs:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    record = read_cache(place).record
    assert {path.name for path in place.parent.iterdir()} == {place.name, record.data}


def test_a_cache_that_another_process_replaces_meanwhile_is_still_checked(
    build: Callable[..., Any], run_driver: Run, place: Path
) -> None:
    build()
    driver = build()
    build(graph_optimization_level="basic")  # and removes the second file of the first
    assert run_driver(driver)


def test_what_a_killed_build_leaves_is_removed_by_the_parent(place: Path) -> None:
    settings = {"fast_run_algo_policy": str(place)}
    spec = RunSpec(model="", engine="onnxruntime", driver="session", settings=dict(settings))
    spec = replace(spec, work_folder="/somewhere/lar-abc")
    folder = build_folder(spec, place)
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"half of it")
    remove_build(spec)
    assert not content_of(place.parent)


def test_a_model_that_does_not_load_leaves_nothing(run_lar: RunLar, place: Path) -> None:
    broken = place.parent.parent / "broken.onnx"
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([node], "g", [info], [info], [numpy_helper.from_array(np.ones(2))])
    onnx.save(helper.make_model(graph, ir_version=8), broken)
    ended = run_lar(str(broken), "--fast-run", "--fast-run-algo-policy", str(place))
    assert ended.returncode == 2, ended.stderr
    assert "broken.onnx" in ended.stderr
    assert not content_of(place.parent)
