"""A model that the tests of several engines run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def resnet18(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ResNet-18, with drawn weights."""
    from model_zoo import NETWORKS
    from onnx_twin import onnx_of

    path = tmp_path_factory.mktemp("resnet18") / "resnet18.onnx"
    path.write_bytes(onnx_of(NETWORKS["resnet18"]()).SerializeToString())
    return path
