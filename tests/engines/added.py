"""Packages that add an engine, put into a folder as an installer leaves them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lar.engines import added_engines

TOY = Path(__file__).resolve().parent / "toy_engine"


def install(folder: Path, name: str, source: str) -> None:
    """Put a package of one module into a folder; its engine is `ENGINE`."""
    (folder / f"lar_{name}.py").write_text(source)
    describe(folder, f"lar_{name}", f"{name} = lar_{name}:ENGINE")


def install_toy(folder: Path) -> None:
    """Put the package of the toy engine into a folder, with the entry point that it declares."""
    shutil.copytree(TOY / "lar_toy", folder / "lar_toy", dirs_exist_ok=True)
    declared = re.search(r'^(toy) = "(.*)"$', (TOY / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared
    describe(folder, "lar_toy", f"{declared[1]} = {declared[2]}")


def describe(folder: Path, package: str, entry_point: str) -> None:
    """Write what an installer writes about a package: any Python that has the folder on its
    module path finds the entry point."""
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[lar.engines]\n{entry_point}\n")
    added_engines.cache_clear()  # an earlier test may have looked
