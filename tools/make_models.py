"""Makes the models of lar, each as MegEngine .mge and as ONNX .onnx from the same weights.

    python tools/make_models.py                    the committed ones, into models/
    python tools/make_models.py resnet50 resnet18  large ones, into models/large/ (not committed)
    python tools/make_models.py --list

All weights are seeded and no network is used. On one machine the same command writes the same
bytes each time. Between machines the data and the random draws are the same, but processors may
round sums differently: trained weights and measured statistics (all models but multi_input,
dynamic_batch and one_operator) can differ in their last bits.

Each pair of files is run on a sample; when the engines disagree, the exit code is 1.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import model_zoo
import numpy as np
from calibration import calibrate
from digits_training import quantize_digits_cnn, train_digits_cnn
from megengine_twin import dump_megengine, run_megengine
from network import Array, Network
from onnx_twin import count_macs, onnx_of, run_onnx
from sample_data import load_photographs, split_digits

MODELS = Path(__file__).resolve().parent.parent / "models"
LEAST_ACCURACY = 0.97

Feeds = dict[str, Array]


@dataclass(frozen=True)
class Recipe:
    """How to make a model, and what to run it on to compare its twins."""

    summary: str
    make: Callable[[], Network]
    sample: Callable[[], Feeds]
    tolerance: float = 1e-4
    large: bool = False
    classifies_digits: bool = False


_train_digits_cnn = cache(train_digits_cnn)


def _calibrated(
    describe: Callable[[], Network], images: Callable[[], Array] = load_photographs
) -> Callable[[], Network]:
    def make() -> Network:
        network = describe()
        calibrate(network, images())
        return network

    return make


def _load_photographs_uint8() -> Array:
    return np.ascontiguousarray(load_photographs().transpose(0, 2, 3, 1), dtype=np.uint8)


def _random(**shapes: tuple[int, ...]) -> Callable[[], Feeds]:
    random = np.random.RandomState(0)
    feeds = {name: random.randn(*shape).astype(np.float32) for name, shape in shapes.items()}
    return lambda: feeds


def _photograph() -> Feeds:
    return {"data": load_photographs()[:1]}


def _digits() -> Feeds:
    return {"data": split_digits()[1].images}


SCALED = "random weights scaled on photographs"
RECIPES: dict[str, Recipe] = {
    "digits_cnn": Recipe(
        *("small CNN trained on scikit-learn's digits", _train_digits_cnn, _digits, 1e-5),
        classifies_digits=True,
    ),
    "int8": Recipe(
        "digits_cnn with its convolutions quantised to int8",
        *(lambda: quantize_digits_cnn(_train_digits_cnn()), _digits, 1e-5),
        classifies_digits=True,
    ),
    "mobilenet_v2": Recipe(
        f"MobileNetV2 0.35, {SCALED}", _calibrated(model_zoo.describe_mobilenet_v2), _photograph
    ),
    "multi_input": Recipe(
        "two inputs and two outputs", model_zoo.describe_multi_input, _random(a=(2, 3), b=(3, 4))
    ),
    "uint8_input": Recipe(
        "uint8 picture input (NHWC), preprocessing inside",
        _calibrated(model_zoo.describe_uint8_input, _load_photographs_uint8),
        lambda: {"data": _load_photographs_uint8()[:1]},
    ),
    "dynamic_batch": Recipe(
        "batch size may change between runs",
        *(model_zoo.describe_dynamic_batch, _random(data=(5, 16))),
    ),
    "one_operator": Recipe(
        "a single ReLU on 4 numbers",
        model_zoo.describe_one_operator,
        lambda: {"data": np.array([-1.5, -0.5, 0.5, 1.5], np.float32)},
    ),
    "encoder": Recipe(
        "a BERT-like encoder with random weights",
        *(model_zoo.describe_encoder, _random(data=(64, 256))),
        large=True,
    ),
    **{
        f"resnet{layers}": Recipe(
            f"ResNet-{layers}, {SCALED}", _calibrated(describe), _photograph, large=True
        )
        for layers, describe in (
            (18, model_zoo.describe_resnet18),
            (50, model_zoo.describe_resnet50),
        )
    },
}


def make_model(name: str, folder: Path) -> bool:
    """Write `name`.mge, `name`.onnx and their checksums, print what they are; False when a
    check fails.

    A checksum file is what `sha256sum` prints: neither format has one for its weights.
    """
    recipe = RECIPES[name]
    start_seconds = time.perf_counter()
    network = recipe.make()
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
    return _check_twins(recipe, mge_path, onnx_path)


def _check_twins(recipe: Recipe, mge_path: Path, onnx_path: Path) -> bool:
    feeds = recipe.sample()
    actual, expected = run_megengine(mge_path, feeds), run_onnx(onnx_path, feeds)
    passed = list(actual) == list(expected)
    for name in expected:
        difference = float(np.abs(actual[name] - expected[name]).max())
        passed &= difference <= recipe.tolerance
        low, high = float(expected[name].min()), float(expected[name].max())
        print(f"  {name} {low:.3f} to {high:.3f}, greatest difference {difference:.2g}")
    if recipe.classifies_digits:
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
