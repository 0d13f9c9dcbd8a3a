"""Dumps of the small networks with planted faults, made once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lar.dumps.dump import Dump
from lar.dumps.index import open_dump

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

# MegEngine must not be imported here, and two processes are done in half the time.
PROCESSES = 2


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Dump]:
    """Return the dump of a network's variant: `planted("residual", "clean", "nchw44")`,
    `planted("residual", "2", "onnx")`."""
    from tests.comparison.planted_networks import NETWORKS

    folder = tmp_path_factory.mktemp("planted")
    names = list(NETWORKS)
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "tests/comparison/planted_twins.py", str(folder)),
                *names[number::PROCESSES],
            ],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for process in running:
        output, _ = process.communicate(timeout=180)
        assert process.returncode == 0, output[-3000:]

    return lambda name, variant, kind: open_dump(folder / f"{name}.{variant}.{kind}")
