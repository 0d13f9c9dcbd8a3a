"""What searches try with the engines, on processors that tests make up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lar.engines
from lar.engines import engine_named
from lar.engines.choices import Site
from lar.engines.megengine.dimensions import is_of_mkl
from lar.engines.onnxruntime import dimensions as of_onnxruntime
from lar.engines.onnxruntime import providers
from lar.options.command_line import parse_values
from lar.options.table import can_vary
from lar.records.profile import ProfiledOperator, TensorFact
from lar.records.tuning import Choice
from tests.tables import each_row

REASONS = Path(lar.engines.__file__).parent
MODELS = Path(__file__).resolve().parents[2] / "models"
MOBILENET, INT8 = MODELS / "mobilenet_v2.mge", MODELS / "int8.mge"
ONNX = MODELS / "mobilenet_v2.onnx"

ZEN_4 = "AuthenticAMD fpu sse4_2 avx2 avx512f avx512_vnni"
SKYLAKE = "GenuineIntel fpu sse4_2 avx2 avx512f"
OLD_AMD = "AuthenticAMD fpu sse4_2"
ARM = "unknown fp asimd asimdhp asimddp"
PROCESSORS = (ZEN_4, SKYLAKE, OLD_AMD, ARM)


def tried(
    model: Path, processor: str = ZEN_4, cores: int = 2, engine_name: str = "", **site: Any
) -> dict[str, Choice]:
    """The choices for a model at a site, by name."""
    default = "onnxruntime" if model.suffix == ".onnx" else "megengine"
    engine = engine_named(engine_name or default)
    at = Site(cores=tuple(range(cores)), processor=processor, **site)
    choices = [choice for dimension in engine.dimensions(at, model) for choice in dimension.choices]
    assert len({choice.name for choice in choices}) == len(choices)
    return {choice.name: choice for choice in choices}


def options_tried(engine: str, model: Path) -> set[str]:
    """The options that are tried with a model at some site."""
    sites: list[dict[str, Any]] = [{"processor": each} for each in PROCESSORS]
    sites.append({"device": "cuda:0"})
    found = [tried(model, engine_name=engine, **site) for site in sites]
    choices = [choice for each in found for choice in each.values()]
    return {
        key for choice in choices for key in (*choice.options, *choice.search, choice.cache) if key
    }


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("megengine", (MOBILENET, INT8)),
        ("onnxruntime", (ONNX,)),
        ("openvino", (ONNX,)),
        ("mnn", (ONNX,)),
    ],
)
def test_each_option_is_tried_or_has_a_reason(
    name: str, models: tuple[Path, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_providers(monkeypatch, tmp_path, "cuda", "tensorrt", "openvino")
    keys = set().union(*(options_tried(name, model) for model in models))
    engine = engine_named(name)
    not_tried = json.loads((REASONS / name / "not_tried.json").read_text())
    varying = {row.key for row in engine.rows.values() if can_vary(row.option)}
    files = f"of lar/engines/{name}/"
    lacking = varying - keys - not_tried.keys()
    assert not lacking, (
        f"add to dimensions.json {files}, or with a reason to not_tried.json: {lacking}"
    )
    twice = varying & keys & not_tried.keys()
    assert not twice, f"is tried, take it out of not_tried.json {files}: {twice}"
    assert all(not_tried.values())


@pytest.mark.parametrize(
    ("engine", "model"), [("", MOBILENET), ("", INT8), ("", ONNX), ("openvino", ONNX)]
)
@pytest.mark.parametrize("processor", PROCESSORS)
def test_each_choice_has_values_that_its_options_take(
    engine: str, model: Path, processor: str
) -> None:
    for cores in (1, 2, 6):
        for choice in tried(model, processor, cores, engine).values():
            options = {**choice.options, **choice.search}
            parsed = parse_values(options)
            for key, value in options.items():
                assert parsed[key] == (list(value) if isinstance(value, tuple) else value)


class TestMegEngine:
    def test_ways_round_defects_come_with_the_layout_that_meets_them(self) -> None:
        on_amd, on_intel = tried(MOBILENET, ZEN_4), tried(MOBILENET, SKYLAKE)
        fixed = {"enable_nchw88": True, "engine_fix": "x2apic"}
        assert (on_amd["nchw88"].options, on_amd["nchw88"].allow) == (fixed, "engine-fixes")
        assert on_amd["layout-transform"].allow == "engine-fixes"
        assert on_intel["nchw88"].options == {"enable_nchw88": True}
        assert on_intel["nchw88"].allow == on_intel["layout-transform"].allow == ""

    def test_variables_are_for_the_processors_that_need_them(self) -> None:
        variable = tried(MOBILENET, ZEN_4)["MKL_DEBUG_CPU_TYPE=5"]
        assert variable.options == {"engine_env": ("MKL_DEBUG_CPU_TYPE=5",)}
        assert variable.allow == "engine-env"
        for processor in (SKYLAKE, OLD_AMD, ARM):
            assert variable.name not in tried(MOBILENET, processor)
        given = {"MKL_DEBUG_CPU_TYPE": "4"}
        assert variable.name not in tried(MOBILENET, ZEN_4, environment=given)

    def test_layouts_that_change_nothing_are_left_out(self) -> None:
        assert not {"nchw88", "layout-transform"} & tried(MOBILENET, ARM).keys()
        assert not {"nchw88", "layout-transform"} & tried(MOBILENET, OLD_AMD).keys()
        with_dot_products = {
            (model.stem, processor)
            for model in (MOBILENET, INT8)
            for processor in PROCESSORS
            if "nchw44-dot" in tried(model, processor)
        }
        assert with_dot_products == {("int8", ZEN_4), ("int8", ARM)}
        assert "nchw4" in tried(INT8)
        assert "nchw4" not in tried(MOBILENET)

    def test_float16_is_quick_where_the_processor_has_it(self) -> None:
        on_x86, on_arm = tried(MOBILENET)["ioc16"], tried(MOBILENET, ARM)["ioc16"]
        assert (on_x86.for_full, on_arm.for_full) == (True, False)
        assert on_x86.allow == on_arm.allow == "reduced-precision"

    def test_winograd_is_quick_where_kernels_are_made_for_it(self) -> None:
        on_x86, on_arm = tried(MOBILENET)["winograd"], tried(MOBILENET, ARM)["winograd"]
        assert (on_x86.for_full, on_arm.for_full) == (True, False)
        assert on_x86.options == {"winograd_transform": True}
        assert on_x86.search == {"fast_run": True}
        assert "weights" not in on_x86.cache_depends

    def test_a_cuda_device_has_no_choices_of_the_processor(self) -> None:
        on_cuda = tried(MOBILENET, device="cuda:0")
        assert not {"2 threads", "no-spinning", "nchw44", "nchw88"} & on_cuda.keys()
        assert {"nchw4", "chwn4", "tensorrt", "fast-run"} <= on_cuda.keys()

    def test_of_a_file_that_cannot_be_read_all_may_be_true(self, tmp_path: Path) -> None:
        assert "MKL_DEBUG_CPU_TYPE=5" in tried(tmp_path / "none.mge")
        assert "nchw4" in tried(tmp_path / "none.mge")
        assert "MKL_DEBUG_CPU_TYPE=5" not in tried(MODELS / "one_operator.mge")


class TestThreads:
    def test_one_core_has_one_thread(self) -> None:
        assert not [name for name in tried(MOBILENET, cores=1) if "threads" in name]
        assert "1 thread with caller" in tried(MOBILENET, cores=1)

    @each_row("engines/threads/spaces")
    def test_of_many_cores_the_quick_space_has_all_and_half(
        self, cores: int, quick: list[int], full: list[int]
    ) -> None:
        choices = [
            choice
            for choice in tried(ONNX, cores=cores).values()
            if choice.options.keys() == {"multithread"}
        ]
        # The most first: a search begins with it.
        counts = [(each.options["multithread"], each.for_full) for each in choices]
        assert [count for count, _ in counts] == full[::-1]
        assert [count for count, is_for_full in counts if not is_for_full] == quick[::-1]

    def test_threads_are_bound_to_the_cores_that_may_be_used(self) -> None:
        site = Site(cores=(3, 5), processor=SKYLAKE)
        choices = {
            choice.name: choice
            for dimension in engine_named("onnxruntime").dimensions(site, ONNX)
            for choice in dimension.choices
        }
        bound = choices["2 bound threads"]
        assert bound.options == {"multithread": 2, "multi_thread_core_ids": "3,5"}
        assert not bound.for_full

    def test_copies_are_for_the_throughput(self) -> None:
        for model in (MOBILENET, ONNX):
            assert tried(model)["2 copies"].objectives == ("throughput",)


def install_providers(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Pretend that the installed package of ONNX Runtime brings these providers."""
    (folder / "capi").mkdir()
    for name in names:
        (folder / "capi" / f"libonnxruntime_providers_{name}.so").touch()
    monkeypatch.setattr(providers, "package_folder", lambda: str(folder))
    monkeypatch.setattr(of_onnxruntime, "NVIDIA_DRIVER", str(folder))


