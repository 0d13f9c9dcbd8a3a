"""Numbers that are typed: what is one, and how many are too many."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from lar.options.values import (
    MOST_THINGS,
    MOST_THREADS,
    parse_bytes,
    parse_channel_values,
    parse_check_interval,
    parse_core_ids,
    parse_count,
    parse_device_id,
    parse_duration,
    parse_error,
    parse_limit,
    parse_milliseconds,
    parse_path,
    parse_pattern,
    parse_percentiles,
    parse_positive,
    parse_range,
    parse_rate,
    parse_seed,
    parse_share,
    parse_size,
    parse_stall,
    parse_threads,
    parse_variable,
)

PARSERS: tuple[Callable[[str], Any], ...] = (
    parse_bytes,
    parse_channel_values,
    parse_check_interval,
    parse_core_ids,
    parse_count,
    parse_device_id,
    parse_limit,
    parse_positive,
    parse_duration,
    parse_seed,
    parse_threads,
)


def refusal(parse: Callable[[str], Any], text: str) -> str:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", ["1_0", "\u0661", "\uff11"])
def test_what_only_python_takes_for_a_number_is_refused(
    parse: Callable[[str], Any], text: str
) -> None:
    assert repr(text) in refusal(parse, text)


@pytest.mark.parametrize(
    ("parse", "most"), [(parse_positive, MOST_THINGS), (parse_threads, MOST_THREADS)]
)
def test_too_many_is_said_so(parse: Callable[[str], int], most: int) -> None:
    assert parse(str(most)) == parse(f"000{most}") == most
    for text in (str(most + 1), str(10 * most), "9" * 5000):
        assert refusal(parse, text).endswith(f" is too many; at most {most}")
    for text in ("0", "000", "-1", "x", ""):
        assert refusal(parse, text) == f"{text!r} is not a number from 1"


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_count, "0", 0),
        (parse_count, "10000000", 10_000_000),
        (parse_duration, "0.001", 0.001),
        (parse_duration, " 90s ", 90.0),
        (parse_duration, "1.5m", 90.0),
        (parse_duration, "200ms", 0.2),
        (parse_duration, "1e3us", 0.001),
        (parse_duration, "1h", 3600.0),
        (parse_milliseconds, "20ms", 20.0),
        (parse_milliseconds, "0.5s", 500.0),
        (parse_stall, "1m", 60.0),
        (parse_stall, "0", None),
        (parse_stall, " 00.0 ", None),
        (parse_stall, "0.5", 0.5),
        (parse_seed, "0", 0),
        (parse_seed, "7" * 4000, int("7" * 4000)),
        (parse_device_id, "0", 0),
        (parse_device_id, "255", 255),
        (parse_positive, "1", 1),
        (parse_limit, "1e-9", 1e-9),
        (parse_error, "0", 0.0),
        (parse_error, "0.0", 0.0),
        (parse_error, "0.25", 0.25),
        (parse_check_interval, " 1 ", "1"),
        (parse_check_interval, "2:10", "2:10"),
        (parse_check_interval, "999999999:999999999", "999999999:999999999"),
        (parse_positive, "999999", 999_999),
        (parse_threads, "1024", 1024),
        (parse_duration, "1e-3", 0.001),
        (parse_milliseconds, "2.5", 2.5),
        (parse_rate, "0.5", 0.5),
        (parse_share, " 1% ", 0.01),
        (parse_share, "99.5%", 0.995),
        (parse_share, "0.01", 0.01),
        (parse_percentiles, "99.9,50,90,90", (50, 90, 99.9)),
        (parse_path, "x", "x"),
        (parse_pattern, "conv.*[0-9]", "conv.*[0-9]"),
        (parse_range, "a=b=c", "a=b=c"),
        (parse_range, ".=n", ".=n"),
        (parse_bytes, "0", 0),
        (parse_bytes, "1048576", 1 << 20),
        (parse_bytes, "3K", 3 << 10),
        (parse_bytes, " 2m ", 2 << 20),
        (parse_bytes, "1G", 1 << 30),
        (parse_bytes, "9" * 15, 10**15 - 1),
        (parse_core_ids, " 0 ", "0"),
        (parse_core_ids, "0,1,9999", "0,1,9999"),
        (parse_variable, "_K1=", "_K1="),
        (parse_variable, "A=b=c d", "A=b=c d"),
        (parse_size, "1x65536", (1, 65536)),
        (parse_size, "224X112", (224, 112)),
        (parse_size, "65536,1", (65536, 1)),
        (parse_channel_values, "1", (1.0,)),
        (parse_channel_values, "-1,0.5,1e3", (-1.0, 0.5, 1000.0)),
    ],
)
def test_a_value_at_its_bounds_is_taken(
    parse: Callable[[str], Any], text: str, value: object
) -> None:
    parsed = parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_count, ("-1", "10000001", "1.5", "")),
        (parse_duration, ("0", "-1", "inf", "nan", "x")),
        (parse_stall, ("-0", "-1", "inf", "0x")),
        (parse_seed, ("-1", "1.0", "", "7" * 4001)),
        (parse_device_id, ("-1", "256", "0000", "cpu", "")),
        (parse_limit, ("0", "-1", "inf", "nan", "x")),
        (parse_error, ("-1", "inf", "nan", "x")),
        (parse_check_interval, ("0", "1:", ":1", "1000000000", "1:1000000000", "1:-1")),
        (parse_positive, ("0", "1000000", "-1")),
        (parse_threads, ("0", "1025", "-1")),
        (parse_duration, ("0", "-1", "inf", "nan", "1_0", "x")),
        (parse_milliseconds, ("0", "-1", "inf", "nan", "1_0", "x")),
        (parse_rate, ("0", "-1", "inf", "nan", "1_0", "x")),
        (parse_share, ("0", "1", "0%", "100%", "-1%", "nan", "1_0%", "%", "x")),
        (parse_percentiles, ("", "90,", "0", "100", "nan", "p90")),
        (parse_path, ("",)),
        (parse_pattern, ("(", "*")),
        (parse_range, ("conv", "=name", "conv=", "a\n=b", "(=name")),
        (parse_bytes, ("", "-1", "1.5M", "1T", "1KM", "9" * 16)),
        (parse_core_ids, ("", "0,", ",0", "-1", "0-3", "10000", "0,10000")),
        (parse_variable, ("", "A", "=b", "1A=b", "A B=c", "A=\0")),
        (parse_size, ("224", "1x2x3", "0x1", "1x0", "65537x1", "1x65537", "axb", "-1x1", "1x")),
        (parse_channel_values, ("", "1,", "inf", "0,nan", "1;2")),
    ],
)
def test_a_value_past_its_bounds_is_refused(
    parse: Callable[[str], Any], texts: tuple[str, ...]
) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)
