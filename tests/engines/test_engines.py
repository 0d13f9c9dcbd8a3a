"""The choice of engine and driver, made without loading any."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lar_scripted.script import FakeDriver

from lar.engines import (
    ENGINES,
    all_engines,
    check_options,
    driver_for,
    engine_for,
    engine_named,
    engines_for,
    operator_kinds_of,
    support_of_options,
)
from lar.engines.driver import Driver
from lar.engines.engine import DriverEntry, Engine, imported
from lar.engines.formats import FORMATS, format_in
from lar.engines.option_rows import Drivers, Hook, OptionRow
from lar.errors import UsageError
from lar.options import table
from lar.options.option import Switch
from lar.options.table import BY_KEY
from lar.records.run import ModelInfo, RunResult, RunSpec, Setting
from tests.command_lines import ROOT
from tests.tables import each_row

MGE = b"\x00" * 8 + b"mgv2" + b"\x00" * 8
ONNX_HEAD = b"\x08\x08\x12\x07pytorch:"
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=[each.name for each in ENGINES])


def write(folder: Path, name: str, content: bytes = b"unknown content") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def refused(model: Path, asked: str | None = None) -> UsageError:
    with pytest.raises(UsageError) as caught:
        engine_for(model, asked)
    return caught.value


# The tables


@each_engine
def test_what_the_table_of_an_engine_names_is_there(engine: Engine) -> None:
    assert all(suffix.startswith(".") and suffix.islower() for suffix in engine.suffixes)
    names = [driver.name for driver in engine.drivers]
    assert len(set(names)) == len(names)
    assert {each.key for each in (*engine.settles, *engine.searches)} <= set(engine.rows)
    if engine.staged:
        assert {each.key for each in engine.staged.options} <= set(engine.rows)
    if engine.packing:
        assert engine.packing.driver in names
    if engine.settles:
        assert type(engine).settle is not Engine.settle


def test_an_engine_that_says_no_more_has_no_hints_and_no_defects() -> None:
    engine = engine_named("fake")
    result = RunResult(
        spec=RunSpec(model="m", engine="fake", driver="script"), status="ok", phase="done"
    )
    assert engine.hints_for(result, {}) == ""
    assert engine.defects({}) == ()


def test_an_engine_of_no_known_name_has_the_kinds_of_operators_of_all() -> None:
    assert operator_kinds_of("onnxruntime") is engine_named("onnxruntime").operator_kinds
    of_all = operator_kinds_of("no such engine")
    for engine in ("megengine", "onnxruntime"):
        assert engine_named(engine).operator_kinds.kinds.keys() <= of_all.kinds.keys()


def test_no_suffix_belongs_to_two_formats() -> None:
    suffixes = [suffix for each in FORMATS for suffix in each.suffixes]
    assert len(set(suffixes)) == len(suffixes)


def test_each_format_is_read_by_an_engine() -> None:
    assert all(engines_for(each) for each in FORMATS)


@pytest.mark.usefixtures("own_engines")
def test_every_engine_option_is_honoured_by_some_engine() -> None:
    keys = {option.key for option in BY_KEY.values() if option.by_engine}
    lacking = keys - support_of_options().keys()
    assert not lacking, (
        f"no engine has a row for {lacking}: write one, or declare an option of lar's own below a "
        "group of another purpose, see `Purpose` in lar/options/option.py"
    )
    assert set(support_of_options()) == keys


# The rows without a hook whose option no module of the engine reads: lar honours some options for
# every engine, in a module; some engines always behave as an option asks, for a reason.
NOT_READ = json.loads(Path(__file__).with_name("rows_without_hooks.json").read_text())


def keys_read_in(code: str) -> set[str]:
    """The keys of the options whose values code reads, as `table.HINT.of(settings)`."""
    names = re.findall(r"\b([A-Z][A-Z_\d]+)\.(?:of|is_given|key)\b", code)
    keys = [vars(table)[name].key for name in names if name in vars(table)]
    return {*keys, *re.findall(r'\.get\("(\w+)"', code)}


@each_engine
def test_a_row_has_a_hook_or_its_option_is_read(engine: Engine) -> None:
    folder = ROOT / "lar" / "engines"
    files = [*(folder / engine.name).glob("*.py")]  # what only rules read has no effect on a run
    own = "".join(it.read_text() for it in files if it.stem not in ("rules", "dimensions"))
    shared = (folder / "driver.py").read_text() + (folder / "caches.py").read_text()
    functions = re.split(r"\n *def ", shared)
    called = "".join(it for it in functions if f".{it.partition('(')[0]}" in own)
    places = {key: (ROOT / place).read_text() for key, place in NOT_READ["lar"].items()}
    of_lar = {key for key, code in places.items() if key in keys_read_in(code)}
    stages = ("before_load", "after_load", "before_run", "after_run")
    bare = {it.key for it in engine.rows.values() if not any(getattr(it, at) for at in stages)}
    assert bare - keys_read_in(own + called) - of_lar == {*NOT_READ[engine.name]}, (
        'no module reads the option: see "To add an option of an engine" in lar/README.md'
    )


def places_of(owner: object) -> Iterator[tuple[str, str]]:
    """Yield the methods that call what is imported late, with the place of that."""
    for name in dir(type(owner)):
        method = inspect.getattr_static(type(owner), name)
        method = getattr(method, "fget", method)
        for _ in range(2):  # a method may choose one by the format of a file
            known = inspect.getclosurevars(method).nonlocals if inspect.isfunction(method) else {}
            if "place" in known:
                yield name, known["place"]
            method = known.get("of_own")


def test_what_is_imported_late_takes_what_the_methods_take() -> None:
    count = 0
    for owner in ENGINES:
        for name, place in places_of(owner):
            found, wanted = imported(place, type(owner).__module__), getattr(Engine, name)
            if callable(found) and callable(wanted):
                taken = len(inspect.signature(found).parameters)
                assert taken == len(inspect.signature(wanted).parameters) - 1, place
            count += 1
    assert count > 40
    for owner in ENGINES:
        given: list[tuple[Callable[..., Any], int]] = []
        given += [(it.write, 3) for it in (owner.packing,) if it]
        given += [(it.run, 5) for it in (owner.staged,) if it]
        for function, count in given:
            known = inspect.getclosurevars(function).nonlocals
            found = imported(known["place"], known["package"])
            assert len(inspect.signature(found).parameters) == count


# The engine of a file


@each_row("engines/drivers/heads")
def test_the_format_that_a_file_begins_like(head: str, format: str | None) -> None:
    found = format_in(head.encode("latin-1"))
    assert (found and found.name) == format


@each_row("engines/drivers/models")
def test_the_engine_of_a_model(tmp_path: Path, name: str, content: str, engine: str) -> None:
    assert engine_for(write(tmp_path, name, content.encode("latin-1")), None).name == engine


def test_the_engine_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    assert engine_for(write(tmp_path, "a.model"), "megengine").name == "megengine"
    assert engine_for(write(tmp_path, "a.onnx"), "fake").name == "fake"
    assert engine_for(write(tmp_path, "b.onnx", ONNX_HEAD), "onnxruntime").name == "onnxruntime"


def test_a_missing_model_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "resnet50.mge", MGE)
    error = refused(tmp_path / "resnet5O.mge")
    assert "no such model file" in error.message
    assert error.hint == f"did you mean {tmp_path / 'resnet50.mge'}?"
    (tmp_path / "digits.mge").mkdir()
    for name in ("none/resnet50.mge", "other.onnx", "digit.mge"):
        assert refused(tmp_path / name).hint == "check the path"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert "is a folder" in error.message
    assert error.hint == "give a model file"
    for name in ("b.mge", "a.onnx", "f.mge", "e.onnx", "c.mnn", "d.ort", "text.txt"):
        write(tmp_path, name)
    assert refused(tmp_path).hint == "give a model in it: a.onnx, b.mge, c.mnn, d.ort, e.onnx"


@pytest.mark.parametrize("name", ["x" * 300 + ".mge", "nul\0.mge"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot be read" in refused(tmp_path / name).message


def test_an_unknown_engine_that_is_near_none_names_all() -> None:
    with pytest.raises(UsageError, match="there is no engine 'zzz'") as caught:
        engine_named("zzz")
    assert caught.value.hint == f"engines: {', '.join(it.name for it in all_engines())}"


# The driver for the options


@each_row("engines/drivers/taken")
def test_the_first_driver_that_honours_all_options_is_taken(
    keys: Iterable[str], asked: str | None, driver: str
) -> None:
    assert driver_for(engine_named("megengine"), keys, asked).name == driver


@each_row("engines/drivers/refused")
def test_options_that_no_driver_honours_are_refused_by_name(
    keys: Iterable[str], asked: str | None, message: str, hint: str
) -> None:
    def choose() -> None:
        check_options(engine_named("megengine"), keys)
        driver_for(engine_named("megengine"), keys, asked)

    with pytest.raises(UsageError) as caught:
        choose()
    assert (caught.value.message, caught.value.hint) == (message, hint)


def no_driver() -> type[Driver]:
    raise AssertionError("no driver is loaded")


class ThreeDrivers(Engine):
    """An engine with options of which any two go together."""

    name = title = "made up"
    formats = ()
    drivers = tuple(DriverEntry(name, "", no_driver) for name in ("one", "two", "three"))

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        able = {"a": ("one", "two"), "b": ("two", "three"), "c": ("one", "three")}
        return tuple(OptionRow(Switch(key, ""), Drivers(names), "") for key, names in able.items())

    def read_model(self, path: Path) -> ModelInfo:
        raise NotImplementedError

    def find_devices(self) -> tuple[str, ...]:
        raise NotImplementedError


def test_options_of_which_any_two_go_together_are_refused_too() -> None:
    with pytest.raises(UsageError, match="--a and --c cannot go together"):
        driver_for(ThreeDrivers(), "abc")


def test_hooks_fire_in_the_tables_order_for_the_options_that_are_set(
    write_script: Callable[..., str],
) -> None:
    fired: list[tuple[str, object]] = []

    def hook(name: str) -> Hook[Any, Any]:
        return lambda driver, value: fired.append((name, value))

    hooks = {
        "late": {"before_run": hook("late, before the run")},
        **{name: {"before_load": hook(name)} for name in ("unset", "second", "first")},
    }
    rows = {
        name: OptionRow(Switch(name, ""), Drivers(("script",)), "", **own)
        for name, own in hooks.items()
    }
    settings: dict[str, Setting] = {"first": 1, "second": "x", "late": True}
    spec = RunSpec(model=write_script(), engine="fake", driver="script", settings=settings)
    driver = FakeDriver(spec, rows)
    assert fired == []
    driver.fire_hooks("before_load")
    assert fired == [("second", "x"), ("first", 1)]
    driver.fire_hooks("after_load")
    driver.fire_hooks("before_run")
    assert fired[2:] == [("late, before the run", True)]


@each_row("engines/drivers/install")
def test_the_advice_to_install_is_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, advice: str
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    hint = engine_named("megengine").install_hint
    assert advice in hint
    assert ("uv run" in hint) == (machine == "x86_64")
