"""`lar report PROFILE --try`: suggestions are run beside the run as it was profiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lar.errors import UsageError
from lar.records.profile import ModelFacts
from lar.running.tried_advice import command_of
from tests.conftest import RunLar, WriteScript
from tests.profiles.timelines import profile_of

CHOICES = {
    "nchw88": {"enable_nchw88": True},
    "nchw44": {"enable_nchw44": True},
    "ioc16": {"enable_ioc16": True},
    "weights": {"weight_preprocess": True},
}
EFFECTS = [
    {"when": {"enable_nchw88": True}, "factor": 0.5},
    {"when": {"weight_preprocess": True}, "fault": {"at": "load", "do": "abort"}},
    {"when": {"enable_ioc16": True}, "factor": 0.25, "error": 0.5},
]


def script(write: WriteScript, gains: dict[str, float], **fields: Any) -> str:
    """A script whose profile suggests some of its choices."""
    choices = [{"name": name, "options": options} for name, options in CHOICES.items()]
    return write(
        **{
            "inputs": [{"name": "data", "dtype": "float32", "shape": [1, 4]}],
            "outputs": {"prob": [0.25, 0.75]},
            "times": [[0.01, 0.0, None]],
            "operators": [{"name": "conv", "type": "Convolution", "part": 0.9}],
            "dimensions": [{"name": "layout", "choices": choices}],
            "effects": EFFECTS,
            "gains": gains,
            **fields,
        }
    )


def profile(run_lar: RunLar, model: str, *words: str) -> str:
    """The file of the profile of a script."""
    path = str(Path(model).with_suffix(".json"))
    done = run_lar(model, "--iter", "3", "--profile", path, *words)
    assert done.returncode == 0, done.stderr
    return path


def edit(path: str, **facts: Any) -> None:
    """Change the facts of a profile."""
    content = json.loads(Path(path).read_text())
    for key, value in facts.items():
        known = content["otherData"][key]
        content["otherData"][key] = {**known, **value} if isinstance(known, dict) else value
    Path(path).write_text(json.dumps(content))


def test_the_first_suggestions_are_measured_and_their_outputs_compared(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    gains = {"ioc16": 0.6, "nchw88": 0.4, "weights": 0.3, "nchw44": 0.2}
    path = profile(run_lar, script(write_script, gains))
    done = run_lar("report", path, "--try")
    assert (done.returncode, done.stderr) == (0, "")
    first, second, third, empty, what, *rest = done.stdout.splitlines()
    assert first == ("1. the script takes 60.0% of an iteration; have it take less: --enable-ioc16")
    assert (second.split()[-1], third.split()[-1]) == ("--enable-nchw88", "--weight-preprocess")
    assert not empty
    assert ": 4 variants, " in what
    rows = {row.split("  ")[0]: row for row in rest if row}
    assert "baseline" in rows["as profiled"]
    assert "10.000" in rows["as profiled"]
    assert "faster" in rows["--enable-nchw88"]
    assert "equal bit by bit" in rows["--enable-nchw88"]
    assert "different (prob: " in rows["--enable-ioc16"]
    assert "crashed: the engine crashed in phase load: kil" in rows["--weight-preprocess"]
    assert rest[-1] == "best: --enable-nchw88, 2.00 times as fast, outputs equal bit by bit"
    assert "--enable-nchw44" not in done.stdout


def test_one_that_searches_does_so_before_it_is_measured_beside_the_run_that_was_profiled(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    search = {"name": "fast-run", "search": {"fast_run": True}, "cache": "fast_run_algo_policy"}
    layout = {"name": "nchw88", "options": {"enable_nchw88": True}}
    model = script(
        write_script,
        {"fast-run": 0.4, "nchw88": 0.5},
        dimensions=[{"name": "of all", "choices": [search, layout]}],
        effects=[*EFFECTS, {"when": {"fast_run_algo_policy": True}, "factor": 0.5}],
    )
    done = run_lar("report", profile(run_lar, model, "--enable-nchw88"), "--try")
    assert done.returncode == 0, done.stderr
    assert "--enable-nchw88" not in done.stdout  # the run has that already
    rows = {row.split("  ")[0]: row for row in done.stdout.splitlines() if row}
    assert "5.000" in rows["as profiled"]
    flags = "--fast-run --fast-run-algo-policy FILE"
    assert f"best: {flags}, 2.00 times as fast, outputs equal bit by bit" in done.stdout


def test_where_nothing_is_suggested_nothing_is_run(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    done = run_lar("report", profile(run_lar, script(write_script, {})), "--try")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == (
        "nothing to try: no other setting of fake is expected to make it faster here"
    )


def test_another_machine_or_model_is_refused(run_lar: RunLar, write_script: WriteScript) -> None:
    model = script(write_script, {"nchw88": 0.4})
    path = profile(run_lar, model)
    before = Path(path).read_text()
    made, unknown = (
        "the profile was made on",
        "the profile does not say which machine it was made on",
    )
    for facts, said in (
        ({"host": {"processor": "a far one"}}, f"--try: {made} another machine: its processor a f"),
        ({"host": {"cores": 999}}, f"--try: {made} another machine: its cores 999, here "),
        ({"host": {"processor": ""}}, f"--try: {unknown}\nhint: profile the model here"),
        ({"model": {"sha256": "00"}}, f"--try: {model}: has changed since it was profiled\n"),
    ):
        edit(path, **facts)
        done = run_lar("report", path, "--try")
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        Path(path).write_text(before)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--try", "--style", "torch"], "--try goes without --style"),
        (["--try", "--top", "3", "--csv", "x.csv"], "--try goes without --csv, --top"),
        (["--try", "--export", "chrome"], "--try goes without --export"),
        (["p.json", "--try"], "--try: takes one profile"),
        (["--budget", "3"], "--budget: goes with --try"),
        (["--try", "--budget", "x"], "--budget"),
    ],
)
def test_what_does_not_go_with_it_is_refused(run_lar: RunLar, words: list[str], said: str) -> None:
    done = run_lar("report", "p.json", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


class TestCommand:
    """The command of a profile, as it is run again."""

    def of(self, *words: str, **options: Any) -> tuple[str, dict[str, Any]]:
        profile = profile_of(
            [],
            facts={
                "arguments": ("/usr/bin/lar", *words) if words else (),
                "options": options,
                "model": ModelFacts("m.mge"),
            },
        )
        return command_of(profile)

    def test_what_was_typed_without_what_is_written(self) -> None:
        words = ("--iter", "3", "m.mge", "--enable-nchw44", "--profile", "p.json", "--csv", "x.csv")
        expected = ("m.mge", {"enable_nchw44": True})
        assert self.of(*words) == expected
        assert self.of("run", *words) == expected

    def test_inputs_and_variables(self) -> None:
        words = ("m.mge", "--input", "x:a.npy", "--input", "y:b.npy", "--engine-env", "A=1")
        _, options = self.of(*words)
        assert options == {"input": ["x:a.npy", "y:b.npy"], "engine_env": ["A=1"]}

    def test_from_python_the_options_of_the_engine(self) -> None:
        given = {"multithread": 2, "profile": "p.json", "disable_optimizer": "A,B"}
        _, options = self.of(**given)
        assert options == {"multithread": 2, "disable_optimizer": ["A", "B"]}

    def test_a_profile_that_names_no_model_is_refused(self) -> None:
        with pytest.raises(UsageError, match="does not say which model it is of"):
            command_of(profile_of([]))

    def test_a_word_that_this_lar_does_not_know_is_named(self) -> None:
        with pytest.raises(UsageError, match="--no-such"):
            self.of("m.mge", "--no-such")
