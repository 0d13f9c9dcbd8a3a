from __future__ import annotations

from typing import Any, Literal

import cv2
import numpy as np
import pytest

from lar.inputs import Loaded
from lar.inputs.images import (
    apply_settings,
    channel_axis_of,
    fit_channels,
    flags_of,
    hint_at_flags,
)
from lar.records.run import ImageSettings, TensorInfo
from tests.refusals import refused
from tests.tables import each_row

PIXELS = np.random.default_rng(0).integers(0, 256, (1, 6, 8, 3), np.uint8)


def image(channels: Literal["bgr", "rgb", "gray"] = "bgr", array: Any = PIXELS) -> Loaded:
    return Loaded(array, "cat.jpg", channels=channels)


def apply(loaded: Loaded, dtype: str = "float32", **settings: Any) -> Any:
    info = TensorInfo(name="data", dtype=dtype, shape=(1, 3, 6, 8))
    array = apply_settings(loaded, info, ImageSettings(**settings))
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    return array


def test_layout_turns_the_axes() -> None:
    turned = PIXELS.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(apply(image(), layout="nchw"), turned)
    np.testing.assert_array_equal(apply(image(), layout="nhwc"), PIXELS)
    np.testing.assert_array_equal(apply(image(), mean=(0.0,)), PIXELS)
    for array in (PIXELS, PIXELS[0], turned, turned[0]):
        np.testing.assert_array_equal(apply(Loaded(array, "a.npy"), layout="nchw"), turned)


@pytest.mark.parametrize(("source", "wanted"), [("bgr", "rgb"), ("rgb", "bgr")])
def test_channels_are_reversed_only_if_they_must_be(source: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(apply(image(source), layout="nhwc", channels=source), PIXELS)
    np.testing.assert_array_equal(apply(image(source), channels=wanted), PIXELS[..., ::-1])


def test_resizing_is_that_of_opencv() -> None:
    expected = cv2.resize(PIXELS[0], (5, 4), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(apply(image(), size=(4, 5))[0], expected)
    assert apply(image("gray", PIXELS[..., :1]), size=(4, 5)).shape == (1, 4, 5, 1)
    assert apply(image(), size=(1, 1)).shape == (1, 1, 1, 3)
    batch = Loaded(np.repeat(PIXELS, 2, 0).astype(np.int64), "a.npy")
    np.testing.assert_allclose(apply(batch, size=(4, 5))[1], expected, atol=1)
    swapped = Loaded(PIXELS.astype(">f4"), "a.npy")
    np.testing.assert_allclose(apply(swapped, size=(4, 5))[0], expected, atol=1)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_mean_is_subtracted_before_the_scale(layout: Any, dtype: str) -> None:
    mean, scale = (1.0, 2.0, 3.0), (0.5, 0.25, 0.125)
    expected = ((PIXELS - np.array(mean)) * np.array(scale)).astype(dtype)
    array = apply(image(), dtype, layout=layout, mean=mean, scale=scale)
    if layout == "nchw":
        array = array.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(array, expected, rtol=1e-6)


def test_mean_follows_the_channel_order_that_is_fed() -> None:
    array = apply(image("bgr"), channels="rgb", mean=(9.0, 0.0, 0.0))
    np.testing.assert_array_equal(array[..., 0], PIXELS[..., 2] - 9.0)


def test_whole_numbers_are_rounded_and_must_fit() -> None:
    np.testing.assert_array_equal(apply(image(), "int8", mean=(128.0,)), PIXELS.astype(int) - 128)
    np.testing.assert_array_equal(apply(image(), "uint8", scale=(0.5,)), np.rint(PIXELS * 0.5))
    assert (apply(Loaded(np.full((1, 3, 2, 2), 1.7), "a.npy"), "uint8", layout="nchw") == 2).all()
    caught = refused("out of the range of int8", apply, image(), "int8", layout="nchw")
    assert "--mean" in caught.hint


def test_a_type_that_numpy_lacks_keeps_fractions() -> None:
    info = TensorInfo(name="data", dtype="bfloat16", shape=(1, 6, 8, 3))
    array = apply_settings(image(), info, ImageSettings(scale=(0.25,)))
    np.testing.assert_array_equal(array.astype(np.float32), PIXELS * 0.25)


def test_the_pixels_that_were_read_stay_as_they_are() -> None:
    floats = PIXELS.astype(np.float32)
    apply(Loaded(floats, "a.npy"), mean=(5.0,), scale=(2.0,))
    np.testing.assert_array_equal(floats, PIXELS)


@pytest.mark.parametrize(
    ("loaded", "settings", "problem"),
    [
        (image(), {"mean": (1.0, 2.0)}, "--mean has 2 values for 3 channels"),
        (image(), {"scale": (1.0,) * 4}, "--scale has 4 values for 3 channels"),
        (image(), {"size": (0, 4)}, "--resize: 0x4"),
        (image(), {"size": (4, 0)}, "--resize: 4x0"),
        (image(), {"size": (1 << 30, 1 << 30)}, "memory"),
        (Loaded(np.ones((1, 600, 2, 2), np.uint8), "a.npy"), {"size": (3, 3)}, "3x3 fails"),
        (image("gray", PIXELS[..., :1]), {"channels": "bgr"}, "gray image"),
        (Loaded(PIXELS, "a.npy"), {"channels": "rgb"}, "order is unknown"),
        (Loaded(PIXELS > 0, "a.npy"), {"mean": (1.0,)}, "--mean does not go with bool"),
    ],
)
def test_settings_that_do_not_go_with_the_array_are_refused(
    loaded: Loaded, settings: dict[str, Any], problem: str
) -> None:
    refused(problem, apply, loaded, **settings)


@each_row("inputs/images/channels")
def test_gray_and_colour_do_not_mix(
    channels: int, alike: bool, shape: list[int], layout: Any, found: int | str
) -> None:
    """It feeds so many channels, or is refused with that hint."""
    pixels = np.arange(48 * channels, dtype=np.uint8).reshape(1, 6, 8, channels)
    loaded = image("rgb", np.repeat(pixels[..., :1], channels, 3) if alike else pixels)
    info = TensorInfo(name="x", dtype="uint8", shape=tuple(shape))
    settings = ImageSettings(layout=layout)
    if isinstance(found, str):
        assert refused("", fit_channels, loaded, info, settings).hint == found
    else:
        assert fit_channels(loaded, info, settings).array.shape[3] == found


@each_row("inputs/images/axes")
def test_the_channel_axis_is_told_from_the_shape(shape: list[int], axis: int) -> None:
    assert channel_axis_of(tuple(shape)) == axis


def test_flags_are_those_that_are_set() -> None:
    assert flags_of(ImageSettings()) == []
    assert flags_of(ImageSettings(channels="bgr", size=(1, 2))) == ["--resize", "--bgr"]


@each_row("inputs/images/hints")
def test_hints_name_the_flags_that_are_missing(
    channels: Any, array: list[int], shape: list[Any], settings: dict[str, Any], hint: str
) -> None:
    resizable = settings.pop("resizable", False)
    info = TensorInfo(name="x", dtype="float32", shape=tuple(shape), resizable=resizable)
    loaded = Loaded(np.zeros(array, np.uint8), "a.npy", channels=channels)
    size = tuple(settings.pop("size", ())) or None
    found = hint_at_flags(loaded, info, ImageSettings(size=size, **settings))
    assert found == hint
