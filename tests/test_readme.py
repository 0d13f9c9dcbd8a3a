"""The README: its two commands stand first, all that it shows works, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lar.cli import topics
from tests.command_lines import ROOT
from tests.docs.pages import blocks_of, carry_out, make_workplace

README = ROOT / "README.md"
LINKED = [README, ROOT / "CONTRIBUTING.md", ROOT / "lar" / "README.md"]


def test_the_first_screen_is_the_two_commands() -> None:
    first, *others = blocks_of(README)
    assert first.language == "sh first"
    assert first.lines == [
        "pip install uv && uv run lar models/mobilenet_v2.mge --input inputs/cat.npy --iter 10",
        "uv run pytest",
    ]
    assert not any(block.language == "sh first" for block in others)
    # The tour begins with the same run.
    assert others[0].lines == [first.lines[0].partition("&& ")[2]]


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


def test_the_tour_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_workplace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    carry_out(README)


def test_it_names_every_topic_of_the_manual() -> None:
    rows = [f"| [{name}](lar/docs/{name}.md) | {text} |" for name, text in topics().items()]
    assert "\n".join(rows) in README.read_text()


@pytest.mark.parametrize("page", LINKED, ids=[str(page.relative_to(ROOT)) for page in LINKED])
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
