"""Values of the options of reports."""

from __future__ import annotations

import argparse
import sys

import pytest

from lar.reports.options import parse_rows


def test_rows_are_a_number_and_none_means_all() -> None:
    assert parse_rows("7") == 7
    assert parse_rows("0") == sys.maxsize
    assert parse_rows("9" * 9) == 10**9 - 1


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "9" * 10, "²"])
def test_what_is_no_number_of_rows_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of rows; 0 shows all"):
        parse_rows(text)
