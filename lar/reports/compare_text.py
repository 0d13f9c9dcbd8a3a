"""A comparison as text and Markdown: the culprits, the worst tensors, a summary; and as JSON."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from lar.errors import count_of, printable
from lar.options.option import flag_of
from lar.options.table import BY_KEY
from lar.records.comparison import (
    AgainstTruth,
    Comparison,
    Culprit,
    Element,
    ErrorsOverItems,
    Figures,
    MatchedBy,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    Truth,
    TruthErrors,
)
from lar.records.run import record_to_json
from lar.reports.model import ANY_DIGITS, INDENTED, AnyTable, Cell, Column, Table
from lar.reports.report import Report
from lar.reports.text import PAPER, Screen

# More of a side's unmatched tensors are counted, not named, without --all; more tensors than that
# are left out of the table, the best first.
MOST_UNMATCHED = 8
MOST_ROWS = 20

# Of more operators that were fused into one, the first and the last are named.
MOST_FUSED = 4

# Of more culprits, and of more operators of one, a line names the first.
MOST_NAMED = 3

# Where nothing differs, tensors with a smaller ratio of signal to noise are shown all the same: one
# side computes in a coarser type.
FINE_SNR_DB = 60.0

# Half of the digits of a type's mantissa: numbers further apart than that many ULPs are not almost
# equal, and a relative error says more.
MOST_ULPS = {"float16": 1 << 5, "BFloat16": 1 << 4, "float32": 1 << 12, "float64": 1 << 26}


def format_json(comparison: Comparison) -> str:
    """Return a comparison as JSON, one line."""
    return record_to_json(comparison).decode() + "\n"


def format_comparison(
    comparison: Comparison,
    screen: Screen = PAPER,
    *,
    everything: bool = False,
    wide: bool = False,
) -> list[str]:
    """Return the lines of a comparison.

    `everything` has each tensor's, not only the worst; `wide` has all columns, whatever the
    screen's width.
    """
    report = report_of(comparison, everything=everything, wide=wide)
    lines = report.lines_for(screen._replace(width=None) if wide else screen)
    return [line if len(line) <= 2000 else line[:2000] + " ..." for line in lines]


def format_markdown(comparison: Comparison, *, everything: bool = False, wide: bool = False) -> str:
    """Return the text of a comparison as Markdown."""
    from lar.reports.markdown import format_markdown  # few reports are

    return format_markdown(report_of(comparison, everything=everything, wide=wide))


def report_of(comparison: Comparison, *, everything: bool = False, wide: bool = False) -> Report:
    """Return the text of a comparison in its parts."""
    columns = columns_for(comparison, wide=wide)
    body: list[str | AnyTable] = [
        *describe_sides({"A": comparison.actual, "B": comparison.expected}),
    ]
    if comparison.truth is not None:
        body.append(f"truth: {describe_side(comparison.truth.side)}")
    for number, culprit in enumerate(comparison.culprits, 1):
        of = f" {number} of {len(comparison.culprits)}" if len(comparison.culprits) > 1 else ""
        body += ["", f"culprit{of}: {describe_culprit(culprit)}"]
        body += body_of_culprit(culprit, [it for it in columns if wide or it.title not in SPARED])
    title, shown = rows_to_show(comparison.tensors, everything)
    if shown:
        body += ["", title, tensor_table(map(Row, shown), columns)]
    body += format_not_run(comparison, everything)
    body += format_unmatched(comparison, everything)
    body += ["", *format_summary(comparison)]
    return Report(style="comparison", body=tuple(body))


def rows_to_show(
    tensors: Sequence[TensorComparison], everything: bool
) -> tuple[str, list[TensorComparison]]:
    """Return the tensors of the table in the order of execution, and the line above it.

    Those that differ are shown; if none does, those which one side has in a coarser type.
    """
    if everything:
        return "tensors:", list(tensors)
    title, found = "tensors that differ:", [it for it in tensors if not it.passed]
    if not found:
        title, found = "tensors that are least alike:", [it for it in tensors if is_coarse(it)]
    worst = sorted(found, key=badness_of, reverse=True)[:MOST_ROWS]
    if len(worst) < len(found):
        title += f" the {MOST_ROWS} worst of {len(found)}; --all prints every tensor"
    kept = set(map(id, worst))
    return title, [it for it in found if id(it) in kept]


def is_coarse(tensor: TensorComparison) -> bool:
    """Return whether a tensor is further from its twin than results of one type are."""
    figures = tensor.figures
    if tensor.single is not None or tensor.truth is not None:
        return True
    return bool(figures and figures.snr_db is not None and figures.snr_db < FINE_SNR_DB)


def badness_of(tensor: TensorComparison) -> tuple[bool, float]:
    """Return how far a tensor is from its twin; one that cannot be compared is the worst, and one
    that differs is worse than any that does not."""
    figures, error = tensor.figures, entire_of(Row(tensor))
    if figures is None or figures.nonfinite_mismatches or error is None:
        return (not tensor.passed, math.inf)
    return (not tensor.passed, error)


def describe_sides(sides: Mapping[str, SideFacts]) -> Iterator[str]:
    """Yield the lines about the sides by letter: where each comes from, and the machines that ran
    them."""
    yield from (f"{letter}: {describe_side(side)}" for letter, side in sides.items())
    machines = {letter: describe_machine(side) for letter, side in sides.items()}
    if len(set(machines.values())) == 1:
        on = "both on" if len(sides) == 2 else "all on"
        yield from (f"{on}: {machine}" for machine in filter(None, set(machines.values())))
    else:
        yield from (
            f"{letter} on: {machine or 'a machine that the dump does not name'}"
            for letter, machine in machines.items()
        )


def describe_machine(side: SideFacts) -> str:
    """Return the system, the architecture and the processor of a side, empty if unknown."""
    system = " ".join(filter(None, (side.system, side.architecture)))
    return printable(", ".join(filter(None, (system, side.processor))))


def describe_side(side: SideFacts) -> str:
    """Return where a side comes from, in a line."""
    provider = side.provider.removesuffix("ExecutionProvider")
    device = side.device if provider.lower() == side.device else f"{side.device} {provider}".strip()
    run = " ".join(filter(None, (side.engine, side.engine_version, side.driver, device)))
    settings = " ".join(
        flag_of(key) if value is True else f"{flag_of(key)} {value}"
        for key, value in side.settings.items()
        if not (key in BY_KEY and BY_KEY[key].writes)
    )
    facts = ", ".join(filter(None, (f"{side.tensors} tensors", run, settings)))
    return printable(f"{side.model or side.source} ({facts})")


def describe_culprit(culprit: Culprit, letters: Sequence[str] = "AB") -> str:
    """Return the operators of a culprit in a few words; `letters` are those of the two sides."""
    sides = [culprit.actual, culprit.expected]
    if not culprit.actual or not culprit.expected:
        here, there = reversed(letters) if not culprit.actual else letters
        lacking = culprit.output.actual if not culprit.actual else culprit.output.expected
        if not lacking.operator_type:  # a side that has no operators at all
            return describe_operators(sides[0] or sides[1])
        return f"{describe_operators(sides[0] or sides[1])} of {here}, which {there} lacks"
    texts = list(dict.fromkeys(map(describe_operators, sides)))
    return f" in {letters[0]}, ".join(texts) + (f" in {letters[1]}" if len(texts) > 1 else "")


def describe_operators(operators: Sequence[OperatorFacts]) -> str:
    """Return the first operators of a side as the model has them, and how the engine runs those
    that it changed; below a culprit all of them stand."""
    names = [
        printable(" ".join(filter(None, words_of(it)))) + (" (opaque)" if it.opaque else "")
        for it in operators[:MOST_NAMED]
    ]
    more = len(operators) - MOST_NAMED
    return " + ".join([*names, f"{more} more"] if more > 0 else names)


def words_of(operator: OperatorFacts) -> tuple[str, str, str]:
    """Return the type of an operator, the model's names for it, and the engine's form."""
    kind = type_of(operator.type, operator.name)
    return kind, describe_origin(operator) or operator.output, describe_form(operator)


def describe_origin(operator: OperatorFacts) -> str:
    """Return the model's operators that one stands for, empty where it is one of them."""
    names = operator.origin
    if len(names) > MOST_FUSED:
        return f"{names[0]} + {len(names) - 2} more + {names[-1]}"
    return " + ".join(names)


