"""The quirks of MegEngine: who meets them, who is refused, and what the ways round really do.

MegEngine runs in processes of its own, which may hang or crash.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from lar.engines import engine_named
from lar.engines.megengine import defects
from lar.engines.megengine.defects import QUIRKS, quirks_here
from lar.measurement import machine
from lar.measurement.machine import read_instruction_sets
from lar.options.table import BY_KEY
from tests.engines.megengine import programs
from tests.engines.megengine.programs import MODELS
from tests.options.ruling import check, refusal
from tests.worker_forks import FORKS

if TYPE_CHECKING:
    from tests.conftest import RunLar

Array = npt.NDArray[Any]

ZEN_4 = "AuthenticAMD fpu sse4_2 avx2 avx512f"
INTEL = "GenuineIntel fpu sse4_2 avx2 avx512f"
BY_NAME = {quirk.name: quirk for quirk in QUIRKS}
KEEP_OUTPUT = """\
import sys
from tests.engines.megengine.probe import keep_output
keep_output(*sys.argv[1:])
"""
ANOTHER_BUILD = "--engine-fix x2apic: this is another build of MegEngine"

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
    path = folder / "output.npy"
    words = [str(MODELS / model), layout, fix, str(path)]
    if env is None and defects.MKL_VARIABLE not in os.environ:
        FORKS.run_program(
            "megengine", "lite", "tests.engines.megengine.probe:keep_output", words, folder
        )
    else:
        done = run_python("-c", KEEP_OUTPUT, *words, env=env)
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
    @pytest.mark.parametrize(
        ("processor", "environment", "expected"),
        [
            (ZEN_4, {}, True),
            (ZEN_4, {"MKL_DEBUG_CPU_TYPE": "5"}, False),
            (ZEN_4, {"MKL_DEBUG_CPU_TYPE": ""}, False),
            ("AuthenticAMD fpu sse4_2", {}, False),
            (INTEL, {}, False),
            ("unknown ", {}, False),
        ],
    )
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

    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({}, ["mkl-generic-path"]),
            ({"multithread": 2}, ["mkl-generic-path"]),
            ({"fast_run": True}, []),
            ({"cuda": 0}, []),
            ({"enable_nchw88": True}, ["nchw88-x2apic", "unfused-batch-norm"]),
            ({"enable_nchw44": True}, ["unfused-batch-norm"]),
            ({"enable_nchw32": True}, ["mkl-generic-path", "int8-nchw4"]),
            ({"enable_ioc16": True}, ["ioc16-max-pool"]),
            ({"layout_transform": "cpu"}, ["nchw88-x2apic", "layout-8-channels"]),
        ],
    )
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

    def test_nchw88_is_refused_on_another_vendors_processor(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(defects, "read_instruction_sets", lambda: ZEN_4)
        error = refusal("megengine", self.SETTINGS)
        assert error.message.startswith("--enable-nchw88 needs --engine-fix: it hangs on")
        assert error.hint.startswith("--engine-fix x2apic ")

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
from lar.engines.megengine import lite, x2apic
from lar.errors import UsageError
lite.import_lite()
base = x2apic.find_known_build()
def read():
    return [bytes(x2apic.CoreFacts.from_address(base + at)) for at in x2apic.FLAG_ADDRESSES]
before, known = read(), x2apic.BUILD_NOTE
x2apic.BUILD_NOTE = known[:-1] + bytes([known[-1] ^ 1])
try:
    x2apic.apply_fix()
except UsageError as error:
    print(error)
print(read() == before)
x2apic.BUILD_NOTE = known
x2apic.apply_fix()
x2apic.apply_fix()
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
            done = run_python(*words, timeout=6)
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
        dumped = run_lar("run", model, *flags, *fix)
        assert dumped.returncode == 0, dumped.stderr
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
