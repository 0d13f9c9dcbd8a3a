"""What a search tries with a model, and how candidates are run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lar.engines.megengine import defects
from lar.records.goals import Allowed
from lar.records.tuning import Candidate, Choice, ModelSpace, TuneRequest
from lar.tuning import space as space_module
from lar.tuning.decisions import Combinations
from lar.tuning.space import SurveyedSpace, find_set_twice, plan_candidate
from lar.tuning.space import survey_space as survey
from tests.cli.marks import needs_megengine
from tests.conftest import WriteScript
from tests.known import known
from tests.refusals import refused
from tests.tuning.made_tune import LANDSCAPES

LANDSCAPE: dict[str, Any] = LANDSCAPES["all kinds of choices"]
AMD = "AuthenticAMD fpu avx2 avx512f"
INTEL = "GenuineIntel fpu avx2 avx512f"


def survey_space(model: str, options: dict[str, Any], **asked: Any) -> SurveyedSpace:
    return survey(model, options, TuneRequest(**asked))


def make_space(model: str, options: dict[str, Any], **asked: Any) -> ModelSpace:
    return survey_space(model, options, **asked).space


def names_in(script: str, **keywords: Any) -> list[str]:
    space = make_space(script, keywords.pop("options", {}), **keywords)
    return [choice.name for each in space.dimensions for choice in each.choices]


def test_a_space_has_what_is_asked_for_and_allowed(write_script: WriteScript) -> None:
    script = write_script(**LANDSCAPE)
    quick = ["nchw44", "fast-run", "2 threads", "in the caller", "const"]
    assert names_in(script) == quick
    assert {*names_in(script, extent="full")} == {*quick, "nchw32"}
    assert {*names_in(script, objective="throughput")} == {*quick, "2 copies"}
    allowed = names_in(script, allowed=("engine-fixes", "engine-env"))
    assert set(allowed) - set(quick) == {"nchw88", "turbo"}


def test_what_the_user_gave_is_not_tried_nor_what_it_excludes(write_script: WriteScript) -> None:
    surveyed = survey_space(write_script(**LANDSCAPE), {"multithread": 3, "verbose": False})
    assert surveyed.space.options == {"multithread": 3}
    assert "threads" not in [each.name for each in surveyed.space.dimensions]
    reasons = {each.choice: each.why for each in surveyed.left_out}
    why = "each flag says which threads compute an operator"
    assert reasons == {
        "nchw88": "needs --allow engine-fixes",
        "nchw32": "for --space full",
        "2 threads": "--multithread is given",
        "in the caller": f"--cpu-default and --multithread exclude each other: {why}",
        "2 copies": "for --objective throughput",
        "turbo": "needs --allow engine-env",
    }


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
    assert known(variant.spec).settings == {"fast_run_algo_policy": str(cache)}


def test_a_plain_run_that_is_refused_has_no_space(write_script: WriteScript) -> None:
    script = write_script(**LANDSCAPE)
    refused("--cuda: the scripted engine cannot do this", make_space, script, {"cuda": 0})


def test_a_candidate_has_the_options_of_its_choices(write_script: WriteScript) -> None:
    spaces = [
        make_space(
            write_script(**LANDSCAPE),
            {"engine_env": ["A=1"], "seed": 3},
            allowed=("engine-env", "engine-fixes"),
        )
    ]
    variant = plan_candidate(Candidate(choices=("nchw88", "turbo")), spaces)
    spec = known(variant.spec)
    assert variant.name == "nchw88 + turbo"
    assert spec.settings == {"enable_nchw88": True, "engine_fix": "x2apic"}
    assert (spec.environment, spec.seed) == ({"A": "1", "TURBO": "1"}, 3)


def test_a_cache_is_filled_by_a_search_and_read_without(
    write_script: WriteScript, tmp_path: Path
) -> None:
    spaces = [make_space(write_script(**LANDSCAPE), {})]
    fast = Candidate(choices=("fast-run",))
    caches = {"fast_run_algo_policy": str(tmp_path / "a.cache")}
    searching = plan_candidate(fast, spaces, caches, searching=True).spec
    assert known(plan_candidate(fast, spaces, caches).spec).settings == caches
    assert known(searching).settings == {"fast_run": True, **caches}
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
    failure = known(plan_candidate(Candidate(choices=("nchw44", "const")), spaces).failure)
    assert failure.message == (
        "--const-shape and --enable-nchw44 exclude each other: shapes decide the layout"
    )
    assert plan_candidate(Candidate(choices=("nchw44", "2 threads")), spaces).failure is None


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

    @needs_megengine
    def test_twins_have_spaces_of_their_own(
        self, monkeypatch: pytest.MonkeyPatch, root: Path
    ) -> None:
        models = [str(root / "models" / f"digits_cnn.{suffix}") for suffix in ("mge", "onnx")]
        quick = {"1 thread with caller", "2 threads", "2 threads with caller", "weight-preprocess"}
        quick |= {"nchw44", "fast-run", "binary-equal", "record-comp-seq", "no-spinning"}
        quick |= {"2 bound threads"}
        self.on(AMD, monkeypatch)
        tried = set(names_in(models[0]))
        assert quick <= tried
        allowed: tuple[Allowed, ...] = ("engine-env", "engine-fixes")
        ways_round = {"nchw88", "layout-transform", "MKL_DEBUG_CPU_TYPE=5"}
        assert set(names_in(models[0], allowed=allowed)) - tried == ways_round
        self.on(INTEL, monkeypatch)
        assert set(names_in(models[0], allowed=allowed)) - tried == {"nchw88", "layout-transform"}
        of_onnx = {"no-blocked-layout", "basic", "1 thread", "no-spinning", "no-arena"}
        of_onnx |= {"2 threads", "2 bound threads"}
        tried = set(names_in(models[1]))
        assert of_onnx <= tried
        assert not tried & (quick - of_onnx)

    @needs_megengine
    def test_combinations_that_no_driver_honours_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, root: Path
    ) -> None:
        self.on(AMD, monkeypatch)
        model = str(root / "models" / "digits_cnn.mge")
        spaces = [make_space(model, {}, extent="full", allowed=("engine-fixes", "engine-env"))]
        both = Candidate(choices=("2 threads", "fuse-conv-bias-nonlinearity"))
        failure = known(plan_candidate(both, spaces).failure)
        assert "cannot go together on MegEngine" in failure.message
        allowed = Candidate(choices=("nchw88", "fast-run", "2 threads", "MKL_DEBUG_CPU_TYPE=5"))
        assert plan_candidate(allowed, spaces).failure is None

    @needs_megengine
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
    assert known(find_set_twice([one, other])).message == "one and other both set --engine-option x"
    assert find_set_twice([one, choice("same", "x=1"), choice("more", "z=3")]) is None