def describe_form(operator: OperatorFacts) -> str:
    """Return how the engine calls an operator that it made of the model's, and its layout; a mode
    stands in the type already."""
    name = re.sub(r"\[\d+\]$", "", operator.name.partition("(")[0])
    known = name in type_of(operator.type, operator.name)
    form = ", ".join(filter(None, ("" if known else name, operator.layout)))
    return f"(run as {form})" if operator.origin and form else ""


def type_of(kind: str, name: str) -> str:
    """Return the type of an operator; MegEngine's elementwise ones have their mode in the name."""
    mode = name.partition("(")[0]
    return f"{kind} {mode}" if kind.startswith("Elemwise") and mode.isupper() else kind


def body_of_culprit(culprit: Culprit, columns: Sequence[Column[Row]]) -> Iterator[str | AnyTable]:
    """Yield what stands below a culprit: its operators in full, what goes in, what comes out, and
    its worst element."""
    for side, operators, others in (
        ("A", culprit.actual, culprit.expected),
        ("B", culprit.expected, culprit.actual),
    ):
        for operator in operators:
            same = all(it.passed for it in culprit.parameters)
            yield f"  {side}: {describe_operator(operator, others, same_weights=same)}"
    if culprit.kind:
        yield f"  {printable(culprit.kind)}"
    yield replace(tensor_table(rows_of_culprit(culprit), columns), layout=INDENTED)
    if (figures := culprit.output.figures) is not None and figures.worst is not None:
        yield f"  {describe_worst(figures, figures.worst)}"


