"""Packages that add an engine, put into a folder as an installer leaves them."""

from __future__ import annotations

from pathlib import Path

from lar.engines import added_engines


def install(folder: Path, name: str, source: str, version: str = "1.0") -> None:
    """Put a package of one module into a folder: its engine is `ENGINE`, by an entry point.

    It is installed for any Python that finds the folder on its module path.
    """
    package = f"lar_{name}"
    (folder / f"{package}.py").write_text(source)
    information = folder / f"{package}-{version}.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    )
    (information / "entry_points.txt").write_text(f"[lar.engines]\n{name} = {package}:ENGINE\n")
    added_engines.cache_clear()  # an earlier test may have looked
