"""What `-d` feeds: files, random numbers, images, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.datasets.testcase_data import feed_datum
from lar.inputs.feed import Feed
from lar.records.run import ImageSettings, Packing, RunSpec, TensorInfo, format_shape
from tests.inputs.test_feed import infos_in
from tests.refusals import refused
from tests.tables import each_row

INPUTS = Path(__file__).resolve().parents[2] / "inputs"
IMAGE = TensorInfo(name="data", dtype="float32", shape=(1, 3, 224, 224), resizable=True)
SMALL = TensorInfo(name="data", dtype="float32", shape=(1, 3, 16, 20), resizable=True)
BYTES = TensorInfo(name="b", dtype="uint8", shape=(2, 3))
FLOATS = TensorInfo(name="a", dtype="float32", shape=(None, 3))


def feed(text: str, *infos: TensorInfo, image: ImageSettings | None = None, **options: Any) -> Feed:
    spec = RunSpec(model="m", engine="e", driver="d", image=image or ImageSettings())
    return feed_datum(spec, Packing(**options), text, 0, infos)


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 9))
def test_random_numbers_lie_between_the_limits(first: int, second: int, number: int) -> None:
    low, high = sorted((first, second))
    spec = RunSpec(model="m", engine="e", driver="d")
    text = f"#rand({low}, {high})"
    fed = feed_datum(spec, Packing(), text, number, [BYTES, FLOATS])
    for name, shape in (("b", (2, 3)), ("a", (1, 3))):
        array = fed.arrays[name]
        assert array.shape == shape
        assert array.min() >= low
        assert array.max() <= high
    again = feed_datum(spec, Packing(), text, number, [BYTES, FLOATS])
    assert all(np.array_equal(array, again.arrays[name]) for name, array in fed.arrays.items())


def test_each_testcase_draws_its_own_numbers() -> None:
    spec = RunSpec(model="m", engine="e", driver="d")
    first, second = (
        feed_datum(spec, Packing(), "#rand(0,1)", number, [FLOATS]) for number in (0, 1)
    )
    assert not np.array_equal(first.arrays["a"], second.arrays["a"])


def test_files_and_random_values_go_together() -> None:
    fed = feed("b:#rand(0,255);a:[[1.5,2,3]]".replace("[[", "[").replace("]]", "]"), FLOATS, BYTES)
    assert list(fed.arrays) == ["a", "b"]
    assert fed.arrays["a"].tolist() == [[1.5, 2, 3]]
    assert [each.generated for each in fed.fed] == [False, True]


@pytest.mark.parametrize("name", ["cat.jpg", "cat.ppm"])
def test_an_image_becomes_what_the_model_takes(name: str) -> None:
    array = feed(str(INPUTS / name), IMAGE).arrays["data"]
    expected = np.load(INPUTS / "cat.npy")
    # The .npy was made of the .ppm; a JPEG is near it.
    assert np.abs(array - expected).mean() < (1 if name == "cat.jpg" else 1e-6)


def test_an_image_is_resized_to_the_input() -> None:
    array = feed(str(INPUTS / "cat.jpg"), SMALL, resize=True).arrays["data"]
    assert array.shape == (1, 3, 16, 20)
    image = ImageSettings(size=(16, 20))
    asked = feed(str(INPUTS / "cat.jpg"), SMALL, image=image).arrays["data"]
    assert np.array_equal(array, asked)


def test_the_data_is_repeated_and_transformed() -> None:
    path = str(INPUTS / "cat.npy")
    array = feed(path, IMAGE, repeat=2, transform="data / np.std(data)").arrays["data"]
    cat = np.load(INPUTS / "cat.npy")
    assert array.shape == (2, 3, 224, 224)
    np.testing.assert_allclose(array[1], (cat / np.std(cat))[0], rtol=1e-5)


@pytest.fixture
def in_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(INPUTS)


@each_row("datasets/testcase_data/wrong")
@pytest.mark.usefixtures("in_inputs")
def test_what_is_wrong_is_told_in_one_line(
    text: str, infos: str, options: dict[str, Any], message: str, hint: str
) -> None:
    error = refused("", feed, text, *infos_in(infos), **options)
    assert (error.message, error.hint) == (message, hint)


@each_row("datasets/testcase_data/fed")
@pytest.mark.usefixtures("in_inputs")
def test_what_is_given_is_fed(
    text: str, infos: str, options: dict[str, Any], fed: list[str]
) -> None:
    found = feed(text, *infos_in(infos), **options)
    assert [f"{it.name} {format_shape(it.shape)} {it.source}" for it in found.fed] == fed
