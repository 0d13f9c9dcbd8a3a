"""The style `nsys`: its sections against those of nsys."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.records.profile import Profile
from lar.reports.styles.nsys import build
from tests.profiles.synthetic import WORKER, small_profile, span_of
from tests.reports.styles.nsys_sample import SAMPLE, profile_of_sample


def test_the_whole_sample() -> None:
    """Every section, byte for byte; there were no ranges in that run."""
    text = build(profile_of_sample(), {}).text
    sections, ranges = text.split("\n\n\n\n\nGenerating NVTX Push-Pop Range Statistics...\n")
    assert sections + "\n" == SAMPLE
    assert ranges.endswith(
        "SKIPPED: the profile does not contain NV Tools Extension (NVTX) data.\n"
    )


def test_a_cpu_is_no_device() -> None:
    copy = span_of("memcpy", "[CPU memcpy HtoH]", 0, 500, size_bytes=2048)
    text = build(small_profile(copy), {}).text
    assert not re.search("cuda|gpu|device|kernel|nvtx", text, re.IGNORECASE)
    titles = [line for line in text.splitlines() if line.endswith((" (nanoseconds)", " (KiB)"))]
    assert titles == [
        "Engine API Statistics (nanoseconds)",
        "Operator Algorithm Statistics (nanoseconds)",
        "Memory Operation Statistics (nanoseconds)",
        "Memory Operation Statistics (KiB)",
        "Operating System Runtime API Statistics (nanoseconds)",
        "User Range Statistics (nanoseconds)",
    ]
    assert "    2.000  " in text


def test_copies_of_the_host_are_not_those_of_a_device() -> None:
    copy = span_of("memcpy", "[CPU memcpy HtoH]", 0, 500, size_bytes=2048, device="cpu")
    text = build(small_profile(copy, device="cuda0"), {}).text
    assert text.count("SKIPPED: the profile does not contain GPU memory data.") == 2


def test_algorithms_are_of_the_computation() -> None:
    profile = small_profile()
    first = msgspec.structs.replace(profile.operators[0], algorithm="WINOGRAD")
    executions = tuple(
        msgspec.structs.replace(each, wait_ns=100_000) if each.operator == 0 else each
        for each in profile.executions
    )
    third = msgspec.structs.replace(profile.operators[2], provider="CPU")
    operators = (first, profile.operators[1], third)
    text = build(replace(profile, operators=operators, executions=executions), {}).text
    rows = {line.split()[-1]: line.split() for line in text.splitlines() if line[:1] == " "}
    assert rows["WINOGRAD"][1:4] == ["400000", "2", "200000.0"]
    assert rows["Convolution"][1:4] == ["1000000", "2", "500000.0"]
    assert rows["CPU::Elemwise"][1:4] == ["14000", "2", "7000.0"]


def test_calls_of_the_system_stand_apart() -> None:
    """Those of iterations, of the rest with the warm-up in one row, and of the profiler."""
    given: dict[str, Any] = {"source": "strace", "step": None}
    profile = small_profile(
        span_of("phase", "load", 0, 50_000, step=None),
        span_of("phase", "warmup", 50_000, 900_000, step=None),
        span_of("osrt", "mmap", 10_000, 12_000, **given),
        span_of("osrt", "futex", 500_000, 503_000, source="strace", step=-1, warmup=True),
        span_of("osrt", "read", 600_000, 601_000, source="strace", step=-1, warmup=True),
        span_of("osrt", "openat", 800_000, 807_000, **given),
        span_of("osrt", "futex", 800_000, 804_000, thread=WORKER, **given),
        span_of("osrt", "futex", 1_000_000, 1_001_500, source="strace"),
        span_of("osrt", "write", 9_000_000, 9_009_000, **given),
    )
    tables = {table.name: table for table in build(profile, {}).tables}
    found = {
        name: [(row[-1], row[2], row[1]) for row in tables[name].records]
        for name in tables
        if name.startswith("os_runtime")
    }
    assert found == {
        "os_runtime": [("futex", 1, 1500)],
        "os_runtime_rest": [("futex", 1, 4000), ("[warm-up]", 2, 4000), ("mmap", 1, 2000)],
        "os_runtime_profiler": [("write", 1, 9000), ("openat", 1, 7000)],
    }
    (rest,) = build(profile, {"view": ["os_runtime_rest"]}).tables
    assert rest.records == tables["os_runtime_rest"].records


def test_a_call_within_a_call_counts_once() -> None:
    profile = small_profile(
        span_of("runtime", "load", 0, 77_000, step=None),
        span_of("runtime", "read_model", 1000, 61_000, step=None),
        span_of("runtime", "map_file", 1000, 21_000, step=None),
    )
    table = build(profile, {"filter": "load|read|map"}).tables[0]
    assert {row[-1]: row[1] for row in table.records} == {
        "load": 17_000,
        "read_model": 40_000,
        "map_file": 20_000,
    }


def test_loading_counts_and_the_warmup_does_not() -> None:
    load = span_of("runtime", "LITE_load", 0, 77_000, step=None)
    table = build(small_profile(load, warmup=1), {}).tables[0]
    assert {row[-1]: row[2] for row in table.records} == {
        "LITE_load": 1,
        "LITE_forward": 1,
        "LITE_wait": 1,
    }


def test_an_empty_profile_has_no_tables() -> None:
    report = build(Profile(), {})
    assert report.text.count("SKIPPED: the profile does not contain ") == 6
    assert report.tables == ()


def test_a_filter_that_nothing_matches() -> None:
    text = build(small_profile(), {"filter": "resnet"}).text
    assert text.count("SKIPPED: nothing in it matches --filter.") == 2
    assert text.count("SKIPPED: the profile does not contain") == 4


def test_a_filter_chooses_by_the_names_of_operators() -> None:
    """By an operator's name: percentages are of all operators."""
    api, kernels = build(small_profile(), {"filter": "conv2|relu|wait"}).tables
    assert [row[-1] for row in api.records] == ["LITE_wait"]
    found = [(row[0], row[1], row[-1]) for row in kernels.records]
    assert found == [(62.0, 1_000_000, "Convolution"), (0.9, 14_000, "Elemwise")]


def test_only_the_views_asked_for() -> None:
    report = build(small_profile(), {"view": ["os_runtime_rest", "computation"]})
    assert [table.name for table in report.tables] == ["computation"]
    assert [line for line in report.text.splitlines() if line.startswith("Generating")] == [
        "Generating Operating System Runtime API Statistics outside the iterations...",
        "Generating Operator Algorithm Statistics...",
    ]


@pytest.mark.parametrize("key", ["total", "count", "average", "minimum", "maximum", "name"])
def test_the_keys_of_sort(key: str) -> None:
    spans = [span_of("user_annotation", "even", 0, 100) for _ in range(9)]
    spans += [span_of("user_annotation", "wide", 0, length) for length in (101, 400)]
    first = "even" if key in ("total", "count", "name") else "wide"
    (table,) = build(small_profile(*spans), {"view": ["ranges"], "sort": key, "top": 1}).tables
    assert [row[-1] for row in table.records] == [first]
