"""Values that are typed: what is one, and how many or how large are too many."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.options import values
from lar.options.values import MOST_ITERATIONS, MOST_THINGS, MOST_THREADS

Parse = Callable[[str], Any]


def refusal(parse: Parse, text: str) -> str:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "parse",
    [
        *(values.parse_bytes, values.parse_channel_values, values.parse_check_interval),
        *(values.parse_core_ids, values.parse_count, values.parse_device_id, values.parse_limit),
        *(values.parse_positive, values.parse_duration, values.parse_seed, values.parse_threads),
    ],
)
@pytest.mark.parametrize("text", ["1_0", "\u0661", "\uff11"])
def test_what_only_python_takes_for_a_number_is_refused(parse: Parse, text: str) -> None:
    assert repr(text) in refusal(parse, text)


@pytest.mark.parametrize(
    ("parse", "most"), [(values.parse_positive, MOST_THINGS), (values.parse_threads, MOST_THREADS)]
)
def test_too_many_is_said_so(parse: Callable[[str], int], most: int) -> None:
    assert parse(str(most)) == parse(f"000{most}") == most
    for text in (str(most + 1), str(10 * most), "9" * 5000):
        assert refusal(parse, text).endswith(f" is too many; at most {most}")
    for text in ("0", "000", "-1", "x", ""):
        assert refusal(parse, text) == f"{text!r} is not a number from 1"


@pytest.mark.parametrize(
    ("parse", "taken"),
    [
        (values.parse_count, {"0": 0, "10000000": 10_000_000}),
        (
            values.parse_duration,
            {
                **{"0.001": 0.001, " 90s ": 90.0, "1.5m": 90.0, "200ms": 0.2, "1e3us": 0.001},
                **{"1h": 3600.0, "1e-3": 0.001},
            },
        ),
        (values.parse_milliseconds, {"20ms": 20.0, "0.5s": 500.0, "2.5": 2.5}),
        (
            values.parse_stall,
            {"1m": 60.0, "0": None, "0.0": None, " 0": None, " 00.0 ": None, "0.5": 0.5},
        ),
        (values.parse_seed, {"0": 0, "7" * 4000: int("7" * 4000)}),
        (values.parse_device_id, {"0": 0, "255": 255}),
        (values.parse_positive, {"1": 1, "999999": 999_999}),
        (values.parse_threads, {"1024": 1024}),
        (values.parse_limit, {"1e-9": 1e-9}),
        (values.parse_error, {"0": 0.0, "0.0": 0.0, "0.25": 0.25}),
        (
            values.parse_check_interval,
            {" 1 ": "1", "2:10": "2:10", "999999999:999999999": "999999999:999999999"},
        ),
        (values.parse_rate, {"0.5": 0.5}),
        (values.parse_share, {" 1% ": 0.01, "99.5%": 0.995, "0.01": 0.01}),
        (values.parse_percentiles, {"99.9,50,90,90": (50, 90, 99.9)}),
        (values.parse_path, {"x": "x"}),
        (values.parse_pattern, {"conv.*[0-9]": "conv.*[0-9]"}),
        (values.parse_range, {"a=b=c": "a=b=c", ".=n": ".=n"}),
        (
            values.parse_bytes,
            {
                **{"0": 0, "1048576": 1 << 20, "3K": 3 << 10, " 2m ": 2 << 20, "1G": 1 << 30},
                "9" * 15: 10**15 - 1,
            },
        ),
        (values.parse_core_ids, {" 0 ": "0", "0,1,9999": "0,1,9999"}),
        (values.parse_variable, {"_K1=": "_K1=", "A=b=c d": "A=b=c d"}),
        (values.parse_size, {"1x65536": (1, 65536), "224X112": (224, 112), "65536,1": (65536, 1)}),
        (values.parse_channel_values, {"1": (1.0,), "-1,0.5,1e3": (-1.0, 0.5, 1000.0)}),
    ],
)
def test_a_value_at_its_bounds_is_taken(parse: Parse, taken: dict[str, object]) -> None:
    for text, value in taken.items():
        parsed = parse(text)
        assert parsed == value
        assert type(parsed) is type(value)


TIMES = ("0", "-1", "inf", "nan", "soon", "", "1d", "1e999", "s", "1_0", "x")


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (values.parse_count, ("-1", "10000001", "9" * 30, "1.5", "1e3", "ten", "")),
        (values.parse_duration, TIMES),
        (values.parse_milliseconds, TIMES),
        (values.parse_stall, ("-0", "-1", "inf", "0x")),
        (values.parse_seed, ("-1", "1.0", "", "²", "٣", "abc", "7" * 4001)),
        (values.parse_device_id, ("-1", "256", "0000", "cpu", "", "0.5", "²")),
        (values.parse_limit, ("0", "-1", "inf", "nan", "x")),
        (values.parse_error, ("-1", "inf", "nan", "x")),
        (values.parse_check_interval, ("0", "1:", ":1", "1000000000", "1:1000000000", "1:-1")),
        (values.parse_positive, ("0", "1000000", "-1")),
        (values.parse_threads, ("0", "1025", "-1")),
        (values.parse_rate, ("0", "-1", "inf", "nan", "1_0", "x")),
        (values.parse_share, ("0", "1", "0%", "100%", "-1%", "nan", "1_0%", "%", "x")),
        (values.parse_percentiles, ("", "90,", "0", "100", "nan", "p90")),
        (values.parse_path, ("",)),
        (values.parse_pattern, ("(", "*")),
        (values.parse_range, ("conv", "=name", "conv=", "a\n=b", "(=name")),
        (values.parse_bytes, ("", "-1", "1.5M", "1T", "1KM", "9" * 16)),
        (values.parse_core_ids, ("", "0,", ",0", "-1", "0-3", "10000", "0,10000")),
        (values.parse_variable, ("", "A", "=b", "1A=b", "A B=c", "A=\0")),
        (
            values.parse_size,
            (
                *("", "224", "224x", "x", "1x2x3", "0x1", "1x0", "65537x1", "1x65537", "axb"),
                *("-1x2", "1.5x2", "1x"),
            ),
        ),
        (values.parse_channel_values, ("", "1,", "a", "inf", "0,nan", "1;2")),
    ],
)
def test_a_value_past_its_bounds_is_refused(parse: Parse, texts: tuple[str, ...]) -> None:
    for text in texts:
        assert refusal(parse, text)


SIDE = st.integers(1, 65536)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.integers(0, MOST_ITERATIONS), st.floats(min_value=1e-9, max_value=1e9), st.data())
def test_numbers_are_taken_as_they_are(count: int, seconds: float, data: st.DataObject) -> None:
    assert values.parse_count(str(count)) == count
    assert values.parse_duration(repr(seconds)) == seconds
    seed, device = data.draw(st.integers(0, 2**80)), data.draw(st.integers(0, 255))
    assert values.parse_seed(str(seed)) == seed
    assert values.parse_device_id(str(device)) == device
    height, width, between = data.draw(st.tuples(SIDE, SIDE, st.sampled_from("xX,")))
    assert values.parse_size(f"{height}{between}{width}") == (height, width)
    channels = tuple(data.draw(st.lists(FINITE, min_size=1, max_size=4)))
    assert values.parse_channel_values(",".join(map(repr, channels))) == channels


def test_channel_values_keep_their_sign() -> None:
    assert math.copysign(1, values.parse_channel_values("-0.0,1e-300")[0]) == -1
