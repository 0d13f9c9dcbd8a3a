"""The help of options as argparse prints it."""

from __future__ import annotations

from lar.reports.help_text import format_headings
from tests.reports.golden_files import check_golden

WORDS = "some words of a sentence that takes several lines, and a_word_of_twentyone"
HEADINGS = {
    "flags": {"--a": WORDS, "--twenty-characters_": WORDS, "--twenty-1-characters": "short"},
    "more": {"-b": "", "--c NAME": "c"},
}


def test_headings_in_several_widths() -> None:
    texts = ["\n".join(format_headings(HEADINGS, width)) for width in (100, 60, 45, 35, 20)]
    texts.append("\n".join(format_headings({"more": HEADINGS["more"]}, 100)))
    check_golden("help.txt", "\n".join(texts))
