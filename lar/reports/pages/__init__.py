"""The shell of every HTML page that lar writes: style sheet, scripts, sections, figures.

A page needs nothing else: its words are HTML, its tables and plots are drawn by its scripts from
figures that stand in it as JSON. `page.js` has what all scripts use, `names.js` shortens names,
`tables.js` draws tables that are sorted and filtered, `plots.js` the plots; a page adds the scripts
of its own. Pictures and tables are drawn for the width of the page, and again when that changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any, NamedTuple

import msgspec

SCRIPTS = ("page.js", "names.js", "tables.js", "plots.js")


class Section(NamedTuple):
    """A part of a page: its name in the address, its heading, its description, and its words as
    HTML. A script draws the rest below them."""

    name: str
    title: str
    about: str = ""
    words: str = ""


def format_page(
    title: str,
    heading: str,
    sections: Sequence[Section],
    figures: Mapping[str, Any],
    scripts: Iterable[str],
) -> str:
    """Return a page; `scripts` are the texts of those that draw its sections."""
    links = "".join(f'<a href="#{it.name}">{escape(it.title)}</a>' for it in sections)
    body = "\n".join(map(format_section, sections))
    texts = [*(read_resource(__name__, name) for name in SCRIPTS), *scripts]
    code = "\n".join(texts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{read_resource(__name__, 'page.css')}</style>\n"
        f'</head>\n<body>\n<header><a class=skip href="#main">To the content</a>\n'
        f"<div class=top><h1>{escape(heading)}</h1><div class=tools></div></div>\n"
        f'<nav aria-label="parts of the page">{links}</nav></header>\n'
        "<noscript><p>Tables and plots are drawn by a script of this page, and scripts are turned "
        f"off.</p></noscript>\n<main id=main tabindex=-1>\n{body}\n</main>\n"
        f'<script type="application/json" id="figures">{format_figures(figures)}</script>\n'
        f"<script>\n{code}</script>\n</body></html>\n"
    )


def format_section(section: Section) -> str:
    about = f"<p class=about>{escape(section.about)}</p>" if section.about else ""
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2>'
        f"{about}{section.words}<div class=body></div></section>"
    )


def format_list(texts: Iterable[str]) -> str:
    """Return texts as a list, nothing without texts."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def format_facts(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and texts as a table."""
    rows = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts
    )
    return f"<table class=facts aria-label=facts>{rows}</table>"


def format_figures(figures: Mapping[str, Any]) -> str:
    """Return figures as JSON that may stand in a page: whatever a name holds, it ends no
    script and begins no comment."""
    text = msgspec.json.encode(figures).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def read_resource(package: str, name: str) -> str:
    """Return the text of a file in a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
