"""CUDA and TensorRT, as far as a machine without them can tell: what the engine is asked for."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from lar.engines import engine_named
from lar.engines.onnxruntime import profile_file, providers, session
from lar.engines.onnxruntime.profile_file import DeviceRecorder, DeviceWork, readable_name
from lar.engines.onnxruntime.providers import CudaDevice
from lar.engines.onnxruntime.session import MEANINGS
from lar.errors import LarError, UsageError
from tests.conftest import RunLar
from tests.engines.onnxruntime.drivers import DIGITS, MakeDriver
from tests.options.ruling import check
from tests.tables import each_row

CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
FALLBACK = "session.disable_cpu_ep_fallback"


class OnCpu(NamedTuple):
    """What a session says of the operators that the CPU runs."""

    types: tuple[str, ...]
    ep_name: str = "CPUExecutionProvider"

    def get_nodes(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(op_type=each) for each in self.types]


class EngineWithGpu:
    """The engine as it would be with these providers; its sessions keep what they were given."""

    def __init__(self, onnxruntime: Any, *providers: str) -> None:
        self.engine, self.providers = onnxruntime, [*providers, "CPUExecutionProvider"]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def get_available_providers(self) -> list[str]:
        return self.providers

    def InferenceSession(self, model: Any, options: Any, **keywords: Any) -> Any:
        session = self.engine.InferenceSession(model)
        session.given = {
            **dict(zip(keywords["providers"], keywords["provider_options"], strict=True)),
            FALLBACK: entry_of(options, FALLBACK),
        }
        assert keywords["enable_fallback"] == 0  # to providers that nobody asked for
        if entry_of(options, "session.record_ep_graph_assignment_info") == "1":
            parts = [OnCpu(("Gemm",), CUDA), OnCpu(("Conv", "Relu")), OnCpu(("Conv",))]
            session.get_provider_graph_assignment_info = lambda: parts
        session.get_providers = lambda: [*keywords["providers"], "CPUExecutionProvider"]
        return session


def entry_of(options: Any, key: str) -> str:
    """An entry of the session's configuration; the engine raises an error where it is not set."""
    try:
        return str(options.get_session_config_entry(key))
    except RuntimeError:
        return "0"


GPUS = (*[CudaDevice("NVIDIA A", 8)] * 3, CudaDevice("NVIDIA B", 7))

Asked = Callable[..., dict[str, Any]]


@pytest.fixture
def asked_of(make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Load a model on a machine with four GPUs; return what the engine was asked for."""
    monkeypatch.setattr(providers, "cuda_devices", lambda: GPUS)

    def asked(**settings: Any) -> dict[str, Any]:
        driver = make_driver(DIGITS, **settings)
        driver.onnxruntime = EngineWithGpu(driver.onnxruntime, TENSORRT, CUDA)
        driver.load()
        given: dict[str, Any] = driver.session.given
        facts = driver.facts()
        assert facts.libraries["provider"] == next(iter(given))
        assert facts.libraries["device"] == GPUS[driver.device[1]].name
        told = {"products": facts.products, "notes": driver.notes}
        return {**given, **told, "device": driver.device}

    return asked


def test_tensorrt_runs_what_it_can_and_cuda_the_rest_and_the_cpu_nothing(asked_of: Asked) -> None:
    for settings, number in (({}, 0), ({"cuda": 3}, 3)):
        asked = asked_of(tensorrt=True, **settings)
        device = {"device_id": str(number)}
        assert (asked[TENSORRT], asked[CUDA], asked[FALLBACK]) == (device, device, "1")
        assert asked["device"] == ("cuda", number)
        assert list(asked)[:2] == [TENSORRT, CUDA]


def test_tensorrt_keeps_its_engines_beside_the_name_given(asked_of: Asked, tmp_path: Path) -> None:
    assert asked_of(tensorrt=True, tensorrt_cache=str(tmp_path / "engines"))[TENSORRT] == {
        "device_id": "0",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(tmp_path),
        "trt_engine_cache_prefix": "engines",
    }


def test_a_device_that_is_not_there_is_refused(
    asked_of: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="--cuda: there is no CUDA device 4 here") as caught:
        asked_of(cuda=4)
    assert caught.value.hint == "4 devices can be used, counted from 0"
    monkeypatch.setattr(providers, "cuda_devices", tuple)
    for settings, flag in (
        ({"provider": "cuda"}, "--provider"),
        ({"tensorrt": True}, "--tensorrt"),
    ):
        with pytest.raises(UsageError, match=f"{flag}: there is no CUDA device 0") as caught:
            asked_of(**settings)
        assert caught.value.hint.startswith("nvidia-smi lists")


class CudaDriver:
    """NVIDIA's driver as it would be with two devices."""

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = 2

    def cuDeviceGet(self, device: Any, number: int) -> None:
        device._obj.value = number

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> None:
        name.value = f"NVIDIA {'AB'[device.value]}".encode()

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> None:
        value._obj.value = 9 - 2 * device.value


def test_the_driver_of_the_gpus_is_asked_for_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: CudaDriver())
    assert providers.cuda_devices() == (CudaDevice("NVIDIA A", 9), CudaDevice("NVIDIA B", 7))


