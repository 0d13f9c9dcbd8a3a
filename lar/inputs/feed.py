"""The feed of a model: an array for each input.

The arrays are made from the texts of `--input`, and repeated along the batch axis for
`--batch-size`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from lar.errors import LarError, UsageError
from lar.inputs import LESS, OUTPUT, Array, Loaded, images, input_error, model_inputs, numbered
from lar.inputs.dtypes import count_nonfinite, describe_source, generate_array, name_of
from lar.inputs.grammar import Item, NumbersItem, PathItem, ShapeItem, items_of
from lar.inputs.model_inputs import AxisSizes, check_shape, find_misfit, input_named, model_dtype
from lar.inputs.readers import read_numbers, read_path, shape_raw
from lar.records.run import FedInput, ImageSettings, RunSpec, TensorInfo, batch_axis, format_shape

Given = Loaded | ShapeItem

_NUMBERS_FORM = "write numbers as [1.5,2,3], or rows of them as [[1,2],[3,4]]"


@dataclass(frozen=True, eq=False)
class Feed:
    """The data for a model's inputs, by name and in the model's order.

    Each input has an array; an input that is a sequence has a list of arrays. An optional input
    that gets no data is not in the feed. Arrays have the input's dtype and the native byte order;
    they are C-contiguous, aligned and writable. `notes` are warnings about data that was converted,
    is not finite, or was generated although other inputs were given. `guessed` are names of axes
    without a fixed size that were set to 1.
    """

    arrays: dict[str, Any]
    fed: tuple[FedInput, ...]
    notes: tuple[LarError, ...]
    guessed: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The messages of all notes; each message is one line of text."""
        return tuple(note.message for note in self.notes)


def feed_of(
    texts: Sequence[str | Item],
    infos: Sequence[TensorInfo],
    spec: RunSpec,
    *,
    generates: bool = True,
) -> Feed:
    """Read the data that the texts of `--input` name, and generate data for the other inputs.

    The spec says how images are converted, which data is generated, and the sizes of axes. Each
    element of `texts` is a text, or an item into which `lar.inputs.grammar` has parsed a text. If
    `texts` is empty, all data is generated. If there are texts and `generates` is False, the texts
    must give data for all inputs.

    Raises:
        UsageError: a text, a file or an array is wrong, does not fit the model, or an input is
            left without data.
    """
    try:
        unjudged = _check_typed([text for text in texts if isinstance(text, str)], infos)
        given = _collect(texts, infos)
        subjects = _find_subjects(given, spec.image)
        sizes = AxisSizes(infos, spec.shape)
        made: dict[str, list[tuple[Array, FedInput]]] = {}
        notes: list[UsageError | None] = [*unjudged]
        for info, value in given:
            parts = made.setdefault(info.name, [])
            name = f"{info.name}[{len(parts)}]" if info.sequence else info.name
            if isinstance(value, ShapeItem):
                parts.append(_generate(name, info, value.shape, spec, value.text))
            else:
                array, note = _fit(value, info, spec.image, info.name in subjects)
                notes.append(note)
                if count := count_nonfinite(array):
                    problem = f"{count} of {array.size} values are NaN or infinite"
                    notes.append(input_error(value.source, problem))
                parts.append((array, _record(name, array, value.source)))
            if not info.any_rank:
                sizes.learn(info, parts[-1][0].shape)
        left = [info for info in infos if info.name not in made and not info.optional]
        if left and texts and not generates:
            names = ", ".join(info.name for info in left)
            raise input_error("", f"nothing feeds {names}", model_inputs.hint_to_generate(left[0]))
        for info in left:
            array, record = _generate(info.name, info, sizes.shape_of(info), spec)
            made[info.name] = [(array, record)]
            if texts:
                what = f"{record.dtype} {format_shape(record.shape)} ({record.source})"
                notes.append(input_error("", f"{info.name} is not given, and generated: {what}"))
    except MemoryError:
        raise UsageError("the data does not fit into memory", LESS, flag="--input") from None
    arrays: dict[str, Any] = {}
    for info in (info for info in infos if info.name in made):
        items = [array for array, _ in made[info.name]]
        arrays[info.name] = items if info.sequence else items[0]
    fed = tuple(record for name in arrays for _, record in made[name])
    return Feed(arrays, fed, tuple(filter(None, notes)), tuple(sizes.guessed))


