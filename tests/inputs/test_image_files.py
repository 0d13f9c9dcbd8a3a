from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from lar.errors import UsageError
from lar.files.input_file import VARIABLE
from lar.inputs import Loaded
from lar.inputs.readers import read_path
from tests.conftest import REPOSITORY, RunLar
from tests.refusals import refused
from tests.tables import each_row

GAPS = st.lists(st.sampled_from([b" ", b"\n", b"\t", b"\r\n", b"#\n", b"# 9 #9\n"]), min_size=1)


def read_bytes(data: bytes, path: Path) -> Loaded:
    path.write_bytes(data)
    (loaded,) = read_path(str(path))
    return loaded


@given(
    st_np.arrays(np.uint8, st.tuples(*[st.integers(1, 4)] * 2, st.sampled_from([1, 3]))),
    st.tuples(GAPS, GAPS, GAPS),
    st.booleans(),
)
def test_comments_may_stand_anywhere_in_the_header(
    tmp_path: Path, image: Any, gaps: tuple[list[bytes], ...], plain: bool
) -> None:
    height, width, channels = image.shape
    magic = {1: (b"P5", b"P2"), 3: (b"P6", b"P3")}[channels][plain]
    numbers = [b"%d" % number for number in (width, height, 255)]
    header = magic + b"".join(b"".join(gap) + n for gap, n in zip(gaps, numbers, strict=True))
    data = " ".join(map(str, image.ravel())).encode() if plain else image.tobytes()
    loaded = read_bytes(header + b"\n" + data, tmp_path / "a.ppm")
    np.testing.assert_array_equal(loaded.array, image[np.newaxis])
    assert loaded.channels == {1: "gray", 3: "rgb"}[channels]


@each_row("inputs/images/maxima")
def test_the_maximum_is_scaled_to_255(
    tmp_path: Path, header: str, data: str, expected: list[int]
) -> None:
    loaded = read_bytes((header + data).encode("latin-1"), tmp_path / "a.pgm")
    assert loaded.array.ravel().tolist() == expected
    assert loaded.array.dtype == np.uint8


@each_row("inputs/images/broken")
def test_broken_netpbm_files_are_refused(tmp_path: Path, data: str, problem: str) -> None:
    refused(problem, read_bytes, data.encode("latin-1"), tmp_path / "a.ppm")


@pytest.mark.parametrize("suffix", [".jpg", ".JPEG", ".png", ".bmp", ".webp"])
def test_other_images_are_as_opencv_reads_them(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / ("cat" + suffix))
    cv2.imwrite(path, picture(30, 40))
    (loaded,) = read_path(path)
    expected = cv2.imread(path)
    assert expected is not None
    np.testing.assert_array_equal(loaded.array, expected[np.newaxis])
    assert loaded.channels == "bgr"
    assert loaded.array.shape == (1, 30, 40, 3)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".bmp", ".webp"])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_a_truncated_image_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    _, encoded = cv2.imencode(suffix, picture(60, 80))
    data = encoded.tobytes()
    with pytest.raises(UsageError, match=r"truncated|cannot be decoded"):
        read_bytes(data[: int(len(data) * share)], tmp_path / ("cat" + suffix))


@pytest.mark.parametrize("fill", [b"", b"\xff"])  # bytes that may stand before any marker
def test_a_thumbnail_does_not_hide_that_a_jpeg_is_truncated(tmp_path: Path, fill: bytes) -> None:
    _, encoded = cv2.imencode(".jpg", picture(60, 80), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    image = encoded.tobytes()
    segment = fill + b"\xff\xe1" + (len(image) + 2).to_bytes(2, "big") + image
    whole = image[:2] + segment + image[2:]
    assert read_bytes(whole + b"trailing \xff\xda", tmp_path / "a.jpg").array.shape[1:3] == (60, 80)
    refused("truncated", read_bytes, whole[:-2], tmp_path / "a.jpg")


def test_a_netpbm_header_of_megabytes_is_not_parsed(tmp_path: Path) -> None:
    data = b"P6" + b" " * (1 << 20) + b"1 1 255\n\0\0\0"
    refused("has a broken header", read_bytes, data, tmp_path / "a.ppm")


def test_a_jpeg_of_very_many_scans_is_not_decoded(tmp_path: Path) -> None:
    flags = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
    data = cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8), flags)[1].tobytes()
    assert read_bytes(data, tmp_path / "a.jpg").array.shape == (1, 8, 8, 3)
    place = data.rindex(b"\xff\xda")
    begin, last, end = data[:place], data[place:-2], data[-2:]
    count = 100 - begin.count(b"\xff\xda")
    assert read_bytes(begin + last * count + end, tmp_path / "b.jpg").array.shape == (1, 8, 8, 3)
    more = begin + last * (count + 1) + end
    refused("has 101 scans; at most 100", read_bytes, more, tmp_path / "b.jpg")


