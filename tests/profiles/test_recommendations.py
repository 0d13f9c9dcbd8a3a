"""What is suggested for the run of a profile: on which machine, and by which figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.engines import engine_named
from lar.engines.advice import recommendations_for
from lar.options.table import BY_KEY, OPTIONS
from lar.profiles.recommendations import Recommendation
from lar.records.profile import (
    Cost,
    CpuUse,
    DeviceFacts,
    Machine,
    MemoryPlan,
    Profile,
    ProfiledOperator,
    StepNoise,
    TensorFact,
)
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import WORKER, execution_of, profile_of, span_of, step_of

CONV, RELU, COPY = (
    operator_of("conv", "ConvolutionForward", parameters={"sparse": "DENSE", "format": "NCHW"}),
    operator_of("relu", "Relu"),
    operator_of("copy", "RelayoutFormat"),
)
GROUPED = operator_of("depthwise", "ConvBiasForward", parameters={"sparse": "GROUP"})
MAX_POOL = operator_of("pool", "PoolingForward", parameters={"mode": "MAX"})
NORM = operator_of("norm", "BatchNorm")
STEPS = (step_of(0, 0, 100),)

ZEN = "AuthenticAMD fpu sse2 avx2 avx512f avx512_vnni"
AMD_AVX2 = "AuthenticAMD fpu sse2 avx2"
OLD_AMD = "AuthenticAMD fpu sse2"
INTEL = "GenuineIntel fpu sse2 avx2"
SKYLAKE = "GenuineIntel fpu sse2 avx2 avx512f"
ARM = "unknown fp asimd asimdhp asimddp"
X86 = (ZEN, OLD_AMD, INTEL, SKYLAKE)


def machine_of(processor: str, cores: int = 2, **facts: Any) -> dict[str, Any]:
    """The facts of a machine that is not this one."""
    return {
        "processor": "one of a test",
        "instruction_sets": processor,
        "cores": cores,
        "usable_cores": cores,
        "memory_bytes": 8 << 30,
        **facts,
    }


def profile_on(
    processor: str,
    operators: Sequence[ProfiledOperator] = (CONV, GROUPED),
    *,
    step: float = 10_000,
    cores: int = 2,
    variables: dict[str, str] | None = None,
    **facts: Any,
) -> Profile:
    """A profile of one iteration, of which the operators take equal parts, made on a processor; in
    microseconds. All cores are busy."""
    part = step / len(operators)
    executions = [
        execution_of(place, place * part, (place + 1) * part) for place in range(len(operators))
    ]
    given = {
        "threads": 1,
        "cpu": CpuUse(cores, 100.0, 100.0),
        "machine": machine_of(processor, cores, variables=variables or {}),
        **facts,
    }
    return profile_of(operators, [step_of(0, 0, step)], executions, facts=given)


def settings_of(profile: Profile) -> list[Recommendation]:
    return [each for each in recommendations_for(profile) if each.choice is not None]


def flags_of(profile: Profile) -> list[str]:
    """The flags of each suggestion that has a setting, the most promising first."""
    return [" ".join(each.flags) for each in settings_of(profile)]


def rules_of(profile: Profile) -> list[str]:
    """The rules of the notes, which have no setting."""
    return [each.rule for each in recommendations_for(profile) if each.choice is None]


class TestMachines:
    """The suggestions are those for the machine that the profile was made on."""

    @pytest.mark.parametrize("processor", X86)
    def test_x86_has_no_use_for_what_is_made_for_arm(self, processor: str) -> None:
        found = " ".join(flags_of(profile_on(processor)))
        for flag in ("--enable-nchw44", "--enable-ioc16", "--enable-nhwcd4"):
            assert flag not in found

    def test_the_layout_of_avx2_comes_with_the_way_round_its_defect(self) -> None:
        assert "--enable-nchw88 --engine-fix x2apic" in flags_of(profile_on(ZEN))
        assert "--enable-nchw88" in flags_of(profile_on(INTEL))
        for processor in (OLD_AMD, ARM):
            assert "nchw88" not in " ".join(flags_of(profile_on(processor)))

    def test_its_blocks_lose_to_avx512_where_mkl_has_code_for_it(self) -> None:
        assert "nchw88" not in " ".join(flags_of(profile_on(SKYLAKE, [CONV])))
        assert "--enable-nchw88" in flags_of(profile_on(SKYLAKE, [GROUPED]))

    def test_the_variable_of_mkl_is_for_the_processors_in_the_table_of_defects(self) -> None:
        variable = "--engine-env MKL_DEBUG_CPU_TYPE=5"
        assert variable in flags_of(profile_on(ZEN))
        for processor in (OLD_AMD, INTEL, SKYLAKE, ARM):
            assert variable not in flags_of(profile_on(processor))
        given = {"MKL_DEBUG_CPU_TYPE": "4"}
        assert variable not in flags_of(profile_on(ZEN, variables=given))
        assert variable not in flags_of(profile_on(ZEN, [GROUPED]))  # MKL has no part in it

    def test_the_variable_of_mkl_is_advised_against_where_it_harms(self) -> None:
        given = {"MKL_DEBUG_CPU_TYPE": "5"}
        rule = "MKL's variable"
        for processor in (INTEL, SKYLAKE):
            assert rule in rules_of(profile_on(processor, variables=given))
            assert rule not in rules_of(profile_on(processor))
            assert rule not in rules_of(profile_on(processor, [GROUPED], variables=given))
        for processor in (ZEN, OLD_AMD, ARM):
            assert rule not in rules_of(profile_on(processor, variables=given))

    def test_arm_has_its_own_layout_and_float16(self) -> None:
        found = flags_of(profile_on(ARM))
        assert {"--enable-nchw44", "--enable-ioc16"} <= {*found}
        assert "--enable-ioc16" not in flags_of(profile_on("unknown fp asimd"))

    def test_a_known_defect_of_the_model_leaves_a_setting_out(self) -> None:
        assert "--enable-ioc16" not in flags_of(profile_on(ARM, [CONV, MAX_POOL]))
        for processor in (ZEN, ARM):
            assert "--enable-n" not in " ".join(flags_of(profile_on(processor, [CONV, NORM])))

    def test_quantised_operators_have_dot_products_on_arm(self) -> None:
        fact = TensorFact((1, 8, 4, 4), "QuantizedS8")
        quantised = operator_of("conv", "ConvBiasForward", inputs=(fact,), outputs=(fact,))
        assert "--enable-nchw44-dot" in flags_of(profile_on(ARM, [quantised]))
        assert "--enable-nchw88 --engine-fix x2apic" not in flags_of(profile_on(ZEN, [quantised]))

    def test_of_an_unknown_machine_nothing_is_suggested_that_depends_on_it(self) -> None:
        facts: dict[str, Any] = {"machine": {}, "threads": 1, "cpu": CpuUse(0, None, None)}
        found = " ".join(flags_of(profile_on(ZEN, **facts)))
        for word in ("nchw", "MKL", "ioc16", "multithread"):
            assert word not in found

    def test_a_device_has_no_choices_of_the_processor(self) -> None:
        profile = profile_on(ZEN, [CONV], device="cuda0")
        assert flags_of(profile) == ["--fast-run --fast-run-algo-policy FILE"]


NCHW88 = "--enable-nchw88"
FIXED_NCHW88 = f"{NCHW88} --engine-fix x2apic"
MKL = "--engine-env MKL_DEBUG_CPU_TYPE=5"
FAST_RUN = "--fast-run --fast-run-algo-policy FILE"
THREADS = "--multithread 2"
CALLING = "--multithread-default 2"
FOR_ARM = {"--enable-nchw44", "--enable-ioc16"}


@pytest.mark.parametrize(
    ("processor", "dense", "grouped"),
    [
        (AMD_AVX2, {FIXED_NCHW88, MKL, FAST_RUN, THREADS}, {FIXED_NCHW88, FAST_RUN, THREADS}),
        (ZEN, {FIXED_NCHW88, MKL, FAST_RUN, THREADS}, {FIXED_NCHW88, FAST_RUN, THREADS}),
        (OLD_AMD, {FAST_RUN, THREADS}, {FAST_RUN, THREADS}),
        (INTEL, {FAST_RUN, THREADS}, {NCHW88, FAST_RUN, THREADS}),
        # There ResNet50 took 127 ms by default, 177 in nchw88, 230 with the variable of MKL, 140
        # after a search, 84 on two threads.
        (SKYLAKE, {THREADS}, {NCHW88, FAST_RUN, THREADS}),
        (ARM, {*FOR_ARM, FAST_RUN, THREADS}, {*FOR_ARM, FAST_RUN, THREADS}),
    ],
)
def test_all_that_is_suggested_on_a_machine(
    processor: str, dense: set[str], grouped: set[str]
) -> None:
    """For convolutions of all channels, and in groups, while a core stands idle."""
    idle = CpuUse(2, 100.0, 50.0)
    assert {*flags_of(profile_on(processor, [CONV], cpu=idle))} == {*dense, CALLING}
    assert {*flags_of(profile_on(processor, [GROUPED], cpu=idle))} == {*grouped, CALLING}


def test_what_was_fastest_on_a_machine_is_among_the_first_three() -> None:
    idle = CpuUse(2, 100.0, 50.0)
    assert {FIXED_NCHW88, MKL} <= {*flags_of(profile_on(ZEN, [CONV], cpu=idle))[:3]}
    assert flags_of(profile_on(SKYLAKE, [CONV], cpu=idle)) == [THREADS, CALLING]


def test_another_way_to_the_same_saving_comes_last() -> None:
    found = settings_of(profile_on(ZEN, [CONV], cpu=CpuUse(2, 100.0, 50.0)))
    *others, last = (" ".join(each.flags) for each in found)
    assert THREADS in others
    assert last == CALLING
    assert found[-1].text.endswith(
        "divide each among 2 threads, of which one is the calling thread: --multithread-default 2"
    )


class TestThreads:
    IDLE = CpuUse(2, 100.0, 50.0)

    def test_idle_cores_come_first_where_nothing_else_is_known(self) -> None:
        (first, *_) = settings_of(profile_on(OLD_AMD, cpu=self.IDLE))
        assert first.flags == ("--multithread 2",)
        assert "take 100.0% of an iteration on 1 of 2 cores, while 1.0 stood idle" in first.text

    @pytest.mark.parametrize(
        "facts",
        [
            {"cpu": CpuUse(2, 100.0, 95.0)},  # others compute there
            {"cpu": CpuUse(2, 100.0, 50.0), "threads": 2},
            {"cpu": CpuUse(2, 100.0, 50.0), "options": {"thread": 2}},
            {"cpu": CpuUse(2, 100.0, 50.0), "cores": 1},
            {"cpu": CpuUse(2, 100.0, 50.0), "step": 40},  # too short to be divided
        ],
    )
    def test_no_thread_is_added_where_it_has_nothing_to_do(self, facts: dict[str, Any]) -> None:
        assert "multithread" not in " ".join(flags_of(profile_on(OLD_AMD, **facts)))

    @pytest.mark.parametrize(
        ("processor", "microseconds", "found"),
        [(OLD_AMD, 40, True), (SKYLAKE, 40, False), (SKYLAKE, 400, True)],
    )
    def test_dividing_short_operators_costs_more_on_some_processors(
        self, processor: str, microseconds: int, found: bool
    ) -> None:
        facts: dict[str, Any] = {"cpu": self.IDLE, "step": 100 * microseconds}
        flags = flags_of(profile_on(processor, (CONV,) * 100, **facts))
        assert ("--multithread 2" in flags) is found

    def test_threads_that_share_a_core_are_not_counted(self) -> None:
        made = profile_on(OLD_AMD, cores=4, cpu=CpuUse(4, 100.0, 25.0))
        assert "--multithread 4" in flags_of(made)
        machine: Machine = {**made.facts.machine, "threads_per_core": 2}
        made = replace(made, facts=msgspec.structs.replace(made.facts, machine=machine))
        assert "--multithread 2" in flags_of(made)

    def test_a_number_that_was_given_is_replaced(self) -> None:
        facts: dict[str, Any] = {
            "cpu": CpuUse(4, 200.0, 50.0),
            "threads": 2,
            "options": {"multithread": 2},
        }
        first, *_ = settings_of(profile_on(OLD_AMD, cores=4, **facts))
        assert (first.flags, first.without) == (("--multithread 4",), ("multithread",))

    @pytest.mark.parametrize(
        ("use", "text"),
        [
            (CpuUse(4, 99.0, None), "uses 99% of a CPU, and its 4 threads could use 400%"),
            (CpuUse(4, 10.0, 95.0), "uses 10% of a CPU, and its 4 threads could use 30%"),
            (CpuUse(4, 0.0, 100.0), ""),  # no thread could have run: none stood idle
            (CpuUse(4, 200.0, 50.0), ""),
        ],
    )
    def test_threads_that_stand_idle_had_better_be_fewer(self, use: CpuUse, text: str) -> None:
        found = settings_of(profile_on(OLD_AMD, cores=4, threads=4, cpu=use))
        fewer = [each for each in found if each.rule == "threads"]
        assert [text in each.text for each in fewer] == [True] * bool(text)
        assert [each.flags for each in fewer] == [("--multithread 2",)] * bool(text)


class TestMegEngine:
    def test_what_gains_most_comes_first(self) -> None:
        found = settings_of(profile_on(ZEN))
        gains = [each.gain or 0.0 for each in found]
        assert gains == sorted(gains, reverse=True)
        assert min(gains) >= 0.03
        assert {"--fast-run --fast-run-algo-policy FILE"} <= {*flags_of(profile_on(ZEN))}

    def test_each_suggestion_names_its_figure(self) -> None:
        for processor in (*X86, ARM):
            for each in settings_of(profile_on(processor)):
                assert f"{each.share:.1%} of an iteration" in each.text
                assert each.text.endswith(": " + " ".join(each.flags))

    def test_what_is_set_is_not_suggested_again(self) -> None:
        def flags(**options: Any) -> str:
            return " ".join(flags_of(profile_on(ZEN, options=options)))

        assert "--fast-run" not in flags(fast_run=True)
        assert "--fast-run" not in flags(fast_run_algo_policy="found.cache")
        assert "nchw88" not in flags(enable_nchw88=True)
        assert "nchw88" not in flags(layout_transform="cpu")  # one layout at a time
        assert "MKL" not in flags(enable_nchw88=True)  # it takes no algorithm of MKL's

    def test_what_rules_or_drivers_refuse_beside_what_is_set_is_not_suggested(self) -> None:
        def flags(**options: Any) -> str:
            return " ".join(flags_of(profile_on(ZEN, step=50, options=options)))

        assert "--record-comp-seq" in flags()
        assert "--record-comp-seq" not in flags(record_comp_seq2=True)
        assert "--record-comp-seq" in flags(profile="p.json")  # which the run goes without

    def test_what_is_slow_here_is_left_out(self) -> None:
        (first, *_) = [
            each
            for each in settings_of(profile_on(SKYLAKE, options={"enable_nchw44": True}))
            if each.rule == "slow here"
        ]
        assert (first.flags, first.without) == (("without --enable-nchw44",), ("enable_nchw44",))
        on_arm = settings_of(profile_on(ARM, options={"enable_nchw44": True}))
        assert "slow here" not in [each.rule for each in on_arm]

    def test_short_iterations_are_computed_in_the_calling_thread_and_recorded(self) -> None:
        short = flags_of(profile_on(OLD_AMD, step=50))
        assert {"--cpu-default", "--record-comp-seq"} <= {*short}
        assert not {"--cpu-default", "--record-comp-seq"} & {*flags_of(profile_on(OLD_AMD))}

    def test_handing_over_costs_most_where_others_compute(self) -> None:
        waiting = profile_on(ZEN, step=60, cost=Cost(2e-3, 1.5e-3, disturbed=True))
        (first, *_) = settings_of(waiting)
        assert first.flags == ("--record-comp-seq",)
        assert "takes 1500 us, of which handing them to another thread may take 96." in first.text
        assert flags_of(profile_on(ZEN, step=60))[0] != "--record-comp-seq"

    def test_a_small_model_does_not_pay_for_another_layout(self) -> None:
        assert "--enable-nchw88 --engine-fix x2apic" not in flags_of(profile_on(ZEN, step=60))

    def test_iterations_that_wait_for_a_cpu_do_not_hide_what_takes_the_time(self) -> None:
        steps = [step_of(n, n * 9000, n * 9000 + (9000 if n < 3 else 1000)) for n in range(6)]
        executions = [
            execution_of(0, step.start_ns / 1e3, step.start_ns / 1e3 + 900, step=step.number)
            for step in steps
        ]
        noise = tuple(StepNoise(step, 8_000_000, ("queue delay",)) for step in range(3))
        facts: dict[str, Any] = {"machine": machine_of(ZEN), "threads": 1}

        def share(until: int) -> float:
            made = profile_of([CONV], steps[:until], executions[:until], facts=facts)
            return settings_of(made)[0].share

        facts["noise"] = noise
        assert share(6) == pytest.approx(0.9)
        assert share(3) == pytest.approx(1.0)  # none was calm

    def test_the_plain_run_says_how_short_they_are(self) -> None:
        cost = Cost(0.02, 40e-6)
        assert "--cpu-default" in flags_of(profile_on(OLD_AMD, cost=cost))

    def test_weights_are_transformed_ahead_where_an_algorithm_transforms_them(self) -> None:
        winograd = msgspec.structs.replace(CONV, algorithm="WINOGRAD:X86_F32MKL_8X8_F63")
        (found,) = (
            each
            for each in settings_of(profile_on(INTEL, [winograd, CONV]))
            if each.flags == ("--weight-preprocess",)
        )
        assert found.text.startswith("winograd algorithms take 50.0% of an iteration; ")
        assert "--weight-preprocess" not in flags_of(profile_on(INTEL))

    def test_algorithms_say_what_mkl_computes(self) -> None:
        of_mkl = msgspec.structs.replace(CONV, algorithm="IM2COLMATMUL:X86_F32_BLAS:192")
        own = msgspec.structs.replace(CONV, algorithm="IM2COLMATMUL:X86_F32_6x16:192")
        (found,) = (
            each for each in settings_of(profile_on(ZEN, [of_mkl, own])) if "MKL_DEBUG" in each.text
        )
        assert found.share == pytest.approx(0.5)


class TestOnnxRuntime:
    FACT = TensorFact((1, 8, 4, 4), "float32")
    HEAVY = operator_of("conv", "FusedConv", inputs=(FACT,))
    REORDER = operator_of("reorder", "ReorderOutput")

    def on(self, processor: str = ZEN, *operators: ProfiledOperator, **facts: Any) -> Profile:
        given = {"engine": "onnxruntime", "threads": 2, "cpu": CpuUse(2, 190.0, 97.0), **facts}
        return profile_on(processor, operators or (self.HEAVY,), **given)

    def test_nothing_is_suggested_beyond_defaults_that_fit(self) -> None:
        assert flags_of(self.on()) == []

    def test_integers_are_a_note_with_its_figure(self) -> None:
        (note,) = recommendations_for(self.on())
        assert (note.rule, note.flags, note.gain) == ("quantisation", (), None)
        assert "take 100.0% of an iteration" in note.text
        assert "avx512_vnni" in note.text
        assert rules_of(self.on(INTEL)) == []
        # The scales of a quantised operator are float32.
        inputs = (TensorFact((1, 8, 4, 4), "int8"), TensorFact((), "float32"))
        assert rules_of(self.on(ZEN, operator_of("conv", "QLinearConv", inputs=inputs))) == []

    def test_all_cores_where_the_run_was_given_fewer(self) -> None:
        idle: dict[str, Any] = {"threads": 1, "cpu": CpuUse(2, 100.0, 50.0)}
        (found,) = settings_of(self.on(options={"cpu_default": True}, **idle))
        assert found.flags == ("without --cpu-default",)
        assert found.gain == pytest.approx(0.41, abs=0.01)
        assert flags_of(self.on(**idle)) == []  # not for the number of threads

    @pytest.mark.parametrize(
        "options",
        [{"graph_optimization_level": "basic"}, {"disable_optimizer": "NchwcTransformer"}],
    )
    def test_optimisations_that_were_turned_off(self, options: dict[str, Any]) -> None:
        (found,) = settings_of(self.on(options=options))
        assert found.without == (*options,)
        assert found.text.endswith(f"without {BY_KEY[found.without[0]].flag}")
        assert flags_of(self.on(options={"graph_optimization_level": "all"})) == []

    def test_conversions_of_its_layout_can_be_turned_off(self) -> None:
        (found,) = settings_of(self.on(ZEN, self.HEAVY, self.REORDER))
        assert found.flags == ("--disable-optimizer NchwcTransformer",)
        assert "layout and back take 50.0% of an iteration" in found.text
        few = [self.HEAVY] * 9
        assert flags_of(self.on(ZEN, *few, self.REORDER)) == []

    def test_operators_too_short_to_be_divided_run_on_one_thread(self) -> None:
        (found,) = settings_of(self.on(ZEN, *[self.HEAVY] * 6, step=60))
        assert found.flags == ("--cpu-default",)
        # One thread had nothing to do, and is waited for all the same.
        idle = self.on(ZEN, *[self.HEAVY] * 6, step=60, threads=1)
        assert flags_of(idle) == ["--cpu-default"]

    def test_threads_that_spin_are_noted_where_others_compute(self) -> None:
        profile = self.on(INTEL, cpu=CpuUse(2, 110.0, 100.0))
        (note,) = recommendations_for(profile)
        assert note.choice is None  # quiet iterations are slower without
        assert "other processes computed on 0.9 of 2 CPUs" in note.text
        assert "--no-spinning" in note.text
        assert rules_of(self.on(INTEL, cpu=CpuUse(2, 190.0, 97.0))) == []

    LARGE = operator_of("conv", "FusedConv", (1, 64, 112, 112))
    LONG = operator_of("long", "FusedConv")

    @pytest.mark.parametrize(
        ("rule", "given", "withheld"),
        [
            (
                "idle cores",
                {"options": {"cpu_default": True}, "cpu": CpuUse(2, 100.0, 50.0)},
                {"options": {"cpu_default": True}, "cpu": CpuUse(2, 100.0, 95.0)},
            ),
            ("threads", {"cpu": CpuUse(2, 60.0, 40.0)}, {}),
            ("copies", {"operators": [HEAVY, REORDER]}, {"operators": [*[HEAVY] * 9, REORDER]}),
            (
                "optimisation",
                {"options": {"graph_optimization_level": "basic"}},
                {"options": {"graph_optimization_level": "all"}},
            ),
            (
                "optimisation",
                {"options": {"disable_optimizer": "NchwcTransformer"}},
                {"options": {"disable_optimizer": "X"}, "operators": [operator_of("a", "Add")]},
            ),
            (
                "arena",
                {"options": {"no_arena": True}, "operators": [LARGE]},
                {"operators": [LARGE]},
            ),
            (
                "arena",
                {"options": {"no_arena": True}, "operators": [LARGE]},
                {"options": {"no_arena": True}},
            ),
            (
                "spinning",
                {"options": {"no_spinning": True}, "operators": [LONG] * 50, "step": 5000},
                {"options": {"no_spinning": True}, "cpu": CpuUse(2, 60.0, 90.0), "step": 5000},
            ),
            (
                "spinning",
                {"options": {"no_spinning": True}, "operators": [LONG] * 50, "step": 5000},
                {"options": {"no_spinning": True}},  # of a single operator
            ),
            ("busy machine", {"cpu": CpuUse(2, 110.0, 100.0)}, {}),
            ("quantisation", {}, {"processor": INTEL}),
            ("quantisation", {"processor": ARM}, {"processor": AMD_AVX2}),
            ("memory", {"peak_memory_bytes": 15 << 29}, {"peak_memory_bytes": 7 << 30}),
        ],
    )
    def test_each_setting_has_its_rule(
        self, rule: str, given: dict[str, Any], withheld: dict[str, Any]
    ) -> None:
        def rules(processor: str = ZEN, operators: Any = (), **facts: Any) -> list[str]:
            found = recommendations_for(self.on(processor, *operators, **facts))
            return [each.rule for each in found]

        assert rule in rules(**given)
        assert rule not in rules(**withheld)

    def test_what_was_turned_off_is_turned_on_again_for_its_figure(self) -> None:
        (arena,) = settings_of(self.on(ZEN, self.LARGE, options={"no_arena": True}))
        assert arena.flags == ("without --no-arena",)
        assert "operators that give 32,768 elements and more take 100.0% of an" in arena.text
        made = self.on(ZEN, *[self.LONG] * 50, options={"no_spinning": True}, step=5000)
        (spinning,) = settings_of(made)
        assert spinning.flags == ("without --no-spinning",)
        assert "woken for 50 operators of an iteration, which may take 7.0% of an" in spinning.text

    def test_no_flag_is_suggested_on_any_machine_where_defaults_fit(self) -> None:
        for processor in (*X86, AMD_AVX2, ARM):
            assert flags_of(self.on(processor)) == []

    def test_much_time_outside_of_operators_is_a_reason_for_batches(self) -> None:
        executions = [execution_of(0, 0, 40)]
        facts = {"engine": "onnxruntime", "threads": 2, "machine": machine_of(INTEL)}
        profile = profile_of([self.HEAVY], [step_of(0, 0, 1000)], executions, facts=facts)
        (note,) = (each for each in recommendations_for(profile) if each.rule == "batch")
        assert note.text.startswith("96.0% of an iteration pass outside of operators; ")
        full = profile_of(
            [self.HEAVY], [step_of(0, 0, 1000)], [execution_of(0, 0, 800)], facts=facts
        )
        assert "batch" not in rules_of(full)


@pytest.mark.parametrize("processor", [*X86, ARM])
@pytest.mark.parametrize("engine", ["megengine", "onnxruntime"])
def test_each_flag_is_one_of_the_engine(engine: str, processor: str) -> None:
    rows = engine_named(engine).rows
    known = {option.key for option in OPTIONS if not option.by_engine or option.key in rows}
    for step in (50, 10_000):
        profile = profile_on(
            processor, [CONV, GROUPED, MAX_POOL], engine=engine, step=step, cpu=CpuUse(2, 90, 50)
        )
        for each in settings_of(profile):
            assert each.choice is not None
            assert {*each.choice.options, *each.choice.search} <= known


def test_a_profile_of_an_unknown_engine_gets_notes_alone() -> None:
    loading = [span_of("phase", "dataloader", 0, 60)]
    profile = profile_of([CONV], STEPS, [], loading, facts={"engine": "of somebody else"})
    (found,) = recommendations_for(profile)
    assert (found.rule, found.flags, found.gain) == ("data input", ("--input",), None)


def test_nothing_timed_suggests_nothing() -> None:
    assert recommendations_for(profile_of([CONV])) == ()


class TestNotes:
    """What concerns the runs of every engine."""

    @pytest.mark.parametrize(("until", "found"), [(5, False), (6, True)])
    def test_data_input_of_more_than_5_percent(self, until: float, found: bool) -> None:
        loading = [
            span_of("phase", "dataloader", 0, until - 2),
            span_of("phase", "input_copy", until - 2, until),
        ]
        profile = profile_of([CONV], STEPS, [], loading)
        assert rules_of(profile) == (["data input"] if found else [])
        for each in recommendations_for(profile):
            if each.rule == "data input":
                assert "takes 6.0% of the iterations" in each.text
                assert each.flags == ("--input",)

    @pytest.mark.parametrize(("alone", "found"), [(10, False), (11, True)])
    def test_dispatch_while_nothing_computes(self, alone: float, found: bool) -> None:
        dispatched = execution_of(0, alone, 90, thread=WORKER, dispatch=(0, 50))
        profile = profile_of([CONV], STEPS, [dispatched])
        assert rules_of(profile) == (["dispatch"] if found else [])
        for each in recommendations_for(profile):
            if each.rule == "dispatch":
                assert "for 11.0% of the iterations while none computes" in each.text

    def test_a_dispatch_around_its_own_execution_counts_without_it(self) -> None:
        inside = execution_of(0, 12, 90, dispatch=(10, 91))
        assert rules_of(profile_of([CONV], STEPS, [inside])) == []

    def test_copies_and_changes_of_layout_count_once(self) -> None:
        executions = [execution_of(0, 0, 80), execution_of(2, 80, 91)]
        relayout = span_of("relayout", "[relayout]", 80, 91, operator=2)
        profile = profile_of(
            [CONV, RELU, COPY], STEPS, executions, [relayout], facts={"engine": ""}
        )
        (found,) = recommendations_for(profile)
        assert (found.rule, found.flags) == ("copies", ())
        assert found.share == pytest.approx(0.11)
        assert found.text == (
            "copies and changes of layout take 11.0% of the iterations; "
            "keep the operators in one layout"
        )

    @pytest.mark.parametrize(("end", "found"), [(90, False), (91, True)])
    def test_copies_of_more_than_10_percent(self, end: float, found: bool) -> None:
        executions = [execution_of(0, 0, 60), execution_of(1, 60, 80), execution_of(2, 80, end)]
        profile = profile_of([CONV, RELU, COPY], STEPS, executions, facts={"engine": ""})
        assert ("copies" in rules_of(profile)) == found

    def test_what_a_copy_waits_is_no_copying(self) -> None:
        executions = [execution_of(0, 0, 50), execution_of(2, 50, 65, wait=5)]
        profile = profile_of([CONV, RELU, COPY], STEPS, executions, facts={"engine": ""})
        assert rules_of(profile) == []

    @pytest.mark.parametrize(("end", "found"), [(60, False), (59, True)])
    def test_a_device_that_computes_less_than_half_the_time(self, end: float, found: bool) -> None:
        profile = profile_of([CONV], STEPS, [execution_of(0, 10, end)], device="cuda0")
        assert rules_of(profile) == (["utilization"] if found else [])

    @pytest.mark.parametrize(("used", "found"), [(90, False), (91, True)])
    def test_memory_beyond_90_percent(self, used: int, found: bool) -> None:
        facts = {"peak_memory_bytes": used << 30, "machine": {"memory_bytes": 100 << 30}}
        profile = profile_of([CONV], STEPS, facts=facts)
        assert rules_of(profile) == (["memory"] if found else [])
        for each in recommendations_for(profile):
            if each.rule == "memory":
                assert each.text.startswith("the run takes 91.0 GiB, 91.0% of the machine's memory")
                assert (each.share, each.limit) == (0.91, 0.9)

    def test_the_memory_of_a_device_is_told_by_the_plan_not_by_the_process(self) -> None:
        device = DeviceFacts(0, "cuda", "a device", 100 << 30)
        busy = [execution_of(0, 0, 100)]

        def rules(static_bytes: int | None) -> list[str]:
            return rules_of(
                profile_of(
                    [CONV],
                    STEPS,
                    busy,
                    device="cuda0",
                    facts={"peak_memory_bytes": 99 << 30},
                    devices=(device,),
                    memory_plan=MemoryPlan(static_bytes),
                )
            )

        assert rules(None) == []
        assert rules(91 << 30) == ["memory"]

    @pytest.mark.parametrize("engine", ["megengine", "onnxruntime"])
    def test_a_note_names_flags_of_the_engine_alone(self, engine: str) -> None:
        facts = {
            "engine": engine,
            "peak_memory_bytes": 95 << 30,
            "machine": {"memory_bytes": 100 << 30},
        }
        (found,) = (
            each
            for each in recommendations_for(profile_of([CONV], STEPS, facts=facts))
            if each.rule == "memory"
        )
        own = "--workspace-limit" if engine == "megengine" else "--no-arena"
        assert found.flags == (own, "--batch-size")
