"""What MegEngine has for CUDA devices alone: refused elsewhere, and its cache file read safely."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines import engine_named
from lar.engines.megengine.algorithms import read_engines
from lar.engines.megengine.cache import blob_bytes, number_bytes
from lar.engines.megengine.lite import LiteDriver
from lar.errors import UsageError
from lar.records.run import RunContext, RunSpec
from tests.engines.megengine.programs import DIGITS
from tests.options.ruling import check
from tests.worker_forks import FORKS


def test_with_cuda_it_is_not_refused() -> None:
    check("megengine", {"cuda": 0, "enable_jit": True, "tensorrt": True, "tensorrt_cache": "x"})
    check("megengine", {"fast_run": True})


def driver_with(device: str = "cpu", **values: Any) -> LiteDriver:
    spec = RunSpec(model=DIGITS, engine="megengine", driver="lite", settings=values, device=device)
    return LiteDriver(spec, engine_named("megengine").rows, RunContext(work_folder=os.getcwd()))


def say_refusal(device: str, *switches: str) -> None:
    """Print why a model does not load."""
    try:
        driver_with(device, **dict.fromkeys(switches, True)).load()
    except (UsageError, RuntimeError) as error:
        print(str(error).splitlines()[0], flush=True)
    os._exit(0)


def use_cache(place: str) -> None:
    """Do what a run does with a cache before it loads the model, and after it."""
    driver = driver_with(tensorrt=True, tensorrt_cache=place)
    driver.fire_hooks("before_load")
    print(len(driver.network_setup), Path("tensorrt.cache").exists(), flush=True)
    driver.fire_hooks("after_run")
    os._exit(0)


def said_by(function: Callable[..., None], folder: Path, *words: str) -> str:
    """Return the last line that a function prints in a process of its own."""
    program = f"{__name__}:{function.__name__}"
    return FORKS.run_program("megengine", "lite", program, words, folder).splitlines()[-1]


def test_the_engine_is_told_to_compile(tmp_path: Path) -> None:
    """It says itself that it cannot do so on a CPU, which lar refuses before."""
    said = said_by(say_refusal, tmp_path, "cpu", "enable_jit")
    assert said.startswith("No compiler support for cpu")


def test_the_engine_reads_the_cache_and_writes_it_whole(tmp_path: Path) -> None:
    """Of the functions around TensorRT these alone run without a CUDA device."""
    cache = number_bytes(1) + blob_bytes(b"key") + blob_bytes(b"engine")
    (tmp_path / "known.cache").write_bytes(cache)
    (tmp_path / "known.cache").chmod(0o640)
    assert said_by(use_cache, tmp_path, "known.cache") == "1 True"
    assert (tmp_path / "known.cache").read_bytes() == cache
    assert (tmp_path / "known.cache").stat().st_mode & 0o777 == 0o640
    (tmp_path / "tensorrt.cache").unlink()
    assert said_by(use_cache, tmp_path, "new.cache") == "1 False"
    assert (tmp_path / "new.cache").read_bytes() == number_bytes(0)
    names = {"known.cache", "new.cache", "tensorrt.cache"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_the_network_must_be_on_the_device_of_the_run(tmp_path: Path) -> None:
    said = said_by(say_refusal, tmp_path, "cuda:0")
    assert said == f"{DIGITS}: the model is on cpu, not on cuda:0: its file asks for that"


@settings(max_examples=30, deadline=None)
@given(entries=st.dictionaries(st.binary(max_size=9), st.binary(max_size=9), max_size=4))
def test_a_cache_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "engines.cache"
    pairs = [blob_bytes(key) + blob_bytes(engine) for key, engine in entries.items()]
    data = number_bytes(len(pairs)) + b"".join(pairs)
    path.write_bytes(data)
    assert read_engines(path) == data
    for broken in (*(data[:size] for size in range(len(data))), data + b"\0"):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match=r"^--tensorrt-cache: .* is not a cache of TensorRT's"):
            read_engines(path)
