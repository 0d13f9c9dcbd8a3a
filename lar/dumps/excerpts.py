"""Excerpts of tensors: their statistics and first values, all that the text of `--io-dump` has.

An excerpt is an array of float64: min, max, mean, root mean square, standard deviation, then the
first values in the order in which they are stored. A dump of whole tensors beside a text is
compared by its excerpts too.

The text is that of `lar.dumps.text`; other lines between the blocks are passed over.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.dumps.binary import BY_NAME, ElementType, TensorHeader
from lar.dumps.dump import Dump
from lar.dumps.graph import index_of
from lar.dumps.names import AXIS, Variable, format_name
from lar.dumps.text import HEAD, excerpt_of
from lar.dumps.text import STATISTICS as STATISTICS
from lar.errors import DumpError
from lar.files.input_file import MOST_TEXT_BYTES, read_input

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# The digits that the text has of a statistic, and of a value.
STATISTIC_DIGITS, VALUE_DIGITS = 3, 4

LAYOUT = re.compile(r"\{([\d(),-]*)(?: @ (\w+\{[\d,]*\}))?(?: (\w+).*)?\}")
INPUT = re.compile(r"  \[i\d+\]var(\d{1,19}): ")
CONTENT = re.compile(
    r" val: \[(?P<values>[^\]]*)\]"
    + " ".join(rf"{name}=(?P<{name}>\S+)" for name in STATISTICS)
    + r" \w+"
)
UNFINISHED = "not complete:"  # how the last line of a text begins whose run did not end well


class Block(NamedTuple):
    """What a text has of a tensor: its variable, the numbers of those it is computed from, and its
    excerpt."""

    variable: Variable
    inputs: tuple[int, ...]
    excerpt: tuple[float, ...]


def begins_text_dump(head: bytes) -> bool:
    """Return whether the first bytes of a file hold the first line of a block."""
    return any(HEAD.match(line) for line in head.decode(errors="replace").split("\n"))


def open_text(path: Path) -> Dump:
    """Open the text of a dump; of a tensor that it has several times, the last counts.

    Raises:
        DumpError: it cannot be read, or has no whole block.
    """
    import numpy as np

    data = read_input(path, error=DumpError, limit=MOST_TEXT_BYTES)
    # Not splitlines: a name may hold characters that Unicode counts as ends of lines.
    lines = [line.rstrip("\r") for line in data.decode(errors="replace").rstrip().split("\n")]
    blocks = {block.variable.id: block for block in blocks_in(lines)}
    if not blocks:
        raise DumpError("holds no whole tensor", "write it again with --io-dump", subject=path)
    index = index_of(header_of(block, blocks) for block in blocks.values())
    arrays = {f"var{number}": np.array(block.excerpt) for number, block in blocks.items()}
    complete = not (lines and lines[-1].startswith(UNFINISHED))
    return Dump(
        str(path),
        replace(index, complete=complete),
        lambda tensor: arrays[tensor.key],
        excerpts=True,
    )


def blocks_in(lines: Iterable[str]) -> Iterator[Block]:
    """Yield the whole blocks of a text; of one that is cut off nothing is known."""
    variable: Variable | None = None
    inputs: list[int] = []
    for line in lines:
        if found := HEAD.match(line):
            variable, inputs = variable_of(found), []
        elif variable is not None and (found := INPUT.match(line)):
            inputs.append(int(found[1]))
        elif variable is not None and (found := CONTENT.fullmatch(line)):
            values = [each.strip() for each in found["values"].split(",")]
            texts = [found[name] for name in STATISTICS] + [it for it in values if it != "..."]
            with contextlib.suppress(ValueError):  # what is no number
                excerpt = (float(each.replace("N/A", "nan")) for each in filter(None, texts))
                yield Block(variable, tuple(inputs), tuple(excerpt))
            variable = None


def variable_of(head: re.Match[str]) -> Variable | None:
    """Return the variable that a block begins with, None if it has no storage."""
    layout = LAYOUT.fullmatch(head["layout"])
    if layout is None:
        return None
    number = int(head["id"])
    return Variable(
        id=number,
        shape=tuple(int(size) for size, _ in AXIS.findall(layout[1])),
        stored=False,
        format=layout[2] or "",
        dtype=layout[3] or "Float32",
        operator=head["operator"],
        operator_type=head["type"],
        name=head["name"],
        slot=max(number - 1 - int(head["number"]), 0),
    )


def header_of(block: Block, blocks: dict[int, Block]) -> TensorHeader:
    """Return a block's tensor as a file of a dump would begin with it."""
    variable = block.variable
    inputs = [
        blocks[key].variable if key in blocks else Variable(id=key, stored=False)
        for key in block.inputs
    ]
    element = BY_NAME.get(variable.dtype) or ElementType(-1, variable.dtype, "<f4")
    name = format_name(variable, inputs)
    return TensorHeader(Path(f"var{variable.id}"), name, element, variable.shape, 0, 0)


def excerpts_of(dump: Dump) -> Dump:
    """Return a dump with the excerpts of its tensors instead of their values."""
    if dump.excerpts:
        return dump
    return Dump(
        dump.source,
        dump.index,
        lambda tensor: excerpt_of(dump.read(tensor.key)),
        dump.missing,
        excerpts=True,
    )


def as_printed(actual: Array, expected: Array) -> Array:
    """Return an excerpt that agrees with the expected one where the text could print the same
    digits, or the last of them one more or less."""
    import numpy as np

    digits = np.full(actual.shape, VALUE_DIGITS)
    digits[: len(STATISTICS)] = STATISTIC_DIGITS
    size = np.maximum(np.abs(actual), np.abs(expected))
    with np.errstate(all="ignore"):
        unit = 10.0 ** (np.floor(np.log10(size)) - digits + 1)
        near = np.isfinite(size) & (np.abs(actual - expected) <= unit)
    return np.where(near, expected, actual)
