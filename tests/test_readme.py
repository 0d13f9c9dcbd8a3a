"""The commands of the README work as they stand there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def commands_of(language: str) -> list[str]:
    """Return the lines of the README's code blocks of one language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository's models and inputs."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("models", "inputs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_here(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_first_screen_is_the_two_commands() -> None:
    assert commands_of("sh first") == [
        "pip install uv && uv run lar models/mobilenet_v2.mge --input inputs/cat.npy --iter 10",
        "uv run pytest",
    ]


@pytest.fixture(scope="module")
def done(workplace: Path) -> dict[str, subprocess.CompletedProcess[str]]:
    """What each command gave, in their order, since some read what others have left."""
    lar = [sys.executable, "-m", "lar"]
    return {
        command: run_here([*lar, *shlex.split(command)[3:]], workplace)
        for command in commands_of("sh")
    }


@pytest.mark.parametrize("command", commands_of("sh"))
def test_each_command_works(
    command: str, done: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    assert shlex.split(command)[:3] == ["uv", "run", "lar"]
    assert done[command].returncode == 0, done[command].stderr
    assert done[command].stdout
    assert "no operator's name matches" not in done[command].stderr


def test_the_python_example_works(workplace: Path) -> None:
    done = run_here([sys.executable, "-c", "\n".join(commands_of("python"))], workplace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok ")


def test_the_table_of_options_is_what_lar_prints() -> None:
    done = run_here([sys.executable, "-m", "lar", "engines", "--options"], ROOT)
    assert done.stdout in README
