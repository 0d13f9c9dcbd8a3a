"""Every command and every program in the manual works as it stands there, and prints that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lar.cli import PAGES as TOPICS
from lar.engines import ENGINES, support_of_options
from lar.options.option import flag_of
from lar.options.table import OPTIONS
from lar.reports.styles import STYLES
from tests.cli.marks import needs_megengine
from tests.command_lines import ROOT
from tests.docs.pages import carry_out, make_workplace

PAGES = sorted((ROOT / "lar" / "docs").glob("*.md"))


@needs_megengine
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_page_works_as_it_stands(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_workplace(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    carry_out(page)


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


def test_each_flag_has_a_row_for_the_engines_that_honour_it() -> None:
    groups: dict[tuple[str, ...], list[str]] = {}
    for key in support_of_options():
        rows = [(it.name + ": ", it.rows.get(key)) for it in ENGINES]
        cells = tuple(n + ("driver " + " or ".join(it.drivers) if it else "no") for n, it in rows)
        groups.setdefault(cells, []).append(f"`{flag_of(key)}`")
    wanted = [(", ".join(flags), *cells) for cells, flags in groups.items()]
    lines = (ROOT / "lar" / "docs" / "support.md").read_text().splitlines()
    shown = [line for line in lines if line.startswith("| `--") and line.count(" | ") > 1]
    right = [f"| {' | '.join(row)} |" for row in wanted]
    wrong, lacking = [*{*shown} - {*right}], [*{*right} - {*shown}]
    what = ["in the last table of lar/docs/support.md, replace", *wrong, "by", *lacking]
    assert sorted(shown) == sorted(right), "\n".join(what)


def test_a_page_names_each_flag_of_a_run() -> None:
    named = {flag for page in PAGES for flag in re.findall(r"--[a-z][a-z\d-]*", page.read_text())}
    lacking = {flag for option in OPTIONS for flag in option.flags} - named
    assert not lacking, f"name these in a page of lar/docs/: {', '.join(sorted(lacking))}"


def test_each_style_has_a_row() -> None:
    page = (ROOT / "lar" / "docs" / "reports.md").read_text()
    lacking = [name for name in STYLES if f"\n| `{name}` | " not in page]
    assert not lacking, f"lar/docs/reports.md, table of --style: add a row for {lacking}"
