"""Whether outputs that are past the tolerance are right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lar.records.bench import OutputDifference
from lar.records.run import OutputSummary
from lar.records.tuning import TrialRow
from lar.tuning.numbers import NOT_COMPARED, judge_by_others
from tests.tuning.made_tune import FED, NCHW44, RECORDED, SPACE, THREADS

OUTPUT = OutputSummary(
    name="y",
    dtype="float32",
    shape=(1,),
    minimum=0.0,
    maximum=0.0,
    mean=0.0,
    nonfinite_count=0,
    sha256="aa",
)
UNKNOWN = OutputDifference(agreement="different", output="y", max_error=0.5, reason=NOT_COMPARED)
ROW = TrialRow(candidate=RECORDED, fed=(FED,), outputs=(OUTPUT,), output_difference=UNKNOWN)
RIGHT = TrialRow(
    candidate=NCHW44,
    fed=(FED,),
    outputs=(OUTPUT,),
    output_difference=replace(UNKNOWN, agreement="within the tolerance", reason="as int8 rounds"),
)


def test_the_bits_of_one_that_is_right_are_right() -> None:
    found = judge_by_others(ROW, (SPACE,), [ROW, RIGHT])
    assert found
    assert (found.agreement, found.reason) == (
        "within the tolerance",
        "as int8 rounds, the bits of nchw44",
    )


@pytest.mark.parametrize(
    "other",
    [
        replace(RIGHT, output_difference=UNKNOWN),
        replace(RIGHT, output_difference=None),
        replace(RIGHT, outputs=(replace(OUTPUT, sha256="bb"),)),
        replace(RIGHT, fed=(replace(FED, source="zero"),)),
        replace(RIGHT, candidate=replace(THREADS, model=1)),
    ],
)
def test_other_rows_say_nothing(other: TrialRow) -> None:
    assert judge_by_others(ROW, (SPACE,), [ROW, other]) == UNKNOWN


def test_what_its_layers_show_stays() -> None:
    wrong = replace(ROW, output_difference=replace(UNKNOWN, reason="first in conv1"))
    assert judge_by_others(wrong, (SPACE,), [RIGHT]) == wrong.output_difference
