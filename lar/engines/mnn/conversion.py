"""`.onnx` models as `.mnn` files, made by MNN's own converter."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from lar.engines.meanings import Meanings
from lar.errors import EngineMissing, LarError
from lar.files.python_process import python_command

# Parts of what MNN and its converter print.
MEANINGS = Meanings(__file__)

# The converter's module without the package around it, whose command reports each use to its
# makers.
CODE = "import _tools; _tools.mnnconvert(sys.argv)"

INSTALL = "pip install 'lar[mnn]'"

# Beginnings of lines that say nothing of a failure.
PREAMBLE = re.compile(r"\[[\d:]+\] :\d+: |\[ERROR\] ")


def convert(model: Path, place: Path) -> str:
    """Write an `.onnx` model as an `.mnn` file; return what the converter has printed.

    It runs in a process of its own, which it may end: it takes some 20 ms and, besides, the
    memory of its libraries.

    Raises:
        EngineMissing: the converter is not installed.
        LarError: it cannot convert the model.
    """
    if find_spec("_tools") is None:
        raise EngineMissing("MNN's converter is not installed", INSTALL)
    done = subprocess.run(
        python_command(
            *(CODE, "-f", "ONNX", "--bizCode", "lar"),
            *("--modelFile", str(model.absolute()), "--MNNModel", str(place)),
            # Recurrent operators would become loops, which a session does not run.
            *("--useOriginRNNImpl", "--useGeluApproximation", "0"),
        ),
        # It keeps large weights for a while in a file there, whose name is always the same: two
        # converters that ran in one folder would mix them up, and say nothing.
        cwd=place.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode or not place.exists():
        raise error_of(model, done.stdout, done.returncode)
    return done.stdout


def error_of(model: Path, printed: str, status: int) -> LarError:
    """Return the error of a model that the converter has not converted."""
    lines = [PREAMBLE.sub("", line) for line in printed.splitlines() if "onvert" not in line]
    said = next((line for line in reversed(lines) if line not in ("", "True")), f"status {status}")
    names = printed.replace("ONNX::", "").replace(" | ", ", ")
    error = MEANINGS.explain(f"converter: {names}", str(model), said[:160])
    assert error is not None
    error.detail = printed
    return error
