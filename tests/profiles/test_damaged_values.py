"""A profile with a wrong value is refused, or has its reports: it never ends in another error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.engines.profile_files import decode_any
from lar.errors import UsageError
from lar.profiles.trace_file import encode_profile
from lar.records.profile import (
    DeviceFacts,
    MemoryChunk,
    MemoryPlan,
    Profile,
    TriedSetting,
)
from lar.records.summary import Difference, Interval
from lar.reports.styles import EXPORTS, STYLES
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import operator_of, profile_of_times

TRIED = Difference(ratio=0.5, interval=Interval(0.4, 0.6), verdict="faster")
FACTS = msgspec.structs.replace(
    profile_of_layers(1, 1).facts, tried=(TriedSetting("--a", "", TRIED, "equal"),)
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
    devices=(DeviceFacts(0, "cpu", "a CPU", 2**34),),
)
WRONG: tuple[Any, ...] = (None, -1, 0, 10**30, 1e308, "x", [], [-1], {"a": 1})
PARTS = ("otherData", "deviceProperties", "ops", "memPlan")


def wrong_contents(part: str) -> Iterator[bytes]:
    """Yield the file with each wrong value in the place of each value in a part of it."""
    document = json.loads(encode_profile(PROFILE))
    for holder, key in places_in(document[part]):
        right = holder[key]
        for wrong in WRONG:
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
            style.build(profile, {}, *[PROFILE] * (count - 1))
    for function, _ in EXPORTS.values():
        with contextlib.suppress(UsageError):  # nothing was timed
            b"".join(function(profile))


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
