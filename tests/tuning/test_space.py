"""What a search tries with a model, and how candidates are run."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.engines.megengine import defects
from lar.errors import UsageError
from lar.records.choices import Allowed, Choice
from lar.records.tuning import Candidate, ModelSpace, TuneRequest
from lar.tuning import space as space_module
from lar.tuning.candidates import Combinations
from lar.tuning.space import SurveyedSpace, find_set_twice, plan_candidate
from lar.tuning.space import survey_space as survey

WriteScript = Callable[..., str]

AMD = "AuthenticAMD fpu avx2 avx512f"
INTEL = "GenuineIntel fpu avx2 avx512f"
with_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megengine") is None, reason="no MegEngine for this Python"
)


def survey_space(model: str, options: dict[str, Any], **asked: Any) -> SurveyedSpace:
    return survey(model, options, TuneRequest(**asked))


def make_space(model: str, options: dict[str, Any], **asked: Any) -> ModelSpace:
    return survey_space(model, options, **asked).space


LANDSCAPE: dict[str, Any] = {
    "times": [[0.010, 0.001, None]],
    "outputs": {"prob": [0.25, 0.75]},
    "search_seconds": 20.0,
    "search_depends": ["enable_nchw44"],
    "dimensions": [
        {
            "name": "layout",
            "choices": [
                {"name": "nchw44", "options": {"enable_nchw44": True}},
                {
                    "name": "nchw88",
                    "options": {"enable_nchw88": True, "engine_fix": "x2apic"},
                    "allow": "engine-fixes",
                },
                {"name": "nchw32", "options": {"enable_nchw32": True}, "for_full": True},
            ],
        },
        {
            "name": "algorithms",
            "choices": [
                {
                    "name": "fast-run",
                    "search": {"fast_run": True},
                    "cache": "fast_run_algo_policy",
                    "cache_depends": ["layout"],
                }
            ],
        },
        {
            "name": "threads",
            "choices": [
                {"name": "2 threads", "options": {"multithread": 2}},
                {"name": "in the caller", "options": {"cpu_default": True}},
                {"name": "2 copies", "options": {"thread": 2}, "objectives": ["throughput"]},
            ],
        },
        {"name": "shapes", "choices": [{"name": "const", "options": {"const_shape": True}}]},
        {
            "name": "environment",
            "choices": [
                {
                    "name": "turbo",
                    "options": {"engine_env": ["TURBO=1"]},
                    "allow": "engine-env",
                }
            ],
        },
    ],
    "effects": [
        {"when": {"enable_nchw44": True}, "factor": 0.8},
        {"when": {"multithread": 2}, "factor": 0.6},
        {"when": {"enable_nchw44": True, "multithread": 2}, "factor": 0.5},
        {"when": {"fast_run_algo_policy": True}, "factor": 0.4},
        {"when": {"engine_env": "TURBO=1"}, "factor": 0.9},
        {"when": {"enable_nchw32": True}, "error": 0.5},
        {
            "when": {"const_shape": True, "enable_nchw44": True},
            "refused": "shapes decide the layout",
        },
    ],
}


def names_in(script: str, **keywords: Any) -> list[str]:
    space = make_space(script, keywords.pop("options", {}), **keywords)
    return [choice.name for each in space.dimensions for choice in each.choices]


def test_a_space_has_what_is_asked_for_and_allowed(write_script: WriteScript) -> None:
    script = write_script(**LANDSCAPE)
    quick = ["nchw44", "fast-run", "2 threads", "in the caller", "const"]
    assert names_in(script) == quick
    assert set(names_in(script, extent="full")) - set(quick) == {"nchw32"}
    assert set(names_in(script, objective="throughput")) - set(quick) == {"2 copies"}
    allowed = names_in(script, allowed=("engine-fixes", "engine-env"))
    assert set(allowed) - set(quick) == {"nchw88", "turbo"}


def test_what_the_user_gave_is_not_tried_nor_what_it_excludes(write_script: WriteScript) -> None:
    script = write_script(**LANDSCAPE)
    surveyed = survey_space(script, {"multithread": 3, "verbose": False})
    assert surveyed.space.options == {"multithread": 3}
    assert "threads" not in [each.name for each in surveyed.space.dimensions]
    reasons = {each.choice: each.why for each in surveyed.left_out}
    assert reasons["2 threads"] == "--multithread is given"
    assert reasons["in the caller"].startswith("--cpu-default and --multithread exclude each other")
    assert reasons["nchw88"] == "needs --allow engine-fixes"


def test_a_cache_that_the_user_gives_is_tried_beside_a_search(
    write_script: WriteScript, tmp_path: Path
) -> None:
    cache = tmp_path / "yesterday.cache"
    cache.write_text("{}")
    space = make_space(write_script(**LANDSCAPE), {"fast_run_algo_policy": str(cache)})
    assert space.options == {}
    algorithms = next(each for each in space.dimensions if each.name == "algorithms")
    assert [choice.name for choice in algorithms.choices] == ["given cache", "fast-run"]
    variant = plan_candidate(Candidate(choices=("given cache",)), [space])
    assert variant.spec is not None
    assert variant.spec.settings == {"fast_run_algo_policy": str(cache)}


def test_a_plain_run_that_is_refused_has_no_space(write_script: WriteScript) -> None:
    script = write_script(**LANDSCAPE)
    with pytest.raises(UsageError, match="--cuda: the scripted engine cannot do this"):
        make_space(script, {"cuda": 0})


def test_a_candidate_has_the_options_of_its_choices(write_script: WriteScript) -> None:
    spaces = [
        make_space(
            write_script(**LANDSCAPE),
            {"engine_env": ["A=1"], "seed": 3},
            allowed=("engine-env", "engine-fixes"),
        )
    ]
    variant = plan_candidate(Candidate(choices=("nchw88", "turbo")), spaces)
    assert variant.spec is not None
    assert variant.name == "nchw88 + turbo"
    assert variant.spec.settings == {"enable_nchw88": True, "engine_fix": "x2apic"}
    assert variant.spec.environment == {"A": "1", "TURBO": "1"}
    assert variant.spec.seed == 3


def test_a_cache_is_filled_by_a_search_and_read_without(
    write_script: WriteScript, tmp_path: Path
) -> None:
    spaces = [make_space(write_script(**LANDSCAPE), {})]
    fast = Candidate(choices=("fast-run",))
    caches = {"fast_run_algo_policy": str(tmp_path / "a.cache")}
    searching = plan_candidate(fast, spaces, caches, searching=True).spec
    reading = plan_candidate(fast, spaces, caches).spec
    assert searching is not None
    assert reading is not None
    assert reading.settings == caches
    assert searching.settings == {"fast_run": True, **caches}
    unmade = plan_candidate(fast, spaces)
    assert (unmade.spec, unmade.failure) == (None, None)


def test_caches_are_shared_where_what_decides_them_is_the_same(write_script: WriteScript) -> None:
    combinations = Combinations(0, make_space(write_script(**LANDSCAPE), {}))
    names = [
        combinations.cache_of(Candidate(choices=choices))
        for choices in (
            ("fast-run",),
            ("fast-run", "2 threads"),
            ("nchw44", "fast-run"),
            ("nchw44", "fast-run", "2 threads"),
            ("nchw44",),
        )
    ]
    assert names == ["fake-0+fast-run"] * 2 + ["fake-0+fast-run+nchw44"] * 2 + [""]


def test_what_cannot_go_together_is_known_without_a_run(write_script: WriteScript) -> None:
    spaces = [make_space(write_script(**LANDSCAPE), {})]
    failure = plan_candidate(Candidate(choices=("nchw44", "const")), spaces).failure
    assert failure is not None
    assert failure.message == (
        "--const-shape and --enable-nchw44 exclude each other: shapes decide the layout"
    )
    assert plan_candidate(Candidate(choices=("nchw44", "2 threads")), spaces).failure is None


class TestScriptedLandscape:
    """The scripted engine plays what options do together."""

    def test_factors_of_combinations(self, write_script: WriteScript) -> None:
        script = write_script(**LANDSCAPE)
        medians = [
            lar.run(script, iter=3, **options).latency.median
            for options in (
                {},
                {"enable_nchw44": True},
                {"enable_nchw44": True, "multithread": 2},
                {"engine_env": ["TURBO=1"]},
            )
        ]
        assert medians == pytest.approx([0.010, 0.008, 0.0024, 0.009])

    def test_wrong_outputs(self, write_script: WriteScript) -> None:
        result = lar.run(write_script(**LANDSCAPE), iter=1, enable_nchw32=True)
        assert result.outputs[0].maximum == pytest.approx(1.25)

    def test_a_search_writes_a_cache_for_the_options_it_was_made_with(
        self, write_script: WriteScript, tmp_path: Path
    ) -> None:
        script, cache = write_script(**LANDSCAPE), str(tmp_path / "a.cache")
        searched = lar.run(script, iter=2, fast_run=True, fast_run_algo_policy=cache)
        assert searched.warmup.end_to_end == pytest.approx([20.004])
        assert searched.latency.median == pytest.approx(0.004)
        assert json.loads(Path(cache).read_text()) == {}
        read = lar.run(script, iter=2, fast_run_algo_policy=cache)
        assert (read.warmup.end_to_end[0], read.latency.median) == pytest.approx((0.004, 0.004))
        other = lar.run(script, iter=2, fast_run_algo_policy=cache, enable_nchw44=True)
        assert other.latency.median == pytest.approx(0.008)

    @pytest.mark.parametrize(("at", "searching"), [("load", False), ("search", True)])
    def test_faults_of_an_option(self, write_script: WriteScript, at: str, searching: bool) -> None:
        fault = {"when": {"const_shape": True}, "fault": {"at": at, "do": "exit"}}
        script = write_script(effects=[fault])
        assert lar.run(script, iter=1, fast_run=searching).status == "ok"
        faulty = lar.run(script, iter=1, const_shape=True, fast_run=searching)
        assert faulty.status == "crashed"

    def test_memory_of_an_option(self, write_script: WriteScript) -> None:
        script = write_script(effects=[{"when": {"const_shape": True}, "memory_bytes": 60_000_000}])
        plain, large = lar.run(script, iter=1), lar.run(script, iter=1, const_shape=True)
        assert plain.peak_memory_bytes is not None
        assert large.peak_memory_bytes is not None
        assert large.peak_memory_bytes - plain.peak_memory_bytes > 30_000_000


class TestRealEngines:
    """Spaces on machines that are made up."""

    @pytest.fixture(autouse=True)
    def two_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
        monkeypatch.setattr(space_module, "read_cpu_limit", lambda: None)
        monkeypatch.delenv("MKL_DEBUG_CPU_TYPE", raising=False)

    def on(self, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (space_module, defects):
            monkeypatch.setattr(module, "read_instruction_sets", lambda: processor)

    @with_megengine
    def test_twins_have_spaces_of_their_own(
        self, monkeypatch: pytest.MonkeyPatch, root: Path
    ) -> None:
        models = [str(root / "models" / f"digits_cnn.{suffix}") for suffix in ("mge", "onnx")]
        quick = {"1 thread with caller", "2 threads", "2 threads with caller", "weight-preprocess"}
        quick |= {"nchw44", "fast-run", "binary-equal", "record-comp-seq", "no-spinning"}
        quick |= {"2 bound threads"}
        self.on(AMD, monkeypatch)
        assert set(names_in(models[0])) == quick
        allowed: tuple[Allowed, ...] = ("engine-env", "engine-fixes")
        ways_round = {"nchw88", "layout-transform", "MKL_DEBUG_CPU_TYPE=5"}
        assert set(names_in(models[0], allowed=allowed)) == quick | ways_round
        self.on(INTEL, monkeypatch)
        assert set(names_in(models[0], allowed=allowed)) == quick | {"nchw88", "layout-transform"}
        of_onnx = {"no-blocked-layout", "basic", "1 thread", "no-spinning", "no-arena"}
        of_onnx |= {"2 threads", "2 bound threads"}
        assert set(names_in(models[1])) == of_onnx

    @with_megengine
    def test_combinations_that_no_driver_honours_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, root: Path
    ) -> None:
        self.on(AMD, monkeypatch)
        model = str(root / "models" / "digits_cnn.mge")
        spaces = [make_space(model, {}, extent="full", allowed=("engine-fixes", "engine-env"))]
        both = Candidate(choices=("2 threads", "fuse-conv-bias-nonlinearity"))
        failure = plan_candidate(both, spaces).failure
        assert failure is not None
        assert "cannot go together on MegEngine" in failure.message
        allowed = Candidate(choices=("nchw88", "fast-run", "2 threads", "MKL_DEBUG_CPU_TYPE=5"))
        assert plan_candidate(allowed, spaces).failure is None

    @with_megengine
    def test_a_limit_of_cpu_time_is_a_limit_of_threads(
        self, monkeypatch: pytest.MonkeyPatch, root: Path
    ) -> None:
        monkeypatch.setattr(space_module, "read_cpu_limit", lambda: 0.5)
        names = names_in(str(root / "models" / "digits_cnn.mge"))
        assert not [name for name in names if "threads" in name]


def test_a_property_of_the_engine_has_one_value() -> None:
    def choice(name: str, *texts: str) -> Choice:
        return Choice(name=name, options={"engine_option": texts})

    one, other = choice("one", "x=1"), choice("other", "y=1", "x=2")
    error = find_set_twice([one, other])
    assert error is not None
    assert error.message == "one and other both set --engine-option x"
    assert find_set_twice([one, choice("same", "x=1"), choice("more", "z=3")]) is None
