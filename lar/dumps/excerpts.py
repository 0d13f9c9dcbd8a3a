"""MegEngine's text dump, and the excerpts of tensors in it.

A text dump has a block for each variable, as in this example:

    var17 produced: name=ADD layout={4(1) Float32} owner_opr=ADD3(a,b)[16]{Elemwise} opr16
     deps:
      [i0]var3: [0, 1, 2, 3] s
     val: [1, 3, 5, 7]min=1 max=7 mean=4 l2=4.58 sd=2.58 s

A block shows at most five values, and `...` in place of further values. Values are in the format
%.4g, statistics in the format %.3g. Lines outside of blocks are skipped.

An excerpt is an array of float64: minimum, maximum, mean, root mean square, standard deviation,
then the first values in their stored order. If a dump of whole tensors is compared with a text
dump, lar makes excerpts of the whole tensors, and compares excerpts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from lar.dumps import Array, Dump, binary
from lar.dumps.binary import (
    BY_NAME,
    ElementType,
    TensorHeader,
    Variable,
    format_layout,
    format_name,
)
from lar.dumps.graph import index_of
from lar.errors import DumpError
from lar.files.input_file import MOST_TEXT_BYTES, open_input, read_input

HEAD = re.compile(
    r"^var(?P<id>\d{1,19}) produced: name=(?P<name>.*) layout=(?P<layout>\{.*\}|<invalid>) "
    r"owner_opr=(?P<operator>.*)\{(?P<type>[^{}]*)\} opr(?P<number>\d{1,19})$",
    re.MULTILINE,
)
HEAD_BYTES = 4096
VALUES = 5
STATISTICS = ("min", "max", "mean", "l2", "sd")

# The digits of a statistic and of a value in the text.
STATISTIC_DIGITS, VALUE_DIGITS = 3, 4

LAYOUT = re.compile(r"\{([\d(),-]*)(?: @ (\w+\{[\d,]*\}))?(?: (\w+).*)?\}")
INPUT = re.compile(r"^  \[i\d+\]var(\d{1,19}): ", re.MULTILINE)
CONTENT = re.compile(
    r"^ val: \[([^\]\n]*)\]" + " ".join(rf"{name}=(\S+)" for name in STATISTICS) + r" \w+$",
    re.MULTILINE,
)
UNFINISHED = "not complete: the run ended before"  # the last line if the run failed


def is_text_dump(path: Path) -> bool:
    """Return whether a file is a text dump: its first bytes hold the first line of a block.

    Raises:
        DumpError: the file cannot be read.
    """
    with open_input(path, error=DumpError) as file:
        return HEAD.search(file.read(HEAD_BYTES).decode(errors="replace")) is not None


def open_text(path: Path) -> Dump:
    """Open a text dump; if a tensor has several blocks, use the last block.

    Raises:
        DumpError: the file cannot be read, or has no whole block.
    """
    import numpy as np

    data = read_input(path, error=DumpError, limit=MOST_TEXT_BYTES)
    text = data.decode(errors="replace").replace("\r\n", "\n").rstrip()
    blocks = {header.path.name: (header, excerpt) for header, excerpt in blocks_in(text)}
    if not blocks:
        raise DumpError("holds no complete tensor", "write a new dump with --io-dump", subject=path)
    index = index_of(header for header, _ in blocks.values())
    index = replace(index, complete=not text.rpartition("\n")[2].startswith(UNFINISHED))
    return Dump(str(path), index, lambda it: np.array(blocks[it.key][1]), excerpts=True)


def split_blocks(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the match of each block's first line, and the text of the whole block."""
    heads = [*HEAD.finditer(text)]
    for head, following in zip_longest(heads, heads[1:]):
        yield head, text[head.start() : following.start() if following else len(text)]


