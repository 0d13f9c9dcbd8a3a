"""Engines of other packages: found by their entry points, used as lar's own are."""

from __future__ import annotations

import copy
import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lar
from lar.engines import added_engines, engine_for, engine_named
from lar.errors import EngineMissing, UsageError
from lar.records.tuning import Candidate, TuneRequest
from lar.tuning.space import plan_candidate, survey_space
from tests.conftest import RunLar
from tests.engines.added import install, install_toy
from tests.tables import each_row

OWN_FORMAT = """
from lar.engines.engine import DriverEntry, Engine
from lar.engines.formats import Format

class Own(Engine):
    name = title = "own"
    formats = (Format("Own", (".own",), lambda head: head.startswith(b"OWN!")),)
    drivers = (DriverEntry("only", "", lambda: None),)
    def option_rows(self): return ()
    def read_model(self, path): raise NotImplementedError
    def find_devices(self): return ("cpu",)

ENGINE = Own()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the module path, for packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = {*sys.modules}
    yield folder
    for name in [name for name in sys.modules if name.startswith("lar_")]:
        if name not in before:
            del sys.modules[name]
    added_engines.cache_clear()


@pytest.fixture
def environment(site: Path, root: Path) -> dict[str, str]:
    """The variables with which a process finds the packages."""
    return {"PYTHONPATH": os.pathsep.join([str(site), str(root)])}


@pytest.fixture
def toy(environment: dict[str, str], site: Path) -> dict[str, str]:
    """The variables with which a process finds the package of the toy engine."""
    install_toy(site)
    return environment


def test_the_toy_engine_is_listed(run_lar: RunLar, toy: dict[str, str]) -> None:
    done = run_lar("engines", env=toy)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("toy")]
    assert line.split() == ["toy", "1.0", "cpu", "reference", ".onnx", ".toy"]
    assert "each operator (reference)" in done.stdout


@pytest.mark.usefixtures("toy")
def test_an_engine_is_installed_under_the_name_that_pip_has_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy = engine_named("toy")
    monkeypatch.setattr(toy, "distribution", "lar-toy")
    assert toy.is_installed
    assert toy.version == "1.0"


def test_a_worker_finds_an_engine_that_is_installed_to_be_edited(
    site: Path, tmp_path: Path
) -> None:
    """Installers may leave a hook for `site`, with which a worker does not begin."""
    install(site, "own", OWN_FORMAT)
    edited = tmp_path / "edited"
    edited.mkdir()
    (site / "lar_own.py").rename(edited / "lar_own.py")
    code = f"""
import sys
sys.path[:] = {sys.path!r}
import site
site.main = lambda: sys.path.append({str(edited)!r})
from lar.engines import engine_named
print(engine_named("own").title)
"""
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("own\n", "")


@pytest.mark.usefixtures("toy")
def test_a_format_that_several_engines_read_has_the_first_for_its_default(root: Path) -> None:
    model = root / "models/one_operator.onnx"
    assert engine_for(model, None).name == "onnxruntime"
    assert engine_for(model, "onnxruntime").name == "onnxruntime"
    assert engine_for(model, "toy").name == "toy"


@pytest.mark.parametrize(("name", "content"), [("a.own", b"text"), ("a.model", b"OWN!....")])
def test_a_format_of_its_own_is_recognised(
    site: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    install(site, "own", OWN_FORMAT)
    (tmp_path / name).write_bytes(content)
    assert engine_for(tmp_path / name, None).name == "own"


@pytest.mark.usefixtures("toy")
def test_an_unknown_name_is_looked_for_among_all() -> None:
    with pytest.raises(UsageError) as caught:
        engine_named("tyo")
    assert caught.value.hint == "did you mean toy?"


@each_row("engines/drivers/unusable")
def test_an_engine_that_cannot_be_used_gives_the_reason(
    run_lar: RunLar, site: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    monkeypatch.setattr("lar.running.isolation.find_devices", lambda engine: ("cpu",))
    install(site, "broken", source)
    with pytest.raises(EngineMissing, match=reason):
        engine_named("broken")
    done = run_lar("engines", code=0)
    assert "lar: warning: " in done.stderr
    assert reason in done.stderr
    assert "onnxruntime" in done.stdout


@pytest.mark.parametrize("name", ["onnxruntime", "twice"])
def test_a_name_is_that_of_the_first_engine(
    monkeypatch: pytest.MonkeyPatch, site: Path, name: str
) -> None:
    engines = [copy.copy(engine_named("fake")) for _ in range(2)]
    for engine in engines:
        engine.name = name
    points = [
        SimpleNamespace(name=name, value="x:y", load=lambda each=each: each) for each in engines
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    added_engines.cache_clear()
    expected = {} if name == "onnxruntime" else {name: engines[0]}
    assert added_engines() == (expected, {})


# What an engine may have beside its drivers


@pytest.fixture
def digits(toy: dict[str, str], tmp_path: Path, root: Path) -> str:
    """A model in the toy engine's own format."""
    path = tmp_path / "digits_cnn.toy"
    path.write_bytes(b"toy model\n" + (root / "models/digits_cnn.onnx").read_bytes())
    return str(path)


