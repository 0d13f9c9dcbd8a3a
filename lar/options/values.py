"""The values that options take: each function parses the text of one kind.

Raises:
    argparse.ArgumentTypeError: saying what is wrong with the text.
"""

from __future__ import annotations

import argparse
import re

# More iterations than this cannot be held: 32 bytes are kept for each.
MOST_ITERATIONS = 10_000_000
MOST_THINGS = 999_999
MOST_THREADS = 1024


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


def parse_seconds(text: str) -> float:
    """Parse a time limit in seconds: a positive number."""
    try:
        seconds = float(plain_number(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time limit; give seconds above 0")
    return seconds


def parse_span(text: str, unit: str = "seconds") -> float:
    """Parse a time to measure or to wait for: a positive number."""
    return parse_above_zero(text, f"a number of {unit}", f"a time to wait for; give {unit}")


def parse_budget(text: str) -> float:
    """Parse a time in seconds or minutes: `90`, `90s`, `1.5m`."""
    if text.endswith("m"):
        return 60 * parse_span(text.removesuffix("m"))
    return parse_span(text.removesuffix("s"))


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
    """Parse a time in milliseconds: a positive number."""
    return parse_span(text, "milliseconds")


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


def parse_tag(text: str) -> str:
    """Parse the tag of a result: a short text in one line."""
    if not text.strip() or not text.isprintable() or len(text) > 200:
        raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a tag: give a short text")
    return text.strip()


def parse_stall(text: str) -> float | None:
    """Parse the stall limit in seconds; 0 turns it off."""
    return None if re.fullmatch(r"\s*0+(\.0*)?\s*", text) else parse_seconds(text)


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
