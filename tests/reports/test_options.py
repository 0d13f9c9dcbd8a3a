"""Values of the options of reports."""

from __future__ import annotations

import argparse
import math
import sys

import pytest

from lar.errors import UsageError
from lar.reports.styles import KEYS, STYLES, collect_report_options, parse_rows, parse_time


def test_rows_are_a_number_and_none_means_all() -> None:
    assert parse_rows("7") == 7
    assert parse_rows("0") == sys.maxsize
    assert parse_rows("9" * 9) == 10**9 - 1


def test_a_limit_of_time_may_have_a_unit_and_may_be_any_number() -> None:
    texts = ("2ms", "0", "-1.5", "inf", "-inf")
    assert [*map(parse_time, texts)] == [0.002, 0, -1.5, math.inf, -math.inf]
    for text in ("nan", "2 parsecs"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a number of seconds"):
            parse_time(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "9" * 10, "²"])
def test_what_is_no_number_of_rows_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number of rows; 0 shows all"):
        parse_rows(text)


def test_an_option_that_a_style_lacks_names_the_styles_that_have_it() -> None:
    key, lacking = next(
        (key, name) for name in STYLES for key in sorted(KEYS) if key not in STYLES[name].options
    )
    with pytest.raises(UsageError, match=f"{lacking} does not know this option") as caught:
        collect_report_options({key: "x"}, lacking, STYLES[lacking])
    able = caught.value.hint.removeprefix("styles with this option: ").split(", ")
    assert able == [name for name, style in STYLES.items() if key in style.options]
