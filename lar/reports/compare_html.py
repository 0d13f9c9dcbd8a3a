"""A comparison as one HTML page that needs nothing else: culprits, errors over depth, tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from lar.errors import printable
from lar.records.comparison import Comparison, TensorComparison
from lar.reports.compare_text import (
    HEADER,
    describe_culprit,
    describe_operator,
    describe_side,
    format_summary,
    name_of_pair,
    shorten,
    tensor_row,
)

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1500px; padding: 0 1em;
       color: #1c2126; background: #fff; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; font-size: 12.5px; display: block; overflow-x: auto; }
th, td { padding: .25em .6em; text-align: left; border-bottom: 1px solid #dde1e6;
         white-space: nowrap; }
th { color: #59636e; font-weight: 600; }
tr.differs td { background: #fdecea; } tr.fault td { background: #f9c9c4; }
section.culprit { border-left: 4px solid #c62828; padding: .1em 1em; background: #fff7f6; }
p.result { font-size: 1.1em; font-weight: 600; } .same { color: #1b7f3b; }
.different { color: #c62828; }
code { font-size: 12.5px; overflow-wrap: anywhere; }
svg text { font: 11px system-ui, sans-serif; fill: #59636e; }
summary { cursor: pointer; font-weight: 600; margin: 1em 0; }
@media (prefers-color-scheme: dark) {
  body { color: #dfe3e8; background: #15181c; } th, td { border-color: #333a42; }
  tr.differs td { background: #3a2020; } tr.fault td { background: #5c2424; }
  section.culprit { background: #221818; } .same { color: #6fcf8b; } .different { color: #ff8a80; }
}
"""

# The plot: its size and margins, and the errors that it spans, as powers of ten.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 1100, 320, 60, 40, 14
LEAST, MOST = -9, 2


def format_html(comparison: Comparison) -> str:
    """Return the page of a comparison."""
    return "\n".join(page_of(comparison)) + "\n"


def page_of(comparison: Comparison) -> Iterator[str]:
    verdict = "same" if comparison.same else "different"
    *facts, result = format_summary(comparison)
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>lar compare: {verdict}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    yield "<h1>Comparison</h1>"
    yield f'<p class="result {verdict}">{escape(result.partition(": ")[2])}</p>'
    yield "<table>"
    yield f"<tr><th>A, actual</th><td>{escape(describe_side(comparison.actual))}</td></tr>"
    yield f"<tr><th>B, expected</th><td>{escape(describe_side(comparison.expected))}</td></tr>"
    yield f"<tr><th>tolerance</th><td>{escape(describe_tolerance(comparison))}</td></tr>"
    yield "</table>"
    yield from (f"<p>{escape(fact)}</p>" for fact in facts)
    for number, culprit in enumerate(comparison.culprits, 1):
        yield f'<section class="culprit"><h2>Culprit {number}</h2>'
        yield f"<p><strong>{escape(describe_culprit(culprit))}</strong></p><ul>"
        for letter, operators, others in (
            ("A", culprit.actual, culprit.expected),
            ("B", culprit.expected, culprit.actual),
        ):
            for operator in operators:
                text = escape(describe_operator(operator, others))
                yield f"<li>{letter}: <code>{text}</code></li>"
        yield "</ul>"
        rows = [("input", tensor) for tensor in culprit.inputs]
        rows += [("parameter", tensor) for tensor in culprit.parameters]
        yield from format_rows([*rows, ("output", culprit.output)])
        yield "</section>"
    outputs = {(it.output.actual.key, it.output.expected.key) for it in comparison.culprits}
    if any(not tensor.constant for tensor in comparison.tensors):
        yield "<h2>Error over depth</h2>"
        yield from format_plot(comparison.tensors, outputs)
    differing = [("", it) for it in comparison.tensors if not it.passed]
    if differing:
        yield "<h2>Tensors that differ</h2>"
        yield from format_rows(differing, outputs)
    yield f"<details><summary>All tensors ({len(comparison.tensors)})</summary>"
    yield from format_rows([("", tensor) for tensor in comparison.tensors], outputs)
    yield "</details>"
    if comparison.unmatched:
        yield f"<details><summary>Without a twin ({len(comparison.unmatched)})</summary><table>"
        yield "<tr><th>side</th><th>tensor</th><th>why</th></tr>"
        for each in comparison.unmatched:
            side = "A" if each.side == "actual" else "B"
            cells = (side, printable(shorten(each.tensor.name)), printable(each.reason))
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        yield "</table></details>"
    yield "</body>\n</html>"


