"""The text, the CSV and the Markdown of a search, to the byte, and its last sentence.

After a change that is meant to be seen, `LAR_GOLDEN=write` writes the files anew.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import lar
from lar.cli.main import normalize_flags
from lar.cli.parser import parser_of
from lar.options.command_line import format_command
from lar.records.bench import OutputDifference
from lar.records.choices import Objective, OptionValue
from lar.records.run import Failure
from lar.records.tuning import NOT_FASTER, Candidate, Contribution, TuneResult
from lar.reports.text import Screen
from lar.reports.tune_text import command_of, format_csv, format_markdown, format_tune, verdict_of
from lar.running.plan import parse_values
from tests.tuning.made_tune import CACHED, made_tune

GOLDEN = Path(__file__).parent / "golden"
CACHES = {"fast_run_algo_policy": "out/tuned.cache"}


def text_at(width: int | None) -> str:
    lines = format_tune(made_tune(), Screen(width), settings="tuned.json")
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("tune.txt", text_at(None)),
        ("tune_100.txt", text_at(100)),
        ("tune_70.txt", text_at(70)),
        ("tune.csv", format_csv(made_tune())),
        ("tune.md", format_markdown(made_tune())),
    ],
)
def test_no_byte_changes(name: str, made: str) -> None:
    file = GOLDEN / name
    if os.environ.get("LAR_GOLDEN") == "write":
        file.write_text(made)
    assert made == file.read_text()


def test_lines_are_no_wider_than_the_screen() -> None:
    lines = text_at(70).splitlines()
    assert all(len(line) <= 70 for line in lines if not line.startswith(("command:", "the same:")))


def test_the_result_is_read_back() -> None:
    result = made_tune()
    assert lar.read_tune(result.to_json()) == result
    assert result.to_dict()["ranking"][0]["name"] == "nchw88 + 2 threads"
    with pytest.raises(ValueError, match=r"is not 'lar\.tune/1'"):
        lar.read_tune(result.to_json().replace("lar.tune/1", "lar.tune/9"))


def won_by(place: int, **fields: object) -> TuneResult:
    """Return the search as if another candidate had won."""
    result = made_tune()
    winner = replace(result.ranking[place], **fields)  # type: ignore[arg-type]
    others = (it for it in result.ranking if it.candidate != winner.candidate)
    return replace(result, ranking=(winner, *others))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (made_tune(), "4.9 times as fast as the plain run (4.7 to 5.1), same outputs within the"),
        (
            won_by(0, output_difference=OutputDifference(agreement="equal")),
            "as the plain run (4.7 to 5.1), same outputs bit by bit",
        ),
        (won_by(0, output_difference=None), "(4.7 to 5.1), outputs not compared"),
        (won_by(3), "fastest: 2 threads: 1.76 times as fast as the plain run (1.73 to 1.80), "),
        (won_by(4), "fastest: the plain run: none was shown to be faster"),
        (replace(made_tune(), ending="interrupted"), "fastest so far: nchw88 + 2 threads: "),
        (
            replace(
                made_tune(), ending="failed", ranking=(), failure=Failure(problem="it crashed")
            ),
            "fastest: none: it crashed",
        ),
    ],
)
def test_the_last_sentence_says_what_won(result: TuneResult, said: str) -> None:
    assert said in verdict_of(result)
    assert format_tune(result)[-1] == verdict_of(result)


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("throughput", "highest throughput: nchw88 + 2 threads: 4.9 times that of the plain run"),
        ("p99", "lowest p99: nchw88 + 2 threads: the plain run has one 4.9 times as long (4.7"),
        ("memory", "least memory: nchw88 + 2 threads: the plain run needs 4.9 times as much (4"),
    ],
)
def test_each_objective_has_its_words(objective: Objective, said: str) -> None:
    result = made_tune()
    result = replace(result, request=replace(result.request, objective=objective))
    assert verdict_of(result).startswith(said)


def test_what_more_time_may_show_to_be_better_is_named() -> None:
    result = replace(won_by(4), ending="budget")
    seems = (
        "fastest: the plain run: none was shown to be faster; nchw88 + 2 threads seems better, "
        "with a ratio of 0.20 in 4 processes, and --budget 360 may show it"
    )
    assert verdict_of(result) == seems
    (plain, *others) = result.ranking
    # A smaller ratio that the ranking has further down was luck.
    assert others[1].difference
    lucky = replace(others[1], difference=replace(others[1].difference, ratio=0.01))
    assert verdict_of(replace(result, ranking=(plain, others[0], lucky))) == seems
    refuted = [replace(each, verdict=NOT_FASTER) for each in others]
    result = replace(result, ranking=(plain, *refuted))
    assert verdict_of(result) == "fastest: the plain run: none was shown to be faster"


def test_where_nothing_was_measured_nothing_is_said_to_be_no_faster() -> None:
    result = won_by(4)
    (plain, *others) = result.ranking
    unmeasured = tuple(replace(each, difference=None, status="interrupted") for each in others)
    result = replace(result, ending="interrupted", ranking=(plain, *unmeasured))
    said = "fastest so far: the plain run: nothing was measured beside it"
    assert verdict_of(result) == said
    assert verdict_of(replace(result, ranking=(plain,))) == said


@pytest.mark.parametrize(("seconds", "said"), [(60.0, "too short for another"), (115.0, "spent")])
def test_a_budget_that_is_not_used_up_is_not_called_spent(seconds: float, said: str) -> None:
    result = replace(made_tune(), ending="budget", wall_seconds=seconds)
    (line,) = (it for it in format_tune(result) if it.startswith("ended:"))
    assert said in line
    assert line.endswith("--budget S gives more")


def test_an_interrupted_search_says_how_to_go_on() -> None:
    result = replace(made_tune(), ending="interrupted")
    assert "ended: interrupted; `lar tune --resume SESSION` goes on" in format_tune(result)


def test_pairs_that_disagree_prove_no_combination_guilty() -> None:
    mixed = Contribution(model=0, choice="x", ratio=1.0, low=0.998, high=1.02, pairs=2)
    lines = format_tune(replace(made_tune(), contributions=(mixed,)))
    assert any(line.endswith("helps in some pairs, harms in others") for line in lines)


def test_of_two_engines_each_is_named() -> None:
    result = made_tune()
    (space,) = result.request.spaces
    twin = replace(space, model="resnet50.onnx", engine="onnxruntime")
    result = replace(result, request=replace(result.request, spaces=(space, twin)))
    assert "as fast as plain (4.7" in verdict_of(result)  # the plain run's name, which is made up
    won = replace(result.ranking[0], candidate=Candidate(model=1), name="onnxruntime: plain")
    lines = format_tune(replace(result, ranking=(won, *result.ranking[1:])))
    assert "settings: none: resnet50.onnx" in lines
    assert "command: lar resnet50.onnx --input 'data:{1,3,224,224}'" in lines
    assert format_tune(result)[0].startswith("resnet50.mge and resnet50.onnx on megengine 1.13.0")


def test_the_command_has_the_cache_or_searches_again() -> None:
    result = won_by(1)
    assert result.ranking[0].candidate == CACHED
    command = "lar resnet50.mge --input 'data:{1,3,224,224}' --multithread 2 --enable-nchw88 "
    assert command_of(result) == command + "--fast-run"
    assert "--output FILE keeps what the search" in "\n".join(format_tune(result))
    kept = command_of(result, CACHES)
    assert kept == command + "--fast-run-algo-policy out/tuned.cache"
    assert kept in "\n".join(format_tune(result, settings="out/tuned.json", caches=CACHES))


def test_names_that_a_terminal_would_obey_are_harmless() -> None:
    result = won_by(0, name="a\x1b[31m")
    assert "\x1b" not in "\n".join(format_tune(result))


OPTIONS: list[dict[str, OptionValue]] = [
    {"enable_nchw88": True, "multithread": 2},
    {"engine_env": ("A=x y", "B='"), "cuda": 1},
    {"mean": "-1,2.5,3", "input": ("data:{1,3,4}; $HOME",)},
    {"fast_run_algo_policy": "a file (1).cache", "workspace_limit": "1M"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_command_line_stands_for_its_options(options: dict[str, OptionValue]) -> None:
    words = shlex.split(format_command("a model.mge", options))
    assert words[:2] == ["lar", "a model.mge"]
    parsed = vars(parser_of("run").parse_args(normalize_flags(words[1:])))
    wanted = parse_values(options)
    assert {key: parsed[key] for key in wanted} == wanted
