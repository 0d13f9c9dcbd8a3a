"""A limit of the address space (`ulimit -v`) that is too small is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lar.errors import LarError, UsageError, memory_error
from tests.cli.failures import run_limited
from tests.command_lines import ROOT, run_lar, run_program

REFUSED = "lar: error: out of memory: the limit of the address space is reached"


def check_refusal(done: subprocess.CompletedProcess[str], kib: int) -> None:
    assert done.returncode == 4, done.stderr
    problem, hint = done.stderr.splitlines()[-2:]
    assert problem == REFUSED
    assert hint == f"hint: the limit is {kib >> 10} MiB: raise it with ulimit -v unlimited"
    assert "Traceback" not in done.stderr
    # ONNX and the C library print these lines if they have no memory for an exception.
    assert not re.findall(r"\| (?!Schema error: std::bad_alloc|libgcc_s)", done.stderr)


# NumPy does not load, ONNX Runtime does not, or its threads do not start.
@pytest.mark.parametrize(
    ("kib", "words"),
    [
        (50_000, ""),
        (90_000, ""),
        (120_000, ""),
        (50_000, f"--python {sys.executable}"),
    ],
)
def test_a_limit_of_the_address_space_is_named(kib: int, words: str) -> None:
    done = run_limited(kib, "models/one_operator.onnx", "--iter", "2", *words.split())
    check_refusal(done, kib)


@pytest.mark.parametrize("kib", [45_000, 60_000])
def test_it_is_named_for_numpy_in_this_process_too(tmp_path: Path, kib: int) -> None:
    model, dump = str(ROOT / "models" / "one_operator.onnx"), str(tmp_path / "dump")
    assert run_lar(model, "--iter", "1", "--bin-io-dump", dump).returncode == 0
    check_refusal(run_limited(kib, "compare", dump, dump), kib)


# Python itself has no memory for lar.
@pytest.mark.parametrize("kib", [13_000, 20_000])
@pytest.mark.skipif(sys.version_info[:2] != (3, 10), reason="others take more or less")
def test_a_limit_without_room_for_lar_is_one_line(kib: int) -> None:
    # Python may end by itself where it asks for its last page: a little more shows the same.
    tried = [run_limited(kib + more, "models/one_operator.onnx") for more in (0, 250, 500, 750)]
    assert not any("defect of lar" in done.stderr for done in tried)
    refused = [done for done in tried if done.returncode == 4]
    assert len(refused) >= 2
    problem, hint = refused[0].stderr.splitlines()[-2:]
    assert problem.startswith("lar: error: out of memory")
    assert "ulimit -v unlimited" in hint


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="it starts none here in any case")
def test_numpy_starts_no_threads_in_lars_own_process() -> None:
    code = (
        "import os, lar.cli.main as it\n"
        "def main():\n"
        "    import numpy\n"
        "    return print(len(os.listdir('/proc/self/task')), flush=True) or 0\n"
        "it.main = main; it.run_from_shell()"
    )
    environment = {name: text for name, text in os.environ.items() if "THREADS" not in name}
    words = [sys.executable, "-c", code]
    assert run_program(*words, env=environment, code=0).stdout == "1\n"
    asked = {**environment, "OPENBLAS_NUM_THREADS": "2"}
    assert run_program(*words, env=asked, code=0).stdout == "2\n"


def test_an_error_of_another_cause_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lar.errors.limit_of", lambda _: 1 << 50)
    assert memory_error(ValueError("a defect")) is None
    monkeypatch.setattr("lar.errors.limit_of", lambda _: 1)
    assert memory_error(UsageError("a flag")) is None
    assert memory_error(ValueError("explained away")) is not None
    monkeypatch.setattr("lar.errors.limit_of", lambda _: 0)
    error = LarError("cannot be loaded")
    error.__cause__ = MemoryError()
    assert memory_error(error) is None
    assert memory_error(MemoryError()) is not None
