"""Every command and every program in the manual works as it stands there, and prints that."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from lar.cli.help import PAGES as TOPICS
from tests.conftest import RunLar
from tests.docs.pages import REPOSITORY, carry_out, make_workplace

PAGES = sorted((REPOSITORY / "lar" / "docs").glob("*.md"))


@pytest.mark.skipif(
    importlib.util.find_spec("megengine") is None, reason="MegEngine is not installed"
)
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_works_as_it_stands(
    page: Path, run_lar: RunLar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_workplace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    carry_out(page, run_lar)


def test_the_text_is_no_wider_than_a_screen() -> None:
    """Tables and code may be wider."""
    wide = [
        f"{page.name}: {line}"
        for page in PAGES
        for line in re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S).splitlines()
        if len(line) > 100 and not line.startswith("|")
    ]
    assert not wide


def test_help_lists_every_page_once() -> None:
    assert sorted(TOPICS) == [page.stem for page in PAGES]


def test_links_between_pages_lead_to_pages() -> None:
    links = {link for page in PAGES for link in re.findall(r"\]\(([^)]+)\)", page.read_text())}
    assert links <= {page.name for page in PAGES}
