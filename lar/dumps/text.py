"""MegEngine's text dump: a block for each variable, with its first values and their statistics.

    var17 produced: name=ADD layout={4(1) Float32} owner_opr=ADD3(a,b)[16]{Elemwise} opr16
     deps:
      [i0]var3: [0, 1, 2, 3] s
     val: [1, 3, 5, 7]min=1 max=7 mean=4 l2=4.58 sd=2.58 s

Five values, then `...`; numbers are %.4g, those of the statistics %.3g.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.dumps.names import Variable, format_layout

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

HEAD = re.compile(
    r"var(?P<id>\d{1,19}) produced: name=(?P<name>.*) layout=(?P<layout>\{.*\}|<invalid>) "
    r"owner_opr=(?P<operator>.*)\{(?P<type>[^{}]*)\} opr(?P<number>\d{1,19})$"
)
VALUES = 5
STATISTICS = ("min", "max", "mean", "l2", "sd")
LINE_ENDS = str.maketrans({"\n": "\\n", "\r": "\\r"})  # names of ONNX models may hold some


def filter_blocks(path: Path, wanted: re.Pattern[str]) -> int:
    """Keep the blocks of variables whose name, or operator's name, a pattern is found in.

    Returns how many there are.

    Raises:
        OSError: the file cannot be read or written.
    """
    rest = path.with_name(path.name + ".rest")
    count, keep = 0, True
    with (
        path.open(encoding="utf-8", errors="surrogateescape") as lines,
        rest.open("w", encoding="utf-8", errors="surrogateescape") as kept,
    ):
        for line in lines:
            if found := HEAD.match(line.rstrip("\n")):
                keep = bool(wanted.search(found["name"]) or wanted.search(found["operator"]))
                count += keep
            if keep:
                kept.write(line)
    os.replace(rest, path)
    return count


def format_block(
    variable: Variable, array: Array, inputs: Sequence[tuple[Variable, str]]
) -> Iterator[str]:
    """Yield the lines of a variable's block; of inputs, the first values stand there formatted."""
    head = (
        f"var{variable.id} produced: name={variable.name} layout={layout_text(variable)} "
        f"owner_opr={variable.operator}{{{variable.operator_type}}} opr{variable.operator_id}"
    )
    yield head.translate(LINE_ENDS)
    yield " deps:"
    for index, (each, values) in enumerate(inputs):
        yield f"  [i{index}]var{each.id}: {values} s"
    yield f" val: {format_values(array)}{format_statistics(array)} s"


def layout_text(variable: Variable) -> str:
    return format_layout(variable).removeprefix("layout:").removeprefix("shape:")


def format_values(array: Array) -> str:
    """Format the first elements of an array."""
    values = [f"{complex(value).real:.4g}" for value in array.reshape(-1)[:VALUES]]
    return f"[{', '.join(values)}{', ...' if array.size > VALUES else ''}]"


def format_statistics(array: Array) -> str:
    """Format the least, the greatest, the mean, the root mean square, the deviation."""
    known = {0: 0, 1: 4}.get(array.size, len(STATISTICS))
    return " ".join(
        f"{name}={number:.3g}" if place < known else f"{name}=N/A"
        for place, (name, number) in enumerate(zip(STATISTICS, excerpt_of(array), strict=False))
    )


def excerpt_of(array: Array) -> Array:
    """Return the statistics of an array, NaN where it has none, and its first values."""
    import numpy as np

    values = np.real(array).astype(np.float64).reshape(-1)
    if not values.size:
        return np.full(len(STATISTICS), np.nan)
    with np.errstate(all="ignore"):
        deviation = values.std(ddof=1) if values.size > 1 else np.nan
        mean_square = np.square(values).mean()
        statistics = (values.min(), values.max(), values.mean(), np.sqrt(mean_square), deviation)
    return np.array([*statistics, *values[:VALUES]])
