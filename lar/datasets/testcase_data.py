"""The data of `lar pack -d`: files that `--input` reads, and random numbers.

    datum = item *(";" item)
    item  = [name ":"] value
    value = file                                 any file that `--input` takes
          | "#rand(" low "," high *("," axis) ")"   uniform random numbers; without axes, in the
                                                 model's shape; "..." stands for the axes that
                                                 are left out.

A single random value without a name feeds all inputs. MegEngine's dump_with_testcase_mge.py reads
data in the same form, and also converts an image to the model's input without further flags.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lar.errors import UsageError, first_line
from lar.inputs import Array, Loaded, check_memory, input_error
from lar.inputs.dtypes import cast_rounded, generator_of
from lar.inputs.feed import Feed, feed_of
from lar.inputs.grammar import IMAGES
from lar.inputs.images import image_size, layout_of
from lar.inputs.model_inputs import AxisSizes, check_shape, input_named, model_dtype
from lar.options.paths import split_items
from lar.records.run import ImageSettings, Packing, RunSpec, TensorInfo

_LIMIT = r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*"
RANDOM = re.compile(rf"#rand\({_LIMIT},{_LIMIT}((?:,\s*(?:\d+|\.\.\.)\s*)*)\)")
RANDOM_FORM = "write it as #rand(0,255), or with a shape as #rand(0,255,1,3,224,224)"


def feed_datum(
    spec: RunSpec, packing: Packing, text: str, number: int, infos: Sequence[TensorInfo]
) -> Feed:
    """Return the data that one text of `-d` gives for the inputs of the model.

    `--repeat` and `--input-transform` change only data from files.

    Raises:
        UsageError: the text or a file is wrong, or does not fit the model.
    """
    if not (parts := split_items(text)):
        raise UsageError("the text is empty", "give a file, or #rand(0,255)", flag="-d")
    if len(parts) == 1 and parts[0].startswith("#"):
        parts = [f"{info.name}:{parts[0]}" for info in infos if not info.optional]
    files = [part for part in parts if not is_random(part)]
    sizes = AxisSizes(infos, spec.shape)
    drawn = [draw(part, infos, sizes, spec.seed, number) for part in parts if is_random(part)]
    names = {each.name for each in drawn}
    rest = [info.name for info in infos if info.name not in names]
    if len(rest) == len(files) == 1 and not files[0].startswith(f"{rest[0]}:"):
        files = [f"{rest[0]}:{files[0]}"]
    spec = replace(spec, image=image_settings(spec.image, packing, files, infos))
    feed = feed_of([*drawn, *files], infos, spec, generates=False)
    inputs = {info.name: info for info in infos}
    arrays, fed = dict(feed.arrays), []
    for each in feed.fed:
        is_drawn = each.name in names
        if each.name in arrays and not is_drawn:  # a sequence is left as it is
            arrays[each.name] = change(packing, arrays[each.name], inputs[each.name])
            each = replace(each, shape=arrays[each.name].shape)
        fed.append(replace(each, generated=each.generated or is_drawn))
    return Feed(arrays, tuple(fed), feed.notes)


def is_random(part: str) -> bool:
    """Return whether an item asks for random numbers."""
    return part.startswith("#") or ":#" in part


def change(packing: Packing, array: Array, info: TensorInfo) -> Array:
    """Return data from files, repeated and transformed.

    Raises:
        UsageError: the model does not take the changed data.
    """
    if packing.repeat > 1:
        array = np.repeat(array, packing.repeat, axis=0)
    if packing.transform:
        array = transform(packing.transform, array, info)
    flag = "--input-transform" if packing.transform else f"--repeat {packing.repeat}"
    check_shape(array.shape, info, flag)
    return array


def draw(
    item: str, infos: Sequence[TensorInfo], sizes: AxisSizes, seed: int, number: int
) -> Loaded:
    """Return random numbers for an input, which depend on the seed and the testcase's number.

    Raises:
        UsageError: the item is not a random value, or does not fit the input.
    """
    name, _, value = item.rpartition("#")
    text = f"#{value}"
    info = input_named(name.removesuffix(":"), infos, text)
    match = RANDOM.fullmatch(text)
    if not match:
        raise input_error(text, "is not a random value", RANDOM_FORM)
    low, high = float(match[1]), float(match[2])
    if not -math.inf < low <= high < math.inf:
        raise input_error(text, "has limits that are infinite or in the wrong order", RANDOM_FORM)
    axes = re.findall(r"\d+|\.{3}", match[3]) or ["..."]
    if "..." in axes[:-1]:
        raise input_error(text, "only the last axis may be ...", RANDOM_FORM)
    if axes[-1] == "...":
        axes[-1:] = map(str, sizes.shape_of(info)[len(axes) - 1 :])
    shape = tuple(map(int, axes))
    check_shape(shape, info, text)
    dtype = model_dtype(info)
    check_memory(8 * math.prod(shape), text)
    values = generator_of(f"{seed}:{number}:{info.name}").uniform(low, high, shape)
    try:
        return Loaded(cast_rounded(values, dtype), text, name=info.name, name_binds=True)
    except ValueError as error:
        raise input_error(text, str(error), f"input {info.name} takes {dtype}") from None


def transform(expression: str, data: Array, info: TensorInfo) -> Array:
    """Return the value of a Python expression on `data` and `np`, in the model's dtype.

    The expression is the user's own program, with all rights of the user.

    Raises:
        UsageError: the expression fails, or gives no array that the model takes.
    """
    dtype, flag = model_dtype(info), f"--input-transform {expression!r}"
    try:
        result = np.asarray(eval(expression, {"data": data, "np": np}))
        if result.dtype.kind not in "biuf":
            raise ValueError(f"it gives {result.dtype}, which is not a number type")
        return cast_rounded(result, dtype)
    except Exception as error:
        hint = "it is a Python expression on data, a NumPy array, and np"
        raise UsageError(f"{type(error).__name__}: {first_line(error)}", hint, flag=flag) from None


def image_settings(
    given: ImageSettings, packing: Packing, texts: Sequence[str], infos: Sequence[TensorInfo]
) -> ImageSettings:
    """Return the settings for an image; settings that are not given follow from the model.

    By default, the channels are in the order blue, green, red, in which OpenCV reads images and
    MegEngine's models take them.

    Raises:
        UsageError: no file is an image to resize, or the model's input has no fixed size.
    """
    pictures = [text for text in texts if text.lower().endswith(IMAGES)]
    if packing.resize and not pictures:
        problem = ": ".join(["no file is an image", *filter(None, ["; ".join(texts)])])
        raise UsageError(problem, "give an image, such as cat.ppm", flag="--resize-input")
    info = next((info for info in infos if len(info.shape) == 4), None)
    if not pictures or info is None:
        return given
    if given.channels is None and any(text.lower().endswith(".ppm") for text in pictures):
        given = replace(given, channels="bgr")
    if packing.resize:
        height, width = image_size(info.shape)
        if height is None or width is None:
            problem, hint = "takes images of any size", "give the size: --resize 224x224"
            raise UsageError(f"input {info.name} {problem}", hint, flag="--resize-input")
        given = replace(given, size=(height, width))
    return replace(given, layout=given.layout or layout_of(info.shape))
