"""Image files: Netpbm through a reader of our own, the others through OpenCV."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from lar.files.input_file import open_input, read_input
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
    # An array, not bytes: what is fed is then a writable view of what was read.
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
    """Read any other image as `cv2.imread` does: uint8 (1,H,W,3), blue first.

    Raises:
        UsageError: the file is truncated, or OpenCV cannot decode it.
    """
    import cv2

    data = read_input(path, "--input")
    # A JPEG that is cut short is decoded all the same, the rest of it gray, and a PNG's broken
    # chunk length is allocated before it is found to be broken.
    check = {b"\xff\xd8": _is_complete_jpeg, b"\x89P": _is_complete_png}.get(data[:2])
    if check and not check(data):
        raise input_error(path, "truncated or broken: the image ends before its end marker")
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    except cv2.error:
        image = None
    if image is None:
        raise input_error(path, "cannot be decoded as an image")
    return (Loaded(image[np.newaxis], path, channels="bgr"),)


def _is_complete_png(data: bytes) -> bool:
    """Walk the chunks to the end of the image. Source: the PNG specification, section 5.3."""
    position = 8
    while position + 12 <= len(data):
        if data[position + 4 : position + 8] == b"IEND":
            return True
        position += 12 + int.from_bytes(data[position : position + 4], "big")
    return False


def _is_complete_jpeg(data: bytes) -> bool:
    """Walk the markers to the end of the first image, past thumbnails inside segments.

    Source: ITU-T T.81, annex B. A frame of more pixels than any coder packs into a
    file of this size is incomplete too.
    """
    position = 2
    while True:
        position = data.find(b"\xff", position)
        if position < 0 or position + 1 == len(data):
            return False
        marker = data[position + 1]
        if marker == 0xD9:
            return True
        if marker in _JPEG_FRAMES:
            height = int.from_bytes(data[position + 5 : position + 7], "big")
            width = int.from_bytes(data[position + 7 : position + 9], "big")
            if height * width > 1024 * len(data):
                return False
        if marker == 0xFF:
            position += 1
        elif marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:
            position += 2
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