def test_devices_are_those_that_the_driver_of_the_gpus_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import onnxruntime

    monkeypatch.setattr(providers, "cuda_devices", lambda: GPUS[-2:])
    on_gpus = ("cpu", "cuda:0 (NVIDIA A)", "cuda:1 (NVIDIA B)")
    for names, devices in (((CUDA,), on_gpus), ((), ("cpu",))):
        engine = EngineWithGpu(onnxruntime, *names)
        monkeypatch.setattr(session, "import_onnxruntime", lambda engine=engine: engine)
        assert session.find_devices() == devices


def explained(driver: Any) -> LarError:
    """What is said of a model that its provider cannot run."""
    says = "fallback to CPU EP has been explicitly disabled by the user"
    error = driver.explain(RuntimeError(says), loading=True)
    assert isinstance(error, LarError)
    return error


def test_a_provider_whose_libraries_are_missing_says_which(
    make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(providers, "package_folder", lambda: str(tmp_path))
    (tmp_path / "capi").mkdir()
    library = tmp_path / "capi" / "libonnxruntime_providers_cuda.so"
    driver = make_driver(DIGITS, cuda=0)
    driver.providers = [CUDA]
    error = explained(driver)
    assert "the provider cuda cannot run some operators of the model" in error.message
    library.write_text("no library")
    error = explained(driver)
    assert error.message.startswith("--cuda: the provider cuda of ONNX Runtime does not load: ")
    assert str(library) in error.message
    assert error.hint.startswith("pip install 'onnxruntime-gpu[cuda,cudnn]'")


def test_the_version_is_that_of_the_package_that_python_imports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime_gpu-9.8.7.dist-info").mkdir()
    monkeypatch.setattr(providers, "package_folder", lambda: str(tmp_path / "onnxruntime"))
    assert engine_named("onnxruntime").version == "9.8.7"


def test_products_are_rounded_to_tf32_unless_that_is_forbidden(asked_of: Asked) -> None:
    assert asked_of(cuda=1)["products"] == "tf32"
    for settings in ({"cuda": 1}, {"provider": "cuda"}):
        asked = asked_of(no_tf32=True, **settings)
        assert asked[CUDA]["use_tf32"] == "0"
        assert asked["products"] == ""
    assert asked_of(cuda=3)["products"] == ""  # it is too old to have them


def test_a_run_on_a_device_returns_when_it_is_dispatched() -> None:
    import onnxruntime

    options = session.run_options(onnxruntime, session.ASYNCHRONOUS)
    assert options.get_run_config_entry("disable_synchronize_execution_providers") == "1"


CACHED = {"fast_run": True, "fast_run_algo_policy": "model.cache"}


def test_what_goes_with_a_provider_or_a_layout_is_taken() -> None:
    check("onnxruntime", {"enable_nchw88": True, "graph_optimization_level": "all"})
    check("onnxruntime", {"no_tf32": True, "provider": "cuda,cpu"})
    check("onnxruntime", CACHED)
    check("onnxruntime", {"provider": "CPUExecutionProvider"} | CACHED)
    check("onnxruntime", {"provider": "cpu", "cpu": True})
    check("onnxruntime", {"provider": "cpu", "cpu_default": True})


def test_the_cpu_runs_the_rest_where_that_is_asked_for(asked_of: Asked) -> None:
    asked = asked_of(provider="cuda,cpu")
    assert (asked[FALLBACK], asked["device"]) == ("0", ("cuda", 0))
    assert asked["notes"] == ["the CPU runs what cuda cannot: Conv (2), Relu (1)"]
    assert asked_of(provider="cuda")["notes"] == []


def test_a_model_that_the_provider_cannot_run_names_what_it_lacks(
    make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(DIGITS, cuda=0)
    driver.onnxruntime = EngineWithGpu(driver.onnxruntime, CUDA)
    driver.providers = [CUDA]
    error = explained(driver)
    assert error.message.endswith(": the provider cuda cannot run Conv (2), Relu (1)")
    assert error.hint == "with --provider cuda,cpu, the CPU runs the operators that cuda cannot"
    # ONNX Runtime before 1.24 says nothing about operators.
    monkeypatch.setattr(driver, "open_session", lambda model: object())
    error = explained(driver)
    assert error.message.endswith(": the provider cuda cannot run some operators of the model")


def test_where_there_is_no_tensorrt_its_package_is_named(run_lar: RunLar) -> None:
    import onnxruntime

    if TENSORRT in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has TensorRT")
    ended = run_lar(str(DIGITS), "--tensorrt", "--tensorrt-cache", "engines", code=2)
    assert "--tensorrt: the installed ONNX Runtime has no provider 'tensorrt'" in ended.stderr
    assert "pip install onnxruntime-gpu" in ended.stderr


def test_a_cache_for_tensorrt_needs_a_place(asked_of: Asked, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="engines: cannot be written"):
        asked_of(tensorrt=True, tensorrt_cache=str(tmp_path / "nowhere" / "engines"))


@each_row("engines/onnxruntime/messages/unsaved")
def test_a_graph_that_cannot_be_saved_is_no_broken_model(message: str, hint: str) -> None:
    error = MEANINGS.explain(message, "model.onnx")
    assert isinstance(error, UsageError)
    assert "its optimised graph cannot be saved" in error.message
    assert error.hint.startswith(hint)


# What CUPTI records of a CUDA device, of a library that is played


# The kinds of records, as cupti_activity.h has them.
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10
NOW_NS = 5_000_000


class Cupti:
    """NVIDIA's library as it would be, with these records in its buffer."""

    def __init__(self, *records: bytes) -> None:
        self.records = [*records]
        self.enabled: set[int] = set()

    def cuptiActivityRegisterCallbacks(self, request: Any, complete: Any) -> None:
        self.request, self.complete = request, complete

    def cuptiGetTimestamp(self, now: Any) -> None:
        now._obj.value = NOW_NS

    def cuptiActivityEnable(self, kind: int) -> None:
        self.enabled.add(kind)

    def cuptiActivityDisable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def cuptiActivityFlushAll(self, flag: int) -> None:
        if not self.enabled or not self.records:
            return
        place, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
        self.request(ctypes.byref(place), ctypes.byref(size), ctypes.byref(most))
        content = b"".join(self.records)
        assert most.value == 0  # no limit but that of the size
        if place.value is None:  # what would be in it is lost
            assert size.value == 0
            return
        assert size.value >= len(content)
        ctypes.memmove(place.value, content, len(content))
        self.ends = [sum(map(len, self.records[:n])) for n in range(len(self.records) + 1)]
        self.records = []
        self.complete(None, 0, place.value, size.value, len(content))

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, record: Any) -> int:
        place = record._obj
        at = 0 if place.value is None else self.ends.index(place.value - buffer.value) + 1
        if at + 1 >= len(self.ends):
            return 12  # what it says at the end of a buffer
        place.value = buffer.value + self.ends[at]
        return 0


def record_of(size: int, kind: int, **fields: Any) -> bytes:
    """A record with fields where cupti_activity.h of CUDA 12 and 13 has them: each as its place,
    its type and its numbers."""
    record = bytearray(size)
    struct.pack_into("=I", record, 0, kind)
    for place, form, *numbers in fields.values():
        struct.pack_into(f"={form}", record, place, *numbers)
    return bytes(record)


def call(kind: int, start: int, number: int) -> bytes:
    return record_of(40, kind, start=(8, "Q", start), number=(32, "I", number))


def transfer(kind: int, copy: int, size: int, start: int, number: int) -> bytes:
    times = (size, start, start + 100)
    tail = (40, "2I", 7, number)
    return record_of(64, kind, copy=(4, "B", copy), times=(8, "3Q", *times), tail=tail)


def test_work_is_told_in_the_order_in_which_the_host_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW_NS + 10**9)
    name = ctypes.create_string_buffer(b"_Z3addPKfi")
    kernel = record_of(
        *(144, KERNEL),
        times=(16, "2Q", 3000, 3500),
        stream=(48, "I", 7),
        grid=(52, "3i", 4, 2, 1),
        block=(64, "3i", 64, 3, 5),
        number=(92, "I", 2),
        name=(104, "Q", ctypes.addressof(name)),
    )
    kinds = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 99: ""}
    copies = [transfer(MEMCPY, it, 64, 4000 + it, 3) for it in kinds]
    cupti = Cupti(
        kernel,
        call(DRIVER, 2100, 2),
        call(RUNTIME, 2000, 2),  # it called the driver
        call(RUNTIME, 1000, 1),
        call(DRIVER, 3000, 3),
        *copies,
        transfer(MEMSET, 0, 8, 1500, 1),
        transfer(MEMSET, 0, 8, 1, 99),  # of no call
    )
    found = DeviceRecorder(cupti).finish()
    assert cupti.enabled == set()
    add, grid = "add(float const*, int)", ((4, 2, 1), (64, 3, 5))
    assert found == [
        DeviceWork("[CUDA memset]", 1000, 1500, 1600, 7, size_bytes=8).moved(10**9),
        DeviceWork(add, 2000, 3000, 3500, 7, *grid).moved(10**9),
        *(
            DeviceWork(f"[CUDA memcpy {it}]", 3000, 4000 + at, 4100 + at, 7, size_bytes=64).moved(
                10**9
            )
            for at, it in kinds.items()
        ),
    ]
    assert [it.facts()["category"] for it in found[:3]] == ["memset", "kernel", "memcpy"]


def test_nothing_recorded_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DeviceRecorder(Cupti()).finish() == []
    monkeypatch.setattr(profile_file, "MOST_BUFFERS", 0)
    assert DeviceRecorder(Cupti(call(RUNTIME, 1000, 1))).finish() == []


def test_a_name_that_is_not_mangled_stays() -> None:
    assert readable_name(b"sm90_gemm") == "sm90_gemm"
    assert readable_name(None) == ""
