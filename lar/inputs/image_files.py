"""Image files: Netpbm through a reader of our own, the others through OpenCV."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from lar.files.input_file import open_input, read_input
from lar.files.unpacking import check_unpacked
from lar.inputs.loaded import Array, Loaded, input_error

_GAP = rb"(?:\s|#[^\r\n]*[\r\n])"
_NETPBM_HEADER = re.compile(rb"P([2356])" + (_GAP + rb"+(\d{1,9})") * 3 + _GAP)
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_COMMENT = re.compile(rb"#[^\r\n]*")


def read_netpbm(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read a gray (P5, plain P2) or colour (P6, plain P3) image as uint8 (1,H,W,C).

    Colours come as the file has them, red first. Where the file's maximum is not 255, values are
    scaled to 0..255. What follows the first image is ignored, as the format allows more images.
    Source of the format: the manual pages pgm(5) and ppm(5) of Netpbm.

    Raises:
        UsageError: another or broken header, truncated data, or a sample above the maximum.
    """
    # An array, not bytes: the fed array is then a writable view of it.
    with open_input(path, "--input") as file:
        data = np.fromfile(file, np.uint8)
    header = _NETPBM_HEADER.match(data.data)
    if header is None:
        if bytes(data[:2]) in (b"P2", b"P3", b"P5", b"P6"):
            raise input_error(path, "has a broken header: it needs width, height and maximum")
        raise input_error(path, f"is not a P5 or P6 image: it starts with {bytes(data[:2])!r}")
    width, height, maximum = map(int, header.groups()[1:])
    if not 0 < maximum < 65536:
        raise input_error(path, f"the header's maximum {maximum} is not in 1..65535")
    channels = 3 if header[1] in (b"3", b"6") else 1
    rest = data[header.end() :]
    count = width * height * channels
    if header[1] in (b"2", b"3"):
        samples = _parse_plain(rest.tobytes(), count, path)
    else:
        samples = _view_samples(rest, count, np.dtype(np.uint8 if maximum < 256 else ">u2"), path)
    if samples.size and samples.max() > maximum:
        raise input_error(path, f"holds a sample of {samples.max()}, above its maximum {maximum}")
    if maximum != 255:
        samples = (samples.astype(np.uint32) * 255 + maximum // 2) // maximum
    image = samples.astype(np.uint8, copy=False).reshape(1, height, width, channels)
    return (Loaded(image, path, channels="rgb" if channels == 3 else "gray"),)


def _view_samples(rest: Array, count: int, dtype: np.dtype[Any], path: str) -> Array:
    promised = count * dtype.itemsize
    if promised > rest.size:
        problem = f"truncated: the header promises {promised} bytes, {rest.size} are there"
        raise input_error(path, problem)
    return rest[:promised].view(dtype)


def _parse_plain(text: bytes, count: int, path: str) -> Array:
    words = _COMMENT.sub(b"", text).split(maxsplit=count)[:count]
    if len(words) < count:
        problem = f"truncated: the header promises {count} numbers, {len(words)} are there"
        raise input_error(path, problem)
    if not all(word.isdigit() and len(word) < 10 for word in words):
        raise input_error(path, "holds a sample that is not a number")
    return np.array([int(word) for word in words], np.uint32)


def read_image(path: str, wanted: str = "") -> tuple[Loaded, ...]:
    """Read a PNG, JPEG, BMP or WebP image as `cv2.imread` does: uint8 (1,H,W,3), blue first.

    Raises:
        UsageError: the file is truncated, unpacks to too much, or OpenCV cannot decode it.
    """
    import cv2

    data = read_input(path, "--input")
    # OpenCV allocates what a header says before it looks at the rest.
    found = next((size(data) for begin, size in _SIZES if begin.match(data)), None)
    if found is None:
        raise input_error(path, "cannot be decoded as an image: it is no PNG, JPEG, BMP or WebP")
    height, width, is_complete = found
    if not is_complete:
        raise input_error(path, "truncated or broken: the image ends before its end marker")
    check_unpacked(3 * height * width, len(data), path, flag="--input")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        image = None
    if image is None:
        raise input_error(path, "cannot be decoded as an image")
    return (Loaded(image[np.newaxis], path, channels="bgr"),)


class _Size(NamedTuple):
    """The size that an image states, and whether its end is there, if its format marks it."""

    height: int
    width: int
    is_complete: bool = True


def _number(data: bytes, at: int, count: int, order: Literal["big", "little"] = "little") -> int:
    return int.from_bytes(data[at : at + count], order)


def _size_of_png(data: bytes) -> _Size:
    """Walk the chunks to the end of the image. Source: the PNG specification, section 5.3.

    OpenCV allocates a broken chunk's length before it is found to be broken.
    """
    position, is_complete = 8, False
    while position + 12 <= len(data) and not is_complete:
        is_complete = data[position + 4 : position + 8] == b"IEND"
        position += 12 + _number(data, position, 4, "big")
    return _Size(_number(data, 20, 4, "big"), _number(data, 16, 4, "big"), is_complete)


def _size_of_jpeg(data: bytes) -> _Size:
    """Walk the markers to the end of the first image, past thumbnails inside segments.

    Source: ITU-T T.81, annex B. An image that is cut short is decoded too, the rest of it gray.
    A frame of more pixels than any coder packs into a file of this size is incomplete too.
    """
    position = height = width = 0
    while True:
        position = data.find(b"\xff", position + 2)
        if position < 0 or position + 1 == len(data) or height * width > 1024 * len(data):
            return _Size(height, width, is_complete=False)
        marker = data[position + 1]
        if marker == 0xD9:
            return _Size(height, width)
        if marker in _JPEG_FRAMES:
            height = _number(data, position + 5, 2, "big")
            width = _number(data, position + 7, 2, "big")
        if marker == 0xFF:  # may stand before any marker
            position -= 1
        elif marker not in (0x00, 0x01) and not 0xD0 <= marker <= 0xD8:
            position += _number(data, position + 2, 2, "big")


def _size_of_bmp(data: bytes) -> _Size:
    """Source: the structures BITMAPCOREHEADER and BITMAPINFOHEADER of Windows."""
    if _number(data, 14, 4) == 12:
        return _Size(_number(data, 20, 2), _number(data, 18, 2))
    width, height = (
        int.from_bytes(data[at : at + 4], "little", signed=True) for at in (18, 22)
    )  # a height below 0: the first row is the top one
    return _Size(abs(height), abs(width))


def _size_of_webp(data: bytes) -> _Size:
    """Source: RFC 9649, sections 2.5 to 2.7."""
    if data[12:16] == b"VP8X":
        return _Size(_number(data, 27, 3) + 1, _number(data, 24, 3) + 1)
    if data[12:16] == b"VP8L":
        bits = _number(data, 21, 4)
        return _Size((bits >> 14) % (1 << 14) + 1, bits % (1 << 14) + 1)
    return _Size(_number(data, 28, 2) % (1 << 14), _number(data, 26, 2) % (1 << 14))


# The beginnings of images, and the functions that find their sizes.
_SIZES: tuple[tuple[re.Pattern[bytes], Callable[[bytes], _Size]], ...] = (
    (re.compile(rb"\x89PNG"), _size_of_png),
    (re.compile(rb"\xff\xd8"), _size_of_jpeg),
    (re.compile(rb"BM"), _size_of_bmp),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), _size_of_webp),
)
