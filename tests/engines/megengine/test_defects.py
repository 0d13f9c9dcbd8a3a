"""The quirks of MegEngine: who meets them, who is refused, and what the ways round really do.

MegEngine runs in processes of its own, which may hang or crash.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import pytest

from lar.datasets.testcases import HEADER, MAGIC
from lar.engines import engine_named
from lar.engines.megengine import defects, symbols
from lar.engines.megengine.defects import (
    FLOAT_PRODUCTS,
    GROUPED,
    MAX_POOLING,
    QUANTISED,
    QUIRKS,
    quirks_here,
    traits_in,
    traits_of,
)
from lar.engines.megengine.packed_model import write_packed
from lar.engines.megengine.symbols import CoreFacts, apply_fix
from lar.errors import UsageError
from lar.measurement import machine
from lar.measurement.machine import read_instruction_sets
from lar.options.table import BY_KEY
from tests.conftest import RunLar
from tests.engines.megengine import programs
from tests.engines.megengine.probed import run_alone
from tests.engines.megengine.programs import MODELS
from tests.options.ruling import check
from tests.tables import each_row

Array = npt.NDArray[Any]

ZEN_4 = "AuthenticAMD fpu sse4_2 avx2 avx512f"
INTEL = "GenuineIntel fpu sse4_2 avx2 avx512f"
BY_NAME = {quirk.name: quirk for quirk in QUIRKS}
KEEP_OUTPUT = """\
import sys
from tests.engines.megengine.probe import keep_output
keep_output(*sys.argv[1:])
"""
ANOTHER_BUILD = "--engine-fix x2apic: the fix is for another build of MegEngine"

with_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megenginelite") is None, reason="MegEngine is not installed"
)
on_amd = pytest.mark.skipif(
    not re.match("AuthenticAMD .*avx512f ", read_instruction_sets()),
    reason="the hang was seen on AMD processors with AVX-512",
)


def run_python(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python on arguments, with the MKL of its choice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(defects.MKL_VARIABLE, raising=False)
        return programs.run_python(*arguments, **options)


def run_model(
    model: str, folder: Path, layout: str = "", fix: str = "", env: Mapping[str, str] | None = None
) -> Array:
    """Run a model once on the input that is the same each time, and return its first output."""
    if env is None and defects.MKL_VARIABLE not in os.environ:
        return run_alone(MODELS / model, folder, layout, fix)
    path = folder / "output.npy"
    done = run_python("-c", KEEP_OUTPUT, MODELS / model, layout, fix, path, env=env)
    assert done.returncode == 0, done.stderr
    output: Array = np.load(path)
    return output


@pytest.fixture(scope="module")
def plain_output(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Array]:
    """The first output of a model without any setting; each model runs once."""
    folder = tmp_path_factory.mktemp("plain")
    return functools.cache(lambda model: run_model(model, folder))


def relative_error(actual: Array, expected: Array) -> float:
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


class TestTable:
    def test_a_quirk_has_all_its_texts_on_one_line(self) -> None:
        assert len(BY_NAME) == len(QUIRKS)
        for quirk in QUIRKS:
            for text in (quirk.name, quirk.effect, quirk.detection, quirk.way_round):
                assert text
                assert text.isprintable()

    def test_its_settings_are_options(self) -> None:
        for quirk in QUIRKS:
            assert {*quirk.settings, *quirk.spared} <= BY_KEY.keys()
            assert not {*quirk.settings} & {*quirk.spared}


class TestDetection:
    @each_row("engines/megengine/defects/mkl")
    def test_the_generic_path_of_mkl(
        self, processor: str, environment: dict[str, str], expected: bool
    ) -> None:
        assert BY_NAME["mkl-generic-path"].applies(processor, environment) is expected

    @pytest.mark.parametrize(
        ("processor", "expected"),
        [(ZEN_4, True), ("HygonGenuine avx2", True), (INTEL, False), ("unknown ", False)],
    )
    def test_the_hang_of_nchw88(self, processor: str, expected: bool) -> None:
        assert BY_NAME["nchw88-x2apic"].applies(processor, {}) is expected

    @each_row("engines/megengine/defects/met")
    def test_what_a_run_meets(
        self, settings: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(defects, "read_instruction_sets", lambda: ZEN_4)
        assert [quirk.name for quirk in quirks_here(settings, {})] == expected

    def test_the_processor_is_its_vendor_and_instruction_sets(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fields = {"vendor_id": "AuthenticAMD", "flags": "fpu avx2"}
        monkeypatch.setattr(machine, "read_field", lambda path, name: fields.get(name, ""))
        assert read_instruction_sets() == "AuthenticAMD fpu avx2"
        fields.update(vendor_id="", flags="")
        assert read_instruction_sets() == "unknown "


class TestRefusal:
    SETTINGS = {"enable_nchw88": True}

    def test_but_not_with_the_fix_nor_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(defects, "read_instruction_sets", lambda: ZEN_4)
        check("megengine", {**self.SETTINGS, "engine_fix": "x2apic"})
        check("megengine", {**self.SETTINGS, "cuda": 0})
        check("megengine", {"enable_nchw44": True})
        monkeypatch.setattr(defects, "read_instruction_sets", lambda: INTEL)
        check("megengine", self.SETTINGS)


class TestDefects:
    def test_each_says_whether_it_applies_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(defects, "read_instruction_sets", lambda: INTEL)
        found = {each.name: each for each in engine_named("megengine").defects({})}
        assert list(found) == [quirk.name for quirk in QUIRKS]
        assert not found["mkl-generic-path"].is_here
        assert found["ioc16-max-pool"].is_here


class TestKnownBuild:
    @with_megengine
    def test_a_build_with_another_note_is_refused_and_left_alone(self) -> None:
        code = """
