"""Image settings: size, channel order, mean, scale and layout of what is fed.

They apply to image files; if no image file is fed, to arrays of 3 or 4 axes from other files.
`channel_axis_of` finds the layout of an array, as of the model, from its shape; an image is NHWC.
The order: resize, channel order, layout, then `(pixel - mean) * scale`, computed in float32
(float64 for such a model), rounded where the model takes whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from lar.errors import UsageError
from lar.inputs.dtypes import cast_values, dtype_of, settle
from lar.inputs.loaded import Array, Loaded, check_memory, input_error
from lar.records.run import ImageSettings, TensorInfo


def channel_axis_of(shape: Sequence[int | None]) -> int:
    """Return the channel axis of a shape of 4 axes: 3 if only that looks like one, else 1."""
    return 3 if shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4) else 1


def image_size(shape: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the height and width in a shape of 4 axes."""
    return tuple(shape[2:] if channel_axis_of(shape) == 1 else shape[1:3])


def flags_of(settings: ImageSettings) -> list[str]:
    """Return the flags that made these settings."""
    values = {
        "--input-layout": settings.layout,
        "--resize": settings.size,
        "--mean": settings.mean,
        "--scale": settings.scale,
        f"--{settings.channels}": settings.channels,
    }
    return [flag for flag, value in values.items() if value is not None]


def takes_settings(loaded: Loaded, info: TensorInfo) -> bool:
    """Whether image settings can apply to an array that is no image file."""
    return loaded.kind == "tensor" and loaded.array.ndim in (3, 4) and len(info.shape) == 4


def apply_settings(loaded: Loaded, info: TensorInfo, settings: ImageSettings) -> Array:
    """Return an image, or an array of 3 or 4 axes, as the settings say and in the model's dtype.

    Raises:
        UsageError: a setting does not go with this array, or the model's dtype cannot hold the
            result.
    """
    where, array, dtype = loaded.source, loaded.array, dtype_of(info.dtype)
    if array.dtype.kind not in "uif":
        problem = f"{flags_of(settings)[0]} does not go with {array.dtype}"
        raise input_error(where, problem, "leave the flag out, or save it as uint8 or float32")
    if array.ndim == 3:
        array = array[np.newaxis]
    layout = "nhwc" if loaded.channels else layout_of(array.shape)
    pixels = array if layout == "nhwc" else array.transpose(0, 2, 3, 1)
    if settings.size is not None:
        pixels = _resize(pixels, settings.size, where)
    if settings.channels is not None and settings.channels != loaded.channels:
        _check_order_is_known(loaded, settings.channels)
        pixels = pixels[..., ::-1]
    if (settings.layout or layout) == "nchw":
        pixels, axis = pixels.transpose(0, 3, 1, 2), 1
    else:
        axis = 3
    try:
        return cast_values(_normalise(pixels, axis, dtype, settings, where), dtype)
    except ValueError as error:
        hint = "--mean and --scale bring pixels into the range that the model takes"
        raise input_error(where, str(error), hint) from None


def fit_channels(loaded: Loaded, info: TensorInfo, settings: ImageSettings) -> Loaded:
    """Return an image with as many channels as the model takes: one of three equal ones, as a gray
    image is read from a .png.

    Raises:
        UsageError: the image and the model's input differ in channels.
    """
    if len(info.shape) != 4:
        return loaded
    by_layout = {"nchw": 1, "nhwc": 3, None: channel_axis_of(info.shape)}
    expected, actual = info.shape[by_layout[settings.layout]], loaded.array.shape[3]
    if (actual, expected) == (3, 1) and (loaded.array == loaded.array[..., :1]).all():
        return replace(loaded, array=loaded.array[..., :1], channels="gray")
    fits = (actual, expected) not in ((1, 3), (3, 1), (3, 4), (1, 4))
    if not fits and (expected != 4 or info.shape[3] != actual):
        kind = "colour image, such as a P6 .ppm" if expected == 3 else "gray image, a P5 .pgm"
        hint = f"save it as a {kind}" if expected != 4 else "give 4 channels, with alpha, as a .npy"
        problem = f"has {actual} channel{'s' * (actual > 1)}, the model's input {info.name}"
        raise input_error(loaded.source, f"{problem} takes {expected}", hint)
    return loaded


