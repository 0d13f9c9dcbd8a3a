"""The values that options take: each function parses the text of one kind.

Raises:
    argparse.ArgumentTypeError: saying what is wrong with the text.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

# More iterations than this cannot be held: 32 bytes are kept for each.
MOST_ITERATIONS = 10_000_000
MOST_THINGS = 999_999
MOST_THREADS = 1024
SECONDS_IN = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def plain_number(text: str) -> str:
    """Return the text of a number as it is.

    Raises:
        ValueError: it has underscores, or digits other than 0 to 9, which Python would read.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text


def parse_count(text: str) -> int:
    """Parse a number of iterations: 0 to `MOST_ITERATIONS`."""
    try:
        count = int(plain_number(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if count < 0:
        raise argparse.ArgumentTypeError(f"{count} is negative; give 0 or more")
    if count > MOST_ITERATIONS:
        raise argparse.ArgumentTypeError(f"{text} is too many; at most {MOST_ITERATIONS}")
    return count


def parse_duration(text: str, unit: str = "s") -> float:
    """Parse a time above 0, in a unit that may stand behind it: `90`, `90s`, `1.5m`, `200ms`."""
    found = re.fullmatch(r"\s*(\S*?)\s*(us|ms|s|m|min|h)?\s*", text)
    number, given = (found[1], found[2] or unit) if found else (text, unit)
    try:
        value = float(plain_number(number))
    except ValueError:
        wanted = f"give 20, 20{unit} or 1.5m"
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; {wanted}") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time above 0")
    return value if given == unit else value * SECONDS_IN[given] / SECONDS_IN[unit]


def parse_above_zero(text: str, kind: str, wanted: str) -> float:
    """Parse a positive number; the texts say what it is and what to give, in errors."""
    try:
        number = float(plain_number(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not {wanted} above 0")
    return number


def parse_milliseconds(text: str) -> float:
    """Parse a time above 0 in milliseconds; a unit may stand behind it."""
    return parse_duration(text, "ms")


def parse_rate(text: str) -> float:
    """Parse a number of requests in a second: a positive number."""
    return parse_above_zero(text, "a number of requests", "a rate; give requests a second")


def parse_share(text: str) -> float:
    """Parse a share below the whole: `1%` or `0.01`."""
    number = text.strip()
    percent = number.endswith("%")
    try:
        share = float(plain_number(number.removesuffix("%"))) / (100 if percent else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; give 1% or 0.01") from None
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1; give 1% or 0.01")
    return share


def parse_percentiles(text: str) -> tuple[float, ...]:
    """Parse percentiles, comma-separated: `90,99.9`."""
    try:
        ranks = sorted({float(plain_number(part)) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of percentiles, as 90,99.9"
        ) from None
    if not all(0 < rank < 100 for rank in ranks):
        raise argparse.ArgumentTypeError(f"{text} has percentiles outside of 0 to 100")
    return tuple(int(rank) if rank.is_integer() else rank for rank in ranks)


def parse_tag(text: str) -> str:
    """Parse the tag of a result: a short text in one line."""
    if not text.strip() or not text.isprintable() or len(text) > 200:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a tag: give a short text")
    return text.strip()


def parse_stall(text: str) -> float | None:
    """Parse the stall limit in seconds; 0 turns it off."""
    return None if re.fullmatch(r"\s*0+(\.0*)?\s*", text) else parse_duration(text)


def parse_seed(text: str) -> int:
    """Parse a seed: a whole number from 0."""
    if not text.isascii() or not text.isdigit() or len(text) > 4000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed; give a whole number from 0")
    return int(text)


def parse_device_id(text: str) -> int:
    """Parse the number of a device: a whole number from 0."""
    if not text.isascii() or not text.isdigit() or len(text) > 3 or int(text) > 255:
        raise argparse.ArgumentTypeError(f"{text!r} is not a device number; give 0, 1, ...")
    return int(text)


def parse_positive(text: str, most: int = MOST_THINGS) -> int:
    """Parse a number of things, at least one: a batch."""
    digits = text.lstrip("0")
    if not text.isascii() or not text.isdigit() or not digits:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    if len(digits) > len(str(most)) or int(digits) > most:
        raise argparse.ArgumentTypeError(f"{text} is too many; at most {most}")
    return int(digits)


def parse_threads(text: str) -> int:
    """Parse a number of threads, 1 to `MOST_THREADS`."""
    return parse_positive(text, MOST_THREADS)


def parse_limit(text: str) -> float:
    """Parse the largest absolute value that is allowed: a positive number."""
    return parse_above_zero(text, "a number", "a limit; give a number")


def parse_error(text: str) -> float:
    """Parse the largest error that is allowed: a number from 0."""
    return 0.0 if re.fullmatch(r"\s*0+(\.0*)?\s*", text) else parse_limit(text)


def parse_check_interval(text: str) -> str:
    """Parse how often values are checked, `I` or `I:J`; kept as text, as settings are."""
    if not re.fullmatch(r"[1-9][0-9]{0,8}(:[0-9]{1,9})?", text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not an interval, as 1 or 2:10")
    return text.strip()


def parse_path(text: str) -> str:
    """Parse the name of a file or folder; an unset shell variable gives an empty one."""
    if not text:
        raise argparse.ArgumentTypeError("the name of the file or folder is empty")
    return text


def parse_pattern(text: str) -> str:
    """Parse a regular expression; kept as text, as settings are."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def parse_range(text: str) -> str:
    """Check what is to be named: REGEX=NAME; the last = parts them."""
    pattern, separator, name = text.rpartition("=")
    if not (separator and pattern and name) or "\n" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not REGEX=NAME")
    parse_pattern(pattern)
    return text


def parse_bytes(text: str) -> int:
    """Parse a size in bytes, as 1048576, 1024K, 1M or 1G."""
    found = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text.strip().upper())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size in bytes, as 1048576, 1M or 1G")
    return int(found[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[found[2]]


def parse_core_ids(text: str) -> str:
    """Parse the cores that threads are bound to, `0,1`; kept as text, as settings are."""
    if not re.fullmatch(r"[0-9]{1,4}(,[0-9]{1,4})*", text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of cores, as 0,1")
    return text.strip()


def parse_variable(text: str) -> str:
    """Parse an environment variable, `KEY=VALUE`."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def parse_axes(text: str) -> str:
    """Check the sizes of axes, `batch=4,n=64`; kept as text."""
    sizes_of_axes(text)
    return text


def sizes_of_axes(text: str) -> dict[str, int]:
    """Return the sizes of axes by name. Braces may stand around them, as where several variants are
    listed: `{batch=1,n=8},{batch=4,n=8}`."""
    sizes = {}
    for part in text.strip().removeprefix("{").removesuffix("}").split(","):
        name, _, size = (each.strip() for each in part.rpartition("="))
        if not name or not size.isascii() or not size.isdecimal() or len(size) > 9:
            raise argparse.ArgumentTypeError(
                f"{text!r} gives no sizes of axes, as batch=4,n=64; --input 'NAME:{{1,3,224,224}}' "
                "gives a whole shape"
            )
        sizes[name.replace(" ", "")] = int(size)
    return sizes


def parse_property(text: str) -> str:
    """Parse a property of an engine, `KEY=VALUE`; kept as text, as settings are."""
    if not re.fullmatch(r"[^=\s\0]+=[^\n\0]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def pairs_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the values in texts such as KEY=VALUE, by key; the last of a key counts."""
    pairs = (text.partition("=") for text in texts)
    return {key: value for key, _, value in pairs}


def parse_size(text: str) -> tuple[int, int]:
    """Parse the size of an image, height x width: `224x224` or `224,224`."""
    parts = text.lower().replace(",", "x").split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; give HEIGHTxWIDTH, as 224x224")
    height, width = int(parts[0]), int(parts[1])
    if not (0 < height <= 65536 and 0 < width <= 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; give 1 to 65536 pixels")
    return height, width


def parse_channel_values(text: str) -> tuple[float, ...]:
    """Parse one number for all channels or one for each, comma-separated."""
    try:
        values = tuple(float(plain_number(part)) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number or a list of them") from None
    if not all(abs(value) < float("inf") for value in values):
        raise argparse.ArgumentTypeError(f"{text!r} is not finite")
    return values
