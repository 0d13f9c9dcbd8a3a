"""Ranges that the user names, in time and by the names of operators."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.profiles.ranges import (
    ENDED,
    MOST_ENDED,
    PYTHON_THREAD,
    NamedRange,
    ranges_during,
    spans_of_patterns,
)
from lar.records.profile import Profile, Span
from tests.conftest import WriteScript
from tests.profiles.synthetic import profile_of_times
from tests.refusals import refused
from tests.tables import each_row

SCRIPT = {
    "operators": [{"name": "fc", "type": "MatMul", "part": 0.5}],
    "times": [[0.03, 0.001, None]],
    "real_time": True,
}
TYPES = {"conv1": "Convolution", "relu1": "Relu", "conv2": "Convolution", "fc": "MatMul"}
TIMES = {"conv1": 30, "relu1": 10, "conv2": 20, "fc": 5}


def ranges_in(profile: Profile) -> list[Span]:
    return [span for span in profile.spans if span.category == "user_annotation"]


# Ranges in time


def test_a_range_around_a_run_is_added_when_it_ends(
    write_script: WriteScript, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    with lar.range("outer", color="green"), lar.range("inner"):
        lar.run(write_script(**SCRIPT), iter=2, profile=str(path))
        assert ranges_in(lar.read_profile(path)) == []
    profile = lar.read_profile(path)
    outer, inner = ranges_in(profile)
    assert (outer.name, outer.color, outer.style) == ("outer", "green", "range")
    assert (inner.name, inner.color, inner.style) == ("inner", None, "range")
    assert outer.start_ns <= inner.start_ns < profile.steps[0].start_ns
    assert profile.steps[-1].end_ns < inner.end_ns <= outer.end_ns
    assert {each.thread for each in (outer, inner)} == {PYTHON_THREAD}
    assert profile.threads == {0: "python", 1: "host"}


@pytest.mark.parametrize(
    ("color", "told"),
    [(0xFF0000, "#ff0000"), (0x8012_34AB, "#1234ab"), (0, "#000000"), (0xFFFFFFFF, "#ffffff")],
)
def test_a_color_may_be_a_number_as_nvtx_takes_it(color: str | int, told: str) -> None:
    before = time.perf_counter_ns()
    with lar.range("outer", color=color):
        pass
    assert [each.color for each in ranges_during(before)] == [told]


def test_what_is_no_name_and_no_color_is_refused_at_the_call() -> None:
    names: list[Any] = [5, "half \udc80"]
    colors: list[Any] = [(1, 2, 3), True, -1, 1 << 32]
    for name in names:
        refused(re.escape(f"lar.range: name: {name!r} is not text"), lar.range, name)
    for color in colors:
        refused(re.escape(f"lar.range: color: {color!r} is not a color"), lar.range, "n", color)


def test_a_range_that_ends_during_a_run_is_in_its_profile(
    write_script: WriteScript, tmp_path: Path
) -> None:
    stop = threading.Event()

    def name_ranges() -> None:
        while not stop.is_set():
            with lar.range("often"):
                time.sleep(0.02)

    with lar.range("before"):
        pass
    thread = threading.Thread(target=name_ranges)
    thread.start()
    try:
        lar.run(write_script(**SCRIPT), iter=10, profile=str(tmp_path / "p.json"))
    finally:
        stop.set()
        thread.join()
    profile = lar.read_profile(tmp_path / "p.json")
    assert {span.name for span in ranges_in(profile)} == {"often"}
    within = [
        span
        for span in ranges_in(profile)
        if span.end_ns > profile.steps[0].start_ns and span.start_ns < profile.steps[-1].end_ns
    ]
    assert len(within) >= 2
    assert all(span.duration_ns > 0 for span in within)


def test_a_range_ends_also_where_its_block_fails(tmp_path: Path) -> None:
    before = time.perf_counter_ns()
    with pytest.raises(RuntimeError), lar.range("fails"):
        raise RuntimeError
    assert [each.name for each in ranges_during(before)] == ["fails"]
    assert ranges_during(time.perf_counter_ns()) == []


def test_a_profile_that_went_away_or_is_none_any_more_stays_as_it_is(
    write_script: WriteScript, tmp_path: Path
) -> None:
    gone, other = tmp_path / "gone.json", tmp_path / "other.json"
    with lar.range("outer"):
        for path in (gone, other):
            lar.run(write_script(**SCRIPT), iter=1, profile=str(path))
        gone.unlink()
        other.write_text("something else")
    assert not gone.exists()
    assert other.read_text() == "something else"


def test_of_two_runs_into_one_file_the_range_is_added_once(
    write_script: WriteScript, tmp_path: Path
) -> None:
    path, other = tmp_path / "p.json", tmp_path / "other.json"
    script = write_script(**SCRIPT)
    with lar.range("outer"):
        for place in (path, path, other):
            lar.run(script, iter=1, profile=str(place))
    for place in (path, other):
        assert [each.name for each in ranges_in(lar.read_profile(place))] == ["outer"]
    assert {it.name for it in tmp_path.iterdir()} == {"other.json", "p.json", "script_0.fake"}


def test_the_last_of_many_ranges_are_kept() -> None:
    before = time.perf_counter_ns()
    for at in range(before + 1, before + 1 + MOST_ENDED):
        ENDED.append(NamedRange("one of many", None, at, at))
    for _ in range(5):
        with lar.range("one of the last"):
            pass
    names = [each.name for each in ranges_during(before)]
    assert names == ["one of many"] * (MOST_ENDED - 5) + ["one of the last"] * 5


def test_where_nvtx_is_installed_a_range_is_one_of_its_too_in_the_worker_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_script: WriteScript
) -> None:
    told = tmp_path / "told"
    (tmp_path / "nvtx.py").write_text(
        "import os\n"
        "def tell(*words):\n"
        f"    with open({str(told)!r}, 'a') as file:\n"
        "        print(os.getpid(), *words, file=file)\n"
        "def start_range(message=None, color=None):\n"
        "    tell('start', message, color)\n"
        "    return message\n"
        "def end_range(started):\n"
        "    tell('end', started)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nvtx", raising=False)
    script = write_script()
    with lar.range("head", color=0x0000FF):
        assert lar.run(script, iter=1).status == "ok"
    lar.run(script, iter=1)
    del sys.modules["nvtx"]
    (first, *begun), (worker, *again), (other, *done), (last, *ended) = (
        line.split() for line in told.read_text().splitlines()
    )
    assert first == last == str(os.getpid())
    assert worker == other != first
    assert begun == ["start", "head", "255"]
    assert again[:2] == ["start", "head"]
    assert done == ended == ["end", "head"]


# By the names of operators


def profile_with(*orders: list[str]) -> Profile:
    """A profile of one iteration for each order of operators."""
    times = [{name: TIMES[name] for name in order} for order in orders]
    return profile_of_times(TYPES, times, step_us=200)


@each_row("profiles/ranges/patterns")
def test_operators_that_match_and_follow_each_other_in_an_iteration_are_one_range(
    orders: list[list[str]], patterns: list[tuple[str, str]], ranges: list[list[object]]
) -> None:
    """Ranges have a name, an iteration, how far in it they begin, and how long they last."""
    profile = profile_with(*orders)
    begins = [step.start_ns + 2000 for step in profile.steps]
    found = spans_of_patterns(profile, patterns)
    assert [
        [it.name, it.step, it.start_ns - begins[it.step or 0], it.duration_ns] for it in found
    ] == ranges
    assert {span.style for span in found} == {"operators"}


def test_each_thread_has_its_own_ranges() -> None:
    profile = profile_with(["conv1", "relu1", "conv2"])
    conv1, relu1, conv2 = profile.executions
    moved = replace(profile, executions=(conv1, type(relu1)(1, 0, 7, relu1.start_ns, 1), conv2))
    (body,) = spans_of_patterns(moved, [("conv", "body")])
    assert (body.start_ns, body.end_ns) == (conv1.start_ns, conv2.end_ns)
