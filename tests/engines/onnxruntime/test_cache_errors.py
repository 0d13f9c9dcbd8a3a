"""Cache files that are refused, and left as they are."""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.onnxruntime.cache import CACHE_FORMAT, read_cache
from lar.errors import UsageError
from tests.engines.onnxruntime.drivers import (
    DIGITS,
    MODELS,
    REPOSITORY,
    MakeDriver,
    content_of,
    run,
)

if TYPE_CHECKING:
    from tests.conftest import RunLar

SMALL = MODELS / "multi_input.onnx"


def written(model: bytes = DIGITS.read_bytes(), **changed: Any) -> bytes:
    """The content of a cache without a second file."""
    known: dict[str, Any] = {
        "key": {"model": "0" * 64, "threads": "2"},
        "model": b64encode(model).decode(),
    }
    known |= {"format": CACHE_FORMAT, "model_crc32": zlib.crc32(model), "weights": []}
    known |= {"data": "", "data_bytes": 0, "data_crc32": 0, "prepacked": True}
    return json.dumps(known | changed).encode()


def test_a_missing_file_is_made_with_fast_run_alone(
    make_driver: MakeDriver, place: Path, run_lar: RunLar
) -> None:
    with pytest.raises(UsageError) as caught:
        make_driver(DIGITS, fast_run_algo_policy=str(place)).load()
    assert caught.value.message == f"--fast-run-algo-policy: {place}: no such file"
    assert caught.value.hint == "make it with --fast-run, then run without"
    ended = run_lar(str(DIGITS), "--fast-run")
    assert ended.returncode == 2
    assert (
        "--fast-run needs --fast-run-algo-policy: ONNX Runtime measures no algorithms here"
        in ended.stderr
    )
    assert "add --fast-run-algo-policy FILE" in ended.stderr
    assert not content_of(place.parent)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        DIGITS.read_bytes(),
        (REPOSITORY / "tests/data/digits_cnn.cache").read_bytes(),
        written(model_crc32=1),
        written(format="lar.onnxruntime.cache/3"),
        written(data="../secret.0123abcd.data"),
    ],
    ids=["empty", "garbage", "model", "MegEngine's", "checksum", "later", "elsewhere"],
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
        run(driver)
    data.write_bytes(whole)
    run(build())


@given(share=st.floats(0, 1), flip=st.integers(1, 255), cut=st.booleans())
def test_any_damage_is_refused_or_makes_it_one_for_another_run(
    tmp_path_factory: pytest.TempPathFactory, share: float, flip: int, cut: bool
) -> None:
    small_cache = written(SMALL.read_bytes())
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
    assert found != whole


def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    build: MakeDriver, load_driver: MakeDriver, place: Path, monkeypatch: Any
) -> None:
    with pytest.raises(UsageError, match="is a folder"):
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
