"""tools/make_inputs.py and the committed inputs: the formats agree with each other."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.command_lines import ROOT, run_python

INPUTS = ROOT / "inputs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    done = run_python("tools/make_inputs.py", "--output-dir", str(folder), code=0)
    assert done.stdout == f"inputs written to {folder}\n"
    return folder


def test_committed_inputs_are_what_the_script_makes(made: Path) -> None:
    names = sorted(path.name for path in made.iterdir())
    assert sorted(path.name for path in INPUTS.iterdir()) == sorted([*names, "README.md"])
    # JPEG coders differ a little between OpenCV builds; the rest is exact.
    for name in names:
        if name.startswith("cat."):
            continue
        assert (INPUTS / name).read_bytes() == (made / name).read_bytes(), name
    assert np.abs(np.load(INPUTS / "cat.npy") - np.load(made / "cat.npy")).mean() < 2


def test_all_cats_hold_the_same_pixels(made: Path) -> None:
    pixels = np.asarray(cv2.imread(str(made / "cat.jpg")))
    assert pixels.shape == (224, 224, 3)
    np.testing.assert_array_equal(pixels, np.asarray(cv2.imread(str(made / "cat.ppm"))))
    grey = np.asarray(cv2.imread(str(made / "cat.pgm"), cv2.IMREAD_UNCHANGED))
    np.testing.assert_array_equal(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), grey)
    # As the manual prepares an image: NCHW, BGR, float32.
    tensor = np.load(made / "cat.npy")
    assert (tensor.shape, tensor.dtype) == ((1, 3, 224, 224), np.float32)
    np.testing.assert_array_equal(tensor, pixels.transpose(2, 0, 1)[np.newaxis])
    described = json.loads((made / "cat.json").read_text())["data"]
    assert (described["shape"], described["type"]) == ([1, 3, 224, 224], "float32")
    np.testing.assert_array_equal(tensor.ravel(), described["raw"])


def test_image_files_are_binary_netpbm(made: Path) -> None:
    assert (made / "cat.ppm").read_bytes().startswith(b"P6\n224 224\n255\n")
    assert (made / "cat.pgm").read_bytes().startswith(b"P5\n224 224\n255\n")


def test_digits_have_the_shape_the_models_take(made: Path) -> None:
    digits, labels = np.load(made / "digits.npy"), np.load(made / "digits_labels.npy")
    assert (digits.shape, digits.dtype) == ((32, 1, 8, 8), np.float32)
    assert np.array_equal(np.load(made / "digits.npz")["data"], digits)
    assert np.array_equal(np.loadtxt(made / "digits_labels.txt", int), labels)
    assert digits.min() == 0
    assert digits.max() == 16
    assert set(labels.tolist()) == set(range(10))
    seven = np.load(made / "digit_7.npy")
    assert seven.shape == (1, 1, 8, 8)
    assert labels[(digits == seven).all(axis=(1, 2, 3))].tolist() == [7]


def test_digits_were_not_trained_on() -> None:
    from sample_data import split_digits

    train, test = split_digits()
    assert (len(train.labels), len(test.labels)) == (1437, 360)
    seen = {image.tobytes() for image in train.images}
    assert not any(image.tobytes() in seen for image in np.load(INPUTS / "digits.npy"))


def test_multi_input_names_both_tensors(made: Path) -> None:
    tensors = json.loads((made / "multi_input.json").read_text())
    assert {name: tensor["shape"] for name, tensor in tensors.items()} == {"a": [2, 3], "b": [3, 4]}
    for tensor in tensors.values():
        assert tensor["type"] == "float32"
        assert len(tensor["raw"]) == np.prod(tensor["shape"])
