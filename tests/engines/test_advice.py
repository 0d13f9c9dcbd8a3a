"""What a profile speaks for: on which machine, for which operators, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from lar.engines import engine_named
from lar.engines.advice import site_of, suggestions_of
from lar.records.profile import (
    CpuUse,
    Profile,
    ProfiledOperator,
    TensorFact,
    ThreadUse,
    TriedSetting,
)
from lar.records.summary import Difference, Interval, Verdict
from lar.reports.bench_report import best_of, describe_advice, describe_tried
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import execution_of, profile_of, step_of
from tests.tables import each_row

CONV = operator_of("conv", "ConvolutionForward", parameters={"sparse": "DENSE", "format": "NCHW"})
GROUPED = operator_of("depthwise", "ConvBiasForward", parameters={"sparse": "GROUP"})
INTEGERS = (TensorFact((1, 8, 4, 4), "QuantizedS8"),)
OPERATORS = {
    "conv": CONV,
    "depthwise": GROUPED,
    "norm": operator_of("norm", "BatchNorm"),
    "quantised": operator_of("conv", "ConvBiasForward", inputs=INTEGERS, outputs=INTEGERS),
    "winograd": msgspec.structs.replace(CONV, algorithm="WINOGRAD:X86_F32MKL_8X8_F63"),
}

ZEN = "AuthenticAMD fpu sse2 avx2 avx512f avx512_vnni"
OLD_AMD = "AuthenticAMD fpu sse2"
INTEL = "GenuineIntel fpu sse2 avx2"
SKYLAKE = "GenuineIntel fpu sse2 avx2 avx512f"
ARM = "unknown fp asimd asimdhp asimddp"
X86 = (ZEN, OLD_AMD, INTEL, SKYLAKE)
PROCESSORS = {"ZEN": ZEN, "OLD_AMD": OLD_AMD, "INTEL": INTEL, "SKYLAKE": SKYLAKE, "ARM": ARM}

NCHW88 = "--enable-nchw88"
FIXED_NCHW88 = f"--engine-fix x2apic {NCHW88}"
MKL = "--engine-env MKL_DEBUG_CPU_TYPE=5"
FAST_RUN = "--fast-run --fast-run-algo-policy FILE"
THREADS = "--multithread 2"


def profile_on(
    processor: str,
    operators: Sequence[ProfiledOperator] = (CONV, GROUPED),
    *,
    step: float = 10_000,
    cores: int = 2,
    variables: dict[str, str] | None = None,
    **facts: Any,
) -> Profile:
    """A profile of one iteration, of which the operators take equal parts, made on a processor that
    is not this one; in microseconds."""
    part = step / len(operators)
    executions = [
        execution_of(place, place * part, (place + 1) * part) for place in range(len(operators))
    ]
    machine = {
        "processor": "one of a test",
        "instruction_sets": processor,
        "cores": cores,
        "usable_cores": cores,
        "variables": variables or {},
    }
    given = {"threads": 1, "machine": machine, **facts}
    return profile_of(operators, [step_of(0, 0, step)], executions, facts=given)


def flags_of(profile: Profile) -> list[str]:
    """The flags of each suggestion, the most promising first."""
    return [each.flags for each in suggestions_of(profile)]


class TestMegEngine:
    @each_row("engines/advice/megengine")
    def test_what_is_suggested_and_what_is_not(
        self,
        rule: str,
        processor: str,
        operators: list[str],
        facts: dict[str, Any],
        flags: list[str],
        words: list[str],
    ) -> None:
        """These flags are, and none that has one of these words."""
        profile = profile_on(PROCESSORS[processor], [OPERATORS[it] for it in operators], **facts)
        found = flags_of(profile)
        assert {*flags} <= {*found}, rule
        assert not [word for word in words if word in " ".join(found)], rule

    @each_row("engines/advice/machines")
    def test_all_that_is_suggested_on_a_machine(
        self, processor: str, dense: list[str], grouped: list[str]
    ) -> None:
        """For convolutions of all channels, and in groups."""
        calling = "--multithread-default 2"
        assert {*flags_of(profile_on(PROCESSORS[processor], [CONV]))} == {*dense, calling}
        assert {*flags_of(profile_on(PROCESSORS[processor], [GROUPED]))} == {*grouped, calling}

    def test_what_was_fastest_on_a_machine_is_among_the_first_three(self) -> None:
        """On Intel with AVX-512 ResNet50 took 127 ms, 84 on two threads and 177 in nchw88, in which
        a model with grouped convolutions took 2.5 ms instead of 6.3: the race tells them apart."""
        assert {FIXED_NCHW88, MKL} <= {*flags_of(profile_on(ZEN, [CONV]))[:3]}
        assert {THREADS, NCHW88} <= {*flags_of(profile_on(SKYLAKE, [CONV, GROUPED]))[:3]}

    def test_two_ways_to_save_come_before_a_second_choice_of_one(self) -> None:
        assert flags_of(profile_on(ZEN, [CONV]))[:2] == [FIXED_NCHW88, THREADS]
        assert flags_of(profile_on(ZEN, [CONV], threads=2))[:2] == [FIXED_NCHW88, MKL]

    def test_each_names_its_figure(self) -> None:
        found = {each.name: each.why for each in suggestions_of(profile_on(ZEN))}
        assert found["nchw88"] == (
            "convolutions in the plain layout take 100% of the operators' time"
        )
        assert found["MKL_DEBUG_CPU_TYPE=5"] == (
            "products in MKL's generic code take 50% of the operators' time"
        )
        assert found["2 threads"] == (
            "operators of 30 us and more take 100% of the operators' time on 1 of 2 cores"
        )

    def test_of_an_unknown_machine_nothing_is_suggested_that_depends_on_it(self) -> None:
        found = flags_of(profile_on(ZEN, machine={}, threads=1, cpu=CpuUse(0, None, None)))
        assert found == [FAST_RUN]


class TestOnnxRuntime:
    HEAVY = operator_of("conv", "FusedConv", inputs=(TensorFact((1, 8, 4, 4), "float32"),))
    REORDER = operator_of("reorder", "ReorderOutput")

    def on(self, processor: str = ZEN, *operators: ProfiledOperator, **facts: Any) -> Profile:
        given = {"engine": "onnxruntime", "threads": 2, **facts}
        return profile_on(processor, operators or (self.HEAVY,), **given)

    @pytest.mark.parametrize("processor", [*X86, ARM])
    def test_nothing_is_suggested_beyond_defaults_that_fit(self, processor: str) -> None:
        profile = self.on(processor, cpu=CpuUse(2, 110.0, 100.0))  # while others compute
        assert flags_of(profile) == []
        assert describe_advice(profile) == ("no setting stands out; lar tune MODEL tries all")

    def test_conversions_of_its_layout_can_be_turned_off(self) -> None:
        (found,) = suggestions_of(self.on(ZEN, self.HEAVY, self.REORDER))
        assert found.flags == "--disable-optimizer NchwcTransformer"
        assert "layout and back take 50% of the operators' time" in found.why
        assert flags_of(self.on(ZEN, *[self.HEAVY] * 29, self.REORDER)) == []

    def test_operators_too_short_to_be_divided_run_on_one_thread(self) -> None:
        assert flags_of(self.on(ZEN, *[self.HEAVY] * 6, step=60)) == ["--cpu-default"]
        assert flags_of(self.on(ZEN, *[self.HEAVY] * 6, step=60, threads=1)) == []

    def test_threads_that_wait_for_each_other_had_better_be_fewer(self) -> None:
        waiting = msgspec.structs.replace(self.HEAVY, threads=ThreadUse(1, 60, 0, 40))
        (found,) = suggestions_of(self.on(ZEN, waiting, cores=8, threads=8))
        assert found.flags == "--multithread 4"
        assert found.why == "in divided operators one thread waits 40% of the time for the others"


@each_row("engines/advice/saved")
def test_what_choices_are_expected_to_save(
    engine: str,
    processor: str,
    operators: list[Any],
    facts: dict[str, Any],
    saved: dict[str, float],
) -> None:
    """By operators that take as long each, some just long enough."""
    made = [{"id": "", "name": "", "type": type, **fields} for type, fields in operators]
    given = msgspec.convert(made, list[ProfiledOperator])
    profile = profile_on(PROCESSORS[processor], given, engine=engine, **facts)
    signs = engine_named(engine).signs(profile, site_of(profile))
    assert {it.choice: round(it.saves, 4) for it in signs if it.saves} == saved


def test_of_an_unknown_engine_or_of_nothing_timed_nothing_is_suggested() -> None:
    assert flags_of(profile_on(ZEN, engine="of somebody else")) == []
    assert suggestions_of(profile_of([CONV])) == ()


# What became of settings that were tried


def tried(flags: str, ratio: float, verdict: Verdict, **fields: Any) -> TriedSetting:
    interval = Interval(0.9 * ratio, 1.25 * ratio)
    difference = Difference(ratio=ratio, interval=interval, verdict=verdict)
    return TriedSetting(flags, difference=difference, **{"outputs": "equal", **fields})


@each_row("engines/advice/best")
def test_the_best_is_right_and_proven_or_named_as_likely(
    settings: list[list[Any]], said: str
) -> None:
    found = [tried(*given, **fields) for *given, fields in settings]
    assert describe_tried(found) == said
    assert (best_of(found) is None) == ("no setting" in said)


def test_what_was_not_tried_to_its_end_is_no_best() -> None:
    assert describe_tried([TriedSetting("--a")]) == "no setting is shown to be faster among --a"


def test_a_report_says_what_to_try_and_whether_it_was() -> None:
    profile = profile_on(ZEN)
    assert describe_advice(profile) == (
        f"{FIXED_NCHW88}, as convolutions in the plain layout take 100% of the operators' time "
        "(not tried; lar advise MODEL tries it)"
    )
    profile = profile_on(ZEN, options={"enable_nchw88": True, "profile": "p.json"})
    assert describe_advice(profile).endswith(
        "(not tried; lar advise MODEL --enable-nchw88 tries it)"
    )
    profile = profile_on(ZEN, tried=(tried(FIXED_NCHW88, 0.5, "faster"),))
    assert describe_advice(profile) == (
        f"{FIXED_NCHW88} is 2.00 times as fast (1.60 to 2.22), outputs equal (tried)"
    )
