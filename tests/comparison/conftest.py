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
sys.path.insert(0, str(REPOSITORY / "tools"))


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str], Dump]:
    """Return the dump of a network's variant: `planted("residual", "clean", "nchw44")`,
    `planted("residual", "2", "onnx")`."""
    from planted_networks import NETWORKS

    folder = tmp_path_factory.mktemp("planted")
    # MegEngine must not be imported here.
    done = subprocess.run(
        [sys.executable, "tools/planted_twins.py", str(folder), *NETWORKS],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    return lambda name, variant, kind: open_dump(folder / f"{name}.{variant}.{kind}")