def describe_worst(figures: Figures, worst: Element) -> str:
    """Return where a tensor is worst, and how many of its elements are past the tolerance."""
    place = f" at {format_shape(worst.index)}" if worst.index else ""
    return printable(
        f"worst{place}: {worst.actual} in A, {worst.expected} in B; past the tolerance: "
        f"{figures.mismatches} of {figures.elements}{describe_nonfinite(figures)}"
    )


def rows_of_culprit(culprit: Culprit) -> list[Row]:
    """Return what goes into a culprit and what comes out."""
    return [
        *(Row(tensor, "input") for tensor in culprit.inputs),
        *(Row(tensor, "parameter") for tensor in culprit.parameters),
        Row(culprit.output, "output"),
    ]


def describe_operator(
    operator: OperatorFacts, others: Sequence[OperatorFacts], *, same_weights: bool = True
) -> str:
    """Return the facts of an operator; of its parameters, only those that its twin has
    otherwise."""
    twin = next((it for it in others if it.type == operator.type), None)
    parameters = {
        key: value
        for key, value in operator.parameters.items()
        if twin is None or key not in twin.parameters or twin.parameters[key] != value
    }
    facts = [f"{key}={format_value(value)}" for key, value in parameters.items()]
    if twin is not None and operator.parameters and not parameters and same_weights:
        facts.append("parameters as on the other side")
    facts += [f"algorithm {operator.algorithm}"] if operator.algorithm else []
    facts += [f"layout {operator.layout}"] if operator.layout else []
    facts += ["opaque: no tensor within it is dumped"] if operator.opaque else []
    facts += [f"the model's {describe_origin(operator)}"] if operator.origin else []
    text = f"{operator.type} {operator.name} gives {operator.output}"
    return printable(f"{text}; {', '.join(facts)}" if facts else text)


