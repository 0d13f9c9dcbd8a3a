"""The algorithms that MegEngine says it runs, read from its log of level DEBUG.

It writes one line when it chooses for an operator, and takes the same choice for all operators
with the same shapes and parameters after that:

    ... ConvBiasForward: tensor layouts({1(2048),32(64),8(8),8(1) Float32} , ...) -> ({...} )):
    algo=WINOGRAD:FB_GI_F32_MK4_4x8:4:4:8:3 workspace=0.06MiB attribute=1

on one line, behind the time and place unless the line was taken from the engine itself; a layout
holds each size and, in brackets, its stride. Read from MegEngine 1.13:
src/opr/impl/search_policy/algo_chooser.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CHOICE = re.compile(
    r"(?:\] |^)(\w+): tensor layouts\((.*)\)\): algo=(\S+) workspace=([\d.]+)MiB", re.MULTILINE
)
LAYOUT = re.compile(r"\{(.*?) ?(\w+)\}")
SIZE = re.compile(r"(\d+)\(")


@dataclass(frozen=True)
class LoggedChoice:
    """An algorithm that was chosen; of an operand that is not there the shape is empty."""

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    algorithm: str
    workspace_mib: float

    @property
    def text(self) -> str:
        """The shapes as people read them: {1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32."""
        *before, last = ("{" + ",".join(map(str, shape)) + "}" for shape in self.shapes if shape)
        return " ".join([*before, "->", last, self.dtype])


def choices_in(log: str) -> list[LoggedChoice]:
    """Return the choices in a log, each once."""
    found = (choice_of(match) for match in CHOICE.finditer(log))
    return list(dict.fromkeys(found))


def choice_of(match: re.Match[str]) -> LoggedChoice:
    layouts = LAYOUT.findall(match[2])
    shapes = tuple(tuple(map(int, SIZE.findall(sizes))) for sizes, _ in layouts)
    dtypes = "/".join(dict.fromkeys(dtype for sizes, dtype in layouts if sizes))
    return LoggedChoice(match[1], shapes, dtypes, match[3], float(match[4]))