def test_a_property_of_its_own_is_part_of_the_result(digits: str, root: Path) -> None:
    result = lar.run(digits, engine_option="opset=17", iter=1)
    assert (result.status, result.spec.engine) == ("ok", "toy")
    assert result.spec.settings == {"engine_option": "opset=17"}
    assert result.to_dict()["spec"]["settings"] == {"engine_option": "opset=17"}
    with pytest.raises(UsageError, match=r"--engine-option opset: Toy knows no opset 3") as caught:
        lar.run(digits, engine_option="opset=3")
    with pytest.raises(UsageError, match=r"Toy has no property 'colour'") as caught:
        lar.run(digits, engine_option=["opset=17", "colour=red"])
    assert caught.value.hint == "it has opset"
    with pytest.raises(UsageError, match="MegEngine cannot do this") as caught:
        lar.run(root / "models/digits_cnn.mge", engine_option="opset=17")
    assert caught.value.hint.startswith("engines that can: onnxruntime, ")
    assert "toy" in caught.value.hint


def test_a_property_is_what_a_search_tries_and_settings_hold(digits: str, tmp_path: Path) -> None:
    space = survey_space(digits, {}, TuneRequest(spaces=())).space
    assert [choice.name for choice in space.dimensions[0].choices] == ["opset 17", "opset 20"]
    variant = plan_candidate(Candidate(choices=("opset 17",)), [space])
    assert variant.spec is not None
    assert variant.spec.settings == {"engine_option": "opset=17"}
    found = lar.tune(digits, budget="2s", engine_option="opset=19")
    settings = found.write_settings(str(tmp_path / "fast.json"))
    assert settings.options["engine_option"] == ("opset=19",)
    spec = lar.run(digits, iter=1, settings=str(tmp_path / "fast.json")).spec
    assert spec.settings == {"engine_option": "opset=19"}


def test_its_cache_is_shown_and_compared(run_lar: RunLar, digits: str, tmp_path: Path) -> None:
    for name, opset in (("a", 17), ("b", 20)):
        options: dict[str, Any] = {"fast_run": True, "iter": 0}
        options["fast_run_algo_policy"] = str(tmp_path / name)
        assert lar.run(digits, engine_option=f"opset={opset}", **options).status == "ok"
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    done = run_lar("cache", "show", a)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["made", "model", "size"]
    assert run_lar("cache", "diff", a, b).returncode == 1
    assert run_lar("cache", "diff", a, a).stdout == "the same: 1\n"
    done = run_lar("cache", "merge", a, "-o", b, code=2)
    assert f"{a}: this cache has a converted model and nothing to merge" in done.stderr
    foreign = tmp_path / "c"
    foreign.write_text("what nobody has written")
    done = run_lar("cache", "show", str(foreign))
    assert "c: is not a fast-run cache that an engine reads" in done.stderr
    assert "hint: engines with caches: megengine, onnxruntime, " in done.stderr


def test_its_own_profile_is_reported_without_a_spread(
    run_lar: RunLar, digits: str, tmp_path: Path
) -> None:
    files: dict[str, Any] = {key: str(tmp_path / key) for key in ("profile", "profile_raw")}
    assert lar.run(digits, iter=3, **files).status == "ok"
    for path in files.values():
        columns = ("--style", "operators", "--columns", "median,mean,max")
        done = run_lar("report", path, *columns, "--csv", "-", code=0)
        header, first, *_ = csv.reader(done.stdout.splitlines())
        row = dict(zip(header, first, strict=True))
        named = {key: value for key, value in row.items() if key.split("_")[0] in columns[3]}
        assert [bool(value) for value in named.values()] == [
            key.startswith("mean") for key in named
        ], row
        assert "means over all iterations" in run_lar("report", path, "--style", "operators").stdout


def test_models_of_two_formats_are_compared(digits: str, root: Path) -> None:
    found = lar.compare(root / "models/digits_cnn.onnx", digits, max_error=1e-4)
    assert (found.actual.engine, found.expected.engine) == ("onnxruntime", "toy")
    assert found.finding == "same"


@pytest.mark.usefixtures("toy")
def test_each_suffix_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "a.model").write_text("no model")
    with pytest.raises(UsageError) as caught:
        engine_for(tmp_path / "a.model", None)
    suffixes = caught.value.hint.partition(";")[0].removeprefix("models end in ").split()
    assert len({*suffixes}) == len(suffixes)
    assert {".onnx", ".toy"} <= {*suffixes}