def format_value(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class Row(NamedTuple):
    """A pair of tensors, and its role for a culprit: an input, a parameter or the output."""

    tensor: TensorComparison
    role: str = ""


def tensor_table(rows: Iterable[Row], columns: Sequence[Column[Row]]) -> Table[Row]:
    """Return a table of tensors; one that differs is red on a terminal with colours."""
    rows = tuple(rows)
    return Table(
        name="tensors",
        title="Tensors",
        columns=(ROLE_IN_TEXT, *columns) if any(row.role for row in rows) else tuple(columns),
        rows=rows,
        color=lambda row: "" if row.tensor.passed else "red",
    )


def columns_for(comparison: Comparison, *, wide: bool) -> tuple[Column[Row], ...]:
    """Return the columns of the text: a few, or all with `wide`.

    Data types are shown where the sides have different ones, single errors and distances from the
    truth where there are any, and the error that a tolerance is given for.
    """
    tensors = comparison.tensors
    shown = {"operator", "type", "entire", "SNR dB"}
    if any(
        it.actual.dtype != it.expected.dtype or it.actual.quantization or it.expected.quantization
        for it in tensors
    ):
        shown.add("data type")
    if any(it.single is not None or it.single_problem for it in tensors):
        shown.add("single")
    if comparison.truth is not None:
        shown |= TRUTH_COLUMNS
    if comparison.tolerance.max_error is not None:
        shown.add("error")
    if wide:
        shown |= {column.title for column in COLUMNS} - {"single", *ITEM_COLUMNS, *TRUTH_COLUMNS}
    if comparison.items:
        shown = {*shown, *ITEM_COLUMNS} - {"SNR dB"}
        if not wide:
            shown.discard("worst item")
        if not any(steps_of(Row(it)) is not None for it in tensors):
            shown.discard("RMSE/scale")
    return tuple(it for it in COLUMNS if it.in_text and it is not ROLE and it.title in shown)


def figure_column(
    title: str,
    value: Callable[[Figures], Cell],
    text: Callable[[Figures], str],
    rank: int,
    when_equal: float | None = None,
) -> Column[Row]:
    """Return a column of one figure.

    Its text is empty where the tensors are equal or cannot be compared; its value is
    `when_equal` for equal ones.
    """

    def cell(row: Row) -> Cell:
        figures = row.tensor.figures
        if figures is None:
            return None
        found = when_equal if figures.identical else value(figures)
        return found if not isinstance(found, float) or math.isfinite(found) else str(found)

    def format_cell(row: Row) -> str:
        figures = row.tensor.figures
        return "" if figures is None or figures.identical else text(figures)

    return Column(title, cell, format_cell, rank=rank, digits=ANY_DIGITS)


def number_column(title: str, value: Callable[[Figures], float | None], rank: int) -> Column[Row]:
    return figure_column(title, value, lambda it: format_number(value(it)), rank, 0)


def items_column(
    title: str, value: Callable[[ErrorsOverItems], float | None], rank: int
) -> Column[Row]:
    """Return a column of one figure over the items of a data set."""

    def cell(row: Row) -> float | None:
        return None if row.tensor.over_items is None else value(row.tensor.over_items)

    def text(row: Row) -> str:
        return "" if (found := cell(row)) is None else f"{found:.1f}"

    return Column(title, cell, text, rank=rank, digits=ANY_DIGITS)


def steps_of(row: Row) -> float | None:
    """Return the error of a quantised tensor in units of its scale: that of the operator alone
    where it was run alone, else the entire one."""
    errors = row.tensor.single_over_items or row.tensor.over_items
    return errors.rmse_over_scale if errors else None


def format_steps(row: Row) -> str:
    return "" if (steps := steps_of(row)) is None else f"{steps:.3f}"


def element_column(title: str, value: Callable[[Element], str]) -> Column[Row]:
    """Return a column of the element with the greatest error."""

    def text(figures: Figures) -> str:
        return "" if figures.worst is None else value(figures.worst)

    def cell(row: Row) -> Cell:
        figures = row.tensor.figures
        if figures is None or figures.identical or figures.worst is None:
            return None
        return value(figures.worst)

    return replace(figure_column(title, text, text, 5), value=cell, digits=None)


def entire_of(row: Row) -> float | None:
    """Return the error of a pair, 0 where it is equal; of a data set that of all items together."""
    return finite_error(row.tensor.figures, row.tensor.over_items)


def single_of(row: Row) -> float | None:
    """Return the error of an operator alone, 0 where it gives the same."""
    return finite_error(row.tensor.single, row.tensor.single_over_items)


def finite_error(figures: Figures | None, items: ErrorsOverItems | None) -> float | None:
    if figures is None:
        return None
    if items is not None:
        return items.relative_l2
    return 0.0 if figures.identical else figures.relative_l2


def format_entire(row: Row) -> str:
    """Return the error of a pair, `equal`, or why it cannot be compared."""
    if row.tensor.figures is None:
        return printable(row.tensor.problem)
    return format_relative(row.tensor.figures, entire_of(row))


def format_single(row: Row) -> str:
    if row.tensor.single is None:
        return "not run" if row.tensor.single_problem else ""
    return format_relative(row.tensor.single, single_of(row))


def format_relative(figures: Figures, error: float | None) -> str:
    """Return an error; where it has no number, what it is instead."""
    if figures.nonfinite_mismatches:
        return f"{figures.nonfinite_mismatches} NaN or inf"
    return "equal" if figures.identical else format_number(error)


def truth_column(title: str, figures_of: Callable[[TruthErrors], Figures | None]) -> Column[Row]:
    """Return a column of the distance of one side from the truth."""

    def cell(row: Row) -> float | None:
        figures = None if row.tensor.truth is None else figures_of(row.tensor.truth)
        if figures is None:
            return None
        return 0.0 if figures.identical else figures.relative_l2

    def text(row: Row) -> str:
        figures = None if row.tensor.truth is None else figures_of(row.tensor.truth)
        if figures is not None and figures.max_absolute == 0.0 and not figures.nonfinite_mismatches:
            return "equal"  # in float64 the bits are others
        return "" if figures is None else format_relative(figures, figures.relative_l2)

    return Column(title, cell, text, rank=1, digits=ANY_DIGITS)


def ulps_of(row: Row) -> int | None:
    """Return the distance of a pair in ULPs where it is small enough to say something."""
    figures, dtype = row.tensor.figures, row.tensor.expected.dtype
    if figures is None or figures.identical:
        return None if figures is None else 0
    if figures.max_ulp is None or dtype != row.tensor.actual.dtype:
        return None
    return figures.max_ulp if figures.max_ulp <= MOST_ULPS.get(dtype, 0) else None


def format_matched(row: Row) -> str:
    bias = ", but for a bias" if row.tensor.apart_by_bias else ""
    return row.tensor.matched_by + bias + (", in another order" if row.tensor.reordered else "")


def format_type(row: Row) -> str:
    """Return the type of the operator that gives a pair."""
    expected = row.tensor.expected
    return printable(type_of(expected.operator_type, expected.operator))


def format_data_type(row: Row) -> str:
    """Return the data type of a pair, both where they differ."""
    tensor = row.tensor
    return printable(
        " = ".join(dict.fromkeys(map(describe_type, (tensor.actual, tensor.expected))))
    )


def format_pair(row: Row) -> str:
    return name_of_pair(row.tensor.actual, row.tensor.expected)


def format_expected_shape(row: Row) -> str:
    return format_shape(row.tensor.expected.shape)


def describe_type(tensor: TensorFacts) -> str:
    """Return a tensor's type with its scale, as `int8 x 0.0231`, and the zero point that is not
    0."""
    quantization = tensor.quantization
    if quantization is None:
        return tensor.dtype
    scales, zeros = (
        format_range(numbers) for numbers in (quantization.scale, quantization.zero_point)
    )
    stored = STORED_TYPES.get(tensor.dtype, tensor.dtype)
    return f"{stored} x {scales}" + (f" (0 at {zeros})" if any(quantization.zero_point) else "")


def format_range(numbers: Sequence[float]) -> str:
    """Return a number, or the smallest and the largest of several."""
    return "..".join(dict.fromkeys(f"{number:.3g}" for number in (min(numbers), max(numbers))))


# How MegEngine stores the integers of its quantised types.
STORED_TYPES = {
    "QuantizedS8": "int8",
    "Quantized8Asymm": "uint8",
    "QuantizedS32": "int32",
    "QuantizedS16": "int16",
    "QuantizedS4": "int4",
    "Quantized4Asymm": "uint4",
}

# The columns of the text and of the page, each of which leaves out some.
ROLE = Column[Row]("role", lambda row: row.role or None, rank=0)
COLUMNS: tuple[Column[Row], ...] = (
    ROLE,
    Column("operator", format_pair, format_pair, rank=0, shortest=24),
    Column("type", format_type, format_type, rank=3, shortest=10),
    Column("data type", format_data_type, format_data_type, rank=5, shortest=10),
    Column("shape", format_expected_shape, format_expected_shape, rank=3),
    Column("matched by", format_matched, format_matched, rank=9),
    Column("problem", lambda row: printable(row.tensor.problem) or None, in_text=False),
    Column("entire", entire_of, format_entire, rank=0, digits=ANY_DIGITS),
    Column("single", single_of, format_single, rank=0, digits=ANY_DIGITS),
    truth_column("A to truth", lambda it: it.actual),
    truth_column("B to truth", lambda it: it.expected),
    figure_column(
        "SNR dB",
        lambda it: it.snr_db,
        lambda it: "" if it.snr_db is None else f"{it.snr_db:.1f}",
        1,
    ),
    items_column("SNR mean", lambda it: it.mean_snr_db, 4),
    items_column("SNR p99", lambda it: it.p99_snr_db, 6),
    items_column("SNR worst", lambda it: it.worst_snr_db, 1),
    Column(
        "worst item",
        lambda row: row.tensor.over_items.worst_item or None if row.tensor.over_items else None,
        rank=8,
    ),
    Column("RMSE/scale", steps_of, format_steps, rank=2, digits=ANY_DIGITS),
    number_column("error", lambda it: it.max_error, 2),
    number_column("max abs", lambda it: it.max_absolute, 4),
    number_column("max rel", lambda it: it.max_relative, 6),
    Column("ulp", ulps_of, lambda row: str(ulps_of(row) or ""), rank=7, digits=ANY_DIGITS),
    figure_column(
        "cosine",
        lambda it: it.cosine,
        lambda it: "" if it.cosine is None else f"{it.cosine:.7f}",
        7,
    ),
    figure_column(
        "past tolerance", lambda it: it.mismatches, lambda it: format_mismatches(it), 1, 0
    ),
    replace(
        figure_column(
            "NaN or inf on one side", lambda it: it.nonfinite_mismatches or None, lambda it: "", 1
        ),
        in_text=False,
    ),
    element_column("worst at", lambda it: format_shape(it.index)),
    element_column("actual", lambda it: it.actual),
    element_column("expected", lambda it: it.expected),
)
ITEM_COLUMNS = ("SNR mean", "SNR p99", "SNR worst", "worst item", "RMSE/scale")
TRUTH_COLUMNS = {"A to truth", "B to truth"}
SPARED = ("SNR mean", "SNR p99")  # in the table of a culprit
ROLE_IN_TEXT = replace(ROLE, title="")  # the text has no heading above it


def name_of_pair(actual: TensorFacts, expected: TensorFacts) -> str:
    """Return the name of a tensor, both where the sides call it otherwise."""
    names = dict.fromkeys((actual.name, expected.name))
    return printable(" = ".join(shorten(name) for name in names))


def name_with_form(tensor: TensorFacts) -> str:
    """Return the model's name of a tensor, and the engine's where it is another one."""
    form = f" (run as {shorten(tensor.engine_name)})" if tensor.engine_name else ""
    return shorten(tensor.name) + form


def shorten(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:30]}...{name[-15:]}"


