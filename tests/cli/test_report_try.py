"""`lar report PROFILE --try`: suggestions are run beside the run as it was profiled."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.errors import UsageError
from lar.measurement.machine import read_machine
from lar.records.profile import ModelFacts
from lar.running.tried_advice import command_of, try_recommendations
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
    assert done.stdout.splitlines()[0] == "No setting stands out."


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


def fed_with(run_lar: RunLar, write: WriteScript, name: str, shape: tuple[int, ...]) -> str:
    """The profile of a run that was fed with a file beside the model, started in that folder."""
    model = Path(script(write, {"nchw88": 0.4}))
    np.save(model.parent / name, np.ones(shape, np.float32))
    words = (model.name, "--input", name, "--iter", "3", "--profile", "p.json")
    done = run_lar(*words, cwd=model.parent)
    assert done.returncode == 0, done.stderr
    path = model.parent / "p.json"
    edit(str(path), argv=["/usr/bin/lar", *words])
    return str(path)


def test_an_input_that_is_gone_is_one_line_before_anything_is_measured(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    path = Path(fed_with(run_lar, write_script, "a.npy", (1, 4)))
    (path.parent / "a.npy").unlink()
    done = run_lar("report", str(path), "--try", cwd=path.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "lar: error: --try: a.npy: the run of the profile was fed with it (--input), and it is not "
        "there\nhint: profile the model here: lar MODEL --profile FILE\n"
    )


def test_paths_that_are_relative_to_another_folder_say_so(
    run_lar: RunLar, write_script: WriteScript, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = Path(fed_with(run_lar, write_script, "a.npy", (1, 4)))
    elsewhere, model = tmp_path_factory.mktemp("elsewhere"), next(path.parent.glob("*.fake"))
    (elsewhere / model.name).write_bytes(model.read_bytes())
    relative = "the path is relative to {} in which the run was started: call lar there\n"
    for folder in (f"{path.parent},", "the folder"):
        done = run_lar("report", str(path), "--try", cwd=elsewhere)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--try: a.npy: the run of the profile was fed with it" in done.stderr
        assert relative.format(folder) in done.stderr
        edit(str(path), cwd="")  # as in the profiles of an earlier lar


def test_a_model_that_is_gone_is_named_with_the_folder_of_the_run() -> None:
    facts = {"machine": asdict(read_machine()), "model": ModelFacts("m.mge"), "folder": "/there"}
    with pytest.raises(
        UsageError, match=r"--try: m\.mge: the model of the profile is not there"
    ) as it:
        try_recommendations(profile_of([], facts=facts), [], budget_seconds=1)
    assert "relative to /there, in which the run was started" in it.value.hint


def test_a_run_that_fails_now_is_one_error_without_a_table(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    path = Path(fed_with(run_lar, write_script, "a.npy", (1, 4)))
    np.save(path.parent / "a.npy", np.ones((1, 5), np.float32))
    done = run_lar("report", str(path), "--try", cwd=path.parent)
    assert (done.returncode, done.stdout) == (2, "")
    (error, *_) = done.stderr.splitlines()
    assert error.startswith("lar: error: the baseline 'as profiled': ")


@pytest.mark.parametrize("kind", ["folder", "stack"])
def test_of_a_data_set_the_first_item_is_tried(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, kind: str
) -> None:
    model = script(write_script, {"nchw88": 0.4})
    items = tmp_path / ("items" if kind == "folder" else "items.npz")
    if kind == "folder":
        items.mkdir()
        for name in "ab":
            np.save(items / f"{name}.npy", np.ones((1, 4), np.float32))
    else:
        np.savez(items, data=np.ones((2, 4), np.float32))
    path = profile(run_lar, model)
    edit(path, argv=["/usr/bin/lar", model, "--input", f"data:{items}"])
    done = run_lar("report", path, "--try")
    assert (done.returncode, done.stderr) == (0, "")
    first = "a.npy" if kind == "folder" else "0"
    assert f"the profile is of a data set of 2 items: tried with the first, {first}" in done.stdout
    assert "\nbest: --enable-nchw88, " in done.stdout
    items.rename(tmp_path / "gone")
    done = run_lar("report", path, "--try")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{items}" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--try", "--style", "torch"], "takes no --style\nhint: leave --style out\n"),
        (
            ["--try", "--top", "3", "--csv", "x.csv"],
            "a report, and takes no --csv, --top\n",
        ),
        (["--try", "--export", "chrome"], "instead of a report, and takes no --export\n"),
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
