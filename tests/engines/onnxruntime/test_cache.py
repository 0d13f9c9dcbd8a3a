"""The cache file: what it gives, what it is made for, and what several processes make of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lar.engines.onnx_file.fields import Message, tensors_outside
from lar.engines.onnxruntime import cache as cache_module
from lar.engines.onnxruntime.cache import CACHE_FORMAT, CACHES, read_cache, remove_build
from lar.errors import UsageError
from lar.records.run import RunContext, RunSpec
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model
from tests.engines.onnxruntime.drivers import (
    ALWAYS,
    DIGITS,
    EACH,
    MODELS,
    REPOSITORY,
    MakeDriver,
    bits_of,
    content_of,
    run,
    save_external,
)
from tests.refusals import refused

INT8 = MODELS / "int8.onnx"
SMALL = MODELS / "multi_input.onnx"


def optimizers_that_ran(log: str) -> set[str]:
    """The optimisers that looked at the graph, but for those that no level leaves out."""
    return set(re.findall(r"GraphTransformer (\w+) modified", log)) - ALWAYS


# What it gives


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
@pytest.mark.parametrize("model", EACH, ids=lambda path: path.stem)
def test_a_run_from_the_cache_gives_the_same_bits(
    load_driver: MakeDriver, build: MakeDriver, place: Path, model: Path, level: str
) -> None:
    expected = bits_of(run(load_driver(model, graph_optimization_level=level)))
    built = build(model, graph_optimization_level=level)
    before = content_of(place.parent)
    loaded = load_driver(model, fast_run_algo_policy=str(place), graph_optimization_level=level)
    assert bits_of(run(built)) == expected
    assert bits_of(run(loaded)) == expected
    assert not built.notes
    assert not loaded.notes
    assert content_of(place.parent) == before
    assert set(before) == {place.name, read_cache(place).data} - {""}


def test_nothing_is_optimised_when_it_is_loaded(
    build: MakeDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    build(verbose=True)
    assert optimizers_that_ran(capfd.readouterr().err)
    build(verbose=True)
    assert not optimizers_that_ran(capfd.readouterr().err)


def test_the_weights_are_mapped_from_its_second_file(build: MakeDriver, place: Path) -> None:
    run(build())
    driver = build()
    data = place.with_name(read_cache(place).data)
    assert str(data) in Path("/proc/self/maps").read_text()
    assert data.stat().st_size > DIGITS.stat().st_size / 2
    assert place.stat().st_size < DIGITS.stat().st_size / 4
    run(driver)


def test_weights_are_kept_as_operators_take_them_where_they_can_be(
    build: MakeDriver, place: Path
) -> None:
    build(DIGITS)
    cache = read_cache(place)
    assert cache.prepacked
    assert b"prepacked_0" in cache.model
    place.unlink()
    # QLinearConv cannot load what it saved.
    build(INT8)
    cache = read_cache(place)
    assert not cache.prepacked
    assert b"prepacked_0" not in cache.model


def test_weights_as_operators_take_them_stand_where_vectors_can_read_them(
    run_lar: RunLar, place: Path, tmp_path: Path
) -> None:
    """The engine puts them behind weights of any size, and crashed."""
    weights = {"w": np.ones((3, 1000), np.float32), "v": np.ones((1000, 3), np.float32)}
    text = "(float[2,3] x) => (float[2,3] y) { m = MatMul(x, w) y = MatMul(m, v) }"
    model = str(save_model(tmp_path / "odd.onnx", text, weights))
    for words in (["--fast-run"], []):
        run_lar(model, *words, "--fast-run-algo-policy", str(place), "--iter", "1", code=0)
    found = Message("Model", read_cache(place).model)
    entries = [each for tensor in tensors_outside(found) for each in tensor.external_data]
    places = [int(each.value) for each in entries if each.key == "offset"]
    parts = [it.value.decode().split("|")[1:] for it in entries if "prepacked" in it.key]
    places += [int(part.split(";")[0]) for part in chain.from_iterable(parts)]
    assert len(places) == 4
    assert all(each % 64 == 0 for each in places)


def test_a_copy_has_its_second_file_and_replaces_another_with_its_own(
    build: MakeDriver, place: Path, tmp_path: Path
) -> None:
    build()
    first, copy = read_cache(place).data, tmp_path / "elsewhere" / "tuned.cache"
    copy.parent.mkdir()
    CACHES.copy(str(place), str(copy), "--output")
    assert sorted(content_of(copy.parent)) == sorted(filter(None, [first, "tuned.cache"]))
    place.unlink()
    build()
    second = read_cache(place).data
    assert second != first
    CACHES.copy(str(place), str(copy), "--output")
    assert sorted(content_of(copy.parent)) == sorted([second, "tuned.cache"])
    assert read_cache(copy) == read_cache(place)


def test_models_with_external_weights_and_in_the_ort_format(
    load_driver: MakeDriver, build: MakeDriver, place: Path, tmp_path: Path
) -> None:
    external, ort = save_external(DIGITS, tmp_path / "external.onnx"), tmp_path / "digits.ort"
    load_driver(DIGITS, model_dump=str(ort))
    expected = bits_of(run(load_driver(DIGITS)))
    for model in (external, ort):
        built = build(model)
        loaded = load_driver(model, fast_run_algo_policy=str(place))
        assert bits_of(run(built)) == expected
        assert bits_of(run(loaded)) == expected
        assert not loaded.notes
        place.unlink()
    build(external)
    os.utime(tmp_path / "weights.bin", (1, 1))  # other weights
    (note,) = load_driver(external, fast_run_algo_policy=str(place)).notes
    assert note.endswith("was made for a run that differs in weights: it is built again")


# What it is made for


def test_another_processor_or_engine_is_another_run(
    build: MakeDriver, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build()
    monkeypatch.setattr(cache_module, "read_instruction_sets", lambda: "Other avx avx2 rdtscp")
    monkeypatch.setattr(cache_module, "read_processor", lambda: "Other")
    assert "differs in processor, instruction sets: it is built" in build().notes[0]
    key = read_cache(place).key
    assert (key["processor"], key["instruction_sets"]) == ("Other", "avx avx2")
    monkeypatch.setattr("onnxruntime.__version__", "1.99.0")
    assert "differs in onnxruntime: it is built" in build().notes[0]


# Several processes


def test_many_processes_at_once_lose_nothing(run_lar: RunLar, place: Path) -> None:
    """Each has its own level, so that each replaces what the others have made."""
    flags = ["--iter", "1", "--fast-run", "--fast-run-algo-policy", str(place)]

    def search(level: str) -> None:
        run_lar(str(DIGITS), *flags, "--graph-optimization-level", level, code=0)

    with ThreadPoolExecutor(4) as pool:  # run_lar has a process for each
        [*pool.map(search, ["all", "basic", "all", "extended"])]
    assert {path.name for path in place.parent.iterdir()} == {place.name, read_cache(place).data}


def test_a_cache_that_another_process_replaces_meanwhile_is_still_checked(
    build: MakeDriver, place: Path
) -> None:
    build()
    driver = build()
    build(graph_optimization_level="basic")  # and removes the second file of the first
    assert run(driver)


def test_what_a_killed_build_leaves_is_removed_by_the_parent(place: Path) -> None:
    settings = {"fast_run_algo_policy": str(place)}
    spec = RunSpec(model="", engine="onnxruntime", driver="session", settings=dict(settings))
    started = f"""
