"""Records go through JSON without loss, and every version of the result format stays readable."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.cli.arguments import parser_of
from lar.cli.bench import SETTINGS
from lar.errors import LarError, UsageError, WrongContent
from lar.records.record import record_from_json, record_to_json
from lar.records.run import (
    Case,
    CaseResult,
    EngineFacts,
    Failure,
    ImageSettings,
    ModelInfo,
    RunResult,
    RunSpec,
    Scenario,
    ScenarioName,
    Verdict,
    add_verdicts,
    read_result,
)
from lar.results.reading import schema_of_result
from tests.tables import each_row

DATA = Path(__file__).resolve().parents[1] / "data"


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of any type that a record's field may have; JSON has no NaN and no infinity."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        fields = get_type_hints(hint)
        return st.builds(hint, **{name: values_of(field) for name, field in fields.items()})
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, arguments))
    if origin is dict:
        return st.dictionaries(*map(values_of, arguments), max_size=2)
    if origin is Sequence or (origin is tuple and arguments[-1] is Ellipsis):
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, arguments))
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    return st.from_type(hint)


@pytest.mark.parametrize("kind", [RunSpec, RunResult, ModelInfo])
def test_any_record_reads_back_equal(kind: type[Any]) -> None:
    @settings(max_examples=20)
    @given(values_of(kind))
    def check(record: Any) -> None:
        assert record_from_json(record_to_json(record), kind) == record

    check()


def test_a_spec_keeps_the_types_of_its_settings() -> None:
    values: dict[str, Any] = {"switch": True, "count": 1, "factor": 1.0, "name": "1"}
    spec = RunSpec(model="m", engine="fake", driver="script", settings=values)
    back = record_from_json(record_to_json(spec), RunSpec)
    assert [(key, type(value)) for key, value in back.settings.items()] == [
        ("switch", bool),
        ("count", int),
        ("factor", float),
        ("name", str),
    ]


def test_records_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ImageSettings().layout = "nchw"  # type: ignore[misc]


@each_row("records/cases/what an older file lacks")
def test_what_a_record_does_not_say_has_its_default(
    module: str, name: str, given: dict[str, Any], read: dict[str, Any]
) -> None:
    kind = getattr(import_module(f"lar.records.{module}"), name)
    whole = json.dumps({**given, **read})
    assert record_from_json(json.dumps(given), kind) == record_from_json(whole, kind)


def test_fields_of_a_later_lar_are_passed_over() -> None:
    spec = record_from_json(b'{"model": "m", "engine": "e", "driver": "d", "moon": 1}', RunSpec)
    assert spec == RunSpec(model="m", engine="e", driver="d")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"model": 1}', '{"model": "m"}', b"\xff\xfe", "nan"],
)
def test_what_is_no_record_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        record_from_json(text, RunSpec)
    with pytest.raises(ValueError, match=r"\S"):
        read_result(text)


def without_new_fields(fields: Any, old: Any) -> Any:
    """The fields that an older file has too."""
    if isinstance(old, dict) and old:
        return {key: without_new_fields(fields[key], value) for key, value in old.items()}
    return fields


def test_first_version_of_the_result_format_is_written_back_unchanged() -> None:
    old = json.loads((DATA / "result_v1.json").read_bytes())
    assert without_new_fields(json.loads(record_to_json(read_result(json.dumps(old)))), old) == old


@each_row("records/cases/results that a run can or cannot have")
def test_a_result_that_no_run_can_have_is_refused(
    changes: dict[str, dict[str, Any]], problem: str
) -> None:
    fields = json.loads((DATA / "result_v1.json").read_bytes())
    for part, values in changes.items():
        fields[part].update(values)
    try:
        said = read_result(json.dumps(fields)).log_tail
    except WrongContent as error:
        said = error.message
    assert said == problem


def test_schema_names_every_field_of_a_result() -> None:
    schema = schema_of_result()
    json.dumps(schema)
    for kind in (RunResult, RunSpec, EngineFacts):
        names = {field.name for field in dataclasses.fields(kind)}
        assert schema["$defs"][kind.__name__]["properties"].keys() == names


def test_a_failure_keeps_the_parts_of_its_message() -> None:
    failure = Failure("no such file", "check the path", 2, flag="--input", subject="a.npy")
    data = json.loads(record_to_json(failure))
    assert data["message"] == failure.message == "--input: a.npy: no such file"
    renamed = failure.called({"--input": "inputs", "a.npy": "the array given"})
    assert renamed.message == "inputs: the array given: no such file"
    error = renamed.to_error()
    assert isinstance(error, UsageError)
    assert (error.message, error.hint) == (renamed.message, "check the path")
    assert Failure.of(error) == renamed
    assert Failure.of(LarError("broken", detail="traceback")).detail == "traceback"
    assert Failure.of(LarError("broken", detail="traceback"), "more").detail == "more"
    assert renamed.within("side A").message == "side A: inputs: the array given: no such file"


def test_a_failure_of_an_older_result_is_a_problem_alone() -> None:
    old = b'{"message": "a.npy: broken", "hint": "mend it", "exit_code": 2, "detail": ""}'
    failure = record_from_json(old, Failure)
    assert (failure.message, failure.problem, failure.subject) == ("a.npy: broken",) * 2 + ("",)
    assert failure.to_error().message == "a.npy: broken"


GOOD = Verdict(output="y", name="y", id=0, shown=True, error=1e-6, limit=1e-4, passed=True)
BAD = replace(GOOD, error=0.5, passed=False, index=(0, 2), actual="1.5", expected="1.0")


def test_of_several_runs_the_worst_is_kept() -> None:
    results: tuple[CaseResult, ...] = ()
    for verdict in (GOOD, BAD, replace(BAD, error=0.25), GOOD):
        results = add_verdicts(results, 0, "a", [verdict, GOOD])
    assert results == (CaseResult(name="a", passed=False, verdicts=(BAD, GOOD)),)
    results = add_verdicts(results, 1, "b", [GOOD])
    assert [result.passed for result in results] == [False, True]


def test_an_error_that_is_not_finite_is_the_worst() -> None:
    infinite = replace(BAD, error=None)
    (result,) = add_verdicts(add_verdicts((), 0, "a", [infinite]), 0, "a", [BAD])
    assert result.verdicts == (infinite,)


def test_a_case_that_expects_nothing_neither_passes_nor_fails() -> None:
    (result,) = add_verdicts((), 0, "a", [])
    assert result.passed is None


def test_each_testcase_takes_all_iterations() -> None:
    spec = RunSpec(model="m", engine="e", driver="d", cases=(Case(name="a"), Case(name="b")))
    assert spec.sample_count == 1 + 2 * 10


def test_the_defaults_of_a_scenario_are_those_that_the_help_names() -> None:
    named = {
        each.dest: float(found[1])
        for each in parser_of("bench")._actions
        if each.dest in SETTINGS and (found := re.search(r"\(default (\d+)\)", each.help or ""))
    }
    scenario = Scenario(name="server")
    assert named == {
        "target_latency": 1e3 * scenario.target_latency_seconds,
        "samples_per_query": scenario.samples_per_query,
        "min_queries": scenario.min_queries,
        "min_duration": scenario.min_seconds,
    }


def test_each_scenario_can_be_asked_for() -> None:
    (asked,) = (it for it in parser_of("bench")._actions if it.dest == "scenario")
    assert tuple(asked.choices or ()) == get_args(ScenarioName)
