"""Every byte of every style's text, CSV and JSON, of the committed profile and of a made-up one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.cli.main import main
from lar.profiles.trace_file import write_profile
from lar.reports.styles import STYLES
from tests.profiles.layers import profile_of_layers
from tests.reports.golden_files import check_golden

COMMITTED = Path(__file__).parents[1] / "data" / "megengine_profile.json"


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("golden")
    paths = []
    for layers in (2, 3):
        path = folder / f"{layers}.json"
        write_profile(profile_of_layers(layers, 3), path)
        paths.append(str(path))
    return paths


@pytest.fixture
def words(request: pytest.FixtureRequest, profiles: list[str]) -> list[str]:
    """The command line of a case."""
    name, _, kind = str(request.param).partition(" ")
    if name == "committed":
        return [str(COMMITTED), "--style", "megengine", *kind.split()]
    return [*profiles[: STYLES[name].profiles[0]], "--style", name]


CASES = (
    "committed",
    "committed --confluence --show-host",
    *(style for style in STYLES if style != "tensorboard"),  # whose bytes are the plugin's
)


@pytest.mark.parametrize(("words", "name"), [(it, it) for it in CASES], indirect=["words"])
def test_no_byte_changes(
    words: list[str],
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    csv, json = tmp_path / "csv", tmp_path / "json"
    assert main(["report", *words, "--csv", str(csv), "--json", str(json)]) == 0
    made = {"txt": capsys.readouterr().out, "csv": csv.read_text(), "json": json.read_text()}
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["report", *words]) == 0
    made["narrow.txt"] = capsys.readouterr().out
    for suffix, content in made.items():
        check_golden(f"{name.replace(' --', '_').replace(' ', '_')}.{suffix}", content)
