"""The profile that MegEngine wrote of `models/int8.mge`, and changed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lar.profiles.megengine_file import RawProfile, decode_raw

DATA = Path(__file__).resolve().parents[2] / "data" / "megengine_profile.json"
CONVOLUTION = "19"


def raw_after(change: Callable[[Any], object] = lambda document: None) -> RawProfile:
    """The profile after a change of its JSON."""
    document = json.loads(DATA.read_bytes())
    change(document)
    return decode_raw(json.dumps(document).encode())
