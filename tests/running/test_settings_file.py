"""A run with the settings of a search: what they set, when they are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lar
from lar.files.report_file import OutputFile
from lar.records.tuning import OptionValue
from lar.running.plan import plan_run
from lar.running.variants import make_variants, parse_vary
from lar.tuning.outcome import write_settings
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.tables import each_row
from tests.tuning.made_tune import ENGINE, SCRIPTED, tune_of_script

# Fields of a settings file, each with a wrong value and what is said of it.
FAULTS = json.loads(Path(__file__).with_name("settings_faults.json").read_text())


@pytest.fixture
def model(write_script: WriteScript) -> str:
    return write_script(outputs={"prob": [0.25, 0.75]}, times=[[0.01, 0.0, None]])


def settings_for(model: str, options: dict[str, OptionValue]) -> str:
    path = str(Path(model).parent / "tuned.json")
    engine = SCRIPTED if model.endswith(".fake") else ENGINE
    with OutputFile(path, "--output") as output:
        write_settings(output, tune_of_script(model, options, engine=engine))
    return path


def change(path: str, key: str, value: object) -> None:
    """Write another value into a settings file: `machine.processor`."""
    content = json.loads(Path(path).read_text())
    *parents, last = key.split(".")
    place = content
    for each in parents:
        place = place[each]
    place[last] = value
    Path(path).write_text(json.dumps(content))


def test_a_run_has_what_the_file_sets(model: str) -> None:
    path = settings_for(model, {"thread": 2, "engine_env": ("A=1", "B=2")})
    spec = plan_run(model, {"settings": path})
    assert (spec.settings, spec.environment) == ({"thread": 2}, {"A": "1", "B": "2"})
    assert lar.run(model, settings=path, iter=3).spec.settings == {"thread": 2}
    done = run_lar(model, "--settings", path, "--iter", "3")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_typed_beside_it_takes_the_place_of_the_file(model: str) -> None:
    path = settings_for(model, {"thread": 2, "engine_env": ("A=1", "B=2"), "cpu": True})
    spec = plan_run(model, {"settings": path, "thread": 3, "engine_env": ["B=3"]})
    assert spec.settings == {"thread": 3, "cpu": True}
    assert spec.environment == {"A": "1", "B": "3"}


@each_row("running/cases/code of strangers")
def test_a_file_runs_no_strangers_code(
    options: dict[str, OptionValue], flag: str, model: str
) -> None:
    path = settings_for(model, {})
    change(path, "options", options)
    done = run_lar(model, "--settings", path, code=2)
    assert f"{path}: sets {flag}: a flag that can run code" in done.stderr
    assert f"hint: give {flag} on the command line, if you trust its value" in done.stderr


def test_what_is_typed_too_the_file_may_set(model: str) -> None:
    path = settings_for(model, {})
    change(path, "options", {"engine_env": ["B=3"]})
    assert plan_run(model, {"settings": path, "engine_env": ["B=3"]}).environment == {"B": "3"}


def test_what_contradicts_the_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "digits.mge"
    place.write_bytes((ROOT / "models/digits_cnn.mge").read_bytes())
    path = settings_for(str(place), {"enable_nchw88": True})
    with pytest.raises(lar.UsageError) as caught:
        plan_run(str(place), {"settings": path, "enable_nchw44": True, "force": True})
    assert "--enable-nchw44 and --enable-nchw88 exclude each other" in caught.value.message
    assert caught.value.hint == f"give one of them; {path} sets --enable-nchw88"


def test_a_bench_and_a_comparison_take_it(model: str) -> None:
    path = settings_for(model, {"thread": 2})
    variants = make_variants([model, f"{model} --settings {path}"], [], {})
    assert [it.spec.settings for it in variants if it.spec] == [{}, {"thread": 2}]
    variants = make_variants([model], [parse_vary(f"settings=,{path}")], {})
    assert [it.spec.settings for it in variants if it.spec] == [{}, {"thread": 2}]
    done = run_lar("compare", model, f"{model} --settings {path} --cpu")
    assert "--bin-io-dump" in done.stderr  # which the engine of scripts does not do


@pytest.mark.parametrize(("key", "value", "said"), FAULTS["made for something else"])
def test_it_is_refused_for_something_else(model: str, key: str, value: object, said: str) -> None:
    path = settings_for(model, {"thread": 2})
    change(path, key, value)
    with pytest.raises(lar.UsageError) as caught:
        plan_run(model, {"settings": path})
    assert caught.value.message.startswith(f"--settings: {path}: was made for something else: ")
    assert said in caught.value.message
    assert "--force" in caught.value.hint
    assert plan_run(model, {"settings": path, "force": True}).settings == {"thread": 2}


def test_the_command_line_says_why_in_two_lines(model: str) -> None:
    path = settings_for(model, {"thread": 2})
    change(path, "machine.processor", "Z80")
    done = run_lar(model, "--settings", path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 2)
    assert run_lar(model, "--settings", path, "--force", "--iter", "1").returncode == 0
    assert "--force needs --settings" in run_lar(model, "--force").stderr


@pytest.mark.parametrize(("key", "value", "said"), FAULTS["not right"])
def test_a_file_that_is_not_right_is_refused(
    model: str, key: str, value: object, said: str
) -> None:
    path = settings_for(model, {"thread": 2})
    change(path, key, value)
    with pytest.raises(lar.UsageError) as caught:
        plan_run(model, {"settings": path, "force": True})
    assert caught.value.message.startswith(f"--settings: {path}: ")
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format": "lar.settings/1"}'])
def test_a_damaged_file_is_refused(model: str, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(lar.UsageError):
        plan_run(model, {"settings": str(tmp_path / "t.json")})


def test_a_file_of_a_mebibyte_is_read_and_none_that_is_larger(model: str) -> None:
    path = Path(settings_for(model, {"thread": 2}))
    content = path.read_bytes()
    path.write_bytes(content.ljust(1 << 20))
    assert plan_run(model, {"settings": str(path)}).settings == {"thread": 2}
    path.write_bytes(content.ljust((1 << 20) + 1))
    with pytest.raises(lar.UsageError, match="at most 1048576 are read"):
        plan_run(model, {"settings": str(path)})


def test_a_cache_is_named_from_the_file(tmp_path: Path) -> None:
    place = tmp_path / "digits.mge"
    place.write_bytes((ROOT / "models/digits_cnn.mge").read_bytes())
    path = settings_for(str(place), {"multithread": 2})
    change(path, "options.fast_run_algo_policy", "tuned.cache")
    with pytest.raises(
        lar.UsageError, match=r"its cache tuned\.cache is missing beside it"
    ) as caught:
        plan_run(str(place), {"settings": path, "force": True})
    assert "add --fast-run, which searches anew and writes it" in caught.value.hint
    spec = plan_run(str(place), {"settings": path, "force": True, "fast_run": True})
    assert spec.settings["fast_run_algo_policy"] == str(tmp_path / "tuned.cache")


def test_a_cache_that_was_given_is_kept_beside_the_file(model: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("{}")
    path = settings_for(model, {"fast_run_algo_policy": str(tmp_path / "mine")})
    assert json.loads(Path(path).read_text())["options"] == {"fast_run_algo_policy": "tuned.cache"}
    assert (tmp_path / "tuned.cache").read_text() == "{}"
    spec = plan_run(model, {"settings": path})
    assert spec.settings == {"fast_run_algo_policy": str(tmp_path / "tuned.cache")}


def test_a_file_of_settings_is_not_replaced(model: str) -> None:
    path = settings_for(model, {"thread": 2})
    before = Path(path).read_bytes()
    done = run_lar("bench", f"{model} --settings {path}", "--json", path)
    assert (done.returncode, Path(path).read_bytes()) == (2, before)
    assert run_lar(model, "--settings", path, "--csv", path).returncode == 2
    assert Path(path).read_bytes() == before
