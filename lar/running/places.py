"""The places that a run writes to and reads from, as its options name them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lar.options.paths import Place, places_of_dump
from lar.options.table import BIN_IO_DUMP, BIN_OUT_DUMP, OPTIONS

STREAMS = ("stdout", "stderr")
TENSORS = (BIN_IO_DUMP, BIN_OUT_DUMP)  # their folder gets an index beside it


def places_of(model: str, values: Mapping[str, Any]) -> list[Place]:
    """Return the places that a run writes to, and those of files that its options name to read."""
    places = [Place(model, what="the model")]
    for option in OPTIONS:
        value = values.get(option.key)
        path = os.path.normpath(str(value))
        is_stdout = option.purpose == "report" and value == "-"
        if not option.is_given(values) or option.writes in STREAMS or is_stdout:
            continue
        if option in TENSORS:
            places += places_of_dump(path, option.flag)
        elif option.writes:
            places.append(Place(path, option.flag))
        elif option.reads:
            flag = option.flag if option.purpose == "cache" else ""
            places.append(Place(path, flag, f"the file of {option.flag}"))
    return places
