"""Where tests of the command line run: for each format of models, on which machines, and for each
command line of a table."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from lar.errors import printable

needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megengine") is None, reason="MegEngine is not installed"
)
each_format = pytest.mark.parametrize(
    "suffix", [pytest.param("mge", marks=needs_megengine), "onnx"]
)
not_root = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read and write everything"
)

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
needs_zero = pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no /dev/zero")


def each_of(name: str, usual: int = 2) -> pytest.MarkDecorator:
    """The command lines of a file, each with the parts of what it prints and its exit code, which
    is the usual one unless the file says another."""
    text = (Path(__file__).parent / name).read_text()
    pattern = r"^lar(?: (.*?))??(?:  # exit code (\d))?\n((?:  .*\n)+)"
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(found) == len(re.findall("^lar", text, re.MULTILINE))
    rows = [(command, parts.splitlines(), int(code or usual)) for command, code, parts in found]
    names = [printable(command)[:90] for command, _, _ in rows]
    return pytest.mark.parametrize(("command", "parts", "code"), rows, ids=names)
