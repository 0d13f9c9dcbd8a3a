"""Models that are written for a file of tests, and dumps that another program wrote."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.comparison.exported_models import Models


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def written_by_cpp(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders that the C++ load_and_run wrote of two models in three layouts, without an index."""
    folder = tmp_path_factory.mktemp("load_and_run")
    with tarfile.open(root / "tests/data/load_and_run/dumps.tar.xz") as archive:
        archive.extractall(folder)
    return folder