def _record(name: str, array: Array, source: str, generated: bool = False) -> FedInput:
    return FedInput(
        name=name, dtype=name_of(array.dtype), shape=array.shape, source=source, generated=generated
    )


def _generate(
    name: str, info: TensorInfo, shape: tuple[int, ...], spec: RunSpec, text: str = ""
) -> tuple[Array, FedInput]:
    check_shape(shape, info, text or info.name)
    array = generate_array(name, model_dtype(info), shape, fill=spec.fill, seed=spec.seed)
    return array, _record(name, array, describe_source(spec.fill, spec.seed), generated=True)


def _collect(
    texts: Sequence[str | Item], infos: Sequence[TensorInfo]
) -> list[tuple[TensorInfo, Given]]:
    """Return the given arrays, each with the model's input that it feeds.

    Raises:
        UsageError: a text or a file is wrong, or two items feed one input.
    """
    given: list[tuple[TensorInfo, Given]] = []
    for item in items_of(texts, [info.name for info in infos]):
        for info, value in _read_item(item, infos):
            if not info.sequence and any(info is other for other, _ in given):
                raise input_error("", f"two items feed {info.name}", "give each input once")
            given.append((info, value))
    return given


def _read_item(item: Item, infos: Sequence[TensorInfo]) -> Iterator[tuple[TensorInfo, Given]]:
    """Yield the arrays of an item, each with the model's input that it feeds."""
    if isinstance(item, ShapeItem):
        yield input_named(item.name, infos, item.text), item
    elif isinstance(item, NumbersItem):
        source = item.text if len(item.text) <= 60 else item.text[:57] + "..."
        info = input_named(item.name, infos, source)
        try:
            yield info, Loaded(drop_outer_axis(read_numbers(item.text), info), source, "text")
        except ValueError as error:
            raise input_error(source, str(error), _NUMBERS_FORM) from None
    elif isinstance(item, Loaded):
        info = model_inputs.input_of(item, "", infos)
        yield info, item._replace(array=drop_outer_axis(item.array, info))
    else:
        if item.name:
            input_named(item.name, infos, item.path)
        for loaded in read_path(item.path, item.name):
            info = model_inputs.input_of(loaded, item.name, infos)
            if loaded.kind == "raw":
                loaded = shape_raw(loaded, item.form or model_inputs.form_of(info, item.path))
            yield info, loaded


def drop_outer_axis(array: Array, info: TensorInfo) -> Array:
    """Return an array without its outer axis of size 1, if the model's input has no such axis.

    As in load_and_run, the text `[1,2,3]` gives an array of shape (1,3), although the model's input
    may have only one axis. An item of a stack also has an outer axis of size 1, the first axis of
    the stack.
    """
    fits = find_misfit(array.shape, info) == ""
    return array if fits or array.ndim == 0 or array.shape[0] != 1 else array[0, ...]


def _check_typed(texts: Sequence[str], infos: Sequence[TensorInfo]) -> list[UsageError]:
    """Return a warning for each folder in `texts` whose expected outputs lar will not compare.

    `texts` must contain neither folders of testcases (lar judges the outputs of testcases) nor
    items of data sets.

    Raises:
        UsageError: a text is wrong, or names an input that has a semicolon in its name.
    """
    names, warnings = [info.name for info in infos], []
    for text, name in product(texts, names):
        if ";" in name and f"{name}:" in text:
            problem = "the name of the input holds a ;"
            raise input_error(text, problem, model_inputs.hint_at_json(name))
    for path in (item.path for item in items_of(texts, names) if isinstance(item, PathItem)):
        if found := numbered(path, OUTPUT) if os.path.isdir(path) else []:
            outputs = ", ".join(os.path.basename(file) for _, file in found)
            problem = f"its expected outputs ({outputs}) are not judged"
            hint = "`lar run` judges them, given a folder with this one and its .onnx"
            warnings.append(input_error(path, f"{problem}; {hint}"))
    return warnings


def _find_subjects(given: Sequence[tuple[TensorInfo, Given]], image: ImageSettings) -> set[str]:
    """Return the names of the inputs that image settings apply to; empty without such settings."""
    if not (flags := images.flags_of(image)):
        return set()
    pairs = [(info, value) for info, value in given if isinstance(value, Loaded)]
    pictures = {info.name for info, it in pairs if it.channels}
    subjects = pictures or {info.name for info, it in pairs if images.takes_settings(it, info)}
    if not subjects:
        hint = "feed an image file, or an array of 3 or 4 axes from a file"
        raise UsageError("the flag changes images, and no image is fed", hint, flag=flags[0])
    return subjects


