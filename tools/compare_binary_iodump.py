"""Compares two dumps of tensors, like MegEngine's tool `compare_binary_iodump.py`.

    python tools/compare_binary_iodump.py A B [-e 1e-3] [-s]

A and B are folders that --bin-io-dump wrote, or single files from such folders. The error of an
element is |a - b| / max(|a|, |b|, 1). If any element of a tensor has an error above -e, the tensor
is printed with its first such element. With -s, the program stops at the first printed tensor, with
exit code 1. The dumps may have different layouts or files: tensors are matched as in `lar compare`.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import lar
from lar.dumps.binary import read_header
from lar.errors import LarError
from lar.records.comparison import Figures, TensorComparison


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="compare tensor dumps: two folders or two single files",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("input0", help="dirname or filename")
    parser.add_argument("input1", help="dirname or filename")
    parser.add_argument("-e", "--max-err", type=float, default=1e-3, help="max allowed error")
    parser.add_argument(
        "-s", "--stop-on-error", action="store_true", help="stop at the first tensor that differs"
    )
    arguments = parser.parse_args(words)
    try:
        dumps = lar.open_dump(arguments.input0), lar.open_dump(arguments.input1)
        comparison = lar.compare(*dumps, max_error=arguments.max_err)
    except LarError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    folders = [folder_of(name) for name in (arguments.input0, arguments.input1)]
    for tensor in sorted(comparison.tensors, key=lambda it: it.actual.key):
        if not tensor.passed:
            print(describe(tensor, *folders))
            if arguments.stop_on_error:
                return 1
    for unmatched in comparison.unmatched:
        if not unmatched.fused:
            name = arguments.input0 if unmatched.side == "actual" else arguments.input1
            print(f"{name}: {unmatched.tensor.key} {unmatched.tensor.name}: {unmatched.reason}")
    return 0


def folder_of(name: str) -> Path:
    """Return the folder with the files of a dump."""
    return Path(name) if Path(name).is_dir() else Path(name).parent


def describe(tensor: TensorComparison, folder0: Path, folder1: Path) -> str:
    """Return the text that MegEngine's tool prints for a tensor that differs."""
    paths = folder0 / tensor.actual.key, folder1 / tensor.expected.key
    names = ["\n  ".join(textwrap.wrap(read_header(path).name)) for path in paths]
    text = f"{paths[0]}: \n{names[0]}\n{names[1]}\n"
    figures = tensor.figures
    if figures is None:
        return f"{text} shape mismatch: {tensor.actual.shape} vs {tensor.expected.shape}"
    if figures.nonfinite_mismatches:
        return (
            f"{text} not finite: NaN {figures.nan_counts[0]} vs {figures.nan_counts[1]}, "
            f"infinite {figures.infinity_counts[0]} vs {figures.infinity_counts[1]}"
        )
    return f"{text} not equal: shape={tensor.expected.shape} {describe_first(figures)}"


def describe_first(figures: Figures) -> str:
    """Describe the first element whose error is above the limit."""
    first = figures.first
    assert first is not None
    values = np.array([number_of(first.actual), number_of(first.expected)])
    if values.dtype.kind != "c" and np.abs(values).max() <= np.finfo(np.float32).max:
        # MegEngine's tool computes in float32 for every dtype, and prints all digits.
        values = values.astype(np.float32)
    v0, v1 = values
    error = np.abs(v0 - v1) / np.abs([*values, values.dtype.type(1)]).max()
    return f"nonequal_idx={first.index} v0={v0.item()} v1={v1.item()} err={float(error)}"


def number_of(text: str) -> float | complex:
    """Return an element's value from its text."""
    if text in ("False", "True"):
        return float(text == "True")
    return complex(text) if "j" in text else float(text)


if __name__ == "__main__":
    sys.exit(main())