def format_shape(shape: Sequence[int]) -> str:
    return "{" + ",".join(map(str, shape)) + "}"


def format_mismatches(figures: Figures) -> str:
    """Return how many elements are past the tolerance."""
    share = f" ({figures.mismatches / figures.elements:.1%})" if figures.mismatches else ""
    return f"{figures.mismatches}{share}{describe_nonfinite(figures)}"


def describe_nonfinite(figures: Figures) -> str:
    """Return how many NaN and infinite numbers each side has, if the sides differ in them."""
    if not figures.nonfinite_mismatches:
        return ""
    return (
        f", {figures.nonfinite_mismatches} NaN or infinite on one side "
        f"(NaN {figures.nan_counts[0]}/{figures.nan_counts[1]}, "
        f"inf {figures.infinity_counts[0]}/{figures.infinity_counts[1]})"
    )


def format_number(number: float | None) -> str:
    return "N/A" if number is None else f"{number:.3g}"


def format_unmatched(comparison: Comparison, everything: bool) -> Iterator[str]:
    """Yield the lines about tensors without a twin: those that nothing explains come first."""
    for side, letter, other in (("actual", "A", "B"), ("expected", "B", "A")):
        listed = [it for it in comparison.unmatched if it.side == side]
        if not listed:
            continue
        yield ""
        yield f"without a twin in {other}: {len(listed)} of {letter}"
        computed = [it for it in listed if not it.constant]
        shown = sorted(computed, key=lambda it: it.fused)
        shown = shown if everything else shown[:MOST_UNMATCHED]
        yield from (f"  {printable(f'{name_with_form(it.tensor)}: {it.reason}')}" for it in shown)
        if len(shown) < len(computed):
            yield f"  and {len(computed) - len(shown)} more, which --all lists"
        constants = [shorten(it.tensor.name) for it in listed if it.constant]
        if constants:
            names = ", ".join(constants if everything else constants[:MOST_UNMATCHED])
            more = "" if everything or len(constants) <= MOST_UNMATCHED else ", ..."
            verb = "is" if len(constants) == 1 else "are"
            of_them = count_of(len(constants), "constant")
            of_them += f" that {verb} in another form there, or not at all"
            yield f"  {of_them}: {printable(names)}{more}"