def hint_at_flags(loaded: Loaded, info: TensorInfo, settings: ImageSettings) -> str:
    """Return which image flags would make the model take an image or array, if any would."""
    shape = loaded.array.shape
    if len(info.shape) != 4:
        return "only a model's input of 4 axes takes an image" if loaded.channels else ""
    layout = layout_of(info.shape)
    if not loaded.channels:
        is_turned = takes_settings(loaded, info) and layout != layout_of(shape)
        return f"--input-layout {layout} transposes it" if is_turned else ""
    flags = [] if settings.layout == layout else [f"--input-layout {layout}"]
    wanted = image_size(info.shape)
    if not info.resizable and None not in wanted and wanted != (settings.size or shape[1:3]):
        flags.append(f"--resize {wanted[0]}x{wanted[1]}")
    others = "--mean, --scale, --bgr or --rgb as the model was trained"
    return f"add {' '.join(flags)}, and {others}" if flags else f"set {others}"


def layout_of(shape: Sequence[int | None]) -> Literal["nchw", "nhwc"]:
    """Return the layout that an array of 3 or 4 axes seems to have."""
    return "nhwc" if channel_axis_of((1, *shape)[-4:]) == 3 else "nchw"


def _resize(pixels: Array, size: tuple[int, int], where: str) -> Array:
    """Resize each image of (N,H,W,C), linearly."""
    import cv2

    height, width = size
    count, _, _, channels = pixels.shape
    if height < 1 or width < 1:
        raise UsageError(f"{height}x{width} is not a size", flag="--resize")
    check_memory(count * height * width * channels * 8, f"{where}: --resize {height}x{width}")
    if pixels.dtype not in (np.uint8, np.uint16, np.int16, np.float32, np.float64):
        pixels = pixels.astype(np.float32)
    resized = np.empty((count, height, width, channels), pixels.dtype.newbyteorder("="))
    try:
        for image, target in zip(pixels, resized, strict=True):
            source = settle(image, resized.dtype)
            flat = cv2.resize(source, (width, height), interpolation=cv2.INTER_LINEAR)
            # OpenCV drops the axis of a single channel.
            target[...] = flat.reshape(target.shape)
    except cv2.error as error:
        problem = f"--resize {height}x{width} fails: {error.err}"
        raise input_error(where, problem, "resize it before saving it") from None
    return resized


def _check_order_is_known(loaded: Loaded, channels: str) -> None:
    if loaded.channels == "gray":
        problem = f"--{channels} does not go with a gray image"
        raise input_error(loaded.source, problem, "leave the flag out")
    if not loaded.channels:
        hint = "it goes with image files; reorder the array's channels before saving it"
        problem = f"--{channels} does not go with an array, whose channel order is unknown"
        raise input_error(loaded.source, problem, hint)


def _normalise(
    pixels: Array, axis: int, dtype: np.dtype[Any], settings: ImageSettings, where: str
) -> Array:
    """Return `(pixel - mean) * scale`, rounded for a dtype of whole numbers."""
    if settings.mean is None and settings.scale is None:
        return np.rint(pixels) if pixels.dtype.kind == "f" and dtype.kind != "f" else pixels
    work: Array = np.array(pixels, np.float64 if dtype == np.float64 else np.float32, order="C")
    if settings.mean is not None:
        work -= _spread("--mean", settings.mean, axis, work, where)
    if settings.scale is not None:
        work *= _spread("--scale", settings.scale, axis, work, where)
    return work if dtype.kind == "f" else np.rint(work, out=work)


def _spread(flag: str, values: tuple[float, ...], axis: int, work: Array, where: str) -> Array:
    """Return one value, or one for each channel, so that it broadcasts along the channel axis."""
    channels = work.shape[axis]
    if len(values) not in (1, channels):
        problem = f"{flag} has {len(values)} values for {channels} channels"
        raise input_error(where, problem, f"give one value, or {channels}")
    return np.array(values, work.dtype).reshape([-1 if i == axis else 1 for i in range(4)])
