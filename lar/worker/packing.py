"""Packing testcases: what each feeds, what the engine computes of it, and the file; in a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lar.engines import engine_named
from lar.errors import UsageError
from lar.inputs.dtypes import count_nonfinite, name_of
from lar.inputs.feed import Feed
from lar.inputs.loaded import Array
from lar.measurement.rows import SampleRows
from lar.records.run import FedInput, RunContext, RunSpec, TensorInfo
from lar.records.testcase import Packing
from lar.testcases.data import feed_datum
from lar.worker.execution import Copies, explaining

Packed = tuple[tuple[tuple[FedInput, ...], ...], tuple[TensorInfo, ...], tuple[str, ...]]


def pack(spec: RunSpec, context: RunContext) -> Packed:
    """Pack a testcase for each of the spec's `inputs`.

    Returns:
        What each testcase feeds, the outputs that are expected, and warnings.

    Raises:
        LarError: the model does not load or fails, or the data does not fit it.
    """
    packer, packing = engine_named(spec.engine).packing, context.packing or Packing()
    assert packer is not None
    copies = Copies(spec, context, [SampleRows.anonymous(len(spec.inputs))])
    (driver,) = copies.drivers
    copies.load()
    infos = driver.inputs()
    cases, fed = [], []
    warnings: list[str] = []
    for number, text in enumerate(spec.inputs):
        feed = feed_text(spec, packing, text, number, infos)
        outputs = compute(copies, feed.arrays) if packing.asserts else {}
        cases.append((dict(items_of(feed.arrays)), outputs))
        fed.append(feed.fed)
        warnings += feed.warnings
        warnings += [
            f"testcase {number}: the output {name} holds NaN or infinite values, which equal "
            "themselves for lar alone"
            for name, array in outputs.items()
            if count_nonfinite(array)
        ]
    packer.write(driver, cases, context.written["pack"])
    infos = tuple(
        TensorInfo(name=name, dtype=name_of(array.dtype), shape=array.shape)
        for name, array in cases[0][1].items()
    )
    return tuple(fed), infos, tuple(dict.fromkeys(warnings))


def items_of(given: Mapping[str, Array | list[Array]]) -> Iterator[tuple[str, Array]]:
    """Yield what is fed by name, of a sequence its items."""
    for name, value in given.items():
        if isinstance(value, list):
            yield from ((f"{name}[{at}]", each) for at, each in enumerate(value))
        else:
            yield name, value


def feed_text(
    spec: RunSpec, packing: Packing, text: str, number: int, infos: Sequence[TensorInfo]
) -> Feed:
    """Return what the text of one `-d` feeds.

    Raises:
        UsageError: it is wrong, or does not fit the model; where `--input` is said, `-d` is meant.
    """
    try:
        return feed_datum(spec, packing, text, number, infos)
    except UsageError as error:
        flag = "-d" if error.flag == "--input" else error.flag
        raise UsageError(error.problem, error.hint, flag=flag, subject=error.subject) from None


def compute(copies: Copies, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return what the engine computes of the inputs.

    Raises:
        LarError: it fails.
        UsageError: an output is not an array of numbers.
    """
    (driver,) = copies.drivers
    with explaining(driver):
        copies.prepare(arrays)
        copies.run(1)
        given = driver.outputs()
        outputs = {name: given[name] for name in given}
    for name, value in outputs.items():
        if isinstance(value, str):
            raise UsageError(
                f"output {name} is a {value}, which cannot be packed",
                "--no-assert packs the inputs alone",
            )
    return {name: np.array(value) for name, value in outputs.items()}
