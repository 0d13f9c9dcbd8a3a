"""The file of a profile keeps all that a profile tells, and says clearly when it is none."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced

from lar.engines.profile_files import decode_any
from lar.errors import UsageError
from lar.profiles.trace_file import encode_profile
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
    document = json.loads(content)
    times = {event["name"]: event["ts"] for event in document["traceEvents"] if "ts" in event}
    assert (times["outer"], times["forward"]) == (0, 600_004.501)
    assert min(times.values()) == 0
    # The clock of the file is the one that its times count from.
    assert document["otherData"]["clock"] == {
        "base": "perf_counter_ns",
        "t0_ns": 10**12 - 600_000_001,
        "unix_ns": 10**18 - 600_000_001,
        "align": [{"domain": "device", "offset_ns": 600_000_001 - 5, "error_ns": None}],
    }


def test_the_file_is_a_chrome_trace() -> None:
    profile = profile_of_times(
        {"conv": "Conv"}, [{"conv": 10}, {"conv": 12}], step_us=50, warmup=1, dispatch_us=3
    )
    document = json.loads(encode_profile(profile))
    assert document["schema"] == "lar.profile/1"
    assert document["displayTimeUnit"] == "ms"
    events = document["traceEvents"]
    runs = [event for event in events if event.get("cat") == "cpu_op"]
    assert [(event["name"], event["ts"], event["dur"]) for event in runs] == [
        ("conv", 1002.0, 10.0),
        ("conv", 1052.0, 12.0),
    ]
    inner = [event for event in events if event.get("cat") == "op_inner"]
    assert [event["name"] for event in inner] == ["dispatch"] * 2
    assert [event["args"]["parent"] for event in inner] == [run["args"]["id"] for run in runs]


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
