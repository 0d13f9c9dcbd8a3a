"""The record of a bench: variants measured in turns, and each compared with a baseline.

A `BenchResult` holds the samples of all turns; everything else in it is derived from them.
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
precise      where no difference is shown, one as large as the margin would have been
budget       the time was spent
interrupted  the user ended it
failed       too few variants could be measured
single       no two variants are fed with the same shapes, so that there is nothing to compare
"""

Value = str | int | float | None  # of a column

Agreement = Literal["equal", "within the tolerance", "different"]


class Turn(Record):
    """The timed iterations that a process made while the others waited.

    Attributes:
        round: the number of the process: each round starts one for each variant.
        cycle: the number of the turn in its process; turns of one cycle are neighbours in time.
        began: seconds since the bench began.
        samples: the timed iterations.
    """

    round: int
    cycle: int
    began: float
    samples: Samples


class OutputDifference(Record):
    """How the outputs of the last iteration differ from the baseline's.

    `output` is the one that differs most; `max_error` is its |a - e| / max(|a|, |e|, 1), None if
    one has a NaN or infinity where the other has none, or if the two cannot be compared; `reason`
    says why they cannot.
    """

    agreement: Agreement
    output: str = ""
    max_error: float | None = None
    reason: str = ""


class VariantResult(Ran):
    """A variant: what was asked for, what became of it, its times and how they compare.

    Attributes:
        name: distinguishes it from the other variants.
        values: what varies between the variants, by option, as texts; "model" is the model file.
        spec: what was run; None if it was refused, as `failure` says.
        status: how its processes ended; "refused" if it was never run.
        latency: the summary of all timed iterations, None without any.
        baseline: the name of the variant that it is compared with, empty for a baseline.
        difference: its times against the baseline's; None if there is nothing to compare.
        output_difference: its outputs against the baseline's; None if they were not compared.
        turns: the samples.
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
        """The outputs of the last iteration of its first process, by name.

        It is empty for a bench without `keep_outputs=True`. The JSON never has these outputs.
        """
        arrays: Arrays = vars(self).get("_arrays", {})
        return arrays

    @property
    def shape(self) -> str:
        """The shapes of what it is fed with: `1x3x224x224`."""
        return " ".join("x".join(map(str, each.shape)) for each in self.fed)


class BenchResult(Made):
    """Everything that a bench found.

    `margin` is the change that it was to detect, such as 0.01 for 1 %; `rounds` how often all
    processes were started anew; `seed` decides the order of turns.
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
        """Return the variant of that name."""
        return next(each for each in self.variants if each.name == name)

    @property
    def differences(self) -> Mapping[str, Difference]:
        """The differences that were looked for, by the name of the variant."""
        return {each.name: each.difference for each in self.variants if each.difference}

    def rows(self) -> list[dict[str, Value]]:
        """Return a dictionary for each variant, as pandas takes them: `DataFrame(bench.rows())`."""
        columns = json.loads(Path(__file__).with_name("bench_columns.json").read_text())
        return [row_of(each, columns) for each in self.variants]


def row_of(variant: VariantResult, columns: Mapping[str, tuple[str, Value]]) -> dict[str, Value]:
    """Return what was found of a variant; times are seconds."""
    row: dict[str, Value] = {"variant": variant.name, **variant.values, "shape": variant.shape}
    for column, (path, unknown) in columns.items():
        found: Any = variant
        for name in path.split("."):
            found = getattr(found, name, unknown)
        row[column] = found
    return row


def read_bench(data: bytes | str) -> BenchResult:
    """Decode what `lar bench --json` wrote, of any version so far.

    Raises:
        ValueError: the text is not JSON, or not a bench of a version that this lar reads.
    """
    return record_of_format(data, BenchResult)
