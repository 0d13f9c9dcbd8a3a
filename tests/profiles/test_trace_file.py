"""The file of a profile keeps all that a profile tells, and says clearly when it is none."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
import zlib
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

import lar
from lar.cli.main import main
from lar.engines.operator_times import decode_any, read_profile
from lar.errors import UsageError
from lar.profiles import trace_file
from lar.profiles.trace_file import encode_profile, write_profile
from lar.records.profile import (
    Alignment,
    Allocation,
    Clock,
    Cost,
    CounterSample,
    CpuUse,
    Execution,
    Machine,
    MemoryChunk,
    MemoryPlan,
    Peak,
    Profile,
    ProfileFacts,
    Span,
    Step,
)
from lar.records.run import MachineFacts
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.refusals import refused
from tests.reports.golden_files import check_golden
from tests.tables import each_row

# Nanoseconds of up to a day: microseconds with three decimals are exact in a double.
times = st.integers(0, 86_400 * 10**9)
small = st.integers(0, 10**9)
texts = st.text(max_size=20)
maybe = st.one_of(st.none(), small)


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(times)
    return Span(
        category=draw(st.sampled_from(["phase", "runtime", "kernel", "memcpy", "osrt"])),
        name=draw(texts),
        start_ns=start,
        end_ns=start + draw(small),
        thread=draw(st.integers(0, 9)),
        step=draw(st.one_of(st.none(), st.integers(-2, 1))),
        warmup=draw(st.booleans()),
        operator=draw(st.one_of(st.none(), st.integers(0, 1))),
        size_bytes=draw(maybe),
        tensor=draw(st.one_of(st.none(), texts)),
        stream=draw(maybe),
        grid=draw(st.one_of(st.none(), st.tuples(small, small, small))),
        color=draw(st.one_of(st.none(), texts)),
        result=draw(st.one_of(st.none(), texts)),
    )


@st.composite
def executions(draw: st.DrawFn) -> Execution:
    start, length = draw(times), draw(small)
    begin = draw(st.one_of(st.none(), times))
    return Execution(
        draw(st.integers(0, 1)),
        draw(st.integers(-2, 1)),
        draw(st.integers(1, 9)),
        start,
        start + length,
        draw(st.one_of(st.none(), st.integers(0, length))),
        begin,
        None if begin is None else begin + draw(small),
        None if begin is None else draw(st.integers(0, 9)),
        draw(st.booleans()),
    )


@settings(max_examples=20)
@given(st.lists(spans(), max_size=6), st.lists(executions(), max_size=6), texts)
def test_a_profile_reads_back_equal(found: list[Span], ran: list[Execution], name: str) -> None:
    profile = Profile(
        facts=ProfileFacts(
            engine=name,
            options={"multithread": 2, "profile": "p.json"},
            clock=Clock("perf_counter_ns", 12, 34, (Alignment("device", -5, None),)),
            cpu=CpuUse(2, 99.5, None),
            cost=Cost(0.021, 0.02, 10, 10),
            peak=Peak(1e11, 2e10, 2, "measured"),
            dropped=("no host times",),
        ),
        operators=(operator_of("a", "Conv", flops=10**12), operator_of(name, "Relu", module="m")),
        steps=(Step(-1, 5, 9, True), Step(0, 10, 19)),
        executions=tuple(ran),
        spans=tuple(sorted(found, key=lambda span: (span.start_ns, -span.end_ns))),
        counters=(CounterSample("rss", 7, 1e9),),
        allocations=(Allocation(3, 100, 0, 4096), Allocation(9, -100)),
        memory_plan=MemoryPlan(200, (MemoryChunk(0, 100, "a", 0, 1),)),
        threads={1: "host", 2: name},
        engine_raw=b'{"raw":[1,2]}',
    )
    assert decode_any(encode_profile(profile), "p.json") == profile


def begun_before_zero() -> Profile:
    """A profile in which some of everything lies before the zero of its clock."""
    return Profile(
        facts=ProfileFacts(
            clock=Clock("perf_counter_ns", 10**12, 10**18, (Alignment("device", -5, None),))
        ),
        operators=(operator_of("a", "A"),),
        steps=(Step(-1, -7_500, 4_000, True), Step(0, 4_000, 9_000)),
        executions=(
            Execution(0, -1, 2, -6_000, 100, 0, -7_000, -6_500, 1, True),
            Execution(0, 0, 2, 5_000, 6_000),
        ),
        spans=(
            Span(category="user_annotation", name="outer", start_ns=-600_000_001, end_ns=10_000),
            Span(category="phase", name="forward", start_ns=4_500, end_ns=5_000, thread=1),
        ),
        counters=(CounterSample("rss", -1, 1e9),),
        allocations=(Allocation(-3, 100), Allocation(9, -100)),
    )


def test_no_event_is_before_0_and_the_profile_reads_back_equal() -> None:
    profile = begun_before_zero()
    content = encode_profile(profile)
    assert decode_any(content, "p.json") == profile
    check_golden("profile_early.json", content.decode())


def test_the_file_is_a_chrome_trace() -> None:
    profile = profile_of_times(
        {"conv": "Conv"}, [{"conv": 10}, {"conv": 12}], step_us=50, warmup=1, dispatch_us=3
    )
    counters = (CounterSample("rss", 7, 1e9),)
    profile = replace(profile, counters=counters, allocations=(Allocation(3, 100, 0, 4096),))
    check_golden("profile.json", encode_profile(profile).decode())


def test_a_profile_that_lar_0_1_wrote_is_read() -> None:
    """The numbers are those of its text: durations in microseconds, the cost in seconds."""
    content = (Path(__file__).parents[1] / "data" / "profile_v1.json").read_bytes()
    found, written = decode_any(content, "profile_v1.json"), json.loads(content)
    assert [it.name for it in found.operators] == [it["name"] for it in written["ops"]]
    assert [step.warmup for step in found.steps] == [True, False, False, False]
    assert found.facts.cost
    assert found.facts.cost.unprofiled_seconds == 1.178700040327385e-05
    events = [it for it in written["traceEvents"] if it.get("cat") == "cpu_op"]
    times = sorted(each.end_ns - each.start_ns for each in found.executions)
    assert times == sorted(round(each["dur"] * 1000) for each in events)
    assert len(times) == 4 * len(found.operators)


def test_an_engines_keys_stand_beside_lars() -> None:
    """Its own tools read them there; an earlier lar wrote them as one."""
    profile = Profile(engine_raw=b'{"profiler": {"device": {}}, "graph_exec": [1, "traceEvents"]}')
    document = json.loads(encode_profile(profile))
    own = json.loads(profile.engine_raw)
    assert {key: document[key] for key in own} == own
    assert json.loads(decode_any(encode_profile(profile), "p.json").engine_raw) == own
    earlier = encode_profile(Profile()).replace(
        b',"displayTimeUnit"', b',"engineRaw":' + profile.engine_raw + b',"displayTimeUnit"'
    )
    assert decode_any(earlier, "p.json").engine_raw == profile.engine_raw


def test_a_file_in_which_the_warm_up_was_counted_is_refused() -> None:
    profile = profile_of_times({"a": "A"}, [{"a": 10}] * 2, step_us=50, warmup=1)
    numbers = {-1: 0, 0: 1}
    steps = tuple(replaced(it, number=numbers[it.number]) for it in profile.steps)
    with pytest.raises(UsageError, match="an earlier lar has made it"):
        decode_any(encode_profile(replace(profile, steps=steps)), "p.json")


WHOLE = encode_profile(
    profile_of_times({"conv": "Conv"}, [{"conv": 10}], step_us=50, dispatch_us=3)
)


def check_refused(content: bytes, said: str) -> None:
    caught = refused("", decode_any, content, "p.json")
    assert caught.message.startswith("p.json: ")
    assert said in caught.message


@each_row("profiles/damages/no profiles")
def test_what_is_no_profile_is_told_in_one_line(text: str, said: str) -> None:
    check_refused(text.encode("latin1"), said)


@each_row("profiles/damages/replaced")
def test_a_changed_value_is_told_in_one_line(old: str, new: str, said: str) -> None:
    assert old.encode() in WHOLE
    check_refused(WHOLE.replace(old.encode(), new.encode()), said)


def test_a_half_and_one_that_is_nested_too_deeply_are_told_in_one_line() -> None:
    check_refused(WHOLE[: len(WHOLE) // 2], "was cut short")
    nested = WHOLE.replace(b'"traceEvents":[', b'"traceEvents":[' + b"[" * 3000 + b"]" * 3000)
    check_refused(nested, "is not a profile: it is nested too deeply")


def test_the_file_has_all_facts_of_the_machine() -> None:
    known = {field.name for field in fields(MachineFacts)}
    assert Machine.__annotations__.keys() == known | {"instruction_sets"}


def test_two_iterations_of_one_number_are_damage() -> None:
    profile = profile_of_times({"conv": "Conv"}, [{"conv": 10}] * 3, step_us=50)
    first, second, third = profile.steps
    twice = encode_profile(replace(profile, steps=(first, replaced(second, number=0), third)))
    refused(r"p\.json: is damaged: two iterations are number 0", decode_any, twice, "p.json")


@settings(max_examples=150)
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
def test_a_damaged_file_never_ends_in_another_error(place: int, byte: int) -> None:
    damaged = WHOLE[:place] + bytes([byte]) + WHOLE[place + 1 :]
    with contextlib.suppress(UsageError):
        decode_any(damaged, "p.json")


@pytest.fixture
def profile() -> Profile:
    times = [{"conv": 30 + at, "relu": 7} for at in range(20)]
    return profile_of_times({"conv": "Conv", "relu": "Relu"}, times, step_us=100, dispatch_us=2)


@pytest.fixture(params=["small", "large"])
def place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    profile: Profile,
) -> Path:
    """A profile's file, which is in gzip if it is large, in pieces of a few events."""
    monkeypatch.setattr(trace_file, "EVENTS_AT_ONCE", 3)
    monkeypatch.setattr(trace_file, "BYTES_AT_ONCE", 300)
    if request.param == "large":
        monkeypatch.setattr(trace_file, "LARGEST_PLAIN_BYTES", 1000)
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
    refused("cut short", decode_any, gzip.compress(encode_profile(profile))[:cut], "p.json")


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
def test_it_is_the_same_however_many_bytes_are_read(profile: Profile, bytes_at_once: int) -> None:
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
