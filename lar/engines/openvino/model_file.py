"""The files of a model that OpenVINO reads: an `.onnx`, or an `.xml` with its weights beside it."""

from __future__ import annotations

from pathlib import Path

from lar.engines.formats import is_onnx
from lar.errors import UsageError


def files_beside(path: Path) -> tuple[str, ...]:
    """Return the files that hold a model's weights, as it names them.

    Raises:
        UsageError: the file with the weights of an `.xml` is missing.
        ValueError, OSError: the model cannot be read.
    """
    if not is_onnx(path):
        return require_weights(path)
    from lar.engines.onnx_file.external_data import files_beside

    return files_beside(path)


def require_weights(path: Path) -> tuple[str, ...]:
    """Return the name of the file with the weights of a model in OpenVINO's own format, if it has
    any.

    Raises:
        UsageError: it has weights, and the file is missing.
    """
    weights = path.with_suffix(".bin")
    if weights.is_file():
        return (weights.name,)
    if b'type="Const"' in path.read_bytes():
        raise UsageError(
            f"its weights {weights.name} are missing", "keep them beside the model", subject=path
        )
    return ()
