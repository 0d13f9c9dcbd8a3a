"""A limit of the address space (`ulimit -v`) that is too small is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


# NumPy does not load, ONNX Runtime does not, or its threads do not start.
@pytest.mark.parametrize("kib", [60_000, 90_000, 120_000])
def test_a_limit_of_the_address_space_is_named(root: Path, kib: int) -> None:
    command = f"ulimit -v {kib}; exec {sys.executable} -m lar models/one_operator.onnx --iter 2"
    done = subprocess.run(
        ["bash", "-c", command], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert "error: out of memory: the limit of the address space is reached" in done.stderr
    assert f"{kib >> 10} MiB (ulimit -v)" in done.stderr