def _fit(
    loaded: Loaded, info: TensorInfo, image: ImageSettings, is_subject: bool
) -> tuple[Array, UsageError | None]:
    """Return the array that the model takes, and a warning if lar has converted the array."""
    where, dtype = loaded.source, model_dtype(info)
    if loaded.channels:
        loaded = images.fit_channels(loaded, info, image)
    hint = images.hint_at_flags(loaded, info, image)
    if is_subject:
        array = images.apply_settings(loaded, info, image)
        check_shape(array.shape, info, where, hint)
        return array, None
    if loaded.channels and (find_misfit(loaded.array.shape, info) or dtype != np.uint8):
        problem = f"is an image of uint8 {format_shape(loaded.array.shape)}"
        wanted = f"input {info.name} takes {info.dtype} {info.shape_text}"
        raise input_error(where, f"{problem}, {wanted}", hint)
    if loaded.kind == "text" and info.shape == () and loaded.array.size == 1:
        hint = f"it takes one number: {info.name}:{np.add(loaded.array.item(), 0)}"  # 1 for True
    check_shape(loaded.array.shape, info, where, hint)
    return model_inputs.convert_dtype(loaded, dtype)


def without_batch(infos: Sequence[TensorInfo], size: int | None) -> list[TensorInfo]:
    """Return the model's inputs; if a batch axis has the fixed size `size`, its size is left open.

    The size is left open so that arrays with fewer items can be fed. The function `repeat_batch`
    repeats the items later.
    """
    return [
        replace(info, shape=(None, *info.shape[1:])) if size and info.shape[:1] == (size,) else info
        for info in infos
    ]


def batch_error(size: int, problem: str, hint: str) -> UsageError:
    return UsageError(problem, hint, flag=f"--batch-size {size}")


def repeat_batch(array: Array, info: TensorInfo, size: int, *, is_generated: bool) -> Array:
    """Return an array whose items are repeated until its first axis has the length `size`.

    Generated data is cut if its first axis is longer than `size`.

    Raises:
        UsageError: the model's input has no batch axis, or has a fixed batch size other than
            `size`, or the user gave more than `size` items.
    """
    if place := batch_axis(info):
        hint = f"set the size of this axis: --shape {info.axes[place]}={size}"
        raise batch_error(size, f"input {info.name} has its batch on axis {place}", hint)
    has_batch = not info.sequence and array.ndim > 0
    if not has_batch or not (info.resizable or info.shape[0] in (None, size)):
        wanted = f"only a batch of {info.shape[0]}" if has_batch else "no batch"
        hint = "leave it out, or export the model with a batch of any size"
        raise batch_error(size, f"input {info.name} takes {wanted}", hint)
    if len(array) > size and not is_generated:
        hint = "to run them one after the other, feed a folder, a list or a .npz"
        hint = f"give {len(array)} or more; {hint}"
        raise batch_error(size, f"input {info.name} is fed {len(array)} items", hint)
    return np.ascontiguousarray(array[np.arange(size) % len(array)])


def repeat_batches(
    arrays: dict[str, Array], fed: Sequence[FedInput], infos: Sequence[TensorInfo], size: int
) -> tuple[dict[str, Array], tuple[FedInput, ...]]:
    """Return all inputs with items repeated to a batch of `size`, and the `FedInput` of each input.

    If the first axis of an input may have any size, inputs that cannot take a batch of `size` are
    unchanged.

    Raises:
        UsageError: an input is refused by `repeat_batch`, or the model's inputs have no batch in
            common.
    """
    tensors = [info for info in infos if not info.sequence]
    if any(info.shape[:1] == (None,) for info in tensors):
        infos = [it for it in tensors if batch_axis(it) or it.shape[:1] in ((None,), (size,))]
    sizes = {info.name: info.shape[0] for info in infos if info.shape and info.shape[0] is not None}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {first}" for name, first in sizes.items())
        problem = f"the model's inputs have no batch in common: {listed}"
        raise batch_error(size, problem, "leave it out, and feed each input with --input")
    generated = {each.name for each in fed if each.generated}
    repeated = {
        info.name: repeat_batch(arrays[info.name], info, size, is_generated=info.name in generated)
        for info in infos
        if info.name in arrays
    }
    return {**arrays, **repeated}, tuple(
        replace(each, shape=repeated[each.name].shape) if each.name in repeated else each
        for each in fed
    )
