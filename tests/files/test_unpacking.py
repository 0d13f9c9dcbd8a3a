"""Packed content is read up to a bound of its size and its ratio, which a flag raises."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.errors import UsageError
from lar.files import unpacking
from lar.files.input_file import VARIABLE
from lar.files.unpacking import unpack, unpack_zlib, unpacked
from lar.profiles.trace_file import encode_profile
from tests.command_lines import run_lar
from tests.profiles.synthetic import profile_of_times
from tests.refusals import refused

MOST = 10_000


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "FREE_BYTES", MOST)


def profile_with(piece: bytes) -> bytes:
    """Return the file of a profile with a piece of JSON before its first key."""
    content = encode_profile(profile_of_times({"a": "Conv"}, [{"a": 30}], step_us=50))
    return gzip.compress(b"{" + piece + content[1:])


@given(st.binary(max_size=3000), st.integers(1, 50))
def test_what_is_hardly_packed_or_small_comes_back(data: bytes, times: int) -> None:
    data *= times
    assert unpack(gzip.compress(data), "a", "") == unpack_zlib(zlib.compress(data), "a") == data
    assert unpacked(io.BytesIO(gzip.compress(data) * 2), "a").read() == 2 * data


def test_what_is_damaged_is_said_to_be() -> None:
    whole = gzip.compress(b"abc" * 99)
    for content, reason in (
        (whole[:-9], "compressed file ended"),
        (whole[:10] + b"\xff", "error -3"),
    ):
        error = refused(f"^a: is damaged, or was cut short: {reason}", unpack, content, "a", "do")
        assert error.hint == "do"
    with pytest.raises(ValueError, match=r"^it was cut short$"):
        unpack_zlib(zlib.compress(b"abc")[:-3], "a")
    with pytest.raises(ValueError, match=r"^Error -3"):
        unpack_zlib(b"abc", "a")


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("more", [0, 1])
def test_the_bound_is_exact_for_every_reader(more: int) -> None:
    data = bytes(MOST + more)
    readers: dict[str, Callable[[], bytes]] = {
        "gzip": lambda: unpack(gzip.compress(data), "a", ""),
        "stream": lambda: unpacked(io.BytesIO(gzip.compress(data)), "a").read(MOST + 5),
        "zlib": lambda: unpack_zlib(zlib.compress(data), "a"),
    }
    for name, read in readers.items():
        if not more:
            assert read() == data, name
            continue
        with pytest.raises(UsageError, match=f"bytes and unpacks to more than {MOST}, ") as error:
            read()
        assert error.value.hint.startswith("if you trust it, give a larger --max-file-size SIZE")


@pytest.mark.usefixtures("small_bounds")
def test_what_is_not_packed_has_no_bound() -> None:
    data = os.urandom(3 * MOST)
    assert unpack(gzip.compress(data), "a", "") == data  # no larger than its file
    assert unpack(bytes(3 * MOST), "a", "") == bytes(3 * MOST)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("words", [("report",), ("report", "--export", "chrome", "-o", "x")])
def test_a_profile_that_unpacks_to_too_much(words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "p.json.gz"
    path.write_bytes(profile_with(b" " * 300_000))
    done = run_lar(words[0], str(path), *words[1:], cwd=tmp_path)
    size = path.stat().st_size
    line = f"lar: error: {path}: has {size} bytes and unpacks to more than {100 * size}, 100 times"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0].startswith(line)
    run_lar(words[0], str(path), *words[1:], "--max-file-size", "1M", cwd=tmp_path, code=0)
    assert VARIABLE not in os.environ


@pytest.mark.usefixtures("small_bounds")
def test_a_result_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = tmp_path / "r.json.gz"
    path.write_bytes(gzip.compress(b" " * 300_000))
    for words in (
        ("results", str(path)),
        ("history", "add", str(path), "--store", str(tmp_path / "s")),
    ):
        done = run_lar(*words, code=2)
        assert f"{path}: has {path.stat().st_size} bytes and unpacks to more than" in done.stderr
    assert "the file is empty" in run_lar("results", str(path), "--max-file-size", "1M").stderr


def test_the_variable_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "8G", "-1", "9" * 30):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(UsageError, match=f"{VARIABLE}: '.*' is not a number of bytes"):
            unpack_zlib(zlib.compress(b""), "a")