def blocks_in(text: str) -> Iterator[tuple[TensorHeader, list[float]]]:
    """Yield an excerpt for each whole block, and a header like the header of a tensor file.

    Blocks that are cut off, and blocks of variables without storage, are left out.
    """
    for head, block in split_blocks(text):
        layout, content = LAYOUT.fullmatch(head["layout"]), CONTENT.search(block)
        if not layout or not content:
            continue
        number = int(head["id"])
        variable = Variable(
            id=number,
            shape=tuple(map(int, binary.AXIS.findall(layout[1]))),
            format=layout[2] or "",
            dtype=layout[3] or "Float32",
            operator=head["operator"],
            operator_type=head["type"],
            name=head["name"],
            slot=max(number - 1 - int(head["number"]), 0),
        )
        inputs = [Variable(id=int(each)) for each in INPUT.findall(block)]
        place, name = Path(f"var{number}"), format_name(variable, inputs)
        element = BY_NAME.get(variable.dtype) or ElementType(-1, variable.dtype, "<f4")
        values, *statistics = content.groups()
        texts = [*statistics, *values.removesuffix("...").split(",")]
        with contextlib.suppress(ValueError):  # something is not a number
            excerpt = [float(each.replace("N/A", "nan")) for each in texts if each.strip()]
            yield TensorHeader(place, name, element, variable.shape, 0, 0), excerpt


def filter_blocks(path: Path, wanted: re.Pattern[str]) -> int:
    """Keep the blocks of variables whose own name, or whose operator's name, matches a pattern.

    Return the number of blocks that were kept.

    Raises:
        OSError: the file cannot be read or written.
    """
    text = path.read_bytes().decode(errors="surrogateescape")
    blocks, search = [*split_blocks(text)], wanted.search
    kept = [block for it, block in blocks if search(it["name"]) or search(it["operator"])]
    before = text[: blocks[0][0].start()] if blocks else text
    path.write_bytes("".join([before, *kept]).encode(errors="surrogateescape"))
    return len(kept)


def format_block(
    variable: Variable, array: Array, inputs: Sequence[tuple[Variable, str]]
) -> Iterator[str]:
    """Yield the lines of a variable's block.

    `inputs` has each input together with its first values as text.
    """
    _, _, layout = format_layout(variable).partition(":")
    head = (
        f"var{variable.id} produced: name={variable.name} layout={layout} "
        f"owner_opr={variable.operator}{{{variable.operator_type}}} opr{variable.operator_id}"
    )
    yield head.replace("\n", r"\n").replace("\r", r"\r")  # names of ONNX may have line ends
    yield " deps:"
    for index, (each, values) in enumerate(inputs):
        yield f"  [i{index}]var{each.id}: {values} s"
    yield f" val: {format_values(array)}{format_statistics(array)} s"


def format_values(array: Array) -> str:
    """Format the first elements of an array."""
    values = [f"{complex(value).real:.4g}" for value in array.reshape(-1)[:VALUES]]
    return f"[{', '.join(values)}{', ...' if array.size > VALUES else ''}]"


def format_statistics(array: Array) -> str:
    """Format minimum, maximum, mean, root mean square and deviation."""
    known = {0: 0, 1: 4}.get(array.size, len(STATISTICS))
    texts = [f"{number:.3g}" for number in excerpt_of(array)[:known]]
    named = zip_longest(STATISTICS, texts, fillvalue="N/A")
    return " ".join(f"{name}={text}" for name, text in named)


def excerpt_of(array: Array) -> Array:
    """Return the statistics of an array and its first values; a missing statistic is NaN."""
    import numpy as np

    values = np.real(array).astype(np.float64).reshape(-1)
    if not values.size:
        return np.full(len(STATISTICS), np.nan)
    with np.errstate(all="ignore"):
        deviation = values.std(ddof=1) if values.size > 1 else np.nan
        mean_square = np.square(values).mean()
        statistics = (values.min(), values.max(), values.mean(), np.sqrt(mean_square), deviation)
    return np.array([*statistics, *values[:VALUES]])


def excerpts_of(dump: Dump) -> Dump:
    """Return a dump in which each tensor is replaced by its excerpt."""
    if dump.excerpts:
        return dump
    return replace(dump, reader=lambda tensor: excerpt_of(dump.read(tensor.key)), excerpts=True)


def as_printed(actual: Array, expected: Array) -> Array:
    """Return the actual excerpt, with expected numbers where both excerpts have equal digits.

    Two numbers have equal digits if the last digit that a text dump prints differs by at most one.
    """
    import numpy as np

    digits = np.where(np.arange(actual.size) < len(STATISTICS), STATISTIC_DIGITS, VALUE_DIGITS)
    size = np.maximum(np.abs(actual), np.abs(expected))
    with np.errstate(all="ignore"):
        unit = 10.0 ** (np.floor(np.log10(size)) - digits + 1)
        near = np.isfinite(size) & (np.abs(actual - expected) <= unit)
    return np.where(near, expected, actual)