def describe_tolerance(comparison: Comparison) -> str:
    """Return the tolerance in words."""
    tolerance = comparison.tolerance
    if tolerance.max_error is not None:
        return f"|a-e| / max(|a|, |e|, 1) up to {tolerance.max_error:g}"
    rtol = "the default of each type" if tolerance.rtol is None else f"{tolerance.rtol:g}"
    atol = "that share of the root mean square" if tolerance.atol is None else f"{tolerance.atol:g}"
    return f"relative: {rtol}; absolute: {atol}"


def format_rows(
    rows: Sequence[tuple[str, TensorComparison]], outputs: Iterable[tuple[str, str]] = ()
) -> Iterator[str]:
    """Yield a table of tensors, each with its role; those in `outputs` are the culprits'."""
    titles = ["", *HEADER] if any(role for role, _ in rows) else [*HEADER]
    yield f"<table><tr>{''.join(f'<th>{escape(title)}</th>' for title in titles)}</tr>"
    for role, tensor in rows:
        kind = "" if tensor.passed else ' class="differs"'
        if (tensor.actual.key, tensor.expected.key) in outputs:
            kind = ' class="fault"'
        cells = [role, *tensor_row(tensor)][-len(titles) :]
        yield f"<tr{kind}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"


def format_plot(
    tensors: Iterable[TensorComparison], outputs: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """Yield a plot of the relative error of each computed tensor over its depth, as SVG.

    Equal tensors stand at the bottom, those with an error that is no number at the top.
    """
    points = [tensor for tensor in tensors if not tensor.constant]
    deepest = max(max(tensor.depth for tensor in points), 1)
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="error over depth">'
    for power in range(LEAST, MOST + 1):
        y = height_of(10.0**power)
        yield f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8884"/>'
        label = "equal" if power == LEAST else f"1e{power}"
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    for depth in sorted({round(deepest * share / 10) for share in range(11)}):
        x = place_of(depth, deepest)
        yield f'<text x="{x:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{depth}</text>'
    yield f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">operators before it</text>'
    for tensor in sorted(points, key=lambda it: it.depth):
        is_output = (tensor.actual.key, tensor.expected.key) in outputs
        color = "#c62828" if is_output else "#2f6fd0" if tensor.passed else "#e98b2a"
        error = error_of(tensor)
        title = escape(f"{name_of_pair(tensor.actual, tensor.expected)}: {error:.3g}")
        yield (
            f'<circle cx="{place_of(tensor.depth, deepest):.1f}" cy="{height_of(error):.1f}" '
            f'r="{6 if is_output else 3.5}" fill="{color}"><title>{title}</title></circle>'
        )
    yield "</svg>"
    yield "<p>Length of the difference over that of the expected tensor. Blue: within the"
    yield "tolerance; orange: differs; red: what a culprit gives.</p>"


def error_of(tensor: TensorComparison) -> float:
    figures = tensor.figures
    if figures is None or figures.relative_l2 is None or figures.nonfinite_mismatches:
        return math.inf
    return figures.relative_l2


def place_of(depth: int, deepest: int) -> float:
    return LEFT + 10 + (WIDTH - LEFT - 20) * depth / deepest


def height_of(error: float) -> float:
    power = LEAST if error <= 10**LEAST else MOST if error >= 10**MOST else math.log10(error)
    return TOP + (HEIGHT - TOP - BOTTOM) * (MOST - power) / (MOST - LEAST)
