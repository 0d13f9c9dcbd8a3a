"""The page of a profile in a real browser: widths, colours, keys, what is read aloud, paper."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import msgspec
import pytest

from lar.records.profile import CounterSample, MemoryChunk, MemoryPlan, Profile
from lar.reports.html import format_html
from lar.reports.styles.operators import build
from tests.browser import NEEDS_BROWSER, SCHEMES, WIDTHS, Page, opened, unreadable
from tests.profiles.layers import profile_of_layers

pytestmark = NEEDS_BROWSER

# Two that begin and end alike, and two that differ in the middle alone.
ALIKE = (
    "CONVOLUTION_DEFAULT_IM2COLMATMUL:X86_F32_BLAS:AVX2_FMA:192",
    "CONVOLUTION_DEFAULT_CONV1x1:X86_F32_BLAS:AVX2_FMA:192",
)
WARMUP_S = 0.09

# What is shown of each kernel's name wherever it stands.
KERNELS = """[...document.querySelectorAll("td .name")].map((it) =>
  [...it.children].filter((part) => part.className !== "gap").map((part) => part.textContent)
    .join("..."))"""

# The pieces of names that are cut themselves: a hundredth of a pixel is enough.
CUT = """[...document.querySelectorAll("td .name > span:not(.gap)")].filter((it) => {
  const text = document.createRange();
  text.selectNodeContents(it);
  return text.getBoundingClientRect().width > it.getBoundingClientRect().width + 0.01;
}).map((it) => it.textContent)"""


def profile() -> Profile:
    """All that a page may show: long names, a warm-up of nine tenths, a plan of memory."""
    whole = profile_of_layers()
    operators = [
        msgspec.structs.replace(
            it,
            name=f"features.module.{place}.block.with.a.long.name.{it.name}",
            algorithm=ALIKE[place // 4 % 2] if it.algorithm else None,
        )
        for place, it in enumerate(whole.operators)
    ]
    first = whole.timed_steps()[0].start_ns
    warmup = [CounterSample("rss", first - round(WARMUP_S * 1e9 * part / 9), 100e6 + part * 1e6)
              for part in range(9, 0, -1)]  # fmt: skip
    moved = tuple(each for each in whole.counters if each.at_ns >= first)
    chunks = (
        MemoryChunk(0, 3 << 20, "features.0.output", 0, 2),
        MemoryChunk(3 << 20, 2 << 20, "features.1.output", 1, 1),
        MemoryChunk(5 << 20, 1 << 20, "features.9.output", 3, 4),
    )
    return replace(
        whole,
        operators=tuple(operators),
        counters=(*warmup, *moved),
        memory_plan=MemoryPlan(5 << 20, chunks),
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return opened(format_html(build(profile(), {})), tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize(
    ("width", "scheme"), [*product(WIDTHS, SCHEMES), (500, "light"), (1400, "dark")]
)
def test_nothing_leaves_the_page_and_all_of_it_can_be_read(
    page: Page, width: int, scheme: str
) -> None:
    page.resize(width)
    page.emulate(scheme=scheme)
    assert unreadable(page) == []
    assert page.console() == []


@pytest.mark.parametrize("form", ["features.module.{}.with.a.name.conv", "block{}.depthwise_relu"])
def test_bars_of_few_letters_have_those_that_distinguish_them(page: Page, form: str) -> None:
    names = [form.format(number) for number in (1, 2)]
    call = f"(() => {{ const names = {names}, pieces = piecesOf(new Set(names), SHORT);"
    call += "return names.map((name) => shortenName(name, 8, pieces)); })()"
    one, two = page.value(call)
    assert "1" in one
    assert "2" in two
    assert len(one) == len(two) == 8


def paper(page: Page) -> Any:
    return page.value("getComputedStyle(document.body).backgroundColor")


def choose(page: Page, selector: str, value: str) -> None:
    page.value(
        f"(() => {{ const it = document.querySelector({selector!r}); it.value = {value!r};"
        "it.dispatchEvent(new Event('change')); })()"
    )


def test_colours_are_those_of_the_system_unless_others_are_chosen(page: Page) -> None:
    dark, light = "rgb(21, 24, 28)", "rgb(255, 255, 255)"
    seen = []
    for scheme, chosen in (
        ("dark", "as the system"),
        ("light", "as the system"),
        ("light", "dark"),
        ("dark", "light"),
        ("dark", "as the system"),
    ):
        page.emulate(scheme=scheme)
        choose(page, "header select", chosen)
        seen.append(paper(page))
    assert seen == [dark, light, dark, light, dark]


def test_names_that_begin_and_end_alike_do_not_read_alike(page: Page) -> None:
    page.resize(2000)
    kernels = {name for name in set(page.value(KERNELS)) if name.startswith("CON")}
    assert len(kernels) == 2
    assert any("IM2COL" in name for name in kernels)
    assert any("CONV1" in name for name in kernels)
    whole = page.value('[...document.querySelectorAll("td .name")].map((it) => it.title)')
    assert set(ALIKE) <= set(whole)  # on hover


@pytest.mark.parametrize("width", [1000, 1400, 2000])
def test_names_are_cut_where_their_gaps_are_alone(page: Page, width: int) -> None:
    page.resize(width)
    assert page.value(CUT) == []


def test_the_columns_without_room_stand_in_the_details_of_a_row(page: Page) -> None:
    page.resize(400)
    columns = 'document.querySelectorAll("th").length'
    few = page.value(columns)
    detail = """(() => {
      const button = document.querySelector("tbody button");
      button.focus();
      return button.getAttribute("aria-label");
    })()"""
    assert page.value(detail).startswith("all figures of features.module.")
    page.press("Enter", "\r")
    text = page.value('document.querySelector(".detail").innerText')
    assert "kernel" in text
    assert any(name in text for name in ALIKE)
    page.press("Enter", "\r")
    assert page.value('document.querySelector(".detail")') is None
    more = "[...document.querySelectorAll('button')].find((it) => it.textContent.endsWith"
    page.value(f"{more}('more columns')).click()")
    assert page.value(columns) > few
    page.value(f"{more}('fewer columns')).click()")
    assert page.value(columns) == few


def test_the_warm_up_takes_a_small_part_of_a_memory_curve(page: Page) -> None:
    page.resize(1000)
    label, title, share = page.value(
        """[...document.querySelectorAll("svg")].map((svg) => [
          svg.getAttribute("aria-label"), svg.querySelector("rect title")?.textContent,
          svg.querySelector("rect")?.getAttribute("width") / svg.getAttribute("width"),
        ]).find(([label]) => label?.startsWith("Resident"))"""
    )
    assert label.startswith("Resident memory of the process: at most ")
    assert title.startswith("the warm-up, ")
    assert title.endswith(" ms, folded")
    assert 0 < share < 0.1


def test_all_that_is_read_aloud_has_a_name(page: Page) -> None:
    nodes = page.ask("Accessibility.getFullAXTree")["nodes"]
    roles: dict[str, list[str]] = {}
    for node in nodes:
        if not node["ignored"]:
            role = node["role"]["value"]
            roles.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for role in (
        *("button", "combobox", "searchbox", "image", "img", "table", "region"),
        *("link", "heading", "navigation", "columnheader", "option"),
    ):
        assert all(roles.get(role, ["named"])), role
    assert {"button", "combobox", "searchbox", "table", "navigation"} <= set(roles)
    assert roles["link"][0] == "To the content"
    levels = page.value(
        "[...document.querySelectorAll('h1, h2, h3')].map((it) => Number(it.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_paper_is_light_and_all_of_the_page_is_on_it(page: Page) -> None:
    page.resize(2000)
    page.emulate(scheme="dark")
    page.value("window.addEventListener('beforeprint', () => { window.printed = "
               "document.querySelector('svg').getAttribute('width'); })")  # fmt: skip
    document = page.pdf()
    assert document.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", document)) <= 20
    assert page.value("window.printed") == "1000"
    assert float(page.value("document.querySelector('svg').getAttribute('width')")) > 1800
    page.emulate(scheme="dark", media="print")
    page.value("printAs(true)")
    page.resize(1030)
    assert paper(page) == "rgb(255, 255, 255)"
    assert unreadable(page) == []
    assert page.value("document.querySelector('nav').getClientRects().length") == 0