def format_not_run(comparison: Comparison, everything: bool) -> Iterator[str]:
    """Yield the lines about operators that could not be run alone, and why."""
    left = [it for it in comparison.tensors if it.single_problem]
    if not left:
        return
    yield ""
    yield f"not run alone: {len(left)} of A"
    shown = left if everything else left[:MOST_UNMATCHED]
    yield from (f"  {printable(f'{shorten(it.actual.name)}: {it.single_problem}')}" for it in shown)
    if len(shown) < len(left):
        yield f"  and {len(left) - len(shown)} more, which --all lists"


def format_summary(comparison: Comparison) -> Iterator[str]:
    """Yield the last lines: how many tensors differ, how they were matched, and the result."""
    tensors = comparison.tensors
    differing = [tensor for tensor in tensors if not tensor.passed]
    equal = sum(tensor.figures is not None and tensor.figures.identical for tensor in tensors)
    by = Counter(tensor.matched_by for tensor in tensors)
    ways = ", ".join(f"{by[way]} by {way}" for way in get_args(MatchedBy) if by[way])
    compared = count_of(len(tensors), "tensor")
    yield (
        f"{compared} compared ({ways or 'none matched'}): {equal} equal, "
        f"{len(tensors) - equal - len(differing)} within the tolerance, {len(differing)} differ; "
        f"{len(comparison.unmatched)} without a twin"
    )
    if comparison.items:
        yield (
            f"{count_of(len(comparison.items), 'item')} of a data set: errors are those of all "
            "items together; SNR in dB: the mean, what 99% of the items reach, the worst item"
        )
    yield from (printable(f"note: {note}") for note in comparison.notes)
    yield (
        "result: "
        + {
            "same": describe_agreement(comparison),
            "fault": f"different; {describe_culprits(comparison.culprits)}",
            "rounding": "different; no operator stands out, the errors grow gradually",
            "different": "different",
        }[comparison.finding]
        + (f"; by the truth {describe_truth(comparison.truth)}" if comparison.truth else "")
    )


