"""The sizes of axes: what the names of axes stand for, and what is guessed.

Axes of one name have one size. It is known from `--shape`, or from the arrays that are fed; an open
axis of unknown size is 1. A name may be made of other names, as exporters of decoders write
it: `past_sequence_length + 1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lar.errors import UsageError
from lar.inputs.loaded import input_error
from lar.records.run import TensorInfo

SIGN = re.compile(r"\s*([+*])\s*")
# For a hint where 1 was too small.
EXAMPLE_SIZE = 64


class AxisSizes:
    """The sizes of the axes of a model's inputs, as far as they are known.

    `guessed` are those that were taken as 1, by their names in `--shape`: the model's name of an
    axis, or `INPUT[AXIS]`.
    """

    def __init__(self, infos: Sequence[TensorInfo], given: Mapping[str, int]) -> None:
        """Take the sizes of `--shape`.

        Raises:
            UsageError: no input has such an axis.
        """
        self.sizes = dict(given)
        self.origins = dict.fromkeys(given, "--shape")
        self.guessed: dict[str, None] = {}
        names = dict.fromkeys(name_at(each, at) for each in infos for at in open_axes(each))
        parts = {part for name in names for part in SIGN.split(name)}
        places = [place_of(info, at) for info in infos for at in range(len(info.shape))]
        for name in {*given} - {*names, *parts, *places}:
            known = ", ".join(names) or ", ".join(places[:4]) or "none"
            raise UsageError(
                "no input has such an axis", f"axes are {known}", flag="--shape", subject=name
            )

    def learn(self, info: TensorInfo, shape: Sequence[int]) -> None:
        """Take the sizes of the array that an input is fed with.

        Raises:
            UsageError: an axis of that name has another size elsewhere.
        """
        for at, size in enumerate(shape):
            for name in {name_at(info, at), place_of(info, at)}:
                known = self.sizes.setdefault(name, size)
                origin = self.origins.setdefault(name, f"input {info.name}")
                if known != size:
                    problem = f"axis {name} of input {info.name} is {size}, and {known} in {origin}"
                    raise input_error("", problem, "give it the same size everywhere")

    def shape_of(self, info: TensorInfo) -> tuple[int, ...]:
        """Return the shape of generated data for an input.

        Raises:
            UsageError: the model does not say how many axes it has.
        """
        if info.any_rank:
            what = "a sequence" if info.sequence else "which may have any number of axes"
            problem = f"nothing feeds {info.name}, {what}"
            raise input_error("", problem, hint_to_generate(info))
        return tuple(self.size_at(info, at) for at in range(len(info.shape)))

    def size_at(self, info: TensorInfo, at: int) -> int:
        """Return the size of an axis of generated data."""
        place, fixed = place_of(info, at), info.shape[at]
        if place in self.sizes:
            return self.sizes[place]
        return self.size_of(name_at(info, at)) if fixed is None else fixed

    def size_of(self, name: str) -> int:
        """Return the size of the axes of a name, 1 if it is unknown."""
        if name in self.sizes:
            return self.sizes[name]
        first, *rest = SIGN.split(name)
        if not rest:
            if name.isdecimal():
                return int(name)
            self.guessed[name] = None
            return 1
        size = self.size_of(first)
        for sign, term in zip(rest[::2], rest[1::2], strict=True):
            size = size + self.size_of(term) if sign == "+" else size * self.size_of(term)
        return size


def place_of(info: TensorInfo, at: int) -> str:
    """Return the name in `--shape` of an axis by its place."""
    return f"{info.name}[{at}]"


def name_at(info: TensorInfo, at: int) -> str:
    """Return the name of an axis in `--shape`: the model's name of it, or its place."""
    return (info.axes[at] if info.axes else "") or place_of(info, at)


def open_axes(info: TensorInfo) -> list[int]:
    """Return the axes of any size."""
    return [at for at, size in enumerate(info.shape) if size is None]


def hint_to_generate(info: TensorInfo) -> str:
    """Return a hint at the item that would generate data for an input."""
    if ";" in info.name:
        return hint_at_json(info.name)
    shape = [size or int(size is None) for size in info.shape]
    shape = shape or ([1, EXAMPLE_SIZE] if info.any_rank else [])
    return f"{item_of_shape(info, shape)} generates data that fits"


def hint_at_json(name: str) -> str:
    """Return how to feed an input whose name no item can have."""
    return f'a ; separates items; a .json file feeds it: {{"{name}": {{"shape": [1], "raw": [0]}}}}'


def item_of_shape(info: TensorInfo, shape: Sequence[int]) -> str:
    return f"{info.name}:{{{','.join(map(str, shape))}}}"


def hint_at_sizes(infos: Sequence[TensorInfo], guessed: Sequence[str]) -> str:
    """Return what to type if an engine failed and axes of any size were taken as 1; empty if these
    are only batches."""
    batches = {name_at(info, 0) for info in infos if len(info.shape) > 1}
    examples = {name: 1 if name in batches else EXAMPLE_SIZE for name in guessed}
    if EXAMPLE_SIZE not in examples.values():
        return ""
    sizes = AxisSizes(infos, examples)
    items = ";".join(item_of_shape(info, sizes.shape_of(info)) for info in infos if info.shape)
    typed = ",".join(f"{name}={size}" for name, size in examples.items())
    taken = f"lar took {', '.join(guessed)} as 1, which may be too small"
    return f"{taken}: give their sizes, as --shape {typed!r} or --input {items!r}"