def test_a_bmp_with_the_header_of_os_2_is_read(tmp_path: Path) -> None:
    header = struct.pack("<2sI4xI IHHHH", b"BM", 34, 26, 12, 2, 1, 1, 24)
    image = read_bytes(header + bytes(range(8)), tmp_path / "a.bmp").array
    assert image.tolist() == [[[[0, 1, 2], [3, 4, 5]]]]


def test_a_size_that_the_file_cannot_hold_is_not_allocated(tmp_path: Path) -> None:
    jpeg, png = (bytearray(cv2.imencode(s, picture(8, 8))[1].tobytes()) for s in (".jpg", ".png"))
    frame = jpeg.find(b"\xff\xc0")
    small = jpeg[frame : frame + 19]
    jpeg[frame + 5 : frame + 9] = b"\x7f\xff\x7f\xff"
    png[33:37] = b"\x7f\xff\xff\xff"
    two_frames = jpeg[:-2] + small + jpeg[-2:]
    for data, name in ((jpeg, "a.jpg"), (two_frames, "b.jpg"), (png, "a.png")):
        refused("truncated or broken", read_bytes, bytes(data), tmp_path / name)
    for marker in range(0xC0, 0xD0):  # of these, three begin no frame
        jpeg[frame + 1] = marker
        problem = "cannot be decoded" if marker in (0xC4, 0xC8, 0xCC) else "truncated"
        refused(problem, read_bytes, bytes(jpeg), tmp_path / "c.jpg")


ENCODERS: dict[str, tuple[str, int, list[int]]] = {
    "png": (".png", 3, []),
    "gray png": (".png", 1, []),
    "jpeg": (".jpg", 3, []),
    "progressive jpeg": (".jpg", 3, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]),
    "jpeg with restarts": (".jpg", 3, [cv2.IMWRITE_JPEG_RST_INTERVAL, 1]),
    "bmp": (".bmp", 3, []),
    "webp": (".webp", 3, [cv2.IMWRITE_WEBP_QUALITY, 50]),
    "lossless webp": (".webp", 3, [cv2.IMWRITE_WEBP_QUALITY, 101]),
    "webp with alpha": (".webp", 4, [cv2.IMWRITE_WEBP_QUALITY, 50]),
    "lossless webp with alpha": (".webp", 4, [cv2.IMWRITE_WEBP_QUALITY, 101]),
}


@pytest.mark.parametrize("kind", ENCODERS)
@settings(max_examples=20)
@given(height=st.integers(1, 200), width=st.integers(1, 200), value=st.integers(0, 255))
def test_the_size_is_known_before_it_is_decoded(
    tmp_path: Path, kind: str, height: int, width: int, value: int
) -> None:
    suffix, channels, how = ENCODERS[kind]
    pixels = np.full((height, width, channels), value, np.uint8)
    data = cv2.imencode(suffix, pixels, how)[1].tobytes()
    path = tmp_path / f"a{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(3 * height * width))
        assert read_bytes(data, path).array.shape == (1, height, width, 3)
        patch.setenv(VARIABLE, str(3 * height * width - 1))
        refused(f"has {len(data)} bytes and unpacks to more than", read_bytes, data, path)


def test_a_few_bytes_do_not_become_gigabytes(tmp_path: Path, run_lar: RunLar) -> None:
    png = bytearray(cv2.imencode(".png", picture(8, 8))[1].tobytes())
    png[16:24] = struct.pack(">II", 30_000, 25_000)
    png[29:33] = struct.pack(">I", zlib.crc32(png[12:29]))
    path = tmp_path / "a.png"
    path.write_bytes(png)
    done = run_lar(str(REPOSITORY / "models" / "digits_cnn.onnx"), "--input", str(path), code=2)
    line = f"lar: error: --input: {path}: has {len(png)} bytes and unpacks to more than 67108864, "
    assert line in done.stderr
    assert "--max-file-size" in done.stderr


def test_an_image_of_another_format_is_refused(tmp_path: Path) -> None:
    data = cv2.imencode(".tiff", picture(8, 8))[1].tobytes()
    refused("it is no PNG, JPEG, BMP or WebP", read_bytes, data, tmp_path / "a.png")


def picture(height: int, width: int) -> Any:
    noise = np.random.default_rng(0).integers(0, 256, (6, 7, 3), np.uint8)
    return cv2.resize(noise, (width, height))
