"""A model's own file with those that its weights are in: together they say which model it is."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from lar.engines.engine import Engine
from lar.measurement.machine import read_model_file
from lar.records.facts import ModelFile


def read_with_weights(model: str, engine: Engine) -> ModelFile:
    """Return the facts of a model file, and those of the files beside it that it names.

    Raises:
        UsageError: the model is missing or cannot be read.
    """
    return replace(read_model_file(Path(model)), weights=read_weights(model, engine))


def read_weights(model: str, engine: Engine) -> dict[str, str]:
    """Return the SHA-256 of the files beside a model that its weights are in, by their paths; what
    is missing or damaged is said when it is loaded."""
    try:
        names = engine.files_beside(Path(model))
    except (ValueError, OSError):
        return {}
    paths = [os.path.join(os.path.dirname(model), name) for name in names]
    return {path: read_model_file(Path(path)).sha256 for path in paths if os.path.isfile(path)}
