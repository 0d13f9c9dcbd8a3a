"""Where tests of the command line run: for each format of models, and on which machines."""

from __future__ import annotations

import importlib.util
import os

import pytest

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
