"""How arrays fit a model's inputs: by name or position, by shape, and by dtype.

An axis of a model's input may have no fixed size. Axes with equal names have equal sizes: the size
from `--shape`, the size in an array that is fed, or otherwise 1. The name of an axis may be a
formula of other names, such as `past_sequence_length + 1` in exported decoders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lar.errors import UsageError
from lar.inputs import NAME_IT, Array, Loaded, UnnamedInput, input_error
from lar.inputs.dtypes import cast_values, dtype_of, kind_of, name_of, settle
from lar.inputs.grammar import RAW_HINT, RawForm
from lar.inputs.images import channel_axis_of
from lar.records.run import TensorInfo, format_shape

# load_and_run's name for an item without a name.
DEFAULT_NAME = "data"
SIGN = re.compile(r"\s*[+*]\s*")
TERM = re.compile(r"([+*]?)([^+*]+)")
# The example in a hint, if a size of 1 was too small.
EXAMPLE_SIZE = 64
COMPLEX_HINT = "give real and imaginary parts as the model takes them: array.real, array.imag"


def input_named(name: str, infos: Sequence[TensorInfo], where: str) -> TensorInfo:
    """Return the model's input that has a name from the user or from a file.

    An empty name stands for the only input, or for the input `data`.

    Raises:
        UsageError: the model has no input of this name, or the name is empty and several inputs are
            possible.
    """
    if not infos:
        raise input_error(where, "the model has no inputs", "leave --input out")
    found = find_named(name, infos)
    required = [info for info in infos if not info.optional] or infos
    if not name:
        found = required[0] if len(required) == 1 else find_named(DEFAULT_NAME, infos)
    if found:
        return found
    listing = f"its inputs are {', '.join(info.name for info in required)}"
    if name:
        raise input_error(where, f"the model has no input {name!r}", listing)
    problem = "does not say which of the model's inputs it feeds"
    raise UnnamedInput(problem, f"{NAME_IT}; {listing}", flag="--input", subject=where)


def find_named(name: str, infos: Sequence[TensorInfo]) -> TensorInfo | None:
    """Return the model's input that has this name, or None.

    The name `s[0]` stands for the sequence `s`.
    """
    whole = name.rpartition("[")[0]
    return next((it for it in infos if it.name == name or (it.sequence and it.name == whole)), None)


def input_of(loaded: Loaded, given: str, infos: Sequence[TensorInfo]) -> TensorInfo:
    """Return the input that an array feeds, by a given name or by the array's name or position.

    Raises:
        UsageError: no input has this name or position.
    """
    if given or loaded.name_binds or find_named(loaded.name, infos):
        return input_named(given or loaded.name, infos, loaded.source)
    if loaded.position is None:
        return input_named("", infos, loaded.source)
    if loaded.position >= len(infos):
        problem = f"is input number {loaded.position}, counted from 0; the model has {len(infos)}"
        raise UnnamedInput(problem, NAME_IT, flag="--input", subject=loaded.source)
    return infos[loaded.position]


def find_misfit(shape: tuple[int, ...], info: TensorInfo) -> str:
    """Return why the model's input does not take a shape; empty if it takes the shape.

    A resizable input takes any shape of the same rank, if no axis has the size 0. But if the input
    has 4 axes and the model fixes its number of channels, the shape must have this number of
    channels. If the input is not resizable, every axis of the shape must have the size that the
    model fixes for the axis.
    """
    if info.any_rank:
        return ""
    if len(shape) != len(info.shape):
        wanted = f"{info.shape_text} of input {info.name} has {len(info.shape)}"
        return f"its shape {format_shape(shape)} has {len(shape)} axes, {wanted}"
    fixed: Sequence[int] = range(len(shape))
    if info.resizable and 0 in shape:
        return f"its shape {format_shape(shape)} has an axis of 0, which the engine does not take"
    if info.resizable:
        fixed = [channel_axis_of(info.shape)] if len(shape) == 4 else []
    for axis in fixed:
        if info.shape[axis] not in (None, shape[axis]):
            wanted = f"{info.shape_text} of input {info.name}: axis {axis} must be"
            return f"its shape {format_shape(shape)} is not {wanted} {info.shape[axis]}"
    return ""


def check_shape(shape: tuple[int, ...], info: TensorInfo, where: str, hint: str = "") -> None:
    """Refuse a shape that the model's input does not take.

    Raises:
        UsageError: `find_misfit` finds a reason.
    """
    if misfit := find_misfit(shape, info):
        raise input_error(where, misfit, hint or hint_to_generate(info))


def convert_dtype(loaded: Loaded, dtype: np.dtype[Any]) -> tuple[Array, UsageError | None]:
    """Return an array in the model's dtype, and a warning if lar has converted the array.

    A file that has the model's dtype is fed without conversion; its byte order does not matter. A
    file of floats is converted to another floating-point type, with a warning. If all values fit, a
    file of integers is converted to another integer type, with a warning. NumPy has no name for
    some types, such as bfloat16: if the elements in a .npy have an unnamed type, they are read as
    the model's floats, provided that both have the same size. Numbers without a dtype are converted
    to the model's dtype if all values fit; for a floating-point dtype, they are rounded. All other
    conversions of a file are refused.

    Numbers without a dtype are numbers in the text of `--input`, and JSON entries without a type. A
    fraction does not fit an integer dtype, and a finite value does not fit if it would become
    infinite. An image file without image settings must already have the model's dtype; with image
    settings, `images.apply_settings` converts it instead.

    Raises:
        UsageError: the dtype of the file cannot be converted, or a value does not fit the dtype.
    """
    array, where = loaded.array, loaded.source
    warning: UsageError | None = None
    kinds = {kind_of(array.dtype), kind_of(dtype)}
    if kinds == {"V", "f"} and array.itemsize == dtype.itemsize:
        return settle(array, array.dtype).view(dtype), None
    if loaded.kind != "text":
        if array.dtype.newbyteorder("=") == dtype or kinds == {"O"}:
            return settle(array, dtype), None
        if kinds != {"f"} and not kinds <= {"i", "u"}:
            hint = f"save it as {dtype}, with array.astype({dtype.name!r})"
            if dtype.kind == "O":
                hint = "save texts, with array.astype(str)"
            elif "c" in kinds:
                hint = COMPLEX_HINT
            problem = f"holds {name_of(array.dtype)}, the model takes {name_of(dtype)}"
            raise input_error(where, problem, hint)
        warning = input_error(where, f"converted from {array.dtype.name} to {dtype}")
    try:
        return cast_values(array, dtype), warning
    except ValueError as error:
        raise input_error(where, str(error), f"feed values that {name_of(dtype)} holds") from None


def model_dtype(info: TensorInfo) -> np.dtype[Any]:
    """Return the dtype of the model's input.

    Raises:
        UsageError: lar cannot feed this dtype.
    """
    try:
        return dtype_of(info.dtype)
    except ValueError:
        problem = f"the model's input {info.name} takes {info.dtype}, which lar cannot feed"
        raise UsageError(problem, "lar feeds numbers, booleans and texts", flag="--input") from None


def form_of(info: TensorInfo, where: str) -> RawForm:
    """Return an input's own dtype and shape, for raw bytes that feed it.

    Raises:
        UsageError: an axis of the input has no fixed size.
    """
    if None in info.shape or info.any_rank:
        raise input_error(where, f"needs a shape: input {info.name} is {info.shape_text}", RAW_HINT)
    return RawForm(info.dtype, tuple(size or 0 for size in info.shape))


class AxisSizes:
    """The known sizes of the axes of a model's inputs.

    `guessed` are the axes whose size was set to 1, by their names in `--shape`: the model's name of
    an axis, or `INPUT[AXIS]`.
    """

    def __init__(self, infos: Sequence[TensorInfo], given: Mapping[str, int]) -> None:
        """Set the sizes that `--shape` gives.

        Raises:
            UsageError: no input has an axis of a given name.
        """
        self.known = {name: (size, "--shape") for name, size in given.items()}
        self.guessed: dict[str, None] = {}
        if not given:
            return
        axes = [(info, at) for info in infos for at in range(len(info.shape))]
        names = dict.fromkeys(name_at(info, at) for info, at in axes if info.shape[at] is None)
        parts = {part for name in names for part in SIGN.split(name)}
        places = [place_of(info, at) for info, at in axes]
        for name in {*given} - {*names, *parts, *places}:
            known = ", ".join(names) or ", ".join(places[:4]) or "none"
            problem, hint = "no input has such an axis", f"axes are {known}"
            raise input_error(name, problem, hint, flag="--shape")

    def learn(self, info: TensorInfo, shape: Sequence[int], flag: str = "--input") -> None:
        """Record the sizes of the axes of an array that an input is fed with.

        `flag` has set these sizes.

        Raises:
            UsageError: another axis of the same name has another size.
        """
        for at, size in enumerate(shape):
            for name in {name_at(info, at), place_of(info, at)}:
                known, origin = self.known.setdefault(name, (size, f"input {info.name}"))
                if known != size:
                    problem = f"axis {name} of input {info.name} is {size}, and {known} in {origin}"
                    raise input_error("", problem, "give it the same size everywhere", flag=flag)

    def shape_of(self, info: TensorInfo) -> tuple[int, ...]:
        """Return the shape of generated data for an input.

        Raises:
            UsageError: the model does not fix the number of axes of the input.
        """
        if info.any_rank:
            what = "a sequence" if info.sequence else "which may have any number of axes"
            raise input_error("", f"nothing feeds {info.name}, {what}", hint_to_generate(info))
        return tuple(self.size_at(info, at) for at in range(len(info.shape)))

    def size_at(self, info: TensorInfo, at: int) -> int:
        """Return the size of an axis of generated data."""
        place, fixed = place_of(info, at), info.shape[at]
        if place in self.known:
            return self.known[place][0]
        return self.size_of(name_at(info, at)) if fixed is None else fixed

    def size_of(self, name: str) -> int:
        """Return the size of the axes that have a name; 1 if the size is unknown."""
        if name in self.known:
            return self.known[name][0]
        terms = TERM.findall(name)
        if len(terms) > 1:  # from left to right; a loop, for thousands of terms
            size = 0
            for sign, term in terms:
                own = self.size_of(term.strip())
                size = size * own if sign == "*" else size + own
            return size
        if name.isdecimal():
            return int(name)
        self.guessed[name] = None
        return 1


def place_of(info: TensorInfo, at: int) -> str:
    """Return a name for an axis, made of the input's name and the axis's index, such as `x[0]`."""
    return f"{info.name}[{at}]"


def name_at(info: TensorInfo, at: int) -> str:
    """Return how `--shape` names an axis: by the model's name of the axis, if any, or as `x[0]`."""
    return (info.axes[at] if info.axes else "") or place_of(info, at)


