"""What is added to a profile's file is in it, all else stays, and an interrupt loses nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.engines.operator_times import read_profile
from lar.profiles.trace_file import change_profile, is_packed, write_profile
from lar.records.profile import Cost, Profile, Span
from tests.profiles.synthetic import profile_of_times, with_facts

ADDED = Span(category="user_annotation", name="head", start_ns=10**9, end_ns=10**9 + 5, thread=0)


def add(span: Span, **facts: Any) -> Callable[[Profile], Profile]:
    """Return a change of a profile: its facts, and a span on a thread of its own."""
    return lambda profile: replace(
        with_facts(profile, **facts), spans=(span,), threads={0: "python"}
    )


def named(profile: Profile) -> Profile:
    return with_facts(profile, engine="another")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "p.json"
    write_profile(profile_of_times({"a": "A"}, [{"a": 10}], step_us=50, dispatch_us=2), place)
    return place


@pytest.mark.parametrize("empty", [False, True])
def test_what_is_added_is_read_with_what_was_there(path: Path, empty: bool) -> None:
    if empty:
        write_profile(Profile(), path)
    before = read_profile(path)
    cost = Cost(2.0, 1.0, 3, 3)
    change_profile(path, add(ADDED, cost=cost))
    after = read_profile(path)
    assert after == replace(
        with_facts(before, cost=cost),
        spans=(*before.spans, ADDED),
        threads={**before.threads, 0: "python"},
    )


def test_where_facts_alone_change_the_events_are_copied(path: Path) -> None:
    before, events = read_profile(path), path.read_bytes().partition(b'"traceEvents"')[2]
    change_profile(path, named)
    assert read_profile(path) == named(before)
    assert path.read_bytes().partition(b'"traceEvents"')[2] == events


def test_a_file_stays_in_gzip_if_its_name_says_so(path: Path) -> None:
    packed = path.with_suffix(".json.gz")
    write_profile(read_profile(path), packed)
    for change in (named, add(ADDED)):
        change_profile(packed, change)
        assert is_packed(packed)
    assert not is_packed(path)


def test_what_begins_before_all_else_moves_the_times_in_the_file_alone(path: Path) -> None:
    before = read_profile(path)
    early, earlier = (
        Span(category="user_annotation", name=f"{-start}", start_ns=start, end_ns=10**9, thread=0)
        for start in (-600_000_001, -600_000_002)
    )
    for span in (early, earlier, ADDED):
        change_profile(path, add(span))
    after = read_profile(path)
    assert after == replace(
        before,
        spans=(earlier, early, *before.spans, ADDED),
        threads={**before.threads, 0: "python"},
    )
    events = json.loads(path.read_text())["traceEvents"]
    assert min(event.get("ts", 0) for event in events) == 0


@pytest.mark.parametrize("written", [False, True])
def test_an_interrupt_leaves_the_old_file_or_the_new_one_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    before, replaces = path.read_bytes(), os.replace

    def interrupt(source: str, target: str) -> None:
        if written:
            replaces(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        change_profile(path, add(ADDED))
    assert os.listdir(path.parent) == [path.name]
    assert (path.read_bytes() != before) is written
    assert (ADDED in read_profile(path).spans) is written
