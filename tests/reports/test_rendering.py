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
from lar.reports.model import AnyTable, Plot, table_of_values
from lar.reports.report import Report
from tests.browser import NEEDS_BROWSER, open_page

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


def test_lines_tables_and_plots_are_sections_of_a_page_and_plots_are_nothing_else() -> None:
    plot = Plot("curve", "Ratios", [], "Time over the baseline's.")
    body = ("engine: fake", "", "calls:", CALLS, plot, "", "ended: a <tag>")
    report = Report(style="bench", body=body, page_of_text=True, tables=(CALLS,))
    page = format_html(report)
    assert re.findall("<h2>(.*?)</h2>", page) == ["Result", "Calls", "Ratios"]
    assert "<th scope=row>ended</th><td>a &lt;tag&gt;</td>" in page
    assert "<p class=about>Time over the baseline&#x27;s.</p>" in page
    kinds = [[*part] for each in figures_of(page)["sections"] for part in each["parts"]]
    assert kinds == [["table", "notes"], ["plot", "figures"]]
    assert report.text.splitlines()[:3] == ["engine: fake", "", "calls:"]
    for text in (report.text, format_csv(report), format_markdown(report)):
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
