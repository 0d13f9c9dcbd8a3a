"""Tables as text: one renderer for every layout, as wide as the terminal if that is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from lar.reports.model import PLAIN, AnyTable, Column, Layout, Rule, table_of_values

EMPTY, INTEGER, FRACTION, TEXT = range(4)
BOLD, DIM, RED, GREEN, NORMAL = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[m"
COLORS = {"red": RED, "green": GREEN}
CUT = "..."
# How often texts are cut again that read alike.
MOST_ROUNDS = 8


class Screen(NamedTuple):
    """The screen that text is printed on: the width of a line, None for any; whether in colour."""

    width: int | None = None
    has_color: bool = False

    def paint(self, line: str, code: str) -> str:
        return f"{code}{line}{NORMAL}" if self.has_color and line and code else line

    def wrap(self, line: str, indent: str = "") -> list[str]:
        """Return a line as those that fit, each as far from the left as the first and those after
        it by `indent` more; words stay whole."""
        if self.width is None or len(line) <= self.width:
            return [line]
        import textwrap  # narrow terminals alone need it

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
    columns = table.text_columns
    drawing = draw(table, columns, screen)
    if drawing.is_crowded and any(column.narrow for column in columns):
        drawing = draw(table, [column.narrow or column for column in columns], screen)
    left_out = names_left_out(columns, drawing)
    lines: list[str] = []
    if layout.fill:
        title = centre_title(table.title, drawing.length, layout.fill)
        lines.append(screen.paint(title, BOLD))
    lines += [line for text in table.above for line in screen.wrap(text)]
    lines += drawing.head()
    colors = [COLORS.get(table.color(row), "") for row in table.rows] if table.color else ()
    lines += drawing.body(table.breaks, colors)
    if layout.note and table.notes:
        notes = (line for text in table.notes for line in screen.wrap(text))
        end = [""] * layout.note_lines
        lines += [layout.note, *notes, *end, layout.fill * drawing.length]
    return lines + drawing.omitted(left_out) + [""] * layout.empty_lines


def draw(table: AnyTable, columns: Sequence[Column[Any]], screen: Screen) -> Drawing:
    """Return a table drawn with these columns of its."""
    return Drawing(
        columns,
        [[column.cell(row) for column in columns] for row in table.rows],
        table.layout,
        screen,
        lambda column: bool(table.rows) and all(map(column.is_empty, table.rows)),
        {n: [*map(it.whole, table.rows)] for n, it in enumerate(columns) if it.whole is not None},
    )


def names_left_out(columns: Sequence[Column[Any]], drawing: Drawing) -> list[str]:
    """Return the titles of the columns, and of parts of columns, for which there was no room."""
    titles = []
    for place, column in enumerate(columns):
        if place not in drawing.shown:
            titles.append(column.title)
        elif column.narrow is not None and drawing.given[place] is column.narrow:
            kept = {part.title for part in column.narrow.parts}
            titles += [part.title for part in column.parts if part.title not in kept]
    return titles


def format_rows(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    layout: Layout = PLAIN,
    screen: Screen = PAPER,
) -> list[str]:
    """Return the lines of a table whose cells are texts."""
    table = table_of_values("", "", header, rows)
    if any(len(row) != len(header) for row in table.rows):
        raise ValueError(f"a row has not {len(header)} cells")
    return format_table(replace(table, layout=layout), screen)


class Drawing:
    """The texts of a table in the widths of its columns.

    `given` are all its columns and `shown` the places of those that it has. It `is_crowded` where
    the screen had no room for columns with values, or for texts at their shortest.
    """

    def __init__(
        self,
        columns: Sequence[Column[Any]],
        rows: Sequence[Sequence[str]],
        layout: Layout,
        screen: Screen,
        is_empty: Callable[[Column[Any]], bool],
        whole: Mapping[int, Sequence[str]],
    ) -> None:
        self.layout, self.screen, self.given = layout, screen, columns
        self.is_crowded = False
        if layout.escaped:
            rows = [[escape(cell, layout.escaped) for cell in row] for row in rows]
            columns = [replace(it, title=escape(it.title, layout.escaped)) for it in columns]
        parts = [split_lines(row) if layout.has_lines else [row] for row in rows]
        parts = [[[*map(printable_text, line)] for line in part] for part in parts]
        lines = [line for part in parts for line in part]
        texts = [*zip(*lines, strict=True)] if lines else [()] * len(columns)
        aligned = [
            align_points(cells) if column.align == "point" else (cells, column.align)
            for column, cells in zip(columns, texts, strict=True)
        ]
        widths: Sequence[int] = [
            width_of(column, cells, layout)
            for column, (cells, _) in zip(columns, aligned, strict=True)
        ]
        shown: Sequence[int] = range(len(columns))
        if screen.width is not None:
            room = screen.width - len(layout.start) - len(layout.end.rstrip())
            measures = [
                measure_column(column, width, cells, align, layout)
                for column, width, (cells, align) in zip(columns, widths, aligned, strict=True)
            ]
            uncut = {place: [*map(printable_text, cells)] for place, cells in whole.items()}
            for place, cells in uncut.items():
                measures[place] = replace(measures[place], texts=cells)
            fitted = fit_columns(columns, measures, is_empty, room, len(layout.gap))
            shown, widths, as_on_paper, self.is_crowded = fitted
            if not as_on_paper:
                for place, cells in uncut.items():
                    aligned[place] = cells, aligned[place][1]
            if layout.is_wrapped:
                parts = [wrap_cells(row, widths) for row in rows]
                lines = [line for part in parts for line in part]
                texts = [*zip(*lines, strict=True)] if lines else [()] * len(columns)
                aligned = [(cells, it.align) for it, cells in zip(columns, texts, strict=True)]
            else:
                aligned = [
                    (shorten_all(cells, width), align)
                    for (cells, align), width in zip(aligned, widths, strict=True)
                ]
        self.shown = shown
        self.widths = [widths[place] for place in shown]
        self.columns = [columns[place] for place in shown]
        self.aligns = [aligned[place][1] for place in shown]
        padded = [
            [self.pad(cell, widths[place], aligned[place][1]) for cell in aligned[place][0]]
            for place in shown
        ]
        flat = iter(zip(*padded, strict=True))
        self.rows = [[*itertools.islice(flat, len(part))] for part in parts]

    @property
    def length(self) -> int:
        """The length of a line, without what stands at its ends."""
        return sum(self.widths) + len(self.layout.gap) * (len(self.widths) - 1)

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
        """Return a line in its colour; spaces at the end of one would begin another on a screen."""
        is_stripped = self.layout.is_stripped or self.screen.width is not None
        return self.screen.paint(line.rstrip() if is_stripped else line, color)

    def rule(self, rule: Rule | None) -> Iterator[str]:
        if rule is not None:
            pieces = (rule_piece(rule, width) for width in self.widths)
            yield self.finished(f"{rule.left}{rule.middle.join(pieces)}{rule.right}", DIM)

    def head(self) -> Iterator[str]:
        """Yield the header between its rules."""
        layout = self.layout
        if any(column.group for column in self.columns):
            yield self.screen.paint(layout.gap.join(self.groups()).rstrip(), BOLD)
        titles = [column.title for column in self.columns]
        yield from self.header(titles) if layout.has_header else self.rule(layout.over)

    def header(self, titles: Iterable[str]) -> Iterator[str]:
        yield from self.rule(self.layout.over)
        aligns = (self.layout.header_align or align for align in self.aligns)
        if self.screen.width is not None:
            titles = map(shorten, titles, self.widths)
        cells = map(self.pad, titles, self.widths, aligns)
        yield self.line(cells, BOLD)
        yield from self.rule(self.layout.under)

    def groups(self) -> Iterator[str]:
        """Yield the headings above columns, each centred over its columns."""
        pairs = zip(self.columns, self.widths, strict=True)
        for group, members in itertools.groupby(pairs, key=lambda pair: pair[0].group):
            widths = [width for _, width in members]
            width = sum(widths) + len(self.layout.gap) * (len(widths) - 1)
            yield (group if self.screen.width is None else shorten(group, width)).center(width)

    def body(
        self, breaks: Mapping[int, str | tuple[str, ...]], colors: Sequence[str]
    ) -> Iterator[str]:
        """Yield the rows, what stands between them, and the rule after them."""
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
            yield self.screen.paint(centre_title(line, self.length, self.layout.fill or "-"), BOLD)
        else:
            yield from self.header([line[place] for place in self.shown])

    def omitted(self, titles: Sequence[str]) -> list[str]:
        """Return the line that names the columns for which there was no room."""
        if not titles:
            return []
        names = ", ".join(" ".join(title.split()) for title in titles if title)
        indent = self.layout.start if self.layout.start.isspace() else ""
        lines = self.screen.wrap(f"{indent}(too narrow to show: {names})")
        return [self.screen.paint(line, DIM) for line in lines]


def width_of(column: Column[object], cells: Sequence[str], layout: Layout) -> int:
    """Return the width of a column: its fixed width, or the width of its widest cell."""
    if column.is_fixed:
        return column.width
    least = len(column.title) + layout.header_room if layout.has_header else 0
    return max([column.width, least, *map(len, cells)])


def rule_piece(rule: Rule, width: int) -> str:
    if rule.fixed:
        return rule.fill * rule.fixed
    if rule.longest:
        return (rule.fill * min(width, rule.longest)).ljust(width)
    return rule.fill * (width + rule.added)


@dataclass(frozen=True)
class Measure:
    """The widths that a column may have: with the room that its layout adds, and as wide as its
    cells. `texts` are the cells of one whose texts may be cut, to `shortest` as long as there are
    columns to leave out."""

    padded: int
    content: int
    shortest: int
    texts: Sequence[str] | None = None

    @cached_property
    def least(self) -> int:
        """The least width in which no two texts read alike."""
        if self.texts is None or self.content <= self.shortest:
            return self.content
        texts = set(self.texts)
        widths = range(self.shortest, self.content)
        apart = (it for it in widths if len({*shorten_all(texts, it)}) == len(texts))
        return next(apart, self.content)

    @property
    def last(self) -> int:
        """The width of texts that are cut where nothing else is left to do."""
        return self.content if self.texts is None else 1


def measure_column(
    column: Column[Any], width: int, cells: Sequence[str], align: str, layout: Layout
) -> Measure:
    """Return the widths of a column, the first of which is `width` or that of longer cells."""
    longest = max([len(column.title) if layout.has_header else 0, *map(len, cells)])
    may_cut = align == "left" if column.may_cut is None else column.may_cut
    texts = () if layout.is_wrapped else cells  # what is wrapped stays whole
    shortest = column.shortest
    return Measure(max(width, longest), longest, shortest, texts if may_cut else None)


class Fitted(NamedTuple):
    """The places of the columns that are shown, the widths of all, whether there was room for all
    as it is, and whether columns with values were left out or texts cut further than to their
    shortest."""

    shown: Sequence[int]
    widths: Sequence[int]
    as_on_paper: bool
    is_crowded: bool


def fit_columns(
    columns: Sequence[Column[Any]],
    measures: Sequence[Measure],
    is_empty: Callable[[Column[Any]], bool],
    room: int,
    gap: int,
) -> Fitted:
    """Return the columns for which there is room.

    Columns that have nothing or zero in every row go first. Then the room around cells goes, then
    texts are shortened, from the widest column down; where that is not enough, the columns of the
    highest rank are left out, from the right. Those of rank 0 stay, and so does the first.
    """
    shown = [*range(len(columns))]
    empty: set[int] | None = None
    is_crowded = False
    while True:
        widths = [it.padded for it in measures]
        excess = sum(widths[place] for place in shown) + gap * (len(shown) - 1) - room
        if excess <= 0:
            return Fitted(shown, widths, len(shown) == len(columns), is_crowded)
        able = [place for place in shown[1:] if columns[place].rank]
        if empty is None:
            empty = {place for place in able if is_empty(columns[place])}
        if without := empty.intersection(shown):
            shown.remove(max(without, key=lambda place: (columns[place].rank, place)))
            continue
        excess = narrow_widths(widths, [it.content for it in measures], shown, excess)
        if excess > 0:
            excess = narrow_widths(widths, [it.least for it in measures], shown, excess)
        if excess <= 0:
            return Fitted(shown, widths, False, is_crowded)
        is_crowded = True
        if not able:
            narrow_widths(widths, [it.last for it in measures], shown, excess)
            return Fitted(shown, widths, False, is_crowded)
        shown.remove(max(able, key=lambda place: (columns[place].rank, place)))


def narrow_widths(
    widths: list[int], least: Sequence[int], shown: Iterable[int], excess: int
) -> int:
    """Take `excess` from the widths, from the widest down, but none below its least; return what
    is left of the excess."""
    able = [place for place in shown if widths[place] > least[place]]
    while excess > 0 and able:
        widest = max(able, key=lambda place: widths[place])
        widths[widest] -= 1
        excess -= 1
        if widths[widest] <= least[widest]:
            able.remove(widest)
    return excess


def shorten(text: str, width: int) -> str:
    """Return a text without its middle if it is longer than `width`."""
    if len(text) <= width:
        return text
    if width <= len(CUT) + 2:
        return text[:width]
    head = (width - len(CUT) + 1) // 2
    return text[:head] + CUT + text[len(text) - (width - len(CUT) - head) :]


def cut_end(text: str, width: int) -> str:
    """Return a text without its end if it is longer than `width`."""
    return text if len(text) <= width else text[: width - len(CUT)] + CUT


def shorten_all(
    texts: Iterable[str], width: int, cut: Callable[[str, int], str] = shorten
) -> list[str]:
    """Return texts that are longer than `width` cut; of those that would read alike then, the
    letters that they differ by stay, as far as there is room for some."""
    whole = [*texts]
    short = {text: cut(text, width) for text in whole if len(text) > width}
    if not short:
        return whole
    short = {text: short.get(text, text) for text in whole}
    for _ in range(MOST_ROUNDS):
        groups: dict[str, list[str]] = {}
        for text, seen in short.items():
            groups.setdefault(seen, []).append(text)
        alike = [group for group in groups.values() if len(group) > 1]
        places = [common_length(group) for group in alike]
        changed = {
            text: cut_around(text, place, width)
            for group, place in zip(alike, places, strict=True)
            for text in group
        }
        if changed.items() <= short.items():
            break
        short |= changed
    return [short[text] for text in whole]


def common_length(texts: Sequence[str]) -> int:
    """Return how many letters all texts begin with."""
    first, last = min(texts), max(texts)
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(last)))


def cut_around(text: str, at: int, width: int) -> str:
    """Return a text cut to its beginning, what stands from `at`, and its end."""
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


def printable_text(text: str) -> str:
    """Return a text without control characters of a terminal: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def escape(text: str, letters: str) -> str:
    return "".join(f"\\{letter}" if letter in letters else letter for letter in text)


