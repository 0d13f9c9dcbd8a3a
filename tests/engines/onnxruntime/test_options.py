"""What each option does in a real session of ONNX Runtime, and that results stay the same."""

from __future__ import annotations

import _ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lar.engines.onnxruntime import providers
from lar.engines.onnxruntime.providers import CudaDevice
from lar.errors import UsageError
from tests.engines.onnxruntime.drivers import (
    DIGITS,
    LEVELS,
    MOBILENET,
    bits_of,
    load,
    make_driver,
    run,
    save_model,
)

if TYPE_CHECKING:
    from tests.conftest import RunLar


# ---- providers ----


@pytest.mark.parametrize("name", ["cpu", "CPU", "CPUExecutionProvider"])
def test_a_provider_has_a_short_name_too(name: str) -> None:
    driver = load(provider=name)
    assert driver.session.get_providers() == ["CPUExecutionProvider"]
    facts = driver.facts()
    assert (facts.device, facts.libraries["provider"]) == ("cpu", "CPUExecutionProvider")


def test_an_unknown_provider_is_refused(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--provider", "gpuu")
    assert ended.returncode == 2
    assert "no provider 'gpuu'" in ended.stderr
    assert "cpu" in ended.stderr.split("installed:")[1]


def test_a_provider_of_another_package_is_refused_naming_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = make_driver(DIGITS, provider="openvino")
    monkeypatch.setattr(
        driver.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"]
    )
    assert "provider" not in driver.facts().libraries
    with pytest.raises(UsageError, match="no provider 'openvino'") as caught:
        driver.load()
    package = "pip install onnxruntime-openvino in its place"
    assert caught.value.hint == f"installed: cpu; {package}; `lar engines` lists the devices"


def test_a_provider_that_was_not_used_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "cuda_devices", lambda: (CudaDevice("a GPU", 9),))
    driver = make_driver(DIGITS, provider="cuda")
    facts = driver.facts()
    assert facts.device == "cuda:0"
    monkeypatch.setattr(
        driver.onnxruntime,
        "get_available_providers",
        lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    session = driver.onnxruntime.InferenceSession
    asked: list[Any] = []

    def fall_back(*args: Any, providers: Any, **keywords: Any) -> Any:
        """Do what ONNX Runtime does without --provider: run on the CPU."""
        asked.extend(providers)
        key = "session.disable_cpu_ep_fallback"
        assert driver.options.get_session_config_entry(key) == "1"
        return session(str(DIGITS))

    monkeypatch.setattr(driver.onnxruntime, "InferenceSession", fall_back)
    with pytest.raises(UsageError, match="--provider cuda: ONNX Runtime could not use the device"):
        driver.load()
    assert asked == ["CUDAExecutionProvider"]


def test_a_provider_does_not_fall_back_to_the_cpu(run_lar: RunLar) -> None:
    import onnxruntime

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs a provider that runs no operator of the model")
    ended = run_lar(str(DIGITS), "--provider", "azure")
    assert ended.returncode == 2
    assert "digits_cnn.onnx: the provider azure cannot run " in ended.stderr
    assert "hint: --provider azure,cpu has the CPU run what it cannot" in ended.stderr
    assert run_lar(str(DIGITS), "--provider", "azure,cpu", "--iter", "1").returncode == 0


# ---- memory ----


def test_without_memory_optimisation_operators_share_none(run_lar: RunLar, tmp_path: Path) -> None:
    """A chain of 20 operators on tensors of 4 MiB.

    What an operator has released goes back to the C library, which may give it to the next one, or
    to the system where each tensor has a mapping of its own. In one heap, none fits where another
    was.
    """
    in_one_heap = ["--engine-env", f"MALLOC_MMAP_THRESHOLD_={2**30}"]
    nodes = "\n".join(f"t{at + 1} = {('Sin', 'Cos')[at % 2]}(t{at})" for at in range(20))
    text = f"(float[1024,1024] t0) => (float[1024,1024] t20) {{ {nodes} }}"
    path = save_model(tmp_path / "chain.onnx", text)

    def peak(*flags: str) -> int:
        ended = run_lar(str(path), "--iter", "1", "--json", "-", *in_one_heap, *flags)
        assert ended.returncode == 0, ended.stderr
        return int(json.loads(ended.stdout)["peak_memory_bytes"])

    # Where the heap begins is drawn anew in each process; from some places one hole fits all.
    assert any(peak("--disable-mem-opt") - peak() > 4 * 4 * 2**20 for _ in range(12))


# ---- libraries of operators ----

# It is called with the session's options and the engine's interface, and has no operators.
LIBRARY = """
#include <stdio.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *file = fopen("called", "a");
    fprintf(file, "%d%d", options != 0, api != 0);
    fclose(file);
    return 0;
}
"""


def test_a_library_of_operators_is_loaded(run_lar: RunLar, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc")
    (tmp_path / "operators.c").write_text(LIBRARY)
    command = [compiler, "-shared", "-fPIC", "-o", "operators.so", "operators.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    ended = run_lar(str(DIGITS), "--c-opr-lib", "operators.so", "--iter", "1", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "called").read_text() == "11"


@pytest.mark.parametrize(
    ("name", "complaint", "hint"),
    [
        (str(DIGITS), "is not a library of operators", "invalid ELF header"),
        (_ctypes.__file__, "is not a library of operators", "must export RegisterCustomOps"),
    ],
)
def test_what_is_no_library_of_operators_is_refused(name: str, complaint: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(c_opr_lib=name)
    assert caught.value.message.startswith(f"--c-opr-lib: {name}: {complaint}")
    assert hint in caught.value.hint


# ---- results ----


def test_reproducible_sets_the_session_and_gives_the_same_bits() -> None:
    drivers = [load(MOBILENET, reproducible=True, multithread=2) for _ in range(2)]
    assert all(driver.options.use_deterministic_compute for driver in drivers)
    assert not load().options.use_deterministic_compute
    first, *others = [bits_of(run(driver)) for driver in drivers for _ in range(3)]
    assert others == [first] * 5


def test_weight_preprocess_prepacks_weights_as_the_default_does() -> None:
    driver = load(MOBILENET, weight_preprocess=True)
    assert driver.options.get_session_config_entry("session.disable_prepacking") == "0"
    assert bits_of(run(driver)) == bits_of(run(load(MOBILENET)))


@pytest.mark.parametrize(
    "settings",
    [
        {"cpu_default": True},
        {"multithread": 2},
        {"multithread_default": 2},
        {"provider": "cpu"},
        *({"graph_optimization_level": level} for level in LEVELS),
        {"disable_optimizer": "NchwcTransformer"},
        {"enable_nchw88": True},
        {"reproducible": True},
        {"weight_preprocess": True},
        {"disable_mem_opt": True},
    ],
    ids=lambda settings: " ".join(f"{key}={value}" for key, value in settings.items()),
)
@pytest.mark.parametrize("model", [MOBILENET, DIGITS], ids=lambda path: path.stem)
def test_results_stay_those_of_the_default(model: Path, settings: dict[str, Any]) -> None:
    expected, found = run(load(model)), run(load(model, **settings))
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-4)


def test_threads_sleep_and_memory_is_given_back_where_asked_for() -> None:
    driver = load(no_spinning=True, no_arena=True)
    spinning = driver.options.get_session_config_entry("session.intra_op.allow_spinning")
    assert (spinning, driver.options.enable_cpu_mem_arena) == ("0", False)
    assert "logits" in run(driver)
    assert make_driver(DIGITS).options.enable_cpu_mem_arena
