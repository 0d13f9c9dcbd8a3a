"""The lines about winograd algorithms."""

from __future__ import annotations

from dataclasses import replace

from lar.records.run import AlgorithmChoice, NumericError, RunResult, RunSpec
from lar.reports.run_text import format_algorithms


def choice(seconds: float | None = 0.002, other: float | None = 0.008) -> AlgorithmChoice:
    return AlgorithmChoice(
        operator="ConvBiasForward",
        shapes="{1,4,8,8,4} -> {1,8,8,8,4} Float32",
        algorithm="WINOGRAD:X:4:4:8:3",
        winograd="F(4,3)",
        seconds=seconds,
        other_algorithm="DIRECT" if other is not None else "",
        other_seconds=other,
    )


DIRECT = AlgorithmChoice(operator="ConvBiasForward", shapes="{1,1}", algorithm="DIRECT")


def lines_of(*choices: AlgorithmChoice, errors: tuple[NumericError, ...] = ()) -> list[str]:
    spec = RunSpec(model="m", engine="megengine", driver="lite")
    return format_algorithms(
        RunResult(spec=spec, status="ok", phase="done", algorithms=choices, numeric_errors=errors)
    )


def test_a_run_that_preferred_nothing_has_no_lines() -> None:
    assert lines_of() == []


def test_a_gain_is_told_with_its_error_and_its_convolutions() -> None:
    error = NumericError(output="prob", absolute=1.25e-6, relative=1e-6)
    assert lines_of(choice(), DIRECT, errors=(error,)) == [
        "winograd: 1 of 2 kinds of convolution; measured by the search: 2.000ms, "
        "without winograd 8.000ms, 4.00x as fast",
        "error of winograd in prob: at most 1.25e-06, relative 1e-06",
        "  F(4,3) 2.000ms, DIRECT 8.000ms, 4.00x as fast: "
        "ConvBiasForward {1,4,8,8,4} -> {1,8,8,8,4} Float32",
    ]


def test_a_loss_is_told_as_one() -> None:
    lines = lines_of(choice(0.003, 0.002), choice(0.001, 0.002))
    assert lines[0].endswith("4.000ms, without winograd 4.000ms, 1.00x as fast")
    assert "3.000ms, DIRECT 2.000ms, 1.50x as slow:" in lines[1]
    assert "1.000ms, DIRECT 2.000ms, 2.00x as fast:" in lines[2]


def test_what_is_not_known_is_not_compared() -> None:
    assert lines_of(DIRECT) == ["winograd: 0 of 1 kinds of convolution"]
    assert lines_of(choice(None, None)) == [
        "winograd: 1 of 1 kinds of convolution",
        "  F(4,3) N/A: ConvBiasForward {1,4,8,8,4} -> {1,8,8,8,4} Float32",
    ]
    # Shorter than the search's clock tells.
    assert "as fast" not in "".join(lines_of(choice(0.0, 0.001)))


def test_values_that_are_no_numbers_are_told() -> None:
    error = NumericError(output="prob", absolute=None, relative=None)
    assert "NaN or infinite values in one run alone" in lines_of(choice(), errors=(error,))[1]


def test_a_convolution_whose_other_time_is_not_known_has_no_ratio() -> None:
    unknown = replace(choice(), other_seconds=None)
    (line,) = (line for line in lines_of(unknown) if "F(4,3)" in line)
    assert (
        line == "  F(4,3) 2.000ms, DIRECT N/A: ConvBiasForward {1,4,8,8,4} -> {1,8,8,8,4} Float32"
    )
