"""Runs that go well: a model for one, what it gives and prints, and what others are made of."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt
import onnx
import onnx.parser
from onnx import numpy_helper

import lar
from lar.dumps.binary import write_tensor
from lar.engines.onnxruntime.cache import CACHE_FORMAT, ModelCache
from lar.profiles.trace_file import write_profile
from lar.results.store import open_store
from tests.command_lines import ROOT, run_lar
from tests.profiles.synthetic import profile_of_times
from tests.results.made_results import make_result, make_runs

Array = npt.NDArray[Any]


def without_hints(text: str) -> list[str]:
    """The lines but for the hint at a defect of the engine that costs speed on this processor."""
    return [line for line in text.splitlines() if not line.startswith("hint: MKL")]


def result_of(*words: str, **keywords: Any) -> lar.RunResult:
    """The result of a run that ends well, from `--json -`."""
    first = 1 if words[0] == "run" else 0
    done = run_lar(*words[:first], "--json", "-", *words[first:], code=0, **keywords)
    return lar.read_result(done.stdout)


def outputs_of(*words: str, **keywords: Any) -> list[tuple[str, str]]:
    """Name and hash of each output after a single run."""
    result = result_of("--iter", "0", "--warmup-iter", "1", *words, **keywords)
    assert result.outputs
    return [(output.name, output.sha256) for output in result.outputs]


def save_altered(path: Path, model: str, **changes: Callable[[Array], Array | None]) -> str:
    """Save a model of the repository with other weights: each name of `changes`, with `__` for a
    dot, is of weights that a function changes in place, or returns."""
    altered = onnx.load(ROOT / "models" / model)
    weights = {each.name: each for each in altered.graph.initializer}
    for name, change in changes.items():
        constant = weights[name.replace("__", ".")]
        array = numpy_helper.to_array(constant).copy()
        changed = change(array)
        constant.CopyFrom(
            numpy_helper.from_array(array if changed is None else changed, constant.name)
        )
    onnx.save(altered, path)
    return str(path)


def save_kinds(folder: Path) -> Path:
    """Save the models whose texts are in `kinds/` into a new folder."""
    folder.mkdir()
    for text in (ROOT / "tests/cli/kinds").iterdir():
        onnx.save(onnx.parser.parse_model(text.read_text()), folder / f"{text.stem}.onnx")
    return folder


def write_dump(folder: Path, **arrays: Array) -> str:
    """Write the files of some tensors into a new folder."""
    folder.mkdir()
    for name, array in arrays.items():
        write_tensor(folder / name, array, name)
    return str(folder)


def write_profile_of_two(path: Path) -> str:
    """Write the profile of three iterations of two operators, after a warm-up."""
    types = {"conv": "Convolution", "relu": "Relu"}
    times = [{"conv": 30, "relu": 5}, {"conv": 28, "relu": 6}, {"conv": 29, "relu": 4}]
    write_profile(profile_of_times(types, times, step_us=50, warmup=1, dispatch_us=2), path)
    return str(path)


def write_model_cache(path: Path, **key: str) -> str:
    """Write a cache of ONNX Runtime whose second file has 2048 bytes."""
    model, data = (ROOT / "models/digits_cnn.onnx").read_bytes(), bytes(2048)
    name = f"{path.name}.0123abcd.data"
    path.with_name(name).write_bytes(data)
    content = ModelCache(
        format=CACHE_FORMAT,
        prepacked=True,
        weights=(),
        key={"model": "abc", "operators": "", "threads": "2", **key},
        model=model,
        model_crc32=zlib.crc32(model),
        data=name,
        data_bytes=len(data),
        data_crc32=zlib.crc32(data),
    )
    path.write_bytes(msgspec.json.encode(content))
    return str(path)


def cache(*words: object, code: int = 0) -> str:
    """What `lar cache` prints when it ends with a code."""
    return run_lar("cache", *map(str, words), code=code).stdout


def fill_store(path: Path) -> Path:
    """Make a store: five runs tagged v1, five that are slower, one alone, two with an option, one
    that crashed."""
    with open_store(str(path), create=True) as store:
        store.add(make_runs(5, 0.010, seed=1), "v1")
        store.add(make_runs(5, 0.0105, seed=2), "v2")
        store.add(make_runs(1, 0.010, seed=3))
        store.add(make_runs(2, 0.020, seed=4, multithread=2), "v1")
        store.add([make_result(model="other.mge", sha256="c" * 64)], "broken")
    return path


def lines_of(text: str) -> list[str]:
    """Printed lines with their numbers left out."""
    return [re.sub(r"\d+(\.\d+)?", "N", line) for line in text.splitlines()]
