"""Tables as text: one renderer for every layout, which fits tables into the terminal's width.

Names are cut so that different names stay different.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lar.errors import printable, printable_lines
from lar.reports.model import PLAIN, AnyTable, Column, Layout, Rule, table_of_values

CUT = "..."
MOST_ROUNDS = 8  # how often names that became equal are cut again


def shorten(text: str, width: int) -> str:
    """Return a string without its middle if it is longer than `width`."""
    if len(text) <= width:
        return text
    if width <= len(CUT) + 2:
        return text[:width]
    head = (width - len(CUT) + 1) // 2
    return text[:head] + CUT + text[len(text) - (width - len(CUT) - head) :]


def cut_end(text: str, width: int) -> str:
    """Return a string without its end if it is longer than `width`."""
    return text if len(text) <= width else text[: width - len(CUT)] + CUT


def shorten_all(
    texts: Iterable[str], width: int, cut: Callable[[str, int], str] = shorten
) -> list[str]:
    """Return strings, cut if they are longer than `width`.

    If different strings would become equal, each string keeps the letters in which it differs, as
    far as the width allows.
    """
    whole = [*texts]
    short = {text: cut(text, width) for text in whole}
    for _ in range(MOST_ROUNDS):
        groups: dict[str, list[str]] = {}
        for text, seen in short.items():
            groups.setdefault(seen, []).append(text)
        alike = [group for group in groups.values() if len(group) > 1]
        changed = {
            text: cut_around(text, place, width)
            for group, place in zip(alike, map(common_length, alike), strict=True)
            for text in group
        }
        if changed.items() <= short.items():
            break
        short |= changed
    return [short[text] for text in whole]


def common_length(texts: Sequence[str]) -> int:
    """Return the length of the common beginning of all strings."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))


def cut_around(text: str, at: int, width: int) -> str:
    """Return a string shortened to its beginning, the part at `at`, and its end."""
    room = width - 2 * len(CUT)
    if len(text) <= width or room < 4:
        return shorten(text, width)
    head, piece = room // 4, room // 2
    tail = room - head - piece
    start = max(at - 1, 0)
    if start <= head + len(CUT):
        return text[: width - len(CUT) - tail] + CUT + text[-tail:]
    if start + piece + len(CUT) >= len(text) - tail:
        return text[:head] + CUT + text[head + len(CUT) - width :]
    return text[:head] + CUT + text[start : start + piece] + CUT + text[-tail:]


