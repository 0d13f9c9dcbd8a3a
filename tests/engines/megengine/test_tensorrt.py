"""What MegEngine has for CUDA devices alone: refused elsewhere, and its cache file read safely."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.megengine.cache import blob_bytes, number_bytes
from lar.engines.megengine.tensorrt import read_cache
from lar.errors import UsageError
from tests.engines.megengine.programs import DIGITS, run_python
from tests.options.ruling import check

if TYPE_CHECKING:
    from tests.conftest import RunLar


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--enable-jit"], "--enable-jit needs --cuda: MegEngine has ", "--cuda"),
        (["--tensorrt"], "--tensorrt needs --cuda: MegEngine has ", "--cuda"),
        (["--tensorrt", "--cpu"], "--tensorrt needs ", "--cuda"),
        (["--tensorrt-cache", "x"], "--tensorrt-cache needs --tensorrt: ", "--tensorrt"),
        (["--cuda", "--tensorrt-cache", "x"], "--tensorrt-cache needs ", "--tensorrt"),
        (["--enable-jit", "--driver", "graph"], "--driver graph cannot do --enable-jit", "lite"),
    ],
)
def test_what_needs_cuda_is_refused_before_anything_runs(
    run_lar: RunLar, arguments: list[str], error: str, hint: str
) -> None:
    done = run_lar("run", DIGITS, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"lar: error: {error}")
    assert hint in second


def test_with_cuda_it_is_not_refused() -> None:
    values = {"cuda": 0, "enable_jit": True, "tensorrt": True, "tensorrt_cache": "x"}
    check("megengine", values)
    check("megengine", {"fast_run": True})


CODE = """
import os, sys
from pathlib import Path
from lar.engines import engine_named
from lar.engines.megengine.lite import LiteDriver
from lar.errors import UsageError
from tests.options.ruling import check
from lar.records.run import RunContext, RunSpec

def driver_with(settings, device="cpu"):
    spec = RunSpec(
        model=sys.argv[1], engine="megengine", driver="lite", settings=settings, device=device
    )
    context = RunContext(work_folder=os.getcwd())
    return LiteDriver(spec, engine_named("megengine").rows, context)

def tell(action):
    try:
        action()
    except (UsageError, RuntimeError) as error:
        print(str(error).splitlines()[0])

"""


def run_code(code: str, folder: Path) -> list[str]:
    """Run code in a process of its own, as MegEngine needs it; return the lines it prints."""
    program = f"{CODE}{code}\nsys.stdout.flush()\nos._exit(0)"
    done = run_python("-c", program, DIGITS, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_engine_is_told_to_compile(tmp_path: Path) -> None:
    """It says itself that it cannot do so on a CPU, which lar refuses before."""
    (said,) = run_code("tell(driver_with({'enable_jit': True}).load)", tmp_path)
    assert said.startswith("No compiler support for cpu")


def test_the_engine_reads_the_cache_and_writes_it_whole(tmp_path: Path) -> None:
    """Of the functions around TensorRT these alone run without a CUDA device."""
    cache = number_bytes(1) + blob_bytes(b"key") + blob_bytes(b"engine")
    (tmp_path / "known.cache").write_bytes(cache)
    (tmp_path / "known.cache").chmod(0o640)
    code = """
driver = driver_with({"tensorrt": True, "tensorrt_cache": PLACE})
driver.fire_hooks("before_load")
print(len(driver.network_setup), Path("tensorrt.cache").exists())
driver.fire_hooks("after_run")
"""
    assert run_code(code.replace("PLACE", "'known.cache'"), tmp_path) == ["1 True"]
    assert (tmp_path / "known.cache").read_bytes() == cache
    assert (tmp_path / "known.cache").stat().st_mode & 0o777 == 0o640
    (tmp_path / "tensorrt.cache").unlink()
    assert run_code(code.replace("PLACE", "'new.cache'"), tmp_path) == ["1 False"]
    assert (tmp_path / "new.cache").read_bytes() == number_bytes(0)
    names = {"known.cache", "new.cache", "tensorrt.cache"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_the_network_must_be_on_the_device_of_the_run(tmp_path: Path) -> None:
    (said,) = run_code("tell(driver_with({}, device='cuda:0').load)", tmp_path)
    assert said == (f"{DIGITS}: the model is on cpu, not on cuda:0: its file asks for that")


@settings(max_examples=30, deadline=None)
@given(entries=st.dictionaries(st.binary(max_size=9), st.binary(max_size=9), max_size=4))
def test_a_cache_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[bytes, bytes]
) -> None:
    path = tmp_path_factory.getbasetemp() / "engines.cache"
    pairs = [blob_bytes(key) + blob_bytes(engine) for key, engine in entries.items()]
    data = number_bytes(len(pairs)) + b"".join(pairs)
    path.write_bytes(data)
    assert read_cache(path) == data
    for broken in (*(data[:size] for size in range(len(data))), data + b"\0"):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match=r"^--tensorrt-cache: .* is not a cache of TensorRT's"):
            read_cache(path)


def test_a_cache_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a folder, not a file$"):
        read_cache(tmp_path)
