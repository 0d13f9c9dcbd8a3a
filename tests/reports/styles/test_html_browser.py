"""The page of a profile in a real browser: widths, colours, keys, what is read aloud, paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.records.profile import CounterSample, MemoryChunk, MemoryPlan, Profile
from lar.reports.styles.html import build
from tests.profiles.browser import NEEDS_BROWSER, SCHEMES, WIDTHS, Page, opened
from tests.profiles.layers import profile_of_layers

pytestmark = NEEDS_BROWSER

# Two that differ in the middle alone, and would read alike without it.
ALIKE = ("IM2COLMATMUL:X86_F32_BLAS_6x16:AVX2_FMA:192", "IM2COLMATMUL:X86_F32_BLAS_8x8:AVX2_FMA:192")
WARMUP_S = 0.09

# What leaves the page at the right, or a picture at any side; parts that scroll keep theirs.
LEAVING = """[...document.querySelectorAll("body *")].flatMap((it) => {
  if (it.closest(".skip, .unseen, defs, pattern, title, details:not([open]) > :not(summary)")) return [];
  const scrolling = it.parentElement.closest(".scroll, .few");
  if (scrolling && scrolling.scrollWidth > scrolling.clientWidth + 1) return [];
  const box = it.getBoundingClientRect(), svg = it.ownerSVGElement;
  const around = svg ? svg.getBoundingClientRect()
    : { left: 0, right: document.documentElement.clientWidth };
  if (!box.width || box.left >= around.left - 1 && box.right <= around.right + 1) return [];
  return [`${it.tagName} ${it.className.baseVal ?? it.className} ${it.textContent.slice(0, 40)}: `
          + `${Math.round(box.left)} to ${Math.round(box.right)}`];
})"""

# The contrast of each text with what is behind it, where that is below what WCAG 2 asks for (AA).
FAINT = """(() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const over = (top, below) => {
    const [r, g, b, a = 1] = parts(top);
    return [r, g, b].map((part, place) => part * a + below[place] * (1 - a));
  };
  const light = (color) => color.map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (it) => it ? over(getComputedStyle(it).backgroundColor, behind(it.parentElement))
    : [255, 255, 255];
  const found = new Map();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const it = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || it.closest("script, title, .skip, noscript")) continue;
    if (it.closest(".bar, .on") || !it.getClientRects().length) continue;
    const style = getComputedStyle(it), below = behind(it);
    const [one, two] = [light(over(it.ownerSVGElement ? style.fill : style.color, below)), light(below)]
      .sort((a, b) => b - a);
    const contrast = (one + 0.05) / (two + 0.05);
    if (contrast < 4.5) found.set(`${it.tagName}.${it.className.baseVal ?? it.className}`, contrast);
  }
  return [...found].map(([name, contrast]) => `${name} ${contrast.toFixed(2)}`);
})()"""

# The same for text on colours of its own: bars of the timeline, slices of pies.
TOO_SMALL = """[...document.querySelectorAll("svg")].filter((svg) => svg.getClientRects().length
  && Math.abs(svg.getBoundingClientRect().width - svg.getAttribute("width")) > 1).length"""

CUT = """[...document.querySelectorAll(".scroll")].filter((it) =>
  it.scrollWidth > it.clientWidth + 1).map((it) => it.getAttribute("aria-label"))"""


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
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    text = build(profile(), {}, profile_of_layers(seed=3)).page
    with opened(text, tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", [*WIDTHS, 500, 1400])
def test_nothing_leaves_the_page_and_all_of_it_can_be_read(
    page: Page, width: int, scheme: str
) -> None:
    page.resize(width)
    page.emulate(scheme=scheme)
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value(LEAVING) == []
    assert page.value(FAINT) == []
    assert page.value(TOO_SMALL) == 0
    assert page.value(CUT) == []
    assert page.console() == []


def paper(page: Page) -> Any:
    return page.value("getComputedStyle(document.body).backgroundColor")


def test_colours_are_those_of_the_system_unless_others_are_chosen(page: Page) -> None:
    page.emulate(scheme="dark")
    assert paper(page) == "rgb(21, 24, 28)"
    page.emulate(scheme="light")
    assert paper(page) == "rgb(255, 255, 255)"
    choose = (
        "(() => {{ const it = document.querySelector('header select'); it.value = '{}';"
        "it.dispatchEvent(new Event('change')); }})()"
    )
    page.value(choose.format("dark"))
    assert paper(page) == "rgb(21, 24, 28)"
    page.emulate(scheme="dark")
    page.value(choose.format("light"))
    assert paper(page) == "rgb(255, 255, 255)"
    page.value(choose.format("as the system"))
    assert paper(page) == "rgb(21, 24, 28)"
