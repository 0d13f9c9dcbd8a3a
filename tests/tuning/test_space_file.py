"""The file of `--space FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.engines import engine_named
from lar.errors import UsageError
from lar.records.goals import Allowed
from lar.records.tuning import Candidate, Choice, Dimension, ModelSpace
from lar.tuning.space import choose_listed, find_permits, plan_candidate, read_space_file
from tests.conftest import RunLar, WriteScript
from tests.refusals import refused
from tests.reports.golden_files import check_golden
from tests.tuning.made_tune import dimensions_of
from tests.tuning.test_space import LANDSCAPE, make_space, survey_space

TABLES = json.loads(Path(__file__).with_name("refusals.json").read_text())

MKL = "MKL_DEBUG_CPU_TYPE=5"
DIGITS = str(Path(__file__).resolve().parents[2] / "models" / "digits_cnn.mge")

DECLARED = dimensions_of("declared dimensions")
OTHERS = (Dimension(name="arena", choices=(Choice(name="no-arena"),)),)


def chosen(**listed: Any) -> dict[str, Choice]:
    found = choose_listed("a.json", listed, DECLARED, OTHERS)
    return {choice.name: choice for dimension in found for choice in dimension.choices}


def refusal(**listed: Any) -> UsageError:
    return refused("", chosen, **listed)


def test_a_file_lists_names_extents_and_flags() -> None:
    found = chosen(
        layout=["--enable-nchw44", "nchw32", "--enable-nchw88 --engine-fix x2apic"],
        threads="quick",
        more=["--multithread 3", f"--engine-env {MKL}"],
    )
    assert [*found] == [
        *("nchw44", "nchw32", "enable-nchw88 engine-fix x2apic", "2 copies"),
        *("multithread 3", f"engine-env {MKL}"),
    ]
    assert found["multithread 3"].options == {"multithread": 3}
    variables = found[f"engine-env {MKL}"]
    assert (variables.options, variables.allow) == ({"engine_env": (MKL,)}, "engine-env")
    assert found["enable-nchw88 engine-fix x2apic"].allow == "engine-fixes"
    # What a file lists is asked for: neither the extent nor the objective leaves it out.
    assert not found["nchw32"].for_full
    assert found["2 copies"].objectives == ()


def test_an_extent_is_of_the_dimension_of_that_name() -> None:
    assert [*chosen(layout="quick")] == ["nchw44"]
    assert [*chosen(layout="full")] == ["nchw44", "nchw32"]
    assert [*chosen(arena="full")] == []


def test_flags_of_a_search_keep_what_they_find() -> None:
    assert chosen(a=["--fast-run"])["fast-run"].cache == "fast_run_algo_policy"
    (more,) = chosen(a=["--fast-run --reproducible"]).values()
    assert (more.options, more.search) == ({"reproducible": True}, {"fast_run": True})
    assert more.cache == "fast_run_algo_policy"


def test_a_cache_depends_on_what_is_not_known_to_leave_it_alone() -> None:
    found = choose_listed(
        "a.json",
        {
            "how": ["fast-run"],
            "blocks": ["nchw44"],
            "threads": ["2 copies"],
            "more": ["--multithread 3"],
        },
        DECLARED,
        OTHERS,
    )
    assert found[0].choices[0].cache_depends == ("blocks", "more")


def test_a_choice_of_another_engine_is_left_out() -> None:
    assert [*chosen(memory=["no-arena"], layout=["nchw44"])] == ["nchw44"]


@pytest.mark.parametrize(("text", "problem", "hint"), TABLES["no choices"])
def test_what_is_no_choice_is_refused(text: str, problem: str, hint: str) -> None:
    given = text * problem.startswith(":")
    error = refusal(layout=[text])
    assert str(error).startswith(f"--space: a.json: layout: {given}{problem}")
    assert error.hint.startswith(hint)


def test_choices_are_listed_once_in_dimensions_that_there_are() -> None:
    twice = refusal(layout=["nchw44"], x=["--enable-nchw44"])
    assert str(twice).startswith("--space: a.json: has the choice 'nchw44' twice")
    assert twice.hint == "leave one of them out"
    unknown = refusal(layouts="full")
    assert str(unknown).startswith(
        "--space: a.json: 'layouts' is full, but no engine has such a dimension"
    )
    assert unknown.hint == "there are layout, algorithms, threads, arena"


@pytest.mark.parametrize(("text", "message"), TABLES["no lists"])
def test_what_is_no_list_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(text, encoding="latin-1")
    caught = refused("", read_space_file, str(path))
    assert str(caught).startswith(f"--space: {path}: {message}")
    assert caught.hint.startswith('an example: {"layout"')


def test_a_file_that_is_not_there(write_script: WriteScript) -> None:
    with pytest.raises(UsageError, match=r"--space: fulll: no such file") as caught:
        make_space(write_script(), {}, extent="fulll")
    assert caught.value.hint == "give quick, full or a file"


def test_a_model_has_the_space_that_a_file_lists(write_script: WriteScript, tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"layout": "full", "x": ["--multithread 3", "--full-run"]}))
    surveyed = survey_space(write_script(**LANDSCAPE), {}, extent=str(path))
    names = [[choice.name for choice in each.choices] for each in surveyed.space.dimensions]
    assert names == [["nchw44", "nchw32"], ["multithread 3", "full-run"]]
    assert [msgspec.to_builtins(each) for each in surveyed.left_out] == [
        {
            "choice": "nchw88",
            "model": 0,
            "why": "needs --allow engine-fixes",
            "allow": "engine-fixes",
        }
    ]


def test_all_that_flags_hold_has_to_be_allowed() -> None:
    parts = Dimension(
        name="precision",
        choices=(Choice(name="ioc16", options={"enable_ioc16": True}, allow="reduced-precision"),),
    )
    choice = chosen(
        x=["--enable-ioc16 --engine-fix x2apic --engine-env MKL_DEBUG_CPU_TYPE=5"]
    ).popitem()[1]
    assert find_permits(choice, (*DECLARED, parts)) == {
        *("engine-env", "engine-fixes", "reduced-precision")
    }
    assert find_permits(chosen(x=["--multithread 2"]).popitem()[1], (parts,)) == set()


def test_what_makes_a_choice_exact_takes_its_need_away() -> None:
    rounded = Choice(name="rounded", options={"cuda": 0}, allow="reduced-precision")
    exact = Choice(name="exact", options={"cuda": 0, "no_tf32": True})
    known = (Dimension(name="provider", choices=(rounded, exact)),)
    assert find_permits(rounded, known) == {"reduced-precision"}
    assert find_permits(exact, known) == set()
    of_file = Choice(name="file", options={**exact.options, "graph_optimization_level": "basic"})
    assert find_permits(of_file, known) == set()


def test_one_permit_is_not_enough_for_two_needs(tmp_path: Path) -> None:
    file = tmp_path / "space.json"
    file.write_text('{"x": ["--engine-fix x2apic --engine-env MKL_DEBUG_CPU_TYPE=5"]}')

    def why(*allowed: Allowed) -> list[str]:
        left_out = survey_space(DIGITS, {}, extent=str(file), allowed=allowed).left_out
        return [each.why for each in left_out]

    assert why() == ["needs --allow engine-env,engine-fixes"]
    assert why("engine-fixes") == ["needs --allow engine-env"]
    assert why("engine-fixes", "engine-env") == []


def test_two_choices_that_set_one_option_do_not_go_together() -> None:
    two = Choice(name="two", options={"multithread": 2})
    three = Choice(name="three", options={"multithread": 3})
    space = ModelSpace(
        model="a.fake",
        engine="fake",
        dimensions=(Dimension(name="x", choices=(two,)), Dimension(name="y", choices=(three,))),
    )
    failure = plan_candidate(Candidate(choices=("two", "three")), [space]).failure
    assert failure is not None
    assert failure.message == "two and three both set --multithread"


def test_the_space_is_that_of_its_golden_file(write_script: WriteScript, run_lar: RunLar) -> None:
    script = write_script(**LANDSCAPE)
    words = ("tune", script, "--list-space", "--seed", "3", "--allow", "engine-env")
    texts = [run_lar(*words, *more, code=0).stdout for more in ((), ("--json", "-"))]
    check_golden("space.txt", "\n".join(texts).replace(script, "net.fake"))


def test_engines_are_those_that_read_a_model(run_lar: RunLar, root: Path) -> None:
    model = str(root / "models" / "one_operator.onnx")
    done = run_lar("tune", model, "--list-space", "--engines", "reference,onnxruntime", code=0)
    assert f"{model} on reference: 0 choices" in done.stdout
    assert f"{model} on onnxruntime: " in done.stdout
    every = run_lar("tune", model, "--list-space", "--engines", "all").stdout
    assert f"{model} on onnxruntime: " in every
    assert f"{model} on reference: " not in every
    for name in ("openvino", "mnn"):
        assert (f"{model} on {name}: " in every) == engine_named(name).is_installed
    refused = run_lar("tune", model, "--list-space", "--engines", "megengine", code=2)
    expected = f"--engines megengine: no requested engine reads {model}"
    assert refused.stderr.startswith(f"lar: error: {expected}\n")
    unknown = run_lar("tune", model, "--list-space", "--engines", "onnxruntim")
    assert "--engines: there is no engine 'onnxruntim'" in unknown.stderr


@pytest.mark.parametrize(
    "flags",
    [
        "--c-opr-lib evil.so",
        "--allow-external-data /",
        "--engine-env LD_PRELOAD=evil.so",
        f"--engine-env {MKL} --engine-env PYTHONPATH=evil",
    ],
)
def test_what_runs_a_strangers_code_is_refused(flags: str) -> None:
    error = refusal(x=[flags])
    assert "a flag that can run code" in error.message
    assert "evil" in error.message or "/" in error.message
    assert "on the command line" in error.hint
