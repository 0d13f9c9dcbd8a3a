"""Tables as CSV, JSON and HTML: nothing is lost, nothing is invented, nothing breaks out."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.errors import printable
from lar.reports.formats import format_csv, format_json, format_markdown
from lar.reports.html import format_html
from lar.reports.model import AnyTable, Column, Plot, Table, number, table_of_values
from lar.reports.report import Report
from tests.browser import NEEDS_BROWSER, open_page
from tests.reports.golden_files import check_golden

TIMES = table_of_values(
    "times",
    "Times",
    ("Name", "Total (ns)", "Share (%)"),
    (('a,"b"\nc', 12_345_678, 33.333333333333336), ("</td><script>", None, 0.0)),
    ("Example:\n  |__|",),
)
CALLS = table_of_values("calls", "Calls", ("Name", "Calls"), (("a", 3),))


def report_of(*tables: AnyTable) -> Report:
    return Report(style="torch", tables=tables)


def test_one_table_is_plain_csv() -> None:
    rows = list(csv.reader(io.StringIO(format_csv(report_of(TIMES)))))
    assert rows == [
        list(TIMES.headings),
        ['a,"b"\nc', "12345678", "33.333333333333336"],
        ["</td><script>", "", "0.0"],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@a", "\ta", "\uff1da", "-inf", "+nan"])
def test_a_spreadsheet_takes_no_name_for_a_formula(text: str) -> None:
    texts = (text, "-", "-5", "+1e3", "a=", " =1", "a\rb", "a\r\nb")
    rows = tuple((it, 1) for it in texts)
    found = csv.reader(io.StringIO(format_csv(report_of(replace(CALLS, rows=rows))), newline=""))
    assert [row[0] for row in found][1:] == [f"'{text}", *texts[1:]]


def test_several_tables_have_their_titles_in_csv() -> None:
    assert format_csv(report_of(CALLS, CALLS)) == (
        "# Calls\nName,Calls\na,3\n\n# Calls\nName,Calls\na,3\n"
    )


def test_json_has_what_the_tables_have() -> None:
    first, second = json.loads(format_json(report_of(TIMES, CALLS)))["tables"]
    assert (first["title"], second["name"]) == ("Times", "calls")
    assert first["columns"] == list(TIMES.headings)
    assert first["rows"] == [list(row) for row in TIMES.records]
    assert first["notes"] == list(TIMES.notes)


def test_json_of_a_name_that_is_no_utf_8_escapes_it() -> None:
    assert format_json(Report(style="x", document={"a": ["\udcff"]})) == (
        '{\n "a": [\n  "\\udcff"\n ]\n}\n'
    )


def figures_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_a_page_escapes_names_and_keeps_every_value() -> None:
    page = format_html(report_of(TIMES))
    assert page.count("<script>") == 1  # its own
    assert "</td><script>" not in page
    ((table,),) = (each["parts"] for each in figures_of(page)["sections"])
    assert table["notes"] == list(TIMES.notes)
    names = [[*map(printable, map(str, row[:1])), *row[1:]] for row in TIMES.records]
    assert table["table"]["rows"] == names
    assert [name for name, *_ in table["table"]["columns"]] == list(TIMES.headings)


RATES = Table(
    name="rates",
    title="Rates & more",
    columns=(
        Column("name", lambda row: row[0]),
        number("ms", lambda row: row[1], 3, key="seconds", scale=1e3, rank=2),
        Column("beside", lambda row: row[2], in_text=False),
        Column("no value", lambda row: None),
        Column("parts", parts=(Column("low", lambda row: row[2]), Column("", text=str))),
    ),
    rows=(("a<b", 0.0015, 7), ("c", None, 0)),
    notes=("b\tn", "n2"),
    color=lambda row: "red" if row[2] else "",
)


def test_no_byte_of_a_page_changes() -> None:
    """Of a report with its lines, tables and plots in order, and of a profile's style."""
    plot = Plot("curve", "Ratios", {"a": [("</script>\x1b", 1.5), {"b": None}]}, "Over B's.")
    body = (
        *("engine: fake", "a name of 24 characters.: 1", "a name of 25 characters..: 2", ": no"),
        *("  led: by spaces", "last: words: two", "", "rates & MORE:", "said: here", RATES, CALLS),
        *("of calls", plot, replace(plot, about=""), "", "ended: a <tag>", "", "Calls:", CALLS),
    )
    ordered = Report(style="bench", body=body, page_of_text=True, tables=(CALLS,), title="T<")
    style = Report(
        style="torch",
        body=("time: 1", "", "slowest: 2", CALLS, "below"),
        tables=(RATES, CALLS),
        plots=(plot,),
        footer="profiling: costs",
    )
    pages = (
        re.sub("<(style|script)>.*?</", "</", format_html(it), flags=re.S)
        for it in (ordered, style)
    )
    check_golden("pages.txt", "\n\n".join(pages))
    for text in (ordered.text, format_csv(ordered), format_markdown(ordered)):
        assert "Ratios" not in text


@NEEDS_BROWSER
@pytest.mark.parametrize(("clicks", "order"), [(1, "2 b, 1 a, c"), (2, "1 a, 2 b, c")])
def test_a_click_on_a_header_sorts(clicks: int, order: str, tmp_path: Path) -> None:
    rows = (("1 a", 9), ("c", None), ("2 b", 10.5))
    page = format_html(report_of(replace(CALLS, rows=rows)))
    action = """<script>
        for (let i = 0; i < CLICKS; i++) document.querySelectorAll("th button")[1].click();
        const names = [...document.querySelectorAll("td:first-child")].map((it) => it.textContent);
        document.title = names.join(", ");
    </script></body>"""
    dom, console = open_page(
        page.replace("</body>", action.replace("CLICKS", str(clicks))), tmp_path
    )
    assert console == []
    assert f"<title>{order}</title>" in dom


@NEEDS_BROWSER
def test_a_page_shows_no_more_digits_than_anybody_reads(tmp_path: Path) -> None:
    shown = {
        33.333333333333336: "33.3333",
        4.69e-05: "4.690e-5",
        73979631399.3174: "73,979,631,399",
        12_345_678: "12,345,678",
        0.0: "0",
    }
    rows = [("number", value) for value in shown]
    page = format_html(report_of(table_of_values("n", "N", ("a", "b"), [*rows, ("none", None)])))
    dom, console = open_page(page, tmp_path)
    assert console == []
    assert re.findall(r'<td class="number[^>]*>([^<]*)<', dom) == [*shown.values(), "N/A"]
    assert 'class="note lines"' in open_page(format_html(report_of(TIMES)), tmp_path)[0]