def describe_truth(truth: Truth) -> str:
    """Return which side is off, or that both are what they must be."""
    one, other = truth.actual, truth.expected
    if one.is_off or other.is_off or one.finding != other.finding:
        return f"A {describe_against(one)}, and B {describe_against(other)}"
    if one.finding == "rounding":
        return "no operator of A or B stands out, and the errors of both grow gradually"
    return "both round as they must"


def describe_against(against: AgainstTruth) -> str:
    """Return what one side is beside the truth; operators are those of the truth, if it has any."""
    if against.finding == "same":
        return "rounds as it must"
    if against.finding == "rounding":
        return "has errors that grow gradually"
    names = [describe_operators(it.expected or it.actual) for it in against.culprits]
    more = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"is off in {'; '.join(names[:MOST_NAMED])}{more}" if names else "is off"


def describe_agreement(comparison: Comparison) -> str:
    """Return within what two sides are the same."""
    if not comparison.precision:
        return "the same within the tolerance"
    if comparison.precision.startswith("int"):
        snr = comparison.snr_db
        at = "" if snr is None else f": {snr:.0f} dB at the output"
        return f"the same as {comparison.precision} rounds{at}"
    return f"the same within {comparison.precision}'s rounding"


def describe_culprits(culprits: Sequence[Culprit], letters: Sequence[str] = "AB") -> str:
    """Return the first culprits in a few words."""
    more = f"; and {len(culprits) - MOST_NAMED} more" if len(culprits) > MOST_NAMED else ""
    return "; ".join(describe_culprit(it, letters) for it in culprits[:MOST_NAMED]) + more
