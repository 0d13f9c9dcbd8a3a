"""The feed of a model: an array for each of its inputs, made from the texts of `--input`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lar.errors import Note, UsageError
from lar.inputs.generation import describe_source, generate_array, shape_to_generate
from lar.inputs.grammar import Item, LoadedItem, NumbersItem, PathItem, ShapeItem, items_of
from lar.inputs.image_settings import (
    apply_settings,
    check_channels,
    flags_of,
    hint_at_flags,
    takes_settings,
)
from lar.inputs.literals import read_numbers
from lar.inputs.loaded import LESS, Array, Loaded, MissingData, format_shape, input_error
from lar.inputs.matching import (
    check_shape,
    convert_dtype,
    find_misfit,
    form_of,
    hint_to_generate,
    input_named,
    input_of,
    model_dtype,
    warn_nonfinite,
)
from lar.inputs.readers import expected_outputs, read_path, shape_raw
from lar.records.run import FedInput, ImageSettings, TensorInfo

Given = Loaded | ShapeItem

_NUMBERS_FORM = "write numbers as [1.5,2,3], or rows of them as [[1,2],[3,4]]"


@dataclass(frozen=True, eq=False)
class Feed:
    """An array for each input of the model, by name and in the model's order.

    Arrays have the input's dtype, C-contiguous, aligned, writable and in native byte order.
    `notes` are warnings about data that was converted or is not finite.
    """

    arrays: dict[str, Array]
    fed: tuple[FedInput, ...]
    notes: tuple[Note, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes as whole lines."""
        return tuple(note.message for note in self.notes)


def feed_of(
    texts: Sequence[str | Item],
    infos: Sequence[TensorInfo],
    *,
    image: ImageSettings,
    fill: str,
    seed: int,
) -> Feed:
    """Read what the texts of `--input` say; without texts, generate data for all inputs.

    An item, as the grammar makes it of a text, may stand in a text's place.

    Raises:
        UsageError: a text, a file or an array is wrong, does not fit the model, or an input is
            left without data.
    """
    try:
        given = _collect(texts, infos)
        subjects = _find_subjects(given, infos, image)
        arrays, fed = {}, []
        notes: list[Note | None] = [*_warn_unjudged(texts, infos)]
        for info in infos:
            name, value = info.name, given[info.name]
            if isinstance(value, ShapeItem):
                array = _generate(value, info, fill, seed)
                source = describe_source(fill, seed)
            else:
                array, note = _fit(value, info, image, name in subjects)
                source = value.source
                notes += [note, warn_nonfinite(array, source)]
            arrays[name] = array
            fed.append(
                FedInput(
                    name=name,
                    dtype=array.dtype.name,
                    shape=array.shape,
                    source=source,
                    generated=isinstance(value, ShapeItem),
                )
            )
    except MemoryError:
        raise UsageError("the data does not fit into memory", LESS, flag="--input") from None
    return Feed(arrays, tuple(fed), tuple(filter(None, notes)))


def _collect(texts: Sequence[str | Item], infos: Sequence[TensorInfo]) -> dict[str, Given]:
    """Return what each input of the model is given, by name."""
    if not texts:
        return {info.name: ShapeItem("", shape_to_generate(info.shape)) for info in infos}
    given: dict[str, Given] = {}
    for item in items_of(texts, [info.name for info in infos]):
        for info, value in _read_item(item, infos):
            if info.name in given:
                raise UsageError(
                    f"two items feed {info.name}", "give each input once", flag="--input"
                )
            given[info.name] = value
    missing = [info for info in infos if info.name not in given]
    if missing:
        names = ", ".join(info.name for info in missing)
        raise MissingData("", f"nothing feeds {names}", hint_to_generate(missing[0]))
    return given


