"""Copies of a model that run at once, each profiled."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.engines.operator_times import read_profile
from lar.profiles.breakdown import breakdown_of, split_copies
from lar.profiles.costs import fit_to_plain
from lar.profiles.export import export_tensorboard
from lar.profiles.times import group_by, timed_allocations
from lar.records.profile import Cost, Profile
from lar.reports.styles import STYLES
from tests.command_lines import ROOT, run_lar
from tests.running.isolated_runs import finished

MODELS = ROOT / "models"
DIGITS = MODELS / "digits_cnn.onnx"
STYLES_OF_ONE = [name for name, style in STYLES.items() if 1 in style.profiles]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import lar

    path = tmp_path_factory.mktemp("copies") / "copies.json"
    options: Any = {"profile_memory": True, "range_by": "conv.*=body"}
    finished(lar.run(str(DIGITS), thread=2, iter=3, profile=str(path), **options))
    return path


@pytest.fixture(scope="module")
def profile(place: Path) -> Profile:
    return read_profile(place)


def test_each_copy_has_its_iterations_and_its_threads(profile: Profile) -> None:
    assert [step.number for step in profile.steps] == [-1, -2, *range(6)]
    assert [step.copy for step in profile.steps] == [0, 1] * 4
    assert [step.warmup for step in profile.steps] == [True, True, *[False] * 6]
    assert (profile.facts.iterations, profile.facts.warmup_iterations) == (6, 2)
    assert (profile.threads[1], profile.threads[1001]) == ("copy 0", "copy 1")
    copies = {step.number: step.copy for step in profile.steps}
    for each in profile.executions:
        assert each.thread == 1 + 1000 * copies[each.step]
    for span in profile.spans:
        if span.category == "phase" and span.name in ("forward", "load", "prepare"):
            assert span.thread in (1, 1001)
    assert Counter(span.thread for span in profile.spans if span.name == "load") == {1: 1, 1001: 1}


def test_the_same_operators_run_in_each_iteration(profile: Profile) -> None:
    executed = [
        Counter(each.operator for each in profile.executions if each.step == step.number)
        for step in profile.steps
    ]
    assert all(each == executed[0] for each in executed)
    assert len(executed[0]) == len(profile.operators)
    for step in profile.steps:
        own = [each for each in profile.executions if each.step == step.number]
        assert all(step.start_ns <= each.start_ns <= each.end_ns <= step.end_ns for each in own)
    assert sum(each.size_bytes for each in timed_allocations(profile)) == 0


def test_a_step_counts_what_its_own_copy_did(profile: Profile) -> None:
    for step in breakdown_of(profile):
        own = [each for each in profile.executions if each.step == step.number]
        # Less where the copy stood ready without a CPU in an operator; not what the other did.
        assert step.buckets_ns["CPU Exec"] <= sum(each.duration_ns for each in own)
        assert sum(step.buckets_ns.values()) == step.total_ns


def test_the_cost_of_profiling_is_taken_out_of_each_copy(profile: Profile) -> None:
    facts = msgspec.structs.replace(profile.facts, cost=Cost(10e-6, 1e-6, 6, 6))
    found = fit_to_plain(replace(profile, facts=facts))
    assert found.correction is not None
    for part in split_copies(found):
        assert all(step.buckets_ns["Profiling"] for step in breakdown_of(part))


@pytest.mark.parametrize("style", STYLES_OF_ONE)
def test_every_style_reports_them(place: Path, tmp_path: Path, style: str) -> None:
    page = ["--html", str(tmp_path / "page.html")] if style != "tensorboard" else []
    run_lar("report", str(place), "--style", style, *page, code=0)


def test_iterations_that_overlap_stand_on_tracks_of_their_own_in_a_viewer(profile: Profile) -> None:
    events = json.loads(b"".join(export_tensorboard(profile)))["traceEvents"]
    steps = [each for each in events if each.get("name", "").startswith("ProfilerStep")]
    tracks = group_by(steps, lambda each: each["tid"])
    assert len(tracks) == 2
    for own in tracks.values():
        ends = sorted((each["ts"], each["ts"] + each["dur"]) for each in own)
        assert all(before[1] <= after[0] for before, after in pairwise(ends))


@pytest.mark.parametrize("kind", ["chrome", "tensorboard"])
def test_they_are_exported(place: Path, tmp_path: Path, kind: str) -> None:
    done = run_lar("report", str(place), "--export", kind, "-o", str(tmp_path / "trace.json"))
    assert done.returncode == 0, done.stderr
