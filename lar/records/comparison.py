"""The findings of a comparison, as frozen records that can be written as JSON without loss.

The actual side always comes first, and the expected side second. A figure that is not a finite
number is None. The values of single elements are strings, since JSON has neither NaN nor complex
numbers.
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
    """The figures that show how an actual tensor differs from the expected tensor.

    `max_error` is the largest |a - e| / max(|a|, |e|, 1), as in MegEngine's own tool. A relative
    error is |a - e| / max(|a|, |e|), or 0 if a and e are both 0. `relative_l2` is the L2 norm of
    the difference divided by the L2 norm of the expected tensor. `scale` is the root mean square of
    the expected tensor. `peak` is the largest difference divided by `scale`. `gain` is the factor
    that brings the expected tensor closest to the actual tensor.

    The errors and ratios are computed over the elements that are finite on both sides. A figure is
    None if no element is finite on both sides. It is also None if all elements of the expected
    tensor are 0, and some elements of the actual tensor are not 0. `cosine` is None if one of the
    tensors has only zeros, and `snr_db` is None if the signal or the noise is 0.

    Fills are huge numbers such as -1e9 in a mask, beside which all other numbers would be
    negligible. `relative_l2`, `scale`, `peak`, `gain`, `cosine` and `snr_db` leave out a fill if
    both sides have the fill at the same place. The default tolerances are computed without fills,
    such as -1e9 in a mask.

    `mismatches` is the number of elements that differ by more than the tolerance.
    `nonfinite_mismatches` is the number of mismatches that are NaN or infinite on one side only.
    NaN agrees with NaN, and an infinity agrees with an infinity of equal sign.
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
    """A tensor of one side; for a blocked `layout`, `shape` is the shape without blocks.

    `name` is the tensor's name in the model. `engine_name` is the tensor's name in the engine, or
    empty if both names are equal or the name in the model is not known.
    """

    engine_name: str = ""
    operator_type: str = ""


class ErrorsOverItems(Record):
    """The errors of a pair of tensors over the items of a data set.

    `items` is the number of items for which this pair was compared. `worst_item` is the item with
    the lowest ratio of signal to noise. `worst_snr_db` is the ratio of signal to noise of the worst
    item, or None if it is not finite. `relative_l2` is computed over all items together.
    `rmse_over_scale` is the root mean square of the difference, divided by the scale of a quantised
    tensor. If rounding is the only difference, `rmse_over_scale` is 0.289.
    """

    items: int
    worst_item: str = ""
    relative_l2: float | None = None
    worst_snr_db: float | None = None
    rmse_over_scale: float | None = None


class TruthErrors(Record):
    """How both tensors of a pair differ from the true tensor, which was computed in float64.

    `tensor` is the true tensor, which has the reference values. The figures of a side are None if
    its tensor and the true tensor do not match, or cannot be compared.
    """

    tensor: TensorFacts
    actual: Figures | None = None
    expected: Figures | None = None


