"""The findings of a comparison, as frozen records that JSON holds without loss.

The actual side comes first everywhere, the expected one second. A figure that is not a finite
number is None; single elements are texts, because JSON has neither NaN nor complex numbers.
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
    """One element of a pair of tensors: where it is and what both sides have there."""

    index: tuple[int, ...]
    actual: str
    expected: str


class Figures(Record):
    """The distances of a tensor from the expected one.

    `max_error` is the largest |a - e| / max(|a|, |e|, 1), as MegEngine's own tool has it; relative
    errors are |a - e| / max(|a|, |e|), 0 if both are 0. `relative_l2` is the length of the
    difference over that of the expected tensor, `scale` the latter's root mean square. All of
    these are over the elements that are finite on both sides; None: no such element, or the
    expected tensor is 0 and the actual one is not.
    `relative_l2`, `scale`, `peak`, `gain`, `cosine` and `snr_db` are without fills that agree:
    numbers like -1e9 in a mask, beside which nothing else would count; default tolerances are
    without any. `peak` is the largest difference in units of `scale`, `gain` the factor of the
    expected tensor that is nearest to the actual one.
    `cosine` is None if a tensor is 0, `snr_db` if signal or noise is. `mismatches` are the
    elements past the tolerance, those that are NaN or infinite on one side alone among them
    (`nonfinite_mismatches`). NaN agrees with NaN, an infinity with itself.
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
    """A tensor of one side. `shape` is the plain one where `layout` is a blocked one.

    `name` is the model's; `engine_name` is what the engine calls it, empty if that is the same or
    the model's is not known.
    """

    engine_name: str = ""
    operator_type: str = ""


class ErrorsOverItems(Record):
    """The errors of a pair of tensors over the items of a data set.

    `items` counts those that have the pair. `worst_item` has the least ratio of signal to noise,
    `worst_snr_db`, None if that is not finite. `relative_l2` is computed over all items together.
    `rmse_over_scale` is the root mean square of the difference over the scale of a quantised
    tensor: 0.289 is what rounding alone makes.
    """

    items: int
    worst_item: str = ""
    relative_l2: float | None = None
    worst_snr_db: float | None = None
    rmse_over_scale: float | None = None


class TruthErrors(Record):
    """The distances of both sides of a pair from the truth.

    `tensor` is the truth's. A side without figures has no twin there, or cannot be compared.
    """

    tensor: TensorFacts
    actual: Figures | None = None
    expected: Figures | None = None


class TensorComparison(Record):
    """A pair of tensors. Without `figures` they could not be compared, and `problem` says why.

    `depth` counts the operators before the tensor on the longest way to it, on the expected side.
    With `axes`, the actual axes longer than 1 stand in that order on the expected side.
    `single` is the error of the operator alone, run on the expected values of its inputs; `figures`
    include the errors of operators before it. If `single` was asked for and cannot be computed,
    `single_problem` says why.
    For a data set, `figures` and `single` are those of the worst item, and `over_items` and
    `single_over_items` have the errors over all items.
    `truth` has how far each side is from what the model should give, if that is known.
    `is_output`: the model gives it; `is_input`: the run was fed with it.
    `precision` is the type coarser than float32 that a side computes in, empty if neither does so;
    `explained` is the error that its rounding explains, in units of the tensor's length, as
    `relative_l2` is.
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
    """Something that one side alone has, and why."""

    side: Literal["actual", "expected"]
    reason: str


class UnmatchedTensor(OneSided):
    """A tensor that has no twin on the other side.

    `fused`: it lies inside an operator of the other side, or holds the data of a tensor that has a
    twin; `reason` says it in words. `constant` marks weights and the like, which the other side may
    hold in another form.
    """

    tensor: TensorFacts
    fused: bool
    constant: bool = False


class LeftOut(OneSided):
    """An output, or another tensor that a run computed, which could not be compared, and why."""

    name: str
    is_output: bool = False


class OperatorFacts(GraphOperator):
    """An operator of one side. `output` names what it gives, `layout` is the layout of that.

    An `opaque` one runs a function, or code of another library, whose inside is not dumped.
    """

    output: str = ""
    layout: str = ""
    opaque: bool = False


class Culprit(Record):
    """Operators whose inputs agree and whose output does not.

    Several operators of a side stand together if no tensor between them has a twin; the one that
    does most of the computing comes first. A side without any lacks what the other has.
    `parameters` are their weights and other constants that differ. `kind` says what is wrong with
    the output, such as a scale or an overflow, if its elements show it.
    One that is `proven` was run alone on both sides, on the same inputs, and its outputs differ by
    `alone`. Any other is a suspect, and `doubt` says why it was not proven.
    `is_coarse`: the output is right within the rounding of its type, and its scale is far coarser
    than its values need.
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
        """Return it with each pair of tensors changed."""
        return replace(
            self,
            inputs=tuple(map(change, self.inputs)),
            parameters=tuple(map(change, self.parameters)),
            output=change(self.output),
        )


