"""Parsers of option values: each function parses the text of one kind of value.

Raises:
    argparse.ArgumentTypeError: the text is wrong; the message says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# A limit on memory: the times of each iteration need 32 bytes.
MOST_ITERATIONS = 10_000_000
MOST_THINGS = 999_999
MOST_THREADS = 1024
SECONDS_IN = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def refusal(problem: str) -> Exception:
    """Return the error that a parser raises for a text with this problem."""
    import argparse  # slow to import, and the help of a run does not need it

    return argparse.ArgumentTypeError(problem)


def require(holds: object, problem: str) -> None:
    """Raise the error for a problem, unless the condition holds."""
    if not holds:
        raise refusal(problem)


def read_number(text: str, problem: str) -> float:
    """Return the number in a text; refuse underscores and foreign digits, which Python allows.

    `problem` is the message for a text that is not a number.
    """
    require("_" not in text and text.isascii(), problem)
    try:
        return float(text)
    except ValueError:
        raise refusal(problem) from None


def read_numbers(text: str, problem: str) -> list[float]:
    """Return the numbers in a text, which are separated by commas."""
    return [read_number(part, problem) for part in text.split(",")]


def is_natural(text: str, most_digits: int) -> bool:
    """Return whether a text consists of digits only, and of at most `most_digits` digits."""
    return text.isascii() and text.isdigit() and len(text) <= most_digits


def parse_count(text: str) -> int:
    """Parse a number of iterations: 0 to `MOST_ITERATIONS`."""
    require(re.fullmatch(r"\s*[+-]?[0-9]{1,4000}\s*", text), f"{text!r} is not a whole number")
    count = int(text)
    require(count >= 0, f"{count} is negative; give 0 or more")
    require(count <= MOST_ITERATIONS, f"{text} is too many; at most {MOST_ITERATIONS}")
    return count


def parse_duration(text: str, unit: str = "s") -> float:
    """Parse a time above 0, which may end with a unit, as in `90`, `90s`, `1.5m` or `200ms`."""
    found = re.fullmatch(r"\s*(\S*?)\s*(us|ms|s|m|min|h)?\s*", text)
    number, given = (found[1], found[2] or unit) if found else (text, unit)
    value = read_number(number, f"{text!r} is not a time; give 20, 20{unit} or 1.5m")
    require(0 < value < float("inf"), f"{text} is not a time above 0")
    return value if given == unit else value * SECONDS_IN[given] / SECONDS_IN[unit]


def parse_above_zero(text: str, kind: str, wanted: str) -> float:
    """Parse a positive number.

    `kind` and `wanted` describe the number in messages, such as "a number" and "a limit".
    """
    number = read_number(text, f"{text!r} is not {kind}")
    require(0 < number < float("inf"), f"{text} is not {wanted} above 0")
    return number


def parse_milliseconds(text: str) -> float:
    """Parse a time above 0 in milliseconds; a unit may follow."""
    return parse_duration(text, "ms")


def parse_rate(text: str) -> float:
    """Parse a number of requests per second: a positive number."""
    return parse_above_zero(text, "a number of requests", "a rate; give requests a second")


def parse_share(text: str) -> float:
    """Parse a share between 0 and 1, such as `1%` or `0.01`."""
    number = text.strip()
    problem = f"{text!r} is not a share; give 1% or 0.01"
    share = read_number(number.removesuffix("%"), problem) / (100 if number.endswith("%") else 1)
    require(0 < share < 1, f"{text} is not between 0 and 1; give 1% or 0.01")
    return share


def parse_percentiles(text: str) -> tuple[float, ...]:
    """Parse percentiles that are separated by commas, such as `90,99.9`."""
    ranks = sorted({*read_numbers(text, f"{text!r} is not a list of percentiles, as 90,99.9")})
    require(all(0 < rank < 100 for rank in ranks), f"{text} has percentiles outside of 0 to 100")
    return tuple(int(rank) if rank.is_integer() else rank for rank in ranks)


def parse_tag(text: str) -> str:
    """Parse the tag of a result: a short text on one line."""
    is_tag = text.strip() and text.isprintable() and len(text) <= 200
    require(is_tag, f"{text[:50]!r} is not a tag: give a short text")
    return text.strip()


def is_zero(text: str) -> bool:
    """Return whether a text is the number 0."""
    return re.fullmatch(r"\s*0+(\.0*)?\s*", text) is not None


def parse_stall(text: str) -> float | None:
    """Parse the stall limit in seconds; 0 turns it off."""
    return None if is_zero(text) else parse_duration(text)


def parse_seed(text: str) -> int:
    """Parse a seed: a whole number from 0."""
    require(is_natural(text, 4000), f"{text!r} is not a seed; give a whole number from 0")
    return int(text)


def parse_device_id(text: str) -> int:
    """Parse the number of a device: a whole number from 0."""
    is_device = is_natural(text, 3) and int(text) <= 255
    require(is_device, f"{text!r} is not a device number; give 0, 1, ...")
    return int(text)


def parse_positive(text: str, most: int = MOST_THINGS) -> int:
    """Parse a whole number from 1, such as a batch size."""
    digits = text.lstrip("0")
    require(digits and is_natural(text, len(text)), f"{text!r} is not a number from 1")
    is_few = len(digits) <= len(str(most)) and int(digits) <= most
    require(is_few, f"{text} is too many; at most {most}")
    return int(digits)


def parse_threads(text: str) -> int:
    """Parse a number of threads, 1 to `MOST_THREADS`."""
    return parse_positive(text, MOST_THREADS)


def parse_limit(text: str) -> float:
    """Parse the largest allowed absolute value: a positive number."""
    return parse_above_zero(text, "a number", "a limit; give a number")


def parse_error(text: str) -> float:
    """Parse the largest allowed error: a number from 0."""
    return 0.0 if is_zero(text) else parse_limit(text)


def require_form(text: str, form: str, problem: str) -> str:
    """Return a text unchanged if it matches the regular expression `form`, else raise an error."""
    require(re.fullmatch(form, text), problem)
    return text


def parse_check_interval(text: str) -> str:
    """Check the value of `--check-var-value`, `I` or `I:J`, and return it unchanged."""
    problem = f"{text!r} is not an interval, as 1 or 2:10"
    return require_form(text.strip(), r"[1-9][0-9]{0,8}(:[0-9]{1,9})?", problem)


def parse_path(text: str) -> str:
    """Return a path unchanged; refuse an empty path, which an unset shell variable gives."""
    require(text, "the name of the file or folder is empty")
    return text


def parse_pattern(text: str) -> str:
    """Check a regular expression, and return its text unchanged."""
    try:
        re.compile(text)
    except re.error as error:
        raise refusal(f"{text!r} is not a regular expression: {error}") from None
    return text


def parse_range(text: str) -> str:
    """Check a named range, REGEX=NAME, in which the last = ends the expression."""
    require_form(text, r"[^\n]+=[^=\n]+", f"{text!r} is not REGEX=NAME")
    parse_pattern(text.rpartition("=")[0])
    return text


def parse_bytes(text: str) -> int:
    """Parse a size in bytes, as 1048576, 1024K, 1M or 1G."""
    problem = f"{text!r} is not a size in bytes, as 1048576, 1M or 1G"
    size = require_form(text.strip().upper(), r"[0-9]{1,15}[KMG]?", problem)
    return int(size.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(size[-1], 1)


def parse_core_ids(text: str) -> str:
    """Check a list of cores for threads, such as `0,1`, and return its text unchanged."""
    problem = f"{text!r} is not a list of cores, as 0,1"
    return require_form(text.strip(), r"[0-9]{1,4}(,[0-9]{1,4})*", problem)


def parse_variable(text: str) -> str:
    """Check an environment variable, `KEY=VALUE`."""
    return require_form(text, r"[A-Za-z_][A-Za-z0-9_]*=[^\0]*", f"{text!r} is not KEY=VALUE")


def parse_axes(text: str) -> str:
    """Check sizes of axes, such as `batch=4,n=64`, and return their text unchanged."""
    sizes_of_axes(text)
    return text


def sizes_of_axes(text: str) -> dict[str, int]:
    """Return the sizes of axes by name.

    The text may be enclosed in braces, as in `{batch=1,n=8}`.
    """
    sizes = {}
    for part in text.strip().removeprefix("{").removesuffix("}").split(","):
        name, _, size = (each.strip() for each in part.rpartition("="))
        require(
            name and is_natural(size, 9),
            f"{text!r} gives no sizes of axes, as batch=4,n=64; --input 'NAME:{{1,3,224,224}}' "
            "gives a whole shape",
        )
        sizes[name.replace(" ", "")] = int(size)
    return sizes


def parse_property(text: str) -> str:
    """Check a property of an engine, `KEY=VALUE`, and return its text unchanged."""
    return require_form(text, r"[^=\s\0]+=[^\n\0]*", f"{text!r} is not KEY=VALUE")


def pairs_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the last value of each key in texts of the form KEY=VALUE."""
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


def parse_size(text: str) -> tuple[int, int]:
    """Parse the height and width of an image, given as `224x224` or `224,224`."""
    parts = text.lower().replace(",", "x").split("x")
    is_size = len(parts) == 2 and all(is_natural(part, len(text)) for part in parts)
    require(is_size, f"{text!r} is not a size; give HEIGHTxWIDTH, as 224x224")
    height, width = map(int, parts)
    is_possible = 0 < height <= 65536 and 0 < width <= 65536
    require(is_possible, f"{text!r} is not a size; give 1 to 65536 pixels")
    return height, width


def parse_channel_values(text: str) -> tuple[float, ...]:
    """Parse one number for all channels, or one number for each channel with commas between."""
    values = read_numbers(text, f"{text!r} is not a number or a list of them")
    require(all(abs(value) < float("inf") for value in values), f"{text!r} is not finite")
    return tuple(values)
