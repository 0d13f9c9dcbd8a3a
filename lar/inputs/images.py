"""Images: readers of image files, and the settings size, channel order, mean, scale, layout.

lar reads Netpbm itself, and OpenCV reads the other formats. The settings apply to image files; if
no image file is fed, they apply to arrays of 3 or 4 axes from other files. An image has the layout
NHWC. The layout of an array or of the model's input follows from its shape, by `channel_axis_of`.
The settings are applied in this order: resize, channel order, layout, then the formula `(pixel -
mean) * scale`. The formula is computed in float64 if the model takes float64, otherwise in float32.
The result of the formula is rounded if the model takes whole numbers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from io import BufferedReader
from typing import Any, Literal

import numpy as np

from lar.errors import UsageError
from lar.files.unpacking import check_unpacked
from lar.inputs import Array, Loaded, check_memory, input_error
from lar.inputs.dtypes import cast_rounded, dtype_of, settle
from lar.records.run import ImageSettings, TensorInfo

_GAP = rb"(?:\s|#[^\r\n]*[\r\n])"
_NETPBM_HEADER = re.compile(rb"P([2356])" + (_GAP + rb"+(\d{1,9})") * 3 + _GAP)
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Each scan of a progressive JPEG goes over all pixels; usual files have about 10 scans.
MOST_SCANS = 100
MOST_HEADER = 1 << 16  # bytes, with comments
_COMMENT = re.compile(rb"#[^\r\n]*")


def read_image(file: BufferedReader, path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read a Netpbm, PNG, JPEG, BMP or WebP image.

    Images in all formats except Netpbm are read as `cv2.imread` reads them: as uint8 of shape
    (1,H,W,3), blue first.

    Raises:
        UsageError: the file is truncated, the unpacked image would be too large, or OpenCV cannot
            decode the image.
    """
    if path.lower().endswith((".ppm", ".pgm")):
        # An array, not bytes: the fed array is then a writable view of it.
        return (_read_netpbm(np.fromfile(file, np.uint8), path),)
    import cv2

    data = file.read()
    size_of = next((size_of for begin, size_of in _SIZES if begin.match(data)), None)
    if size_of is None:
        raise input_error(path, "cannot be decoded as an image: it is no PNG, JPEG, BMP or WebP")
    try:
        # OpenCV allocates an image by its header, before it looks at the rest.
        height, width = size_of(data)
    except (struct.error, IndexError, ValueError):
        problem = "truncated or broken: the image ends before its end marker"
        raise input_error(path, problem) from None
    check_unpacked(3 * height * width, len(data), path, flag="--input")
    if size_of is _size_of_jpeg and (scans := data.count(b"\xff\xda")) > MOST_SCANS:
        raise input_error(path, f"has {scans} scans; at most {MOST_SCANS} are decoded")
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise input_error(path, "cannot be decoded as an image")
    return (Loaded(image[np.newaxis], path, channels="bgr"),)


