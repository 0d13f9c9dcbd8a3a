"""Checks the files that a command line names, before anything slow is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any


def check_files(values: Mapping[str, Any]) -> None:
    """Refuse a command whose model is missing, or whose reports cannot be written.

    If a report cannot be written, the module that writes reports is imported to explain why.

    Raises:
        UsageError: the model is missing, or a report cannot be written.
    """
    model: str = values["model"]
    if model and not os.path.lexists(model):
        from pathlib import Path

        from lar.engines.formats import read_head

        read_head(Path(model))
    for key in ("json", "csv", "html"):
        name = values.get(key)
        if name is not None and name != "-" and not is_writable(name):
            from lar.files.report_file import check_writable

            check_writable(name, f"--{key}")


def is_writable(name: str) -> bool:
    """Return whether a file can probably be written."""
    place = name if os.path.exists(name) else os.path.dirname(name) or os.curdir
    return not os.path.isdir(name) and os.access(place, os.W_OK)
