"""Makes the models in `models/`: each as a .mge and as an .onnx with the same weights.

    python tools/make_models.py                    the committed ones, into models/
    python tools/make_models.py resnet50 resnet18  large ones, into models/large/ (not committed)
    python tools/make_models.py --list

Random weights have a fixed seed, and nothing is downloaded. On one machine, a command writes the
same bytes each time. On another machine, the data and the random numbers are the same, but the
processor may round sums differently. So trained weights and measured statistics can differ in their
last bits. Only multi_input, dynamic_batch and one_operator have no such weights.

Both files of a model are run on a sample. If the outputs of the two engines differ, the exit code
is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from calibration import calibrate
from digits_training import quantize_digits_cnn, train_digits_cnn
from megengine_twin import dump_megengine, run_megengine
from model_zoo import NETWORKS
from network import Array, Network
from onnx_twin import count_macs, onnx_of, run_onnx
from sample_data import load_photographs, split_digits

MODELS = Path(__file__).resolve().parent.parent / "models"
LEAST_ACCURACY = 0.97

Feeds = dict[str, Array]


class Recipe(NamedTuple):
    """How to make a model, and the data on which its two files are compared.

    Weights are random, or random and scaled on `images`, or trained on digits by `train`.
    """

    summary: str
    images: Callable[[], Array] | None = None
    train: Callable[[], Network] | None = None
    large: bool = False

    @property
    def tolerance(self) -> float:
        return 1e-5 if self.train else 1e-4

    def make(self, name: str) -> Network:
        if self.train:
            return self.train()
        network = NETWORKS[name]()
        if self.images:
            calibrate(network, self.images())
        return network

    def sample(self, network: Network) -> Feeds:
        """Return the data on which the two files of a model are compared."""
        if self.train:
            return {"data": split_digits()[1].images}
        if self.images:
            return {"data": self.images()[:1]}
        random = np.random.RandomState(2)
        shapes = {
            it.name: (5, *it.shape[1:]) if it.any_batch else it.shape for it in network.inputs
        }
        return {name: random.randn(*each).astype(np.float32) for name, each in shapes.items()}


_train_digits_cnn = cache(train_digits_cnn)


def _load_photographs_uint8() -> Array:
    return np.ascontiguousarray(load_photographs().transpose(0, 2, 3, 1), dtype=np.uint8)


SCALED = "random weights scaled on photographs"
RECIPES = {
    "digits_cnn": Recipe("small CNN trained on scikit-learn's digits", train=_train_digits_cnn),
    "int8": Recipe(
        "digits_cnn with its convolutions quantised to int8",
        train=lambda: quantize_digits_cnn(_train_digits_cnn()),
    ),
    "mobilenet_v2": Recipe(f"MobileNetV2 0.35, {SCALED}", load_photographs),
    "multi_input": Recipe("two inputs and two outputs"),
    "uint8_input": Recipe(
        "uint8 picture input (NHWC), preprocessing inside", _load_photographs_uint8
    ),
    "dynamic_batch": Recipe("batch size may change between runs"),
    "one_operator": Recipe("a single ReLU on 4 numbers"),
    "encoder": Recipe("a BERT-like encoder with random weights", large=True),
    "resnet18": Recipe(f"ResNet-18, {SCALED}", load_photographs, large=True),
    "resnet50": Recipe(f"ResNet-50, {SCALED}", load_photographs, large=True),
}


def make_model(name: str, folder: Path) -> bool:
    """Write `name`.mge, `name`.onnx and their checksums; return False if a check fails.

    A checksum file has the output of `sha256sum`, since neither format has a checksum of its
    weights.
    """
    recipe = RECIPES[name]
    start_seconds = time.perf_counter()
    network = recipe.make(name)
    onnx_model = onnx_of(network)
    folder.mkdir(parents=True, exist_ok=True)
    mge_path, onnx_path = folder / f"{name}.mge", folder / f"{name}.onnx"
    dump_megengine(network, mge_path)
    onnx_path.write_bytes(onnx_model.SerializeToString(deterministic=True))
    for path in (mge_path, onnx_path):
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_name(path.name + ".sha256").write_text(f"{checksum}  {path.name}\n")
    print(f"{name}: {recipe.summary}")
    print(f"  made in {time.perf_counter() - start_seconds:.1f} s")
    print(f"  parameters {network.count_parameters()}, MACs {count_macs(onnx_model)}")
    for path in (mge_path, onnx_path):
        print(f"  {path.name} {path.stat().st_size} bytes")
    return _check_twins(recipe, recipe.sample(network), mge_path, onnx_path)


def _check_twins(recipe: Recipe, feeds: Feeds, mge_path: Path, onnx_path: Path) -> bool:
    actual, expected = run_megengine(mge_path, feeds), run_onnx(str(onnx_path), feeds)
    passed = list(actual) == list(expected)
    for name in expected:
        difference = float(np.abs(actual[name] - expected[name]).max())
        passed &= difference <= recipe.tolerance
        low, high = float(expected[name].min()), float(expected[name].max())
        print(f"  {name} {low:.3f} to {high:.3f}, greatest difference {difference:.2g}")
    if recipe.train:
        _, test = split_digits()
        for engine, outputs in (("MegEngine", actual), ("ONNX Runtime", expected)):
            accuracy = float(np.mean(outputs["logits"].argmax(axis=1) == test.labels))
            passed &= accuracy > LEAST_ACCURACY
            print(f"  test accuracy {accuracy:.2%} ({engine})")
    if not passed:
        print(f"  FAILED: tolerance {recipe.tolerance:g}, least accuracy {LEAST_ACCURACY:.0%}")
    return passed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the models of lar, .mge and .onnx.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="without: the committed ones")
    parser.add_argument("--list", action="store_true", help="list the names and exit")
    parser.add_argument(
        "--output-dir", type=Path, help="default: models/, for large ones models/large/"
    )
    options = parser.parse_args(arguments)
    if options.list:
        for name, recipe in RECIPES.items():
            print(f"{name:14} {recipe.summary}{' (large)' if recipe.large else ''}")
        return 0
    unknown = [name for name in options.names if name not in RECIPES]
    if unknown:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(RECIPES)}")
    names = options.names or [name for name, recipe in RECIPES.items() if not recipe.large]
    passed = True
    for name in names:
        default = MODELS / "large" if RECIPES[name].large else MODELS
        passed &= make_model(name, options.output_dir or default)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