def _read_netpbm(data: Array, path: str) -> Loaded:
    """Read a gray (P5, plain P2) or colour (P6, plain P3) image as uint8 (1,H,W,C).

    Colours stay in the order of the file, red first. If the file's maximum is not 255, values are
    scaled to 0..255. The format allows several images in a file; only the first is read.
    Source: the manual pages pgm(5) and ppm(5) of Netpbm.

    Raises:
        UsageError: the header is wrong, data is missing, or a sample is above the maximum.
    """
    header = _NETPBM_HEADER.match(data.data[:MOST_HEADER])
    if header is None:
        if bytes(data[:2]) in (b"P2", b"P3", b"P5", b"P6"):
            raise input_error(path, "has a broken header: it needs width, height and maximum")
        raise input_error(path, f"is not a P5 or P6 image: it starts with {bytes(data[:2])!r}")
    width, height, maximum = map(int, header.groups()[1:])
    if not 0 < maximum < 65536:
        raise input_error(path, f"the header's maximum {maximum} is not in 1..65535")
    channels = 3 if header[1] in (b"3", b"6") else 1
    rest, count = data[header.end() :], width * height * channels
    if header[1] in (b"2", b"3"):
        samples = _parse_plain(rest.tobytes(), count, path)
    else:
        stored = np.dtype(np.uint8 if maximum < 256 else ">u2")
        promised = count * stored.itemsize
        check_whole(promised, rest.size, path)
        samples = rest[:promised].view(stored)
    if samples.size and samples.max() > maximum:
        raise input_error(path, f"holds a sample of {samples.max()}, above its maximum {maximum}")
    if maximum != 255:
        samples = (samples.astype(np.uint32) * 255 + maximum // 2) // maximum
    image = samples.astype(np.uint8, copy=False).reshape(1, height, width, channels)
    return Loaded(image, path, channels="rgb" if channels == 3 else "gray")


def _parse_plain(text: bytes, count: int, path: str) -> Array:
    words = _COMMENT.sub(b"", text).split(maxsplit=count)[:count]
    check_whole(count, len(words), path, "numbers")
    if not all(word.isdigit() and len(word) < 10 for word in words):
        raise input_error(path, "holds a sample that is not a number")
    return np.array([int(word) for word in words], np.uint32)


def check_whole(promised: int, there: int, where: str, what: str = "bytes") -> None:
    """Refuse a file that ends too early.

    Raises:
        UsageError: the file has less data than its header promises.
    """
    if promised > there:
        problem = f"truncated: the header promises {promised} {what}, {there} are there"
        raise input_error(where, problem)


# The next functions return the height and width in the header of an image. If a format marks the
# end of an image and the mark is missing, they raise struct.error, IndexError or ValueError.


def _size_of_png(data: bytes) -> tuple[int, int]:
    """Return the size of a PNG image, after a check that its chunks are complete.

    OpenCV would allocate memory for the wrong length of a broken chunk before it finds the fault.
    Source: the PNG specification, section 5.3.
    """
    position, kind = 8, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s4x", data, position)
        position += 12 + length
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def _size_of_jpeg(data: bytes) -> tuple[int, int]:
    """Return the size of a JPEG image, after a check that its markers are complete.

    The check skips thumbnails inside segments. The check is needed because OpenCV decodes an image
    that is cut short, and fills the missing part with gray. A file that is too small for its number
    of pixels is refused as incomplete. Source: ITU-T T.81, annex B.
    """
    position = marker = height = width = 0
    while marker != 0xD9:
        position = data.index(b"\xff", position + 2)
        marker = data[position + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            if height * width > 1024 * len(data):  # each frame is checked: OpenCV allocates one
                raise ValueError
        if marker == 0xFF:  # a fill byte before a marker
            position -= 1
        elif marker not in (0x00, 0x01) and not 0xD0 <= marker <= 0xD8:
            position += int.from_bytes(data[position + 2 : position + 4], "big")
    return height, width


def _size_of_bmp(data: bytes) -> tuple[int, int]:
    """Return the size of a BMP image.

    Source: the structures BITMAPCOREHEADER and BITMAPINFOHEADER of Windows.
    """
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", data, 18)
    return abs(height), abs(width)  # a negative height means: top row first


def _size_of_webp(data: bytes) -> tuple[int, int]:
    """Return the size of a WebP image, which RFC 9649 describes in sections 2.5 to 2.7."""
    if data[12:16] == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    elif data[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = bits % (1 << 14) + 1, (bits >> 14) % (1 << 14) + 1
    else:
        width, height = (side % (1 << 14) for side in struct.unpack_from("<HH", data, 26))
    return height, width


# How images of each format begin, and the function that returns their size.
_SIZES: tuple[tuple[re.Pattern[bytes], Callable[[bytes], tuple[int, int]]], ...] = (
    (re.compile(rb"\x89PNG"), _size_of_png),
    (re.compile(rb"\xff\xd8"), _size_of_jpeg),
    (re.compile(rb"BM"), _size_of_bmp),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), _size_of_webp),
)


def channel_axis_of(shape: Sequence[int | None]) -> int:
    """Return the channel axis of a shape of 4 axes.

    The result is 3 if only the size of axis 3 can be a number of channels, else 1.
    """
    return 3 if shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4) else 1


