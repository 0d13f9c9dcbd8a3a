"""The pictures from which models and inputs are made: photographs and digits.

The photographs come with scikit-image, and the digits with scikit-learn. Nothing is downloaded.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
import skimage.data
import sklearn.datasets
from network import Array

IMAGE_SIZE = 224
TEST_DIGIT_COUNT = 360

# Top, left and side length of the square around the cat's face.
CAT_FACE = (0, 70, 300)

OTHER_PICTURES = (
    *("astronaut", "coffee", "rocket", "immunohistochemistry"),
    *("hubble_deep_field", "retina", "colorwheel"),
)


class Digits(NamedTuple):
    """Images (N, 1, 8, 8) float32 with values 0 to 16, and their labels (N,) int32."""

    images: Array
    labels: Array


def crop_square(image: Array, top: int, left: int, side: int) -> Array:
    """Cut a square out of an RGB image (H, W, 3) uint8; return it resized for models, as BGR."""
    square = image[top : top + side, left : left + side, ::-1]
    size = (IMAGE_SIZE, IMAGE_SIZE)
    return np.asarray(cv2.resize(np.ascontiguousarray(square), size, interpolation=cv2.INTER_AREA))


def load_cat() -> Array:
    """Return the face of the cat "Chelsea" as a BGR image (224, 224, 3) uint8."""
    return crop_square(_load_picture("chelsea"), *CAT_FACE)


def _load_picture(name: str) -> Array:
    """Return a picture of scikit-image as an RGB image (H, W, 3) uint8."""
    return np.asarray(getattr(skimage.data, name)())


def nchw_of(image: Array) -> Array:
    """Convert a BGR image (H, W, 3) uint8 to (1, 3, H, W) float32 with values 0 to 255."""
    return np.ascontiguousarray(image.transpose(2, 0, 1)[np.newaxis], dtype=np.float32)


def load_photographs() -> Array:
    """Return eight BGR pictures, the cat first: (8, 3, 224, 224) float32, values 0 to 255."""
    images = [load_cat()]
    for name in OTHER_PICTURES:
        image = _load_picture(name)
        height, width = image.shape[:2]
        side = min(height, width)
        images.append(crop_square(image, (height - side) // 2, (width - side) // 2, side))
    return np.concatenate([nchw_of(image) for image in images])


def split_digits() -> tuple[Digits, Digits]:
    """Return the digits for training and the digits for testing, shuffled with a fixed seed."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype(np.float32)
    labels = labels.astype(np.int32)
    # The digits are ordered by writer: without shuffling, the test would have other writers.
    order = np.random.RandomState(0).permutation(len(labels))
    train, test = order[:-TEST_DIGIT_COUNT], order[-TEST_DIGIT_COUNT:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])
