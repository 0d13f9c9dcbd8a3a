"""The paragraph on top of a report: its figures, and where it stands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.engines.advice import recommendations_for, site_of
from lar.profiles.costs import correct
from lar.profiles.summary import summarize
from lar.profiles.trace_file import write_profile
from lar.records.profile import Cost, CpuUse, Peak, Profile, StepNoise
from lar.reports.styles import STYLES
from tests.conftest import RunLar
from tests.profiles.synthetic import operator_of, profile_of_times
from tests.profiles.timelines import execution_of, profile_of, span_of, step_of

TYPES = {"conv1": "Convolution", "conv2": "Convolution", "relu": "Relu"}
TIMES = {"conv1": 300, "conv2": 500, "relu": 7}
BEGINNING = "An iteration takes 1 ms (median of 3). "


def made(**facts: Any) -> Profile:
    """Three iterations of 1 ms, with operators of 807 us."""
    profile = profile_of_times(TYPES, [TIMES] * 3, step_us=1000)
    facts = {"lar_version": "0.1.0", "cost": Cost(1.3e-3, 1e-3), **facts}
    object.__setattr__(profile, "facts", msgspec.structs.replace(profile.facts, **facts))
    return profile


def paragraph(profile: Profile) -> str:
    return summarize(profile, recommendations_for(profile))


def test_what_takes_the_time() -> None:
    text = paragraph(made())
    assert text.startswith(
        BEGINNING
        + "Of the operators' time (compute, in sum), Convolution 99% (2 operators); the slowest, "
        "by median x calls, is conv2 with 500 us (62.0%). "
    )


def test_a_single_disturbance_puts_nothing_first() -> None:
    times = [TIMES] * 4 + [{**TIMES, "relu": 900_000}]
    profile = profile_of_times(TYPES, times, step_us=1_000_000)
    assert (
        "Convolution 0% (2 operators, 99% by medians); the slowest, by median x calls, is conv2 "
        "with 500 us (0.3%, 62% by medians)"
    ) in paragraph(profile)


def test_times_of_the_host_alone_are_said_to_be_that() -> None:
    profile = made(device="cuda:0", dispatch_only=True, engine="onnxruntime")
    assert not profile.on_device
    assert paragraph(profile).startswith(
        BEGINNING
        + "What operators take on cuda:0 is not known: their times are those of the host, "
        "which has the device do them. Of the operators' time (compute, in sum)"
    )
    # What is suggested is for the device all the same.
    assert site_of(profile).device == "cuda:0"


def test_what_profiling_cost_is_said() -> None:
    text = paragraph(correct(made()))
    assert "Profiling cost +30.0%: a median iteration took 1.300 ms with it, 1.000 ms w" in text
    assert "he times of operators" in text or "whose times are as recorded" in text
    assert "Profiling cost +2.0%: " in paragraph(made(cost=Cost(1.02e-3, 1e-3)))
    assert "rofiling" not in paragraph(made(cost=None))


def test_how_disturbed_it_was() -> None:
    noise = (StepNoise(0, 200_000, ("queue delay",)), StepNoise(1), StepNoise(2))
    text = paragraph(made(noise=noise))
    assert text.startswith("An iteration takes 1 ms (median of 3, 1 ms of the 2 undisturbed). ")
    assert text.endswith(
        " 1 of 3 iterations was disturbed: 1 waited for a CPU that other work held, up to 0.200 ms."
    )
    assert text.count("was disturbed") == 1


def test_what_to_try_names_its_figure() -> None:
    text = paragraph(made(threads=1, cpu=CpuUse(2, 100.0, 50.0)))
    assert (
        "To try: --multithread 2, since operators of 30 us and more take 80.0% of an iteration on "
        "1 of 2 cores, while 1.0 stood idle; or --fast-run --fast-run-algo-policy FILE, since "
        "convolutions and matrix products take 80.0% of an iteration. "
    ) in text


def test_where_nothing_is_expected_to_help_that_is_said() -> None:
    profile = made(engine="onnxruntime", threads=2)
    text = paragraph(profile)
    assert "Nothing to try: no other setting of onnxruntime is expected to make it faster h" in text
    loading = replace(profile, spans=(span_of("phase", "dataloader", 1000, 1900),))
    assert "faster here. Reading and copying the input takes 30.0% of the iterations; feed " in (
        paragraph(loading)
    )


@pytest.mark.parametrize(
    ("flops", "size_bytes", "said"),
    [
        (
            40_000_000,
            1000,
            "Convolution is bound by computing: 80% of the peak of operations and 0% of the "
            "bandwidth of this machine. At their",
        ),
        (
            5_000_000,
            8_000_000,
            "Convolution is bound by memory: 10% of the peak of operations and 80% of the "
            "bandwidth of this machine. At their roofs operators would save 200 us of an "
            "iteration, first of all conv (200 us). ",
        ),
        (
            60_000_000,
            1000,
            "by computing: more than the measured peak of operations and 0% of the ",
        ),
        (1000, 20_000_000, "moves more than the main memory could, out of the caches. "),
        (5_000_000, 1000, "at 10% of the peak of operations and 0% of the bandwidth: it is bound "),
        (None, None, "(100.0%). To try"),
    ],
)
def test_what_limits_the_type_that_takes_most(
    flops: int | None, size_bytes: int | None, said: str
) -> None:
    operator = operator_of("conv", "Convolution", flops=flops, size_bytes=size_bytes)
    facts = {"peak": Peak(50e9, 10e9, 1)}
    profile = profile_of([operator], [step_of(0, 0, 1000)], [execution_of(0, 0, 1000)], facts=facts)
    assert said in paragraph(profile)


def test_nothing_timed_has_no_paragraph() -> None:
    assert paragraph(profile_of([operator_of("conv", "Convolution")])) == ""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("summary") / "profile.json"
    write_profile(made(), place)
    return str(place)


@pytest.mark.parametrize(
    ("style", "count"), [(name, n) for name in STYLES for n in STYLES[name].profiles]
)
def test_it_stands_on_top_of_what_a_person_reads(
    run_lar: RunLar, path: str, tmp_path: Path, style: str, count: int
) -> None:
    names = {kind: tmp_path / f"report.{kind}" for kind in ("csv", "json", "html")}
    files = [word for kind, name in names.items() for word in (f"--{kind}", str(name))]
    done = run_lar("report", *[path] * count, "--style", style, *files)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if style == "tensorboard":
        assert BEGINNING not in done.stdout
        assert [*map(json.loads, lines)]
    else:
        roles = ["baseline: ", "exp: "] if count == 2 else [""]
        for role in roles:
            first = lines.pop(0)
            assert first.startswith(f"{role}{BEGINNING}")
            assert f"time ({STYLES[style].time}, in sum), Convolution " in first
            assert "Profiling cost +30.0%: " in first
            assert lines.pop(0) == ""
        assert BEGINNING in names["html"].read_text()
    assert BEGINNING not in names["csv"].read_text()


def test_lines_for_programs_and_an_engines_own_file_have_none(
    run_lar: RunLar, path: str, root: Path
) -> None:
    names = run_lar("report", path, "--dump-only-opr").stdout
    assert BEGINNING not in names
    own = str(root / "tests" / "data" / "megengine_profile.json")
    assert not run_lar("report", own).stdout.startswith("An iteration")
