"""Tables of cases, as JSON beside their tests: rows whose first line names the columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def each_row(table: str) -> pytest.MarkDecorator:
    """Parametrise a test by a table, `FOLDER/FILE/NAME`: each column is an argument."""
    file, _, name = table.rpartition("/")
    columns, *rows = json.loads((HERE / f"{file}.json").read_text())[name]
    return pytest.mark.parametrize(columns, rows, ids=lambda it: str(it)[:40])
