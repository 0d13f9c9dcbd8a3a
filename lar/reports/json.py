"""Reports as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from lar.records.record import record_to_json
from lar.reports.model import AnyTable
from lar.reports.report import Report


def format_json(report: Report) -> str:
    """Return the record in one line, or the style's own document, or the tables as JSON.

    A table has name, title, columns, rows and notes. lar's own documents say if times of operators
    were corrected; documents in another program's form cannot.
    """
    document: Any = report.document
    if document is None:
        document = {"style": report.style, "tables": [*map(document_of, report.tables)]}
    if report.corrected and isinstance(document, dict) and "style" in document:
        document = {**document, "cost_of_profiling": report.corrected}
    is_record = not isinstance(document, (dict, list, tuple))
    try:
        encoded = record_to_json(document)
    except UnicodeEncodeError:  # the name of a file may not be UTF-8
        return json.dumps(msgspec.to_builtins(document, enc_hook=list), indent=1) + "\n"
    return (encoded if is_record else msgspec.json.format(encoded, indent=1)).decode() + "\n"


def document_of(table: AnyTable) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "columns": table.headings,
        "rows": table.records,
        "notes": table.notes,
    }