def centre_title(title: str, length: int, fill: str = "-") -> str:
    """Return a title amid dashes; an odd dash stands on the right side."""
    left = max(length - len(title), 0) // 2
    return fill * left + title + fill * max(length - len(title) - left, 0)


def split_lines(row: Sequence[str]) -> list[list[str]]:
    """Return the lines of a row; cells with fewer lines are empty at the end."""
    cells = [cell.split("\n") for cell in row]
    return [[*line] for line in itertools.zip_longest(*cells, fillvalue="")]


def wrap_cells(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return the lines of a row whose cells are wrapped at their widths."""
    import textwrap  # narrow terminals alone need it

    wrapped = (
        "\n".join(textwrap.wrap(printable_text(cell), max(width, 1), break_on_hyphens=False))
        for cell, width in zip(row, widths, strict=True)
    )
    return split_lines([*wrapped])


def align_points(cells: Sequence[str]) -> tuple[Sequence[str], str]:
    """Return the cells of a column and how they are aligned, as the `tabulate` package has them.

    A column of nothing but numbers is aligned to the right at its decimal points, with six
    significant digits where one has a fraction; any other is aligned to the left.
    """
    kind = max(map(kind_of, cells), default=EMPTY)
    if kind not in (INTEGER, FRACTION):
        return cells, "left"
    texts = [format(float(cell), "g") if kind == FRACTION and cell else cell for cell in cells]
    places = [places_of(text) for text in texts]
    padded = [text + " " * (max(places) - place) for text, place in zip(texts, places, strict=True)]
    return padded, "right"


def kind_of(cell: str) -> int:
    """Return the kind of a cell: empty, an integer, a fraction or text."""
    if not cell:
        return EMPTY
    try:
        int(cell)
        return INTEGER
    except ValueError:
        pass
    try:
        value = float(cell)
    except ValueError:
        return TEXT
    return FRACTION if math.isfinite(value) or cell.lower() in ("inf", "-inf", "nan") else TEXT


def places_of(number: str) -> int:
    """Return how many characters stand behind the point, or behind the `e`; -1 without either."""
    if kind_of(number) != FRACTION:
        return -1
    point = number.rfind(".")
    place = point if point >= 0 else number.rfind("e")
    return len(number) - place - 1 if place >= 0 else -1


def format_count(value: float | None) -> str:
    """Format a count with its thousands apart, N/A for None."""
    return "N/A" if value is None else f"{value:,.0f}"


def format_bytes(size: float | None) -> str:
    """Format a size in the largest binary unit below it."""
    if size is None:
        return "N/A"
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
