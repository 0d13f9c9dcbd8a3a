"""The records of testcases: what is fed, what should come out, and what came out.

Part of `lar.records.run`: frozen, plain data, JSON without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lar.records.record import Record


class Expected(Record):
    """The expected value of one output: the array in `file`, a .npy or an ONNX .pb.

    `output` names the model's output; if it is empty the file names it, or `id` counts it.
    `limit` is the largest error allowed; None leaves it to the file. `name` and `id` are those of
    the engine's assertion; `shown` says that each run prints its error.
    """

    file: str
    output: str = ""
    limit: float | None = None
    name: str = ""
    id: int = 0
    shown: bool = True


class Case(Record):
    """A testcase: `inputs` are names of inputs and files that `--input` reads.

    A folder has no name before it: it names its inputs itself. `variables` are the outputs as the
    engine reports them. A case of a file that is not unpacked yet has a name alone.
    """

    name: str
    inputs: tuple[tuple[str, str], ...] = ()
    expected: tuple[Expected, ...] = ()
    variables: tuple[str, ...] = ()


class Verdict(Record):
    """The comparison of one output with its expected value.

    `error` is the largest |e-a| / max(min(|e|,|a|), 1) of its elements, None if only one side has a
    NaN or an infinity there. `index` is that of the first element whose error is above
    `limit`, with its two values as text; without such an element the texts are empty. Where dtype
    or shape differ, the texts name them.
    """

    output: str
    name: str
    id: int
    shown: bool
    error: float | None
    limit: float
    passed: bool
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""


class CaseResult(Record):
    """The result of a testcase: the worst run of each output.

    `passed` is None if the testcase says nothing of the outputs.
    """

    name: str
    passed: bool | None
    verdicts: tuple[Verdict, ...] = ()


class Packing(Record):
    """The options of `lar pack`: how testcases are packed into a model."""

    max_error: float = 1e-4
    asserts: bool = True
    verbose: bool = True
    optimize: bool = False
    resize: bool = False
    transform: str = ""
    repeat: int = 1


def add_verdicts(
    results: tuple[CaseResult, ...], number: int, name: str, verdicts: Sequence[Verdict]
) -> tuple[CaseResult, ...]:
    """Return the results with the verdicts of one more run of a case; cases come in their order."""
    if number == len(results):
        result = CaseResult(name=name, passed=None, verdicts=tuple(verdicts))
    else:
        known = results[number]
        worst = tuple(map(worse_of, known.verdicts, verdicts))
        result = replace(known, verdicts=worst)
    if result.verdicts:
        result = replace(result, passed=all(verdict.passed for verdict in result.verdicts))
    return (*results[:number], result, *results[number + 1 :])


def worse_of(first: Verdict, second: Verdict) -> Verdict:
    """Return the verdict with the larger error; if both are equal, the first."""
    return max(first, second, key=error_of)


def error_of(verdict: Verdict) -> float:
    """Return a verdict's error as a number."""
    return float("inf") if verdict.error is None else verdict.error


def describe_failure(number: int, verdict: Verdict) -> str:
    """Say in one line which element is wrong."""
    place = f"[{','.join(map(str, verdict.index))}]" if verdict.index else ""
    found = f"{verdict.output}{place} is {verdict.actual}, expected {verdict.expected}"
    error = "" if verdict.error is None else f" (err={verdict.error:g}, allowed {verdict.limit:g})"
    return f"test #{number}: {found}{error}"