Cells = tuple[Sequence[str], str]  # the cells of a column, and their alignment
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|-?inf|nan", re.IGNORECASE)
INTEGER = re.compile(r"[-+]?\d+")
BOLD, DIM, RED, GREEN, NORMAL = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[m"
COLORS = {"red": RED, "green": GREEN}
SHORTEST = 16  # names are not cut below this width as long as columns can be left out instead


class Screen(NamedTuple):
    """The screen for text: the width of a line (None for any width), and whether it has colours."""

    width: int | None = None
    has_color: bool = False

    def paint(self, line: str, code: str) -> str:
        return f"{code}{line}{NORMAL}" if self.has_color and line and code else line

    def wrap(self, line: str, indent: str = "") -> list[str]:
        """Return a line wrapped to the width of the screen; words stay whole.

        Each new line keeps the indentation of the whole line. All new lines after the first are
        also indented by `indent`.
        """
        if self.width is None or len(line) <= self.width:
            return [line]
        import textwrap  # needed only on narrow terminals

        indent = line[: len(line) - len(line.lstrip())] + indent
        return textwrap.wrap(
            line,
            max(self.width, len(indent) + 1),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]


PAPER = Screen()


def format_table(table: AnyTable, screen: Screen = PAPER) -> list[str]:
    """Return the lines of a table."""
    layout = table.layout
    drawing = Drawing(table, screen)
    lines: list[str] = []
    if layout.fill:
        title = centre_title(printable(table.title), drawing.length, layout.fill)
        lines.append(screen.paint(title, BOLD))
    lines += [line for text in table.above for line in screen.wrap(printable_lines(text))]
    lines += drawing.head()
    colors = [COLORS.get(table.color(row), "") for row in table.rows] if table.color else ()
    lines += drawing.body(table.breaks, colors)
    if layout.note and table.notes:
        notes = (line for text in table.notes for line in screen.wrap(printable_lines(text)))
        lines += [layout.note, *notes, *([""] * layout.note_lines), layout.fill * drawing.length]
    return lines + drawing.omitted() + [""] * layout.empty_lines


def format_rows(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    layout: Layout = PLAIN,
    screen: Screen = PAPER,
) -> list[str]:
    """Return the lines of a table whose cells are strings."""
    table = table_of_values("", "", header, rows)
    if any(len(row) != len(header) for row in table.rows):
        raise ValueError(f"a row has not {len(header)} cells")
    return format_table(replace(table, layout=layout), screen)


class Drawing:
    """The cells of a table as text, padded to the widths of its columns.

    `given` are all columns. `shown` has the indices of the columns that fit on the screen.
    """

    def __init__(self, table: AnyTable, screen: Screen) -> None:
        self.layout, self.screen, self.given = table.layout, screen, table.text_columns
        rows = [[column.cell(row) for column in self.given] for row in table.rows]
        cells, heights = self.arrange(rows)
        titles = [len(column.title) if self.layout.has_header else 0 for column in self.given]
        widths = [
            max([column.width, title + self.layout.header_room, *map(len, texts)])
            if not column.is_fixed
            else column.width
            for column, title, (texts, _) in zip(self.given, titles, cells, strict=True)
        ]
        self.shown = [*range(len(self.given))]
        room = math.inf
        if screen.width is not None:
            room = screen.width - len(self.layout.start) - len(self.layout.end.rstrip())
        if line_length(widths, self.layout) > room:
            if not self.layout.is_wrapped:
                rows = [[uncut_cell(column, row) for column in self.given] for row in table.rows]
                cells, heights = self.arrange(rows)
            contents = [
                max([title, *map(len, texts)])
                for title, (texts, _) in zip(titles, cells, strict=True)
            ]
            texts = [texts for texts, _ in cells]
            self.shown, widths = fit_columns(table, texts, widths, contents, int(room))
            if self.layout.is_wrapped:
                cells, heights = self.arrange([wrap_cells(row, widths) for row in rows])
            cells = [
                (shorten_all(texts, width), align)
                for (texts, align), width in zip(cells, widths, strict=True)
            ]
        self.widths = [widths[place] for place in self.shown]
        self.aligns = [cells[place][1] for place in self.shown]
        padded = [
            [self.pad(cell, widths[place], cells[place][1]) for cell in cells[place][0]]
            for place in self.shown
        ]
        lines = iter(zip(*padded, strict=True))
        self.rows = [[*itertools.islice(lines, height)] for height in heights]

    def arrange(self, rows: Sequence[Sequence[str]]) -> tuple[list[Cells], list[int]]:
        """Return the cells and alignment of each column, and the number of lines of each row."""
        layout = self.layout
        blocks = [
            split_lines(row) if layout.has_lines or layout.is_wrapped else [row] for row in rows
        ]
        lines = [
            [escape(printable(cell), layout.escaped) for cell in line]
            for block in blocks
            for line in block
        ]
        texts = [*zip(*lines, strict=True)] if lines else [()] * len(self.given)
        cells: list[Cells] = [
            align_points(each) if column.align == "point" else (each, column.align)
            for column, each in zip(self.given, texts, strict=True)
        ]
        return cells, [*map(len, blocks)]

    @property
    def length(self) -> int:
        """The length of a line, without the layout's start and end."""
        return line_length(self.widths, self.layout)

    def pad(self, text: str, width: int, align: str) -> str:
        if not self.layout.is_padded:
            return text
        if align == "left":
            return text.ljust(width)
        if align == "right":
            return text.rjust(width)
        return text.center(width) if align == "centre" else f"{text:^{width}}"

    def line(self, cells: Iterable[str], color: str = "") -> str:
        layout = self.layout
        return self.finished(f"{layout.start}{layout.gap.join(cells)}{layout.end}", color)

    def finished(self, line: str, color: str) -> str:
        """Return a line in its colour; on a screen, remove spaces at the end, which would wrap."""
        is_stripped = self.layout.is_stripped or self.screen.width is not None
        return self.screen.paint(line.rstrip() if is_stripped else line, color)

    def rule(self, rule: Rule | None) -> Iterator[str]:
        if rule is not None:
            pieces = (rule_piece(rule, width) for width in self.widths)
            yield self.finished(f"{rule.left}{rule.middle.join(pieces)}{rule.right}", DIM)

    def head(self) -> Iterator[str]:
        """Yield the header, with the lines above and below it."""
        columns = [self.given[place] for place in self.shown]
        titles = [escape(printable(column.title), self.layout.escaped) for column in columns]
        yield from self.header(titles) if self.layout.has_header else self.rule(self.layout.over)

    def header(self, titles: Iterable[str]) -> Iterator[str]:
        yield from self.rule(self.layout.over)
        aligns = (self.layout.header_align or align for align in self.aligns)
        if self.screen.width is not None:
            titles = map(shorten, titles, self.widths)
        yield self.line(map(self.pad, titles, self.widths, aligns), BOLD)
        yield from self.rule(self.layout.under)

    def body(
        self, breaks: Mapping[int, str | tuple[str, ...]], colors: Sequence[str]
    ) -> Iterator[str]:
        """Yield the rows, the lines between them, and the rule after them."""
        for place in range(len(self.rows) + 1):
            if (line := breaks.get(place)) is not None:
                yield from self.break_line(line)
            if place == len(self.rows):
                break
            if place and self.layout.between is not None:
                yield from self.rule(self.layout.between)
            if place == len(self.rows) - 1:
                yield from self.rule(self.layout.total)
            for cells in self.rows[place]:
                yield self.line(cells, colors[place] if colors else "")
        yield from self.rule(self.layout.closing)

    def break_line(self, line: str | tuple[str, ...]) -> Iterator[str]:
        if isinstance(line, str):
            title = centre_title(printable(line), self.length, self.layout.fill or "-")
            yield self.screen.paint(title, BOLD)
        else:
            yield from self.header([line[place] for place in self.shown])

    def omitted(self) -> list[str]:
        """Return lines that name the columns for which the screen is too narrow."""
        titles = (it.title for place, it in enumerate(self.given) if place not in self.shown)
        names = ", ".join(" ".join(title.split()) for title in titles if title)
        indent = self.layout.start if self.layout.start.isspace() else ""
        lines = self.screen.wrap(f"{indent}(too narrow to show: {names})") if names else []
        return [self.screen.paint(line, DIM) for line in lines]


def line_length(widths: Sequence[int], layout: Layout) -> int:
    return sum(widths) + len(layout.gap) * (len(widths) - 1)


def rule_piece(rule: Rule, width: int) -> str:
    if rule.fixed:
        return rule.fill * rule.fixed
    if rule.longest:
        return (rule.fill * min(width, rule.longest)).ljust(width)
    return rule.fill * (width + rule.added)


def uncut_cell(column: Column[Any], row: Any) -> str:
    """Return the text of a cell with its full name, even if the style has cut the name."""
    text, value = column.cell(row), column.value(row)
    stem = re.split(r"\.\.\.|…", text.strip())[0]
    if not isinstance(value, str) or not value.startswith(stem):
        return text
    return text[: len(text) - len(text.lstrip())] + value


def fit_columns(
    table: AnyTable,
    texts: Sequence[Sequence[str]],
    padded: Sequence[int],
    contents: Sequence[int],
    room: int,
) -> tuple[list[int], list[int]]:
    """Return the indices of the columns that fit into a width, and the widths of all columns.

    First, columns whose cells are all empty or zero are left out. Second, the padding of cells is
    removed. Third, names are shortened in the middle, the widest first, as long as different names
    stay different. If the table is still too wide, the columns of the highest rank are left out,
    from the right. The first column and columns of rank 0 always stay.
    """
    columns, layout = table.text_columns, table.layout
    shown = [*range(len(columns))]
    able = [place for place in shown[1:] if columns[place].rank]
    empty = {it for it in able if table.rows and all(map(columns[it].is_empty, table.rows))}
    going = sorted(able, key=lambda place: (place in empty, columns[place].rank, place))
    named = [any(map(column.is_name, table.rows)) for column in columns]
    least: list[int] = []
    while True:
        widths = [*padded]
        excess = line_length([widths[place] for place in shown], layout) - room
        if excess > 0 and going and going[-1] in empty:
            shown.remove(going.pop())
            continue
        excess = narrow_widths(widths, contents, shown, excess)
        if excess > 0:
            least = least or [
                least_width(() if layout.is_wrapped else {*cells}, content) if is_named else content
                for cells, content, is_named in zip(texts, contents, named, strict=True)
            ]
            excess = narrow_widths(widths, least, shown, excess)
        if excess <= 0:
            return shown, widths
        if not going:
            last = [1 if it else content for it, content in zip(named, contents, strict=True)]
            narrow_widths(widths, last, shown, excess)
            return shown, widths
        shown.remove(going.pop())


def least_width(texts: Collection[str], longest: int) -> int:
    """Return the least width to which strings can be cut so that all stay different."""
    apart = (it for it in range(SHORTEST, longest) if len({*shorten_all(texts, it)}) == len(texts))
    return next(apart, longest)


def narrow_widths(
    widths: list[int], least: Sequence[int], shown: Iterable[int], excess: int
) -> int:
    """Subtract `excess` from the widths, the widest first; return the rest of `excess`.

    No width becomes smaller than its minimum in `least`.
    """
    able = [place for place in shown if widths[place] > least[place]]
    while excess > 0 and able:
        widest = max(able, key=lambda place: widths[place])
        widths[widest] -= 1
        excess -= 1
        if widths[widest] <= least[widest]:
            able.remove(widest)
    return excess


def escape(text: str, letters: str) -> str:
    if not letters:
        return text
    return "".join(f"\\{letter}" if letter in letters else letter for letter in text)


def centre_title(title: str, length: int, fill: str) -> str:
    """Return a title between dashes; a surplus dash stands on the right side."""
    return f"{title:{fill}^{length}}"


def split_lines(row: Sequence[str]) -> list[list[str]]:
    """Return the lines of a row; a cell with fewer lines is empty in the last lines."""
    cells = [cell.split("\n") for cell in row]
    return [[*line] for line in itertools.zip_longest(*cells, fillvalue="")]


def wrap_cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the cells of a row, each wrapped to the width of its column."""
    import textwrap  # needed only on narrow terminals

    return [
        "\n".join(textwrap.wrap(printable(cell), max(width, 1), break_on_hyphens=False))
        for cell, width in zip(row, widths, strict=True)
    ]


def align_points(cells: Sequence[str]) -> Cells:
    """Return the cells of a column and their alignment, as the `tabulate` package makes them.

    If all cells are numbers, they are aligned at their decimal points. If any number of the column
    has a fraction, all numbers get six significant digits. A column with cells that are not numbers
    is aligned to the left.
    """
    given = [cell for cell in cells if cell]
    if not given or not all(map(NUMBER.fullmatch, given)):
        return cells, "left"
    if not all(map(INTEGER.fullmatch, given)):
        cells = [format(float(cell), "g") if cell else cell for cell in cells]
    places = [places_of(cell) for cell in cells]
    texts = [text + " " * (max(places) - place) for text, place in zip(cells, places, strict=True)]
    return texts, "right"


def places_of(number: str) -> int:
    """Return the number of characters after a number's decimal point.

    If the number has no decimal point, the characters after `e` are counted. If the number has
    neither a decimal point nor `e`, the result is -1.
    """
    point = number.rfind(".")
    place = point if point >= 0 else number.rfind("e")
    return len(number) - place - 1 if place >= 0 else -1


def format_count(value: float | None) -> str:
    """Format a count with commas between thousands; N/A for None."""
    return "N/A" if value is None else f"{value:,.0f}"


def format_bytes(size: float | None) -> str:
    """Format a size in the largest binary unit that is not larger than the size."""
    if size is None:
        return "N/A"
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