def image_size(shape: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the height and width in a shape of 4 axes."""
    return tuple(shape[2:] if channel_axis_of(shape) == 1 else shape[1:3])


def flags_of(settings: ImageSettings) -> list[str]:
    """Return the flags that stand for the given image settings."""
    values = {
        "--input-layout": settings.layout,
        "--resize": settings.size,
        "--mean": settings.mean,
        "--scale": settings.scale,
        f"--{settings.channels}": settings.channels,
    }
    return [flag for flag, value in values.items() if value is not None]


def takes_settings(loaded: Loaded, info: TensorInfo) -> bool:
    """Return whether image settings can apply to an array that does not come from an image file."""
    return loaded.kind == "tensor" and loaded.array.ndim in (3, 4) and len(info.shape) == 4


def apply_settings(loaded: Loaded, info: TensorInfo, settings: ImageSettings) -> Array:
    """Apply the settings to an image or an array of 3 or 4 axes; convert it to the model's dtype.

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
    axis = 1 if (settings.layout or layout) == "nchw" else 3
    pixels = np.moveaxis(pixels, 3, axis)
    try:
        return cast_rounded(_normalise(pixels, axis, dtype, settings, where), dtype)
    except ValueError as error:
        hint = "--mean and --scale bring pixels into the range that the model takes"
        raise input_error(where, str(error), hint) from None


def fit_channels(loaded: Loaded, info: TensorInfo, settings: ImageSettings) -> Loaded:
    """Return an image with the number of channels that the model takes.

    Three equal channels, as a gray .png has after reading, become one channel if needed.

    Raises:
        UsageError: the image and the model's input differ in channels.
    """
    if len(info.shape) != 4:
        return loaded
    by_layout = {"nchw": 1, "nhwc": 3, None: channel_axis_of(info.shape)}
    expected, actual = info.shape[by_layout[settings.layout]], loaded.array.shape[3]
    if (actual, expected) == (3, 1) and (loaded.array == loaded.array[..., :1]).all():
        return loaded._replace(array=loaded.array[..., :1], channels="gray")
    fits = (actual, expected) not in ((1, 3), (3, 1), (3, 4), (1, 4))
    if not fits and (expected != 4 or info.shape[3] != actual):
        kind = "colour image, such as a P6 .ppm" if expected == 3 else "gray image, a P5 .pgm"
        hint = f"save it as a {kind}" if expected != 4 else "give 4 channels, with alpha, as a .npy"
        problem = f"has {actual} channel{'s' * (actual > 1)}, the model's input {info.name}"
        raise input_error(loaded.source, f"{problem} takes {expected}", hint)
    return loaded


def hint_at_flags(loaded: Loaded, info: TensorInfo, settings: ImageSettings) -> str:
    """Return a hint at flags that make an image or array fit the model; empty if no flag does."""
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
    """Resize each image of an array (N,H,W,C) by OpenCV's linear interpolation."""
    import cv2

    height, width = size
    count, _, _, channels = pixels.shape
    if height < 1 or width < 1:
        raise UsageError(f"{height}x{width} has a side of less than 1 pixel", flag="--resize")
    check_memory(count * height * width * channels * 8, f"{where}: --resize {height}x{width}")
    if pixels.dtype not in (np.uint8, np.uint16, np.int16, np.float32, np.float64):
        pixels = pixels.astype(np.float32)
    dtype = pixels.dtype.newbyteorder("=")
    try:
        resized = [cv2.resize(settle(each, dtype), (width, height)) for each in pixels]
    except cv2.error as error:
        problem = f"--resize {height}x{width} fails: {error.err}"
        raise input_error(where, problem, "resize it before saving it") from None
    # OpenCV drops the axis of a single channel.
    return np.array(resized, dtype).reshape(count, height, width, channels)


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
    """Return `(pixel - mean) * scale`; mean and scale have one value, or one value per channel."""
    work, channels = pixels, pixels.shape[axis]
    if settings.mean or settings.scale:
        work = np.array(pixels, np.float64 if dtype == np.float64 else np.float32, order="C")
    by_channel = np.moveaxis(work, axis, 3)  # a view
    steps = (("--mean", settings.mean, np.subtract), ("--scale", settings.scale, np.multiply))
    for flag, values, apply in steps:
        if values and len(values) not in (1, channels):
            problem = f"{flag} has {len(values)} values for {channels} channels"
            raise input_error(where, problem, f"give one value, or {channels}")
        if values:
            apply(by_channel, np.array(values, work.dtype), out=by_channel)
    return work
