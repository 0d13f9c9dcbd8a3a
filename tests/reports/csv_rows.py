"""The rows of a report's CSV, as other programs read them."""

from __future__ import annotations

import csv
import io

from lar.reports.formats import format_csv
from lar.reports.report import Report


def csv_rows(report: Report) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(format_csv(report)))]