def hint_to_generate(info: TensorInfo) -> str:
    """Return a hint with an item of `--input` that generates data for an input."""
    if ";" in info.name:
        return hint_at_json(info.name)
    shape = [size or int(size is None) for size in info.shape]
    shape = shape or ([1, EXAMPLE_SIZE] if info.any_rank else [])
    return f"{info.name}:{format_shape(shape)} generates data that fits"


def hint_at_json(name: str) -> str:
    """Return a hint for an input whose name has a semicolon, and so cannot be in `--input`."""
    return f'a ; separates items; a .json file feeds it: {{"{name}": {{"shape": [1], "raw": [0]}}}}'


def hint_at_sizes(infos: Sequence[TensorInfo], guessed: Sequence[str]) -> str:
    """Return a hint for a failed engine: give sizes for the axes whose size was set to 1.

    The hint is empty if each axis in `guessed` is the batch axis of an input.
    """
    batches = {name_at(info, 0) for info in infos if len(info.shape) > 1}
    examples = {name: 1 if name in batches else EXAMPLE_SIZE for name in guessed}
    if EXAMPLE_SIZE not in examples.values():
        return ""
    sizes = AxisSizes(infos, examples)
    items = ";".join(f"{it.name}:{format_shape(sizes.shape_of(it))}" for it in infos if it.shape)
    typed = ",".join(f"{name}={size}" for name, size in examples.items())
    taken = f"lar took {', '.join(guessed)} as 1, which may be too small"
    return f"{taken}: give their sizes, as --shape {typed!r} or --input {items!r}"
