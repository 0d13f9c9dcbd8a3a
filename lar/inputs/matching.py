"""Matching of arrays with the model's inputs: by name or position, then by shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lar.errors import UsageError
from lar.inputs.axes import hint_to_generate, open_axes
from lar.inputs.dtypes import cast_values, count_nonfinite, dtype_of, kind_of, name_of, settle
from lar.inputs.grammar import RAW_HINT, RawForm
from lar.inputs.image_settings import channel_axis_of
from lar.inputs.loaded import Array, Loaded, UnnamedInput, input_error
from lar.records.run import TensorInfo, format_shape

# load_and_run's name for an item that gives none.
DEFAULT_NAME = "data"


def input_named(name: str, infos: Sequence[TensorInfo], where: str) -> TensorInfo:
    """Return the model's input of a name that the user typed, or that a file binds itself to.

    An empty name stands for the only input, or for one called `data`.

    Raises:
        UsageError: there is no such input, or the name must be given.
    """
    if not infos:
        raise input_error(where, "the model has no inputs", "leave --input out")
    if found := find_named(name, infos):
        return found
    required = [info for info in infos if not info.optional] or infos
    listing = f"its inputs are {', '.join(info.name for info in required)}"
    if name:
        raise input_error(where, f"the model has no input {name!r}", listing)
    default = required[0] if len(required) == 1 else find_named(DEFAULT_NAME, infos)
    if default is None:
        problem = "does not say which of the model's inputs it feeds"
        raise UnnamedInput(where, problem, f"; {listing}")
    return default


def find_named(name: str, infos: Sequence[TensorInfo]) -> TensorInfo | None:
    """Return the input of a name, or the sequence that has an item of that name: `s[0]`."""
    whole = name.rpartition("[")[0]
    found = (it for it in infos if it.name == name or (it.sequence and it.name == whole))
    return next(found, None)


def input_of(loaded: Loaded, given: str, infos: Sequence[TensorInfo]) -> TensorInfo:
    """Return the input that an array feeds: by the name given, its own name, or its position.

    Raises:
        UsageError: none of these leads to an input.
    """
    own = loaded.name
    if given or loaded.name_binds or find_named(own, infos):
        return input_named(given or own, infos, loaded.source)
    if loaded.position is None:
        return input_named("", infos, loaded.source)
    if loaded.position >= len(infos):
        problem = f"is input number {loaded.position}, counted from 0; the model has {len(infos)}"
        raise UnnamedInput(loaded.source, problem)
    return infos[loaded.position]


def find_misfit(shape: tuple[int, ...], info: TensorInfo) -> str:
    """Return why the model's input does not take a shape, an empty string if it does.

    A resizable input of 4 axes has fixed channels, one of another rank only a fixed rank. Any other
    input has all axes fixed, except those of any size.
    """
    if info.any_rank:
        return ""
    text, wanted = format_shape(shape), f"{info.shape_text} of input {info.name}"
    if len(shape) != len(info.shape):
        return f"its shape {text} has {len(shape)} axes, {wanted} has {len(info.shape)}"
    fixed: Sequence[int] = range(len(shape))
    if info.resizable and 0 in shape:
        return f"its shape {text} has an axis of 0, which the engine does not take"
    if info.resizable:
        fixed = [channel_axis_of(info.shape)] if len(shape) == 4 else []
    for axis in fixed:
        if info.shape[axis] not in (None, shape[axis]):
            return f"its shape {text} is not {wanted}: axis {axis} must be {info.shape[axis]}"
    return ""


def check_shape(shape: tuple[int, ...], info: TensorInfo, where: str, hint: str = "") -> None:
    """Refuse a shape that the model's input does not take.

    Raises:
        UsageError: `find_misfit` finds one.
    """
    misfit = find_misfit(shape, info)
    if misfit:
        raise input_error(where, misfit, hint or hint_to_generate(info))


def convert_dtype(loaded: Loaded, dtype: np.dtype[Any]) -> tuple[Array, UsageError | None]:
    """Return the array settled in the model's dtype, and a warning where there is one.

        source                    model's dtype    what happens
        any file                  the same         fed as it is (byte order does not count)
        float file                another float    converted, with a warning
        integer file              other integers   converted, with a warning, if all values fit
        bytes of a file .npy      a float of them  taken for such numbers, as NumPy has no name
                                                   for bfloat16
        numbers without a dtype   any              converted, if all values fit; floats round
        any file                  any other        an error

    Numbers without a dtype are inline values and JSON entries without a type. Finite values that
    would become infinite do not fit. An image file without image settings must be what the model
    takes; with them it does not come here, and is converted to any dtype that holds the result.

    Raises:
        UsageError: the table says error, or a value does not fit.
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
                hint = (
                    "give real and imaginary parts as the model takes them: array.real, array.imag"
                )
            problem = f"holds {name_of(array.dtype)}, the model takes {name_of(dtype)}"
            raise input_error(where, problem, hint)
        warning = input_error(where, f"converted from {array.dtype.name} to {dtype}")
    try:
        return cast_values(array, dtype), warning
    except ValueError as error:
        raise input_error(where, str(error), f"feed values that {name_of(dtype)} holds") from None


def warn_nonfinite(array: Array, where: str) -> UsageError | None:
    """Return a warning if elements are NaN or infinite."""
    count = count_nonfinite(array)
    if not count:
        return None
    return input_error(where, f"{count} of {array.size} values are NaN or infinite")


def model_dtype(info: TensorInfo) -> np.dtype[Any]:
    """Return the dtype of the model's input.

    Raises:
        UsageError: NumPy has none for it, or it is not numeric.
    """
    try:
        return dtype_of(info.dtype)
    except ValueError:
        problem = f"the model's input {info.name} takes {info.dtype}, which lar cannot feed"
        raise UsageError(problem, "it feeds numbers, booleans and texts", flag="--input") from None


def form_of(info: TensorInfo, where: str) -> RawForm:
    """Return the dtype and shape that raw bytes take for an input.

    Raises:
        UsageError: an axis of the input is of any size.
    """
    if open_axes(info) or info.any_rank:
        problem = f"needs a shape: input {info.name} is {info.shape_text}"
        raise input_error(where, problem, RAW_HINT)
    return RawForm(info.dtype, tuple(size or 0 for size in info.shape))
