"""Makes the files in `inputs/`, which `--input` feeds to the models of `make_models.py`.

    python tools/make_inputs.py [--output-dir DIR]      default: inputs/

The cat is "Chelsea", a photograph by Stefan van der Walt, released under CC0, which comes with
scikit-image. All files of the cat have the pixels that decoding cat.jpg gives. The digits are the
digits of scikit-learn on which the models were not trained.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from network import Array
from sample_data import Digits, load_cat, nchw_of, split_digits

INPUTS = Path(__file__).resolve().parent.parent / "inputs"
JPEG_QUALITY = 95
DIGIT_COUNT = 32
SINGLE_DIGIT = 7


def write_cat(folder: Path) -> None:
    """Write the cat, 224x224, as .jpg, .ppm (RGB), .pgm (grey), .npy and .json.

    The .npy and the .json have the array that image models take: (1, 3, 224, 224) float32, BGR, 0
    to 255. In the .json, the name of the array is `data`.
    """
    jpeg_path = folder / "cat.jpg"
    cv2.imwrite(str(jpeg_path), load_cat(), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    # JPEG loses detail, so that the other files are made from the decoded .jpg.
    pixels = np.asarray(cv2.imread(str(jpeg_path)))
    cv2.imwrite(str(folder / "cat.ppm"), pixels)
    cv2.imwrite(str(folder / "cat.pgm"), cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY))
    tensor = nchw_of(pixels)
    np.save(folder / "cat.npy", tensor)
    write_json(folder / "cat.json", {"data": tensor})


def write_json(path: Path, tensors: dict[str, Array]) -> None:
    """Write tensors in load_and_run's JSON format: shape, type and flat values of each tensor."""
    described = {}
    for name, tensor in tensors.items():
        # Without ".0", the text of whole numbers is half as long.
        raw = [int(value) if value == int(value) else value for value in tensor.ravel().tolist()]
        described[name] = {"shape": list(tensor.shape), "type": tensor.dtype.name, "raw": raw}
    path.write_text(json.dumps(described, separators=(",", ":")) + "\n")


def write_digits(folder: Path) -> None:
    """Write 32 digits (32, 1, 8, 8) float32, their labels (32,) int32, and a single seven.

    The digits are also written as a data set, digits.npz, with the labels in digits_labels.txt.
    """
    _, test = split_digits()
    # The last digits, since the first digits have no eight.
    digits = Digits(test.images[-DIGIT_COUNT:], test.labels[-DIGIT_COUNT:])
    np.save(folder / "digits.npy", digits.images)
    np.save(folder / "digits_labels.npy", digits.labels)
    np.savez(folder / "digits.npz", data=digits.images)
    np.savetxt(folder / "digits_labels.txt", digits.labels, fmt="%d")
    first = int(np.flatnonzero(digits.labels == SINGLE_DIGIT)[0])
    np.save(folder / f"digit_{SINGLE_DIGIT}.npy", digits.images[first : first + 1])


def write_multi_input(folder: Path) -> None:
    """Write the inputs of the model multi_input: `a` (2, 3) and `b` (3, 4), both float32.

    The numbers are easy to check by hand.
    """
    a = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    b = np.array([[1, 0, 0, 0.5], [0, 1, 0, 0.5], [0, 0, 1, 0.5]], np.float32)
    write_json(folder / "multi_input.json", {"a": a, "b": b})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the inputs of lar.")
    parser.add_argument("--output-dir", type=Path, default=INPUTS, help="default: inputs/")
    folder: Path = parser.parse_args(arguments).output_dir
    folder.mkdir(parents=True, exist_ok=True)
    for write in (write_cat, write_digits, write_multi_input):
        write(folder)
    print(f"inputs written to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
