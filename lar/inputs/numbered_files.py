"""The files of a folder `test_data_set_N`, as ONNX has them: input_0.pb, ..., output_0.pb, ..."""

from __future__ import annotations

import os
import re

INPUT = r"input_(\d{1,9})\.pb"
OUTPUT = r"output_(\d{1,9})\.pb"


def numbered(folder: str, pattern: str) -> list[tuple[int, str]]:
    """Return the numbers and paths of a folder's entries of one kind, in order."""
    found = ((re.fullmatch(pattern, name), name) for name in os.listdir(folder))
    return sorted((int(match[1]), os.path.join(folder, name)) for match, name in found if match)
