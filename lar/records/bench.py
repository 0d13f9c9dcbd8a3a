"""The record of a bench: variants whose runs take turns, and are compared with a baseline.

A `BenchResult` holds the samples of all turns. The figures of a `BenchResult` are computed from its
samples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from lar.records.record import Record, record_of_format
from lar.records.run import Arrays, Made, Ran, RunSpec, Samples, Status
from lar.records.summary import Difference, Summary

Stop = Literal["clear", "precise", "budget", "interrupted", "failed", "single"]
"""Why a bench ended:

clear        each variant is faster or slower than its baseline
precise      not all variants differ, but a difference as large as the margin would have been shown
budget       the time was spent
interrupted  the user ended it
failed       too few variants could be measured
single       no two variants are fed with the same shapes, so that nothing can be compared
"""

Value = str | int | float | None  # a value in a column of a table

Agreement = Literal["equal", "within the tolerance", "different"]


class Turn(Record):
    """The timed iterations that one process made while all other processes waited.

    Attributes:
        round: the number of the round; each round starts one process for each variant.
        cycle: the number of the turn in its process; turns with one cycle number follow each other
            closely.
        began: the time when the turn began, in seconds since the bench began.
        samples: the samples of the timed iterations.
    """

    round: int
    cycle: int
    began: float
    samples: Samples


class OutputDifference(Record):
    """How the outputs of the last iteration differ from the outputs of the baseline.

    `output` is the output that differs most. `max_error` is the largest |a - e| / max(|a|, |e|, 1)
    of this output. `max_error` is None if only one side has a NaN or an infinity, or if the outputs
    cannot be compared. `reason` says why the outputs cannot be compared.
    """

    agreement: Agreement
    output: str = ""
    max_error: float | None = None
    reason: str = ""


class VariantResult(Ran):
    """One variant of a bench, with its options, the outcome of its runs, its times and differences.

    Attributes:
        name: the name of the variant, unique in the bench.
        values: the options that differ between variants, with their values as strings; the key
            "model" has the model file.
        spec: the run, or None if the run was refused, as `failure` then says.
        status: how the variant's processes ended, or "refused" if the variant was never run.
        latency: the summary of all timed iterations, or None if no iteration was timed.
        baseline: the name of the variant with which this variant is compared; empty for a baseline.
        difference: how the variant's times differ from the baseline's times, or None if the times
            were not compared.
        output_difference: how the variant's outputs differ from the baseline's outputs, or None if
            the outputs were not compared.
        turns: the turns, with the samples.
    """

    name: str
    values: dict[str, str] = field(default_factory=dict)
    spec: RunSpec | None = None
    status: Status | Literal["refused"] = "ok"
    latency: Summary | None = None
    baseline: str = ""
    difference: Difference | None = None
    output_difference: OutputDifference | None = None
    turns: tuple[Turn, ...] = ()

    @property
    def arrays(self) -> Arrays:
        """The outputs of the last iteration of the variant's first process, by name.

        The mapping is empty without `keep_outputs=True`. The outputs are never written as JSON.
        """
        arrays: Arrays = vars(self).get("_arrays", {})
        return arrays

    @property
    def shape(self) -> str:
        """The shapes of the fed inputs, such as `1x3x224x224`."""
        return " ".join("x".join(map(str, each.shape)) for each in self.fed)


class BenchResult(Made):
    """The result of a bench.

    `margin` is the smallest change that the bench was asked to detect, such as 0.01 for 1 %.
    `rounds` is the number of rounds; each round starts a new process for each variant. The order of
    turns is drawn with `seed`.
    """

    variants: tuple[VariantResult, ...]
    stopped: Stop
    # History: lar.bench/1  first version
    format: str = "lar.bench/1"
    baseline: str = ""
    margin: float = 0.01
    budget_seconds: float = 120.0
    rounds: int = 0
    seed: int = 0

    def __getitem__(self, name: str) -> VariantResult:
        """Return the variant with this name."""
        return next(each for each in self.variants if each.name == name)

    @property
    def differences(self) -> Mapping[str, Difference]:
        """The differences of all compared variants, by the name of the variant."""
        return {each.name: each.difference for each in self.variants if each.difference}

    def rows(self) -> list[dict[str, Value]]:
        """Return a dictionary for each variant, for `pandas.DataFrame(bench.rows())`."""
        columns = json.loads(Path(__file__).with_name("bench_columns.json").read_text())
        return [row_of(each, columns) for each in self.variants]


def row_of(variant: VariantResult, columns: Mapping[str, tuple[str, Value]]) -> dict[str, Value]:
    """Return the columns of a variant by name; times are seconds."""
    row: dict[str, Value] = {"variant": variant.name, **variant.values, "shape": variant.shape}
    for column, (path, unknown) in columns.items():
        found: Any = variant
        for name in path.split("."):
            found = getattr(found, name, unknown)
        row[column] = found
    return row


def read_bench(data: bytes | str) -> BenchResult:
    """Decode a result of `lar bench --json`, in any format that lar has ever written.

    Raises:
        UsageError: the text is not JSON, or not a bench in a format that this lar reads.
    """
    return record_of_format(data, BenchResult)
