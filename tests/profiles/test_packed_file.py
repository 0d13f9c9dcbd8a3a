"""A large profile is in gzip, and is read as any other."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lar
from lar.cli.main import main
from lar.engines.profile_files import decode_any, read_profile
from lar.profiles import packed_file, trace_events, trace_file
from lar.profiles.trace_file import encode_profile, write_profile
from lar.records.profile import Profile
from tests.profiles.synthetic import profile_of_times
from tests.refusals import refused

TYPES = {"conv": "Conv", "relu": "Relu"}


def profile_of_a_model() -> Profile:
    times = [{"conv": 30 + at, "relu": 7} for at in range(20)]
    return profile_of_times(TYPES, times, step_us=100, dispatch_us=2)


@pytest.fixture
def profile() -> Profile:
    return profile_of_a_model()


@pytest.fixture(params=["small", "large"])
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profile: Profile,
) -> Path:
    """A profile's file, which is in gzip if it is large, in pieces of a few events."""
    monkeypatch.setattr(trace_events, "EVENTS_AT_ONCE", 3)
    monkeypatch.setattr(trace_file, "BYTES_AT_ONCE", 300)
    if request.param == "large":
        monkeypatch.setattr(packed_file, "LARGEST_PLAIN_BYTES", 1000)
    path = tmp_path / "p.json"
    write_profile(profile, path)
    assert path.read_bytes().startswith(b"\x1f\x8b") is (request.param == "large")
    return path


def test_it_is_read_as_it_was_written(place: Path, profile: Profile) -> None:
    assert lar.read_profile(place) == profile


def test_its_content_is_one_member_of_json(place: Path, profile: Profile) -> None:
    """Of a file with several, viewers show the first."""
    content = place.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
        assert place.read_bytes().count(b"\x1f\x8b\x08") == 1
    assert content == encode_profile(profile)
    assert json.loads(content)["traceEvents"]


def test_a_viewer_finds_one_plain_member_with_a_chrome_trace(
    tmp_path: Path, profile: Profile
) -> None:
    """What the importers of Perfetto, of Chrome and of speedscope look at."""
    write_profile(profile, tmp_path / "p.json.gz")
    assert lar.read_profile(tmp_path / "p.json.gz") == profile
    content = (tmp_path / "p.json.gz").read_bytes()
    assert content[:4] == b"\x1f\x8b\x08\x00"  # deflated; no name, comment or more in its header
    member = zlib.decompressobj(wbits=31)
    trace = json.loads(member.decompress(content))
    assert (member.eof, member.unused_data) == (True, b"")
    assert trace["displayTimeUnit"] in ("ms", "ns")
    kinds = {event["ph"] for event in trace["traceEvents"]}
    assert kinds <= {"X", "M", "C", "i", "s", "f", "B", "E"}
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert {*map(type, (event["pid"], event["tid"]))} == {int}
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0


def test_standard_input_and_reports_take_both(
    place: Path,
    tmp_path: Path,
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = tmp_path / "plain.json"
    plain.write_bytes(encode_profile(profile))
    assert main(["report", str(plain), "--style", "torch"]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(place.read_bytes())))
    assert main(["report", "-", "--style", "torch"]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("export", ["chrome", "tensorboard"])
def test_an_export_whose_name_says_so_is_in_gzip(
    place: Path, tmp_path: Path, export: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = {}
    for name in ("trace.json", "trace.json.gz"):
        assert main(["report", str(place), "--export", export, "-o", str(tmp_path / name)]) == 0
        exported[name] = (tmp_path / name).read_bytes()
    assert gzip.decompress(exported["trace.json.gz"]) == exported["trace.json"]


@pytest.mark.parametrize("cut", [3, 100, -3])
def test_one_that_was_cut_short_is_refused(tmp_path: Path, profile: Profile, cut: int) -> None:
    content = gzip.compress(encode_profile(profile))[:cut]
    refused("cut short", decode_any, content, "p.json")


def test_the_file_of_an_earlier_lar_is_read(profile: Profile) -> None:
    """Its events stand second."""
    document = json.loads(encode_profile(profile))
    schema, events = document.pop("schema"), document.pop("traceEvents")
    content = json.dumps({"schema": schema, "traceEvents": events, **document})
    assert decode_any(content.encode(), "p.json") == profile
    assert decode_any(content.replace(" ", "").encode(), "p.json") == profile


def test_an_engines_own_events_are_not_taken_for_the_profiles(profile: Profile) -> None:
    own = replace(profile, engine_raw=b'{"own":{"traceEvents":[{"ph":"X"},{"ph":"X"}]}}')
    assert decode_any(encode_profile(own), "p.json") == own
    assert trace_file.decode_stream(io.BytesIO(encode_profile(own)), "p.json") == own


@given(bytes_at_once=st.integers(1, 300))
def test_it_is_the_same_however_many_bytes_are_read_at_once(bytes_at_once: int) -> None:
    profile = profile_of_a_model()
    content = encode_profile(profile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_file, "BYTES_AT_ONCE", bytes_at_once)
        assert trace_file.decode_stream(io.BytesIO(content), "p.json") == profile
        assert trace_file.decode_stream(io.BytesIO(content[:-1]), "p.json") is None


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_is_read_some_at_a_time(tmp_path: Path, profile: Profile, packed: bool) -> None:
    write_profile(profile, place := tmp_path / "p.json", packed=packed)
    assert trace_file.read_as_written(place) == profile
    content = place.read_bytes()
    place.write_bytes(content[: len(content) // 2])
    assert trace_file.read_as_written(place) is None
    refused("was cut short", read_profile, place)
