"""The files that a command line names, looked at before anything slow is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def check_files(values: Mapping[str, Any]) -> None:
    """Refuse what is seen at a glance in the arguments of a command: a model that is not there, and
    reports that cannot be written. The code that writes them says why it cannot.

    Raises:
        UsageError: naming the model, or the flag.
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