import os
from lar.files.work_folders import work_folder
with work_folder({str(place.parent)!r}) as folder:
    open(folder + "/model.onnx", "wb").write(b"half of it")
    os._exit(9)
"""
    subprocess.run([sys.executable, "-c", started], check=False, cwd=REPOSITORY)
    assert len(content_of(place.parent / os.listdir(place.parent)[0])) == 1
    remove_build(spec, RunContext())
    assert not content_of(place.parent)


def test_a_model_that_does_not_load_leaves_nothing(run_lar: RunLar, place: Path) -> None:
    broken = place.parent.parent / "broken.onnx"
    save_model(broken, "(float[2] x) => (float[2] y) { y = Relu<nope = 1>(x) }")
    ended = run_lar(str(broken), "--fast-run", "--fast-run-algo-policy", str(place), code=2)
    assert "broken.onnx" in ended.stderr
    assert not content_of(place.parent)


# Files that are refused, and left as they are


def written(model: bytes = DIGITS.read_bytes(), **changed: Any) -> bytes:
    """The content of a cache without a second file."""
    known: dict[str, Any] = {
        "key": {"model": "0" * 64, "threads": "2"},
        "model": b64encode(model).decode(),
    }
    known |= {"format": CACHE_FORMAT, "model_crc32": zlib.crc32(model), "weights": []}
    known |= {"data": "", "data_bytes": 0, "data_crc32": 0, "prepacked": True}
    return json.dumps(known | changed).encode()


@pytest.mark.parametrize(
    "content",
    [
        DIGITS.read_bytes(),
        written(model_crc32=1),
        written(format="lar.onnxruntime.cache/3"),
        written(data="../secret.0123abcd.data"),
    ],
    ids=["model", "checksum", "later", "elsewhere"],
)
def test_a_foreign_file_is_refused_and_left_as_it_is(
    build: MakeDriver, place: Path, content: bytes
) -> None:
    place.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        build()
    assert caught.value.message == (
        f"{place}: is not a cache that lar made for ONNX Runtime, or is damaged"
    )
    assert content_of(place.parent) == {place.name: content}


def test_a_damaged_cache_is_refused_and_left_as_it_is(build: MakeDriver, place: Path) -> None:
    build()
    record = read_cache(place)
    data = place.with_name(record.data)
    whole = data.read_bytes()
    for content, complaint in (
        (whole[:-1], " is cut short, changed or a link"),
        (b"", " is cut short, changed or a link"),
        (None, ": no such file"),
    ):
        data.unlink(missing_ok=True)
        if content is not None:
            data.write_bytes(content)
        before = content_of(place.parent)
        with pytest.raises(UsageError) as caught:
            build()
        assert caught.value.message == f"{place}: its file {record.data}{complaint}"
        assert content_of(place.parent) == before
    os.mkfifo(data)
    refused("is not a regular file", build)
    data.unlink()
    (place.parent / "other").write_bytes(whole)
    data.symlink_to("other")
    refused("or a link", build)
    data.unlink()
    # Of the same size: found before the first iteration, not when the model is loaded.
    data.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    driver = build()
    with pytest.raises(UsageError, match=f"its file {record.data} is damaged"):
        run(driver)
    data.write_bytes(whole)
    run(build())


@example(share=0.0335, flip=ord(" ") ^ ord("\t"), cut=False)
@given(share=st.floats(0, 1), flip=st.integers(1, 255), cut=st.booleans())
def test_any_damage_is_refused_or_makes_it_one_for_another_run(
    tmp_path_factory: pytest.TempPathFactory, share: float, flip: int, cut: bool
) -> None:
    small_cache = written(SMALL.read_bytes())
    path = tmp_path_factory.mktemp("damaged") / "model.cache"
    path.write_bytes(small_cache)
    whole = read_cache(path)
    place = min(int(share * len(small_cache)), len(small_cache) - 1)
    before, damaged = small_cache[place : place + 1], bytes([small_cache[place] ^ flip])
    path.write_bytes(small_cache[:place] + (b"" if cut else damaged + small_cache[place + 1 :]))
    try:
        found = read_cache(path)
    except UsageError:
        return
    assert not cut
    assert found.model == whole.model
    assert (found == whole) == (before == b" " and damaged.isspace())  # a tab between two names


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    build: MakeDriver, load_driver: MakeDriver, place: Path, monkeypatch: Any
) -> None:
    pipe = place.with_name("pipe")
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="is not a regular file"):
        load_driver(DIGITS, fast_run=True, fast_run_algo_policy=str(pipe))
    pipe.unlink()
    build()
    before = content_of(place.parent)

    def refuse(path: Path) -> None:  # as root may write anything
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lar.files.report_file.open_for_writing", refuse)
    with pytest.raises(UsageError, match=f"{place}: cannot be written: permission denied"):
        build(graph_optimization_level="basic")
    build()  # it may still be read
    assert content_of(place.parent) == before