class TestOnnxRuntime:
    def test_providers_are_those_of_the_installed_package(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        install_providers(monkeypatch, tmp_path, "cuda", "tensorrt", "openvino")
        found = tried(ONNX)
        names = ("cuda", "cuda with TF32", "tensorrt", "openvino")
        assert [(found[name].options, found[name].allow) for name in names] == [
            ({"cuda": 0, "no_tf32": True}, ""),
            ({"cuda": 0}, "reduced-precision"),
            ({"tensorrt": True}, "reduced-precision"),
            ({"provider": "openvino"}, ""),
        ]
        monkeypatch.setattr(of_onnxruntime, "NVIDIA_DRIVER", str(tmp_path / "none"))
        assert not {"cuda", "tensorrt"} & tried(ONNX).keys()

    def test_a_package_for_the_cpu_has_none(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        install_providers(monkeypatch, tmp_path, "shared")
        assert not [choice for choice in tried(ONNX).values() if "provider" in choice.options]

    def test_the_optimised_model_is_for_memory(self) -> None:
        cached = tried(ONNX)["optimised-model"]
        assert cached.objectives == ("memory",)
        assert cached.cache_depends == ("graph", "threads")


class TestOpenVino:
    def test_a_coarser_precision_is_tried_where_the_processor_has_it_and_the_user_allows(
        self,
    ) -> None:
        with_bfloat16 = tried(ONNX, f"{ZEN_4} avx512_bf16", engine_name="openvino")
        assert with_bfloat16["bfloat16"].allow == "reduced-precision"
        assert "bfloat16" not in tried(ONNX, SKYLAKE, engine_name="openvino")
        assert tried(ONNX, ARM, engine_name="openvino")["float16"].options == {
            "precision": "float16"
        }


@pytest.mark.parametrize("rows", [7, 8])
def test_mkl_computes_products_of_many_rows(rows: int) -> None:
    facts = [TensorFact(shape, "float32") for shape in ((rows, 4), (4, 5), (rows, 5))]
    product = ProfiledOperator(
        id="0", name="p", type="MatrixMul", inputs=tuple(facts[:2]), outputs=(facts[2],)
    )
    assert is_of_mkl(product) == (rows == 8)
