"""A profile with a wrong value is refused, or has its reports: it never ends in another error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.engines.operator_times import decode_any
from lar.errors import UsageError
from lar.profiles.trace_file import encode_profile
from lar.records.profile import Cost, MemoryChunk, MemoryPlan, Profile, StepNoise, TriedSetting
from lar.records.summary import Difference, Interval
from lar.reports.styles import EXPORTS, STYLES
from tests.conftest import REPOSITORY
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import operator_of, profile_of_times

TRIED = Difference(ratio=0.5, interval=Interval(0.4, 0.6), verdict="faster")
FACTS = msgspec.structs.replace(
    profile_of_layers(1, 1).facts,
    tried=(TriedSetting("--a", "", TRIED, "equal"),),
    options={"thread": 2, "range_by": "a=head"},
    cost=Cost(4e-5, 3e-5, 2, 2, 4e-5, 3e-5),
    noise=(StepNoise(0, 5, ("steal",)), StepNoise(1)),
    plain=((3e-5, False),),
)
RUN = profile_of_times({"a": "Conv", "b": "Relu"}, [{"a": 30, "b": 5}] * 2, step_us=50)
PROFILE = replace(
    RUN,
    facts=FACTS,
    operators=(
        operator_of(
            "a", "Conv", flops=10**6, size_bytes=512, workspace_bytes=8, algorithm="im2col"
        ),
        operator_of("b", "Relu", flops=64, size_bytes=512, parameters={"mode": "RELU"}),
    ),
    memory_plan=MemoryPlan(200, (MemoryChunk(0, 100, "a", 0, 1),)),
)
WRONG: tuple[Any, ...] = (None, -1, 0, 10**15, 10**30, 1e308, "(=x", [], [-1])
PARTS = ("otherData", "ops", "memPlan", "traceEvents")
RAW = json.loads((REPOSITORY / "tests" / "data" / "megengine_profile.json").read_bytes())


def wrong_contents(part: str) -> Iterator[bytes]:
    """Yield the file with each wrong value in the place of each value in a part of it."""
    document = json.loads(encode_profile(PROFILE))
    if part == "traceEvents":  # one of each kind
        kinds = {(it["ph"], it.get("cat")): it for it in document[part]}
        document[part] = [it for it in document[part] if it in kinds.values()]
    yield from with_each_wrong(document, places_in(document[part]))


def with_each_wrong(
    document: Any, places: Iterable[tuple[Any, Any]], values: Iterable[Any] = WRONG
) -> Iterator[bytes]:
    """Yield a document with each wrong value in each of some places of it."""
    for holder, key in places:
        right = holder[key]
        for wrong in values:
            holder[key] = wrong
            yield json.dumps(document).encode()
        holder[key] = right


def places_in(node: Any) -> list[tuple[Any, Any]]:
    """Return where all values within a value stand: what holds each, and its key there."""
    if not isinstance(node, (dict, list)):
        return []
    keys = [*node] if isinstance(node, dict) else [*range(len(node))]
    return [place for key in keys for place in ((node, key), *places_in(node[key]))]


def report_all(profile: Profile) -> None:
    for name, style in STYLES.items():
        # Of tensorboard, whose views are the plugin's, the trace is made below.
        for count in style.profiles if name != "tensorboard" else ():
            with contextlib.suppress(UsageError):  # nothing was timed
                style.build(profile, {}, *[PROFILE] * (count - 1))
    export_all(profile)


def export_all(profile: Profile) -> None:
    for function, _ in EXPORTS.values():
        with contextlib.suppress(UsageError):
            b"".join(function(profile))


def test_a_wrong_value_in_an_engines_own_profile_is_refused_or_reported() -> None:
    """One place of each name is enough: they hold the same for each operator."""
    own = {str(key): (holder, key) for holder, key in places_in(RAW) if not str(key).isdigit()}
    for content in with_each_wrong(RAW, own.values(), (None, -1, 10**30, "", [])):
        if (profile := profile_in(content)) is not None and profile.executions:
            STYLES["torch"].build(profile, {})
            export_all(profile)


@pytest.mark.parametrize("part", PARTS)
def test_a_wrong_value_is_refused_or_reported(part: str) -> None:
    profiles = [profile_in(content) for content in wrong_contents(part)]
    accepted = [profile for profile in profiles if profile is not None]
    assert 0 < len(accepted) < len(profiles)
    for profile in accepted:
        report_all(profile)


def profile_in(content: bytes) -> Profile | None:
    """Return the profile in a file, None where it is refused."""
    try:
        return decode_any(content, "p.json")
    except UsageError:
        return None