from lar.engines.megengine import lite, symbols
from lar.errors import UsageError
lite.import_lite()
base = symbols.find_known_build()
def read():
    return [bytes(symbols.CoreFacts.from_address(base + at)) for at in symbols.FLAG_ADDRESSES]
before, known = read(), symbols.BUILD_NOTE
symbols.BUILD_NOTE = known[:-1] + bytes([known[-1] ^ 1])
try:
    symbols.apply_fix()
except UsageError as error:
    print(error)
print(read() == before)
symbols.BUILD_NOTE = known
symbols.apply_fix()
symbols.apply_fix()
print([facts[0] for facts in read()])
"""
        done = run_python("-c", code)
        assert done.stdout.splitlines() == [ANOTHER_BUILD, "True", "[1, 1, 1]"], done.stderr


@with_megengine
class TestEffect:
    @on_amd
    def test_nchw88_without_the_fix_does_not_end_well(self, tmp_path: Path) -> None:
        try:
            words = ("-c", KEEP_OUTPUT, MODELS / "digits_cnn.mge", "nchw88", "", tmp_path / "o")
            done = run_python(*words, timeout=4)
        except subprocess.TimeoutExpired:
            return
        assert done.returncode != 0

    @pytest.mark.parametrize("model", ["digits_cnn.mge", "mobilenet_v2.mge"])
    def test_nchw88_with_the_fix_gives_the_same_numbers(
        self, plain_output: Callable[[str], Array], model: str, tmp_path: Path
    ) -> None:
        actual = run_model(model, tmp_path, layout="nchw88", fix="x2apic")
        assert relative_error(actual, plain_output(model)) < 1e-3

    @on_amd
    @pytest.mark.parametrize("model", ["digits_cnn.mge", "mobilenet_v2.mge"])
    def test_the_faster_mkl_gives_the_same_numbers(
        self, plain_output: Callable[[str], Array], model: str, tmp_path: Path
    ) -> None:
        actual = run_model(model, tmp_path, env={"MKL_DEBUG_CPU_TYPE": "5"})
        assert relative_error(actual, plain_output(model)) < 1e-4

    @on_amd
    def test_a_model_that_has_nchw88_in_it_ends_at_once_with_the_name_of_the_defect(
        self, run_lar: RunLar, tmp_path: Path
    ) -> None:
        blocked, model = str(tmp_path / "blocked.mge"), str(MODELS / "digits_cnn.mge")
        fix = ["--engine-fix", "x2apic"]
        flags = ["--enable-nchw88", "--model-dump", blocked, "--iter", "1"]
        run_lar("run", model, *flags, *fix, code=0)
        assert run_lar("run", blocked, *fix).returncode == 0
        done = run_lar("run", blocked, timeout=28)  # the limit for an engine that hangs is 30 s
        assert done.returncode == 4
        assert "the model has convolutions in nchw88, which hang on" in done.stderr
        assert "hint: --engine-fix x2apic mends it" in done.stderr

    @pytest.mark.parametrize(
        ("layout", "wrong"), [("nchw4", True), ("nchw32", True), ("nchw44", False)]
    )
    def test_int8_goes_wrong_in_these_layouts_alone(
        self, plain_output: Callable[[str], Array], layout: str, wrong: bool, tmp_path: Path
    ) -> None:
        actual = run_model("int8.mge", tmp_path, layout=layout)
        error = relative_error(actual, plain_output("int8.mge"))
        assert error > 0.1 if wrong else error < 1e-6


# What the fix for MKL-DNN writes into the facts of its cores


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> ctypes.Array[CoreFacts]:
    """Facts at the places where the known build has them."""
    facts = (CoreFacts * 2)()
    monkeypatch.setattr(symbols, "find_known_build", lambda: ctypes.addressof(facts))
    monkeypatch.setattr(symbols, "FLAG_ADDRESSES", (0, ctypes.sizeof(CoreFacts)))
    return facts


def facts_of(each: CoreFacts) -> tuple[int, int, int]:
    return each.supported, each.threads_per_core, each.threads


def test_cores_that_were_not_read_are_set_and_others_left(cores: ctypes.Array[CoreFacts]) -> None:
    cores[1] = CoreFacts(1, 2, 6)
    apply_fix()
    assert facts_of(cores[0]) == (1, 1, os.cpu_count())
    assert facts_of(cores[1]) == (1, 2, 6)


@pytest.mark.parametrize("found", [(0, 1, 0), (1, 0, 0), (1, 4, 2), (2, 1, 1)])
def test_memory_that_holds_anything_else_is_another_build(
    cores: ctypes.Array[CoreFacts], found: tuple[int, int, int]
) -> None:
    cores[1] = CoreFacts(*found)
    with pytest.raises(UsageError, match="another build of MegEngine"):
        apply_fix()
    assert facts_of(cores[0]) == (0, 0, 0)


# What a model file tells of its operators, in both formats and in the files around them


DIGITS = MODELS / "digits_cnn.mge"
OF_DIGITS = frozenset({FLOAT_PRODUCTS, MAX_POOLING})


@each_row("engines/megengine/defects/traits")
def test_the_traits_of_a_model(name: str, traits: list[str]) -> None:
    assert traits_of(str(MODELS / f"{name}.mge")) == frozenset(traits)


def test_a_file_in_the_older_format_and_in_blocks(run_lar: RunLar, tmp_path: Path) -> None:
    place = tmp_path / "blocked.mge"
    run_lar(
        "run", str(DIGITS), "--enable-nchw44", "--model-dump", str(place), "--iter", "0", code=0
    )
    assert place.read_bytes().startswith(b"MGBC")
    assert traits_of(str(place)) == frozenset({MAX_POOLING})


def test_a_model_in_another_file(tmp_path: Path) -> None:
    graph = DIGITS.read_bytes()
    packed, cases = tmp_path / "packed.lite", tmp_path / "cases.mdl"
    write_packed(packed, graph, "digits")
    cases.write_bytes(HEADER.pack(MAGIC, 1) + graph + (MODELS / "int8.mge").read_bytes())
    assert traits_of(str(packed)) == traits_of(str(cases)) == OF_DIGITS


def test_what_is_damaged_tells_nothing(tmp_path: Path) -> None:
    content, file = DIGITS.read_bytes(), tmp_path / "damaged.mge"
    assert traits_of(str(file)) is None
    for size in (0, 3, 12, 40, 400):
        file.write_bytes(content[:size])
        assert not traits_of(str(file))
    for place in range(4, len(content), len(content) // 300):
        file.write_bytes(content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :])
        assert (traits_of(str(file)) or set()) <= {FLOAT_PRODUCTS, MAX_POOLING, GROUPED, QUANTISED}


def graph_of(kind: int, parameters: list[int], dtype: int, shape: list[int] | None) -> memoryview:
    """A graph of one operator whose output has that shape, if the file tells it."""
    builder: Any = flatbuffers.Builder(1024)

    def add_vector(elements: list[int], prepend: Any) -> int:
        builder.StartVector(4, len(elements), 4)
        for element in reversed(elements):
            prepend(element)
        return int(builder.EndVector())

    sizes = None if shape is None else add_vector(shape, builder.PrependUint32)
    builder.StartObject(5)
    if sizes is not None:
        builder.PrependUOffsetTRelativeSlot(1, sizes, 0)
    variables = add_vector([builder.EndObject()], builder.PrependUOffsetTRelative)
    outputs = add_vector([0], builder.PrependUint32)
    builder.StartObject(len(parameters))
    for field, value in enumerate(parameters):
        builder.PrependUint32Slot(field, value, 0)
    fields = builder.EndObject()
    builder.StartObject(1)
    builder.PrependUint8Slot(0, dtype, 0)
    element = builder.EndObject()
    builder.StartObject(15)
    builder.PrependUint8Slot(3, kind, 0)
    for place, made in ((4, fields), (8, outputs), (10, element)):
        builder.PrependUOffsetTRelativeSlot(place, made, 0)
    operators = add_vector([builder.EndObject()], builder.PrependUOffsetTRelative)
    builder.StartObject(8)
    builder.PrependUOffsetTRelativeSlot(2, operators, 0)
    builder.PrependUOffsetTRelativeSlot(3, variables, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"mgv2")
    content = bytes(builder.Output())
    return memoryview(struct.pack("<I", len(content)) + content)


@each_row("engines/megengine/defects/operators")
def test_the_trait_of_an_operator(
    kind: int, parameters: list[int], dtype: int, shape: list[int] | None, trait: str
) -> None:
    assert [*traits_in(graph_of(kind, parameters, dtype, shape))] == [trait] * bool(trait)