def _read_item(item: Item, infos: Sequence[TensorInfo]) -> Iterator[tuple[TensorInfo, Given]]:
    """Yield what an item gives, with the input of the model that it is for."""
    if isinstance(item, ShapeItem):
        yield input_named(item.name, infos, item.text), item
    elif isinstance(item, NumbersItem):
        source = item.text if len(item.text) <= 60 else item.text[:57] + "..."
        info = input_named(item.name, infos, source)
        try:
            yield info, Loaded(drop_outer_axis(read_numbers(item.text), info), source, "text")
        except ValueError as error:
            raise input_error(source, str(error), _NUMBERS_FORM) from None
    elif isinstance(item, LoadedItem):
        for loaded in item.loaded:
            info = input_of(loaded, item.name, infos)
            yield info, replace(loaded, array=drop_outer_axis(loaded.array, info))
    else:
        if item.name:
            input_named(item.name, infos, item.path)
        for loaded in read_path(item.path, item.name):
            info = input_of(loaded, item.name, infos)
            if loaded.kind == "raw":
                loaded = shape_raw(loaded, item.form or form_of(info, item.path))
            yield info, loaded


def drop_outer_axis(array: Array, info: TensorInfo) -> Array:
    """Return values without their outer axis of 1 where only that fits the model.

    load_and_run gives `[1,2,3]` the shape (1,3), which leaves no way to feed an input of one
    axis in brackets; and a slice of a stack has the stack's first axis.
    """
    fits = find_misfit(array.shape, info) == ""
    return array if fits or array.ndim == 0 or array.shape[0] != 1 else array[0, ...]


def _warn_unjudged(texts: Sequence[str | Item], infos: Sequence[TensorInfo]) -> Iterator[Note]:
    """Yield a warning for each folder in a text whose expected outputs nobody looks at.

    Items that are no texts are those of testcases, which are judged, or of a data set.
    """
    typed = [text for text in texts if isinstance(text, str)]
    items = items_of(typed, [info.name for info in infos])
    for path in (item.path for item in items if isinstance(item, PathItem)):
        if outputs := expected_outputs(path):
            yield Note(
                f"its expected outputs ({', '.join(outputs)}) are not judged; "
                "`lar run` on a folder with it and its .onnx judges them",
                "--input",
                path,
            )


def _find_subjects(
    given: Mapping[str, Given], infos: Sequence[TensorInfo], image: ImageSettings
) -> set[str]:
    """Return the names of the inputs that image settings apply to, none where none are set."""
    flags = flags_of(image)
    if not flags:
        return set()
    loaded = [(info, given[info.name]) for info in infos]
    pairs = [(info, value) for info, value in loaded if isinstance(value, Loaded)]
    images = {info.name for info, value in pairs if value.channels}
    subjects = images or {info.name for info, value in pairs if takes_settings(value, info)}
    if not subjects:
        hint = "it takes an image file, or an array of 3 or 4 axes from a file"
        raise UsageError("no image is fed that it could apply to", hint, flag=flags[0])
    return subjects


def _generate(item: ShapeItem, info: TensorInfo, fill: str, seed: int) -> Array:
    check_shape(item.shape, info, item.text or info.name)
    return generate_array(info.name, model_dtype(info), item.shape, fill=fill, seed=seed)


def _fit(
    loaded: Loaded, info: TensorInfo, image: ImageSettings, is_subject: bool
) -> tuple[Array, Note | None]:
    """Return the array that the model takes, and a warning where there is one."""
    where, dtype = loaded.source, model_dtype(info)
    if loaded.channels:
        check_channels(loaded, info, image)
    hint = hint_at_flags(loaded, info, image)
    if is_subject:
        array = apply_settings(loaded, info, image)
        check_shape(array.shape, info, where, hint)
        return array, None
    if loaded.channels and (find_misfit(loaded.array.shape, info) or dtype != np.uint8):
        problem = f"is an image of uint8 {format_shape(loaded.array.shape)}"
        wanted = f"input {info.name} takes {info.dtype} {format_shape(info.shape)}"
        raise input_error(where, f"{problem}, {wanted}", hint)
    check_shape(loaded.array.shape, info, where, hint)
    return convert_dtype(loaded, dtype)