class SideFacts(Origin):
    """The origin of one side."""

    source: str
    tensors: int


class Findings(Record):
    """What was found of the actual side against the expected one, or of a side against the truth,
    which then stands as the expected side."""

    finding: Finding
    culprits: tuple[Culprit, ...] = ()


class Truth(Record):
    """The third side of a comparison: what the model should give, and how each side compares with
    it."""

    side: SideFacts
    actual: Findings
    expected: Findings


class Tolerance(Record):
    """The distance that two elements may have.

    With `max_error`: that much of the manual's error. Else |a - e| may be
    atol + rtol * |e|; None is the default of the type (`metrics.bounds_of`).
    """

    rtol: float | None = None
    atol: float | None = None
    max_error: float | None = None


class Comparison(Findings, Encodable):
    """Everything that a comparison found. `tensors` are in the order of execution.

    `finding` is that of the models' outputs (`only` is "outputs"), or of every tensor that both
    sides have ("common"): "same" when all are within the tolerance or within what rounding of the
    coarser type explains, "fault" when some are not and culprits or suspects were found, "rounding"
    when errors grow gradually until they are past the tolerance, "different" when outputs differ
    and the cause is not known, "nothing" when no output and no computed tensor
    could be compared. `left_out` are the outputs that were not compared, and what a side computed
    and did not record. An
    `interrupted` one holds what was known by then. `items` are those of a data set, all of which
    were compared. `truth` is what the model should give, if that was asked for;
    the finding ignores it.

    If the rounding of a type coarser than float32 explains all differences, `precision` is that
    type, such as "float16" or "int8", and `snr_db` the least ratio of signal to noise of an output.
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

    `tensors` and `figures` have an entry for each side: None for a side without a twin. Figures
    are those against the first side, so it has none itself. `groups` are the sides, counted from
    0, that agree with each other; `odd` are those outside the largest group, empty if all agree
    or no group is the largest.
    """

    tensors: tuple[TensorFacts | None, ...]
    figures: tuple[Figures | None, ...]
    groups: tuple[tuple[int, ...], ...]
    odd: tuple[int, ...] = ()
    depth: int = 0
    constant: bool = False


class ComparisonOfSides(Encodable):
    """Everything that a comparison of three or more sides found.

    `comparisons` are those of each side but the first with the first one, which stands as the
    expected side there. `tensors` are in the order of execution.
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
        """The finding of the first pair that differs; else "nothing" if a pair has nothing to
        compare, else "same"."""
        findings = [comparison.finding for comparison in self.comparisons]
        differing = (it for it in findings if it not in ("same", "nothing"))
        return next(differing, "nothing" if "nothing" in findings else "same")

    @property
    def same(self) -> bool:
        """True if all that was compared is within the tolerance."""
        return self.finding == "same"

    @property
    def interrupted(self) -> bool:
        """True if one of the comparisons was ended before it had found all."""
        return any(comparison.interrupted for comparison in self.comparisons)


def read_comparison(data: bytes | str) -> Comparison:
    """Decode a comparison that `--report FILE.json` wrote, of any version so far.

    Raises:
        ValueError: the text is not JSON, or not a comparison of a version that this lar reads.
    """
    return record_of_format(data, Comparison)


def read_comparison_of_sides(data: bytes | str) -> ComparisonOfSides:
    """Decode a comparison of several sides that `--report FILE.json` wrote.

    Raises:
        ValueError: the text is not JSON, or not a comparison of a version that this lar reads.
    """
    return record_of_format(data, ComparisonOfSides)
