"""The findings of a comparison, as frozen records that become JSON without loss.

The actual side always comes first, and the expected side second. A figure that is not a finite
number is None. Single elements are strings, since JSON has neither NaN nor complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from lar.records.record import Encodable, Record, record_of_format
from lar.records.run import GraphOperator, GraphTensor, Origin

MatchedBy = Literal["name", "graph", "content", "shape"]
Finding = Literal["same", "fault", "rounding", "different", "nothing"]
Only = Literal["outputs", "common"]


class Element(Record):
    """One element of a pair of tensors: its index, and its value on both sides."""

    index: tuple[int, ...]
    actual: str
    expected: str


class Figures(Record):
    """The differences of an actual tensor from the expected tensor, in figures.

    `max_error` is the largest |a - e| / max(|a|, |e|, 1), as in MegEngine's own tool. A relative
    error is |a - e| / max(|a|, |e|), 0 if both are 0. `relative_l2` is the length of the difference
    divided by the length of the expected tensor. `scale` is the root mean square of the expected
    tensor. `peak` is the largest difference in units of `scale`. `gain` is the factor by which the
    expected tensor comes nearest to the actual tensor.

    Only elements that are finite on both sides count in these figures. A figure is None if no
    element counts, or if the expected tensor is 0 and the actual one is not. `cosine` is None if a
    tensor is 0, and `snr_db` if signal or noise is 0.

    `relative_l2`, `scale`, `peak`, `gain`, `cosine` and `snr_db` leave out fills that agree. Fills
    are large numbers such as -1e9 in a mask; beside them, no other number would count. Default
    tolerances leave out all fills.

    `mismatches` counts the elements past the tolerance. `nonfinite_mismatches` counts those of them
    that are NaN or infinite on one side only. NaN agrees with NaN, and an infinity with itself.
    """

    elements: int
    identical: bool
    max_error: float | None = None
    max_absolute: float | None = None
    mean_absolute: float | None = None
    max_relative: float | None = None
    relative_l2: float | None = None
    scale: float | None = None
    peak: float | None = None
    gain: float | None = None
    cosine: float | None = None
    snr_db: float | None = None
    mismatches: int = 0
    first: Element | None = None
    worst: Element | None = None
    nan_counts: tuple[int, int] = (0, 0)
    infinity_counts: tuple[int, int] = (0, 0)
    nonfinite_mismatches: int = 0


class TensorFacts(GraphTensor):
    """A tensor of one side. If `layout` is blocked, `shape` is the plain shape.

    `name` is the model's name. `engine_name` is the engine's name; it is empty if both names are
    equal, or if the model's name is not known.
    """

    engine_name: str = ""
    operator_type: str = ""


class ErrorsOverItems(Record):
    """The errors of a pair of tensors over the items of a data set.

    `items` is the number of items that have the pair. `worst_item` is the item with the lowest
    ratio of signal to noise; `worst_snr_db` is this ratio, None if it is not finite. `relative_l2`
    is computed over all items together. `rmse_over_scale` is the root mean square of the
    difference, divided by the scale of a quantised tensor; rounding alone makes it 0.289.
    """

    items: int
    worst_item: str = ""
    relative_l2: float | None = None
    worst_snr_db: float | None = None
    rmse_over_scale: float | None = None


class TruthErrors(Record):
    """The differences of both sides of a pair from the truth.

    `tensor` is the tensor of the truth. If a side has no figures, its tensor has no twin in the
    truth, or cannot be compared with it.
    """

    tensor: TensorFacts
    actual: Figures | None = None
    expected: Figures | None = None


class TensorComparison(Record):
    """The comparison of a pair of tensors.

    Without `figures`, the tensors could not be compared, and `problem` says why. `depth` is the
    number of operators on the longest way to the tensor, on the expected side. If `axes` is not
    empty, the axes differ: it lists the actual axes longer than 1 in the order of the expected
    side. `is_output` marks an output of the model, and `is_input` an input.

    `figures` include the errors of earlier operators. `single` is the error of the tensor's
    operator alone, run on the expected values of its inputs. If `single` was requested but cannot
    be computed, `single_problem` says why. For a data set, `figures` and `single` are those of the
    worst item; `over_items` and `single_over_items` have the errors over all items.

    `truth` has the differences of both sides from the truth, if it is known. `precision` is the
    type coarser than float32 in which a side computes, empty if both sides compute in float32.
    `explained` is the error that rounding to this type explains, in the unit of `relative_l2`.
    """

    actual: TensorFacts
    expected: TensorFacts
    matched_by: MatchedBy
    passed: bool
    depth: int = 0
    constant: bool = False
    axes: tuple[int, ...] = ()
    is_output: bool = False
    is_input: bool = False
    precision: str = ""
    explained: float | None = None
    figures: Figures | None = None
    single: Figures | None = None
    problem: str = ""
    single_problem: str = ""
    over_items: ErrorsOverItems | None = None
    single_over_items: ErrorsOverItems | None = None
    truth: TruthErrors | None = None


class OneSided(Record):
    """Something that only one side has, and the reason."""

    side: Literal["actual", "expected"]
    reason: str


class UnmatchedTensor(OneSided):
    """A tensor that has no twin on the other side.

    `fused` means that the tensor lies inside an operator of the other side, or holds the data of a
    tensor that has a twin; `reason` says which. `constant` marks weights and other constants, which
    the other side may hold in another form.
    """

    tensor: TensorFacts
    fused: bool
    constant: bool = False


class LeftOut(OneSided):
    """An output or another computed tensor that could not be compared, and the reason."""

    name: str
    is_output: bool = False


class OperatorFacts(GraphOperator):
    """An operator of one side; `output` and `layout` are the name and the layout of its output.

    An `opaque` operator runs a function, or code of another library, whose tensors are not dumped.
    """

    output: str = ""
    layout: str = ""
    opaque: bool = False


class Culprit(Record):
    """Operators whose inputs agree and whose output differs.

    A side has several operators if no tensor between them has a twin; the operator that computes
    most comes first. If a side has no operators, it lacks the operators of the other side.
    `parameters` are the weights and other constants of these operators that differ. `kind` says
    what is wrong with the output, such as a scale or an overflow, if its elements show it.

    If the culprit is `proven`, its operators were run alone on both sides, on the same inputs, and
    their outputs differ by `alone`. Else it is a suspect, and `doubt` says why it is not proven.
    `is_coarse` means that the output is right within the rounding of its type, but its scale is far
    coarser than its values need.
    """

    actual: tuple[OperatorFacts, ...]
    expected: tuple[OperatorFacts, ...]
    inputs: tuple[TensorComparison, ...]
    output: TensorComparison
    parameters: tuple[TensorComparison, ...] = ()
    kind: str = ""
    proven: bool = False
    alone: Figures | None = None
    doubt: str = ""
    is_coarse: bool = False

    def with_tensors(self, change: Callable[[TensorComparison], TensorComparison]) -> Culprit:
        """Return this culprit with all its pairs of tensors changed by `change`."""
        return replace(
            self,
            inputs=tuple(map(change, self.inputs)),
            parameters=tuple(map(change, self.parameters)),
            output=change(self.output),
        )


class SideFacts(Origin):
    """The origin of one side of a comparison."""

    source: str
    tensors: int


class Findings(Record):
    """The findings about an actual side and an expected side.

    In a comparison of a side with the truth, the truth is the expected side.
    """

    finding: Finding
    culprits: tuple[Culprit, ...] = ()


class Truth(Record):
    """The third side of a comparison: what the model should give.

    `actual` and `expected` are the findings about each side and the truth.
    """

    side: SideFacts
    actual: Findings
    expected: Findings


class Tolerance(Record):
    """The largest difference that two elements may have.

    If `max_error` is given, it is the limit for |a - e| / max(|a|, |e|, 1). Else |a - e| may be up
    to atol + rtol * |e|; None stands for the default of the type (`metrics.bounds_of`).
    """

    rtol: float | None = None
    atol: float | None = None
    max_error: float | None = None


class Comparison(Findings, Encodable):
    """The result of a comparison. `tensors` are in the order of execution.

    `finding` is about the models' outputs if `only` is "outputs", or about all tensors that both
    sides have if it is "common":

    - "same": all are within the tolerance, or rounding of the coarser type explains them;
    - "fault": some differ, and culprits or suspects were found;
    - "rounding": errors grow gradually until they are past the tolerance;
    - "different": some differ, and the cause is not known;
    - "nothing": no output and no computed tensor could be compared.

    `left_out` are the outputs that were not compared, and computed tensors that a dump lacks. If
    the comparison was `interrupted`, it holds the findings until then. `items` are the compared
    items of a data set. `truth` is what the model should give, if that was requested; the finding
    does not depend on it.

    If the rounding of a type coarser than float32 explains all differences, `precision` is this
    type, such as "float16" or "int8", and `snr_db` is the lowest ratio of signal to noise of an
    output.
    """

    actual: SideFacts
    expected: SideFacts
    tolerance: Tolerance
    # History: lar.comparison/1  first version
    format: str = "lar.comparison/1"
    only: Only = "outputs"
    precision: str = ""
    snr_db: float | None = None
    tensors: tuple[TensorComparison, ...] = ()
    unmatched: tuple[UnmatchedTensor, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    items: tuple[str, ...] = ()
    truth: Truth | None = None

    @property
    def same(self) -> bool:
        """True if all that was compared is within the tolerance."""
        return self.finding == "same"


class TensorOfSides(Record):
    """A tensor of the first side and its twins on the others.

    `tensors` and `figures` have an entry for each side, which is None for a side without a twin.
    Figures compare a side with the first side, so the entry of the first side is None. A group in
    `groups` has the numbers of sides that agree with each other, counted from 0. `odd` are the
    sides outside the largest group; it is empty if all sides agree, or if no group is the largest.
    """

    tensors: tuple[TensorFacts | None, ...]
    figures: tuple[Figures | None, ...]
    groups: tuple[tuple[int, ...], ...]
    odd: tuple[int, ...] = ()
    depth: int = 0
    constant: bool = False


class ComparisonOfSides(Encodable):
    """The result of a comparison of three or more sides.

    `comparisons` compare each of the other sides with the first side, which is the expected side.
    `tensors` are in the order of execution.
    """

    sides: tuple[SideFacts, ...]
    tolerance: Tolerance
    comparisons: tuple[Comparison, ...]
    tensors: tuple[TensorOfSides, ...]
    # History: lar.comparison-of-sides/1  first version
    format: str = "lar.comparison-of-sides/1"
    notes: tuple[str, ...] = ()

    @property
    def finding(self) -> Finding:
        """The finding of the first comparison that shows a difference.

        Without a difference, it is "nothing" if a comparison found nothing to compare, else "same".
        """
        findings = [comparison.finding for comparison in self.comparisons]
        differing = (it for it in findings if it not in ("same", "nothing"))
        return next(differing, "nothing" if "nothing" in findings else "same")

    @property
    def same(self) -> bool:
        """True if all that was compared is within the tolerance."""
        return self.finding == "same"

    @property
    def interrupted(self) -> bool:
        """True if one of the comparisons was interrupted."""
        return any(comparison.interrupted for comparison in self.comparisons)


def read_comparison(data: bytes | str) -> Comparison:
    """Decode a comparison that `--report FILE.json` wrote, in any format that lar has ever written.

    Raises:
        ValueError: the text is not JSON, or not a comparison in a format that this lar reads.
    """
    return record_of_format(data, Comparison)


def read_comparison_of_sides(data: bytes | str) -> ComparisonOfSides:
    """Decode a comparison of several sides that `--report FILE.json` wrote.

    Raises:
        ValueError: the text is not JSON, or not a comparison in a format that this lar reads.
    """
    return record_of_format(data, ComparisonOfSides)