class TensorComparison(Record):
    """The comparison of a pair of tensors.

    If `figures` is None, the tensors could not be compared, and `problem` says why. `depth` is the
    number of operators on the longest path to the tensor in the graph of the expected side. If the
    two sides order the axes differently, `axes` lists the actual axes longer than 1 in the order of
    the expected side; else it is empty. `is_output` marks an output of the model, and `is_input` an
    input.

    `figures` include the errors of earlier operators. `single` has the figures that result if only
    the tensor's operator is run, with the expected values as its inputs. If `single` was requested
    but cannot be computed, `single_problem` says why. For a data set, `figures` and `single` are
    the figures of the worst item, while `over_items` and `single_over_items` have the errors over
    all items.

    If the true values were computed, `truth` has the differences of both sides from the true
    values. If a side computes in a type coarser than float32, `precision` is this type; else it is
    empty. `explained` is the value of `relative_l2` that rounding to the type `precision` can
    explain.
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
    """A base class for something that one side has and the other side lacks, with the reason."""

    side: Literal["actual", "expected"]
    reason: str


class UnmatchedTensor(OneSided):
    """A tensor that has no matching tensor (twin) on the other side.

    `fused` is True in two cases: the tensor lies inside a fused operator of the other side, or the
    tensor holds the data of another tensor that has a matching tensor. If `fused` is True, `reason`
    says whether the tensor lies inside a fused operator, or holds the data of another tensor.
    `constant` marks weights and other constants, which the other side may store in another form.
    """

    tensor: TensorFacts
    fused: bool
    constant: bool = False


class LeftOut(OneSided):
    """An output or another computed tensor that could not be compared, and the reason."""

    name: str
    is_output: bool = False


class OperatorFacts(GraphOperator):
    """An operator of one side, with the name (`output`) and the layout of its output.

    An `opaque` operator runs a function, or code of another library. The tensors inside an `opaque`
    operator are not dumped.
    """

    output: str = ""
    layout: str = ""
    opaque: bool = False


class Culprit(Record):
    """Operators whose inputs agree and whose output differs.

    A side has several operators at fault if no tensor between them can be compared with a tensor of
    the other side. If there are several operators at fault, the operator that computes most comes
    first. If the dump of a side has no operators, the operators at fault are known only for the
    other side. `parameters` are those weights and other constants of the operators at fault that
    differ between the sides. If the elements of the output show what is wrong, such as a wrong
    scale or an overflow, `kind` names the cause.

    If the culprit is `proven`, its operators were run alone on both sides, on the same inputs, and
    gave different outputs. `alone` has the difference between the outputs of the operators that
    were run alone. A culprit that is not `proven` is a suspect, and `doubt` says why. `is_coarse`
    means that the output's values are right within the rounding of their type, but the output's
    scale is far coarser than these values need.
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
        """Return this culprit, with the function `change` applied to all its pairs of tensors."""
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

    In a comparison of a side with the true values, the true values are the expected side.
    """

    finding: Finding
    culprits: tuple[Culprit, ...] = ()


class Truth(Record):
    """The third side of a comparison: the true values, computed in float64.

    `actual` and `expected` have the findings on these two sides, each compared with the true
    values.
    """

    side: SideFacts
    actual: Findings
    expected: Findings


class Tolerance(Record):
    """The largest difference that two elements may have.

    If `max_error` is given, it is the limit for |a - e| / max(|a|, |e|, 1). If `max_error` is None,
    |a - e| may be at most atol + rtol * |e|, where an `atol` or `rtol` of None stands for the
    default of the tensor's type (`metrics.bounds_of`).
    """

    rtol: float | None = None
    atol: float | None = None
    max_error: float | None = None


class Comparison(Findings, Encodable):
    """The result of a comparison. `tensors` are in the order of execution.

    `finding` is about the models' outputs if `only` is "outputs", or about all tensors that both
    sides have if `only` is "common":

    - "same" if all differences are within the tolerance, or are explained by rounding
    - "fault" if some tensors differ, and culprits or suspects were found
    - "rounding" if errors grow gradually until they are larger than the tolerance
    - "different" if some tensors differ, and the cause is not known
    - "nothing" if no output and no computed tensor could be compared

    `left_out` are the outputs that were not compared, and computed tensors that a dump lacks. An
    `interrupted` comparison has the findings up to the interruption. `items` are the compared items
    of a data set. `truth` compares both sides with the true values, if this was requested; the
    finding does not depend on `truth`.

    If rounding to a type coarser than float32 explains all differences, `precision` is this type,
    such as "float16" or "int8". If `precision` is not empty, `snr_db` is the lowest signal-to-noise
    ratio of all outputs.
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
        """True if the finding is "same": no compared tensor differs beyond what is tolerated."""
        return self.finding == "same"


class TensorOfSides(Record):
    """A tensor of the first side, and the matching tensors (twins) on the other sides.

    `tensors` and `figures` have an entry for each side. The entry of a side is None if the side has
    no matching tensor. The figures of a side compare the side with the first side, so that the
    first side has no figures. Each group in `groups` has the numbers of sides that agree with each
    other, where the first side has the number 0. `odd` has the sides that are not in the largest
    group of agreeing sides. `odd` is empty if all sides agree, or if no single group is the
    largest.
    """

    tensors: tuple[TensorFacts | None, ...]
    figures: tuple[Figures | None, ...]
    groups: tuple[tuple[int, ...], ...]
    odd: tuple[int, ...] = ()
    depth: int = 0
    constant: bool = False


class ComparisonOfSides(Encodable):
    """The result of a comparison of three or more sides.

    The first side is the expected side. `comparisons` has a comparison of each further side with
    the first side. `tensors` are in the order of execution.
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

        If all comparisons have the finding "same", the finding is "same". If no comparison shows a
        difference, but at least one comparison found nothing to compare, the finding is "nothing".
        """
        findings = [comparison.finding for comparison in self.comparisons]
        differing = (it for it in findings if it not in ("same", "nothing"))
        return next(differing, "nothing" if "nothing" in findings else "same")

    @property
    def same(self) -> bool:
        """True if the finding is "same": no compared tensor differs beyond what is tolerated."""
        return self.finding == "same"

    @property
    def interrupted(self) -> bool:
        """True if at least one of the comparisons was interrupted."""
        return any(comparison.interrupted for comparison in self.comparisons)


def read_comparison(data: bytes | str) -> Comparison:
    """Decode a comparison that `--report FILE.json` wrote, in any format that lar has ever written.

    Raises:
        UsageError: the text is not JSON, or not a comparison in a format that this lar reads.
    """
    return record_of_format(data, Comparison)


def read_comparison_of_sides(data: bytes | str) -> ComparisonOfSides:
    """Decode a comparison of several sides that `--report FILE.json` wrote.

    Raises:
        UsageError: the text is not JSON, or not a comparison in a format that this lar reads.
    """
    return record_of_format(data, ComparisonOfSides)
