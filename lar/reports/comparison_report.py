"""The report of a comparison of two or more sides, with culprits, worst tensors and verdict."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from string import ascii_uppercase
from typing import Any, NamedTuple, TypeVar

from lar.errors import count_of, join_first, one_line
from lar.options.option import flag_of
from lar.options.table import BY_KEY
from lar.records.comparison import (
    Comparison,
    ComparisonOfSides,
    Culprit,
    Element,
    ErrorsOverItems,
    Figures,
    Findings,
    LeftOut,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    TensorOfSides,
    Truth,
)
from lar.reports.model import (
    ANY_DIGITS,
    INDENTED,
    AnyTable,
    Cell,
    Column,
    Plot,
    Table,
    no_value,
    number,
    table_of_values,
    value_at,
)
from lar.reports.report import Part, Report
from lar.reports.text import cut_end

T = TypeVar("T")

# Without --all: how many of the worst tensors are printed. If the sides are the same: how many
# tensors and how many notes are printed.
MOST_ROWS = 20
MOST_ROWS_OF_SAME = 5
MOST_NOTES_OF_SAME = 4

# The longest line: lines such as those of operators with long parameters are cut.
LONGEST_LINE = 2000

LETTERS = {"actual": "A", "expected": "B"}
VERDICTS = {"same": "same", "nothing": "nothing compared"}
DEPTH = (
    "Length of the difference over that of the expected tensor. Blue: within the tolerance; "
    "orange: differs; red: the output of a culprit or suspect."
)


def report_comparison(comparison: Comparison, *, everything: bool = False) -> Report:
    """Return the report of a comparison: its worst tensors, or all tensors if `everything`."""
    columns = columns_for(comparison)
    body: list[Part] = [*describe_head(comparison)]
    body += format_culprits(comparison, columns)
    title, shown = rows_to_show(comparison, everything)
    if shown:
        body += ["", title, tensor_table(map(Row, shown), columns, heading_of(title))]
    body += format_unmatched(comparison) if everything else ()
    if points := [*points_of(comparison)]:
        body += [Plot("depth", "Error over depth", [{"name": "", "points": points}], DEPTH)]
    body += ["", *format_summary(comparison, everything=everything)]
    return report_of(comparison, body, table_of_all(comparison))


def report_of(
    found: Comparison | ComparisonOfSides, body: Sequence[Part], table: AnyTable
) -> Report:
    """Return the report of a comparison: the parts in `body`, and a table of all tensors."""
    return Report(
        style="comparison",
        title=f"lar compare: {VERDICTS.get(found.finding, 'different')}",
        body=tuple(body),
        page_of_text=True,
        tables=(table,),
        document=found,
    )


def heading_of(line: str) -> str:
    """Return the title of a table, made from the line above it."""
    return line[:1].upper() + line[1:].removesuffix(":")


def points_of(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    """Yield `[depth, error, name, mark]` of each computed tensor.

    If an error is not finite or not known, None stands for it. The mark is `fault` for outputs of
    culprits, and `differs` for other tensors that differ.
    """
    outputs = {(it.output.actual.key, it.output.expected.key) for it in comparison.culprits}
    for tensor in sorted(comparison.tensors, key=lambda it: it.depth):
        if not tensor.constant:
            is_fault = (tensor.actual.key, tensor.expected.key) in outputs
            mark = "fault" if is_fault else "" if tensor.passed else "differs"
            error = error_of(tensor.figures, tensor.over_items)
            yield tensor.depth, error, format_pair(Row(tensor)), mark


def describe_head(comparison: Comparison) -> Iterator[str]:
    """Yield the lines about the sides; lines on incomplete sides come first."""
    sides = {"A": comparison.actual, "B": comparison.expected}
    for letter, side in sides.items():
        left_out = (it for it in comparison.left_out if LETTERS[it.side] == letter)
        yield from describe_gaps(letter, side, left_out)
    yield from describe_sides(sides)
    if comparison.truth is not None:
        yield f"truth: {describe_side(comparison.truth.side)}"


def describe_gaps(letter: str, side: SideFacts, left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Yield lines on tensors that a side did not record; the verdict names missing outputs."""
    if not side.complete:
        yield f"{letter} is incomplete: its run did not end well, and tensors may be missing"
    for names, reason in by_reason((it.name, it.reason) for it in left_out if not it.is_output):
        yield one_line(f"{letter} recorded less than it ran: {names}: {reason}")


def by_reason(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs: the joined names of all tensors that have the same reason, and this reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in found:
        reasons.setdefault(reason, []).append(shorten(name))
    yield from ((join_first(names), reason) for reason, names in reasons.items())


def describe_sides(sides: Mapping[str, SideFacts]) -> Iterator[str]:
    """Yield a line on the origin of each side, and on its machine if the machines differ."""
    yield from (f"{letter}: {describe_side(side)}" for letter, side in sides.items())
    machines = {letter: describe_machine(side) for letter, side in sides.items()}
    if len(set(machines.values())) > 1:
        yield from (f"{letter} on: {machine or 'unknown'}" for letter, machine in machines.items())


def describe_machine(side: SideFacts) -> str:
    """Return the system, the architecture and the processor of a side; empty if unknown."""
    system = " ".join(filter(None, (side.system, side.architecture)))
    return ", ".join(filter(None, (system, side.processor)))


def describe_side(side: SideFacts) -> str:
    """Return the origin of a side in a line: its model or file, engine and settings."""
    provider = side.provider.removesuffix("ExecutionProvider")
    device = side.device if provider.lower() == side.device else f"{side.device} {provider}".strip()
    run = " ".join(filter(None, (side.engine, side.engine_version, side.driver, device)))
    settings = " ".join(
        flag_of(key) if value is True else f"{flag_of(key)} {value}"
        for key, value in side.settings.items()
        if not (key in BY_KEY and BY_KEY[key].writes)
    )
    facts = ", ".join(filter(None, (f"{side.tensors} tensors", run, settings)))
    return f"{side.model or side.source} ({facts})"


def format_culprits(
    comparison: Comparison, columns: Sequence[Column[Row]]
) -> Iterator[str | AnyTable]:
    """Yield a description, the proof and a table of each culprit, and then of each suspect."""
    for word, culprits in by_word(comparison.culprits).items():
        for place, culprit in enumerate(culprits, 1):
            of = f" {place} of {len(culprits)}" if len(culprits) > 1 else ""
            yield ""
            yield f"{word}{of}: {describe_culprit(culprit)}"
            yield from describe_proof(culprit)
            yield from describe_sides_of(culprit)
            table = tensor_table(rows_of_culprit(culprit), columns, f"{word.capitalize()}{of}")
            yield replace(table, layout=INDENTED)


def by_word(culprits: Iterable[Culprit]) -> dict[str, list[Culprit]]:
    """Return the culprits grouped as "culprit" or "suspect"; equal descriptions appear once."""
    found: dict[str, dict[str, Culprit]] = {}
    for culprit in sorted(culprits, key=is_suspect):
        word = "suspect" if is_suspect(culprit) else "culprit"
        found.setdefault(word, {}).setdefault(describe_culprit(culprit), culprit)
    return {word: list(each.values()) for word, each in found.items()}


def is_suspect(culprit: Culprit) -> bool:
    """Return whether a culprit is neither proven nor shown by a scale that is too coarse."""
    return not (culprit.proven or culprit.is_coarse)


def describe_culprit(culprit: Culprit, letters: Sequence[str] = "AB") -> str:
    """Describe the operators of a culprit in a few words; `letters` name the two sides."""
    if not culprit.actual or not culprit.expected:
        here, there = reversed(letters) if not culprit.actual else letters
        lacking = culprit.output.actual if not culprit.actual else culprit.output.expected
        text = describe_operators(culprit.actual or culprit.expected)
        # A side without any operators does not lack these.
        return f"{text} of {here}, which {there} lacks" if lacking.operator_type else text
    texts = list(dict.fromkeys(map(describe_operators, (culprit.actual, culprit.expected))))
    return f" in {letters[0]}, ".join(texts) + (f" in {letters[1]}" if len(texts) > 1 else "")


def describe_operators(operators: Sequence[OperatorFacts]) -> str:
    """Describe the first operators of a side by their names in the model.

    If the engine has changed an operator of the model, the text also names the form in which the
    engine runs the operator. The lines below a culprit name all its operators.
    """
    return join_first([describe_operator(it) for it in operators], " + ")


def describe_operator(operator: OperatorFacts) -> str:
    """Describe an operator by its type, its name or output, and the form that the engine runs."""
    kind, node = type_of(operator.type, operator.name), node_of(operator)
    if operator.origin:
        name = join_first(operator.origin, " + ")
        form = ", ".join(filter(None, ("" if node in kind else node, operator.layout)))
        name += f" (run as {form})" if form else ""
    elif node in ("", operator.type, operator.output):
        name = operator.output
    else:
        name = f"{node} (tensor {operator.output})"
    return f"{kind} {name}" + (" (opaque)" if operator.opaque else "")


def node_of(operator: OperatorFacts) -> str:
    """Return the name of an operator without the number at its end.

    Return an empty string if MegEngine made the name from the names of the inputs.
    """
    name = re.sub(r"\[\d+\]$", "", operator.name)
    return name.partition("(")[0] if operator.origin else "" if "(" in name else name


def describe_proof(culprit: Culprit) -> Iterator[str]:
    """Yield lines on the proof of a culprit, or on the missing proof, and on the kind of error."""
    alone, start = culprit.alone, "  alone, on the same inputs,"
    figures = alone if culprit.proven else culprit.output.figures
    worst = f"; worst element {describe_element(it)}" if (it := figures and figures.worst) else ""
    if culprit.proven and alone is not None:
        yield f"{start} off by {format_error(alone)} (relative{worst})"
    elif culprit.proven:
        yield f"{start} not comparable either: {one_line(culprit.output.problem)}"
    elif culprit.doubt:
        yield f"  not proven: {one_line(culprit.doubt)}{worst}"
    if culprit.kind:
        yield f"  {one_line(culprit.kind)}"


def describe_sides_of(culprit: Culprit) -> Iterator[str]:
    """Yield the operators of a culprit with their facts; equal sides are described only once."""
    actual = [describe_facts(it, culprit.expected) for it in culprit.actual]
    expected = [describe_facts(it, culprit.actual) for it in culprit.expected]
    sides = {"A and B": actual} if actual == expected else {"A": actual, "B": expected}
    yield from (f"  {letter}: {text}" for letter, texts in sides.items() for text in texts)


def describe_facts(operator: OperatorFacts, others: Sequence[OperatorFacts]) -> str:
    """Describe an operator with its algorithm and the parameters that differ on the other side."""
    twin = {key: value for it in others for key, value in it.parameters.items()}
    parameters = operator.parameters.items()
    differing = {key: value for key, value in parameters if key not in twin or twin[key] != value}
    facts = [f"{key}={value}" for key, value in differing.items()]
    facts += [f"algorithm {operator.algorithm}"] if operator.algorithm else []
    return cut_end(one_line("; ".join([describe_operator(operator), *facts])), LONGEST_LINE)


def rows_to_show(comparison: Comparison, everything: bool) -> tuple[str, list[TensorComparison]]:
    """Return the line above the table of tensors, and the tensors in the order of execution.

    The table has the tensors that differ. If all tensors agree, the table has the tensors that were
    compared with the reference values or over several items, and the tensors whose operator was
    also run alone.
    """
    if everything:
        return "tensors:", list(comparison.tensors)
    title, found = "tensors that differ:", [it for it in comparison.tensors if not it.passed]
    if not found:
        title = "tensors:"
        found = [it for it in comparison.tensors if it.single or it.truth or it.over_items]
    most = MOST_ROWS_OF_SAME if comparison.same else MOST_ROWS
    # An engine may have several tensors of the same name: the worst of them stands for all.
    worst = {format_pair(Row(it)): id(it) for it in sorted(found, key=badness_of)}
    kept = {*worst.values()}
    return worst_of(title, [it for it in found if id(it) in kept], badness_of, most)


def worst_of(
    title: str, found: Sequence[T], badness: Callable[[T], Any], most: int = MOST_ROWS
) -> tuple[str, list[T]]:
    """Return a title with the number of rows, and the worst rows in their original order."""
    worst = sorted(found, key=badness, reverse=True)[:most]
    if len(worst) < len(found):
        title += f" the {most} worst of {len(found)}; --all prints every tensor"
    kept = set(map(id, worst))
    return title, [it for it in found if id(it) in kept]


def format_unmatched(comparison: Comparison) -> Iterator[str | AnyTable]:
    """Yield a line and the table of the tensors that match no tensor of the other side."""
    rows = [
        (LETTERS[it.side], shorten(it.tensor.name), one_line(it.reason))
        for it in comparison.unmatched
    ]
    if rows:
        yield from ("", "tensors without a twin:")
        columns = ("side", "tensor", "why")
        yield table_of_values("unmatched", "Tensors without a twin", columns, rows)


def format_summary(comparison: Comparison, *, everything: bool = True) -> Iterator[str]:
    """Yield the last lines of the report: how many tensors differ, notes, and the result."""
    tensors = comparison.tensors
    differing = [tensor for tensor in tensors if not tensor.passed]
    equal = sum(tensor.figures is not None and tensor.figures.identical for tensor in tensors)
    without = Counter(it.side for it in comparison.unmatched)
    yield (
        f"{count_of(len(tensors), 'tensor')} compared: {equal} equal, "
        f"{len(tensors) - equal - len(differing)} within the tolerance, {len(differing)} differ; "
        f"without a twin: {without['actual']} of A, {without['expected']} of B"
    )
    found = ((it.actual.name, it.single_problem) for it in tensors if it.single_problem)
    for names, reason in by_reason(found):
        yield one_line(f"not run alone: {names}: {reason}")
    if comparison.items:
        yield f"errors are those of {count_of(len(comparison.items), 'item')} of a data set"
    notes = comparison.notes
    most = MOST_NOTES_OF_SAME if comparison.same and not everything else len(notes)
    yield from (one_line(f"note: {note}") for note in notes[:most])
    if notes[most:]:
        yield f"note: {len(notes) - most} more, which --all prints"
    yield f"result: {describe_result(comparison)}"


def describe_result(comparison: Comparison) -> str:
    """Return the verdict in a sentence, with the counts of tensors and the outputs left out."""
    if comparison.finding == "nothing":
        lacking = describe_left_out(comparison)
        return f"nothing compared: {lacking or 'the sides share no output and no computed tensor'}"
    if comparison.same:
        result = f"{describe_agreement(comparison)} ({describe_basis(comparison)})"
    else:
        result = f"different; {describe_difference(comparison)}"
    if lacking := describe_left_out(comparison):
        result += f"; not compared: {lacking}"
    if comparison.truth:
        result += f"; by the truth {describe_truth(comparison.truth)}"
    return result


def describe_basis(comparison: Comparison) -> str:
    """Return as text how many outputs and computed tensors a verdict is based on."""
    outputs, computed = counts_of(comparison)
    basis = count_of(computed, "computed tensor")
    return f"{count_of(outputs, 'output')}, {basis}" if outputs else basis


def describe_left_out(comparison: Comparison) -> str:
    """Return the outputs that could not be compared, and why."""
    outputs = (it for it in comparison.left_out if it.is_output)
    found = by_reason((f"{it.name} of {LETTERS[it.side]}", it.reason) for it in outputs)
    return one_line("; ".join(f"output {names} ({reason})" for names, reason in found))


def describe_agreement(comparison: Comparison) -> str:
    """Return as text how closely two sides with the verdict "same" agree."""
    if not comparison.precision:
        return "the same within the tolerance"
    if comparison.precision.startswith("int"):
        snr = comparison.snr_db
        at = "" if snr is None else f": {snr:.0f} dB"
        return f"the same as {comparison.precision} rounds{at}"
    return f"the same within {comparison.precision}'s rounding"


def describe_difference(comparison: Comparison) -> str:
    """Return as text what makes two sides different: culprits, or the tensors that differ."""
    if comparison.culprits:
        return describe_culprits(comparison.culprits)
    if comparison.finding == "rounding":
        return "the errors grow gradually, and no operator stands out"
    wrong = [it for it in comparison.tensors if not it.passed]
    wrong = [it for it in wrong if it.is_output] or wrong
    names = [format_pair(Row(it)) for it in wrong]
    what = "output" if wrong and wrong[0].is_output else "tensor"
    return f"{what}{'s' * (len(names) > 1)} {join_first(names)}" if names else "nothing agrees"


def describe_culprits(culprits: Sequence[Culprit], letters: Sequence[str] = "AB") -> str:
    """Describe the first culprits and suspects in a few words."""
    texts = []
    for word, found in by_word(culprits).items():
        names = join_first([describe_culprit(it, letters) for it in found], "; ")
        texts.append(f"{word}{'s' * (len(found) > 1)}: {names}")
    return "; ".join(texts)


AGAINST_TRUTH = {
    "same": "rounds as it must",
    "rounding": "has errors that grow gradually",
    "nothing": "cannot be judged",
}


def describe_truth(truth: Truth) -> str:
    """Describe how far each side is from the reference values."""
    return f"A {describe_against(truth.actual)}, B {describe_against(truth.expected)}"


def describe_against(against: Findings) -> str:
    """Describe how far one side is from the reference values.

    A culprit is named by its operators in the reference run or, if these are unknown, by its
    operators in the compared run.
    """
    names = [describe_operators(it.expected or it.actual) for it in against.culprits]
    off = f"is off in {join_first(names)}" if names else "is off"
    return AGAINST_TRUTH.get(against.finding, off)


# The tensors of a comparison as the rows of a table


# Matches the names of MegEngine's quantised types, which contain the type of the stored integers.
STORED = re.compile(r"Quantized(S?)(\d+)(?:Asymm)?")


class Row(NamedTuple):
    """A pair of tensors with its role in a culprit: input, parameter or output."""

    tensor: TensorComparison
    role: str = ""


def rows_of_culprit(culprit: Culprit) -> list[Row]:
    """Return the rows of a culprit's inputs, parameters and output."""
    return [
        *(Row(tensor, "input") for tensor in culprit.inputs),
        *(Row(tensor, "parameter") for tensor in culprit.parameters),
        Row(culprit.output, "output"),
    ]


def badness_of(tensor: TensorComparison) -> tuple[bool, float]:
    """Return the key that sorts tensors by whether they differ, and then by their error.

    An unknown error counts as infinite.
    """
    error = error_of(tensor.figures, tensor.over_items)
    return (not tensor.passed, math.inf if error is None else error)


def error_of(figures: Figures | None, items: ErrorsOverItems | None = None) -> float | None:
    """Return the norm of the difference, divided by the norm of the expected tensor.

    Return None if the error is not a number. With `items`, the error is computed over all items
    together.
    """
    if figures is None or figures.nonfinite_mismatches:
        return None
    if items is not None:
        return items.relative_l2
    return 0.0 if figures.identical else figures.relative_l2


def table_of(
    columns: Iterable[Column[T]],
    rows: Iterable[T],
    is_alike: Callable[[T], bool],
    title: str = "Tensors",
    shown: Iterable[Column[T]] = (),
) -> Table[T]:
    """Return a table of tensors; the rows of tensors that differ are red."""
    return Table(
        name="tensors",
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        shown=tuple(shown),
        color=lambda row: "" if is_alike(row) else "red",
    )


def tensor_table(
    rows: Iterable[Row], shown: Sequence[Column[Row]], title: str, more: Sequence[Column[Row]] = ()
) -> Table[Row]:
    """Return a table of tensor pairs: first the columns `more`, then all columns with a value.

    The printed table has only the `shown` columns. In the table of a culprit, the first column says
    whether a pair is an input, a parameter or the output.
    """
    rows = tuple(rows)
    roles = [ROLE] if any(row.role for row in rows) else []
    known = (it for it in (*more, *COLUMNS) if any(it.value(row) is not None for row in rows))
    return table_of((*roles, *known), rows, lambda row: row.tensor.passed, title, (*roles, *shown))


def counts_of(comparison: Comparison) -> tuple[int, int]:
    """Return how many outputs and how many computed tensors were compared.

    The computed tensors include the outputs.
    """
    computed = [it for it in comparison.tensors if not (it.is_input or it.constant)]
    return sum(it.is_output for it in comparison.tensors), len(computed)


def columns_for(comparison: Comparison) -> tuple[Column[Row], ...]:
    """Return the columns of the printed table in which at least one tensor has a value.

    Data types are shown if they differ between the sides. The column `error` is shown if the
    tolerance is a `max_error`.
    """
    rows = [*map(Row, comparison.tensors)]
    # If only candidates for culprits were run alone, their proofs already have this figure.
    run_alone = [it for it in comparison.tensors if it.single is not None or it.single_problem]
    is_shown = {
        "data type": any(format_data_type(it) != it.tensor.expected.dtype for it in rows),
        ALONE: 2 * len(run_alone) > counts_of(comparison)[1],
        "SNR dB": not comparison.items,
        "error": comparison.tolerance.max_error is not None,
    }
    return tuple(
        it
        for it in COLUMNS
        if it.in_text
        and is_shown.get(it.title, True)
        and (it.rank == 0 or any(it.value(row) is not None for row in rows))
    )


def format_pair(row: Row) -> str:
    """Return the name of a tensor, or both names if the sides' names differ."""
    names = dict.fromkeys(filter(None, (row.tensor.actual.name, row.tensor.expected.name)))
    return " = ".join(shorten(name) for name in names)


def shorten(name: str) -> str:
    return name if len(name) <= 48 else f"{name[:30]}...{name[-15:]}"


def format_type(row: Row) -> str:
    """Return the type of the operator that computes a pair of tensors."""
    expected = row.tensor.expected
    return type_of(expected.operator_type, expected.operator)


def type_of(kind: str, name: str) -> str:
    """Return the type of an operator; for MegEngine's elementwise operators, with the mode.

    The mode is the beginning of the operator's name.
    """
    mode = name.partition("(")[0]
    return f"{kind} {mode}" if kind.startswith("Elemwise") and mode.isupper() else kind


def format_data_type(row: Row) -> str:
    """Return the data type of a pair, or both types if they differ."""
    types = map(describe_type, (row.tensor.actual, row.tensor.expected))
    return " = ".join(dict.fromkeys(filter(None, types)))


def describe_type(tensor: TensorFacts) -> str:
    """Return a tensor's type with scale and zero point, such as `int8 x 0.0231 (0 at 128)`."""
    quantization = tensor.quantization
    if quantization is None:
        return tensor.dtype
    scales, zeros = (
        format_range(numbers) for numbers in (quantization.scale, quantization.zero_point)
    )
    found = STORED.fullmatch(tensor.dtype)
    stored = f"{'' if found[1] else 'u'}int{found[2]}" if found else tensor.dtype
    return f"{stored} x {scales}" + (f" (0 at {zeros})" if any(quantization.zero_point) else "")


def format_range(numbers: Sequence[float]) -> str:
    """Return a number as text or, for several numbers, the smallest and the largest."""
    return "..".join(dict.fromkeys(f"{number:.3g}" for number in (min(numbers), max(numbers))))


def format_error(figures: Figures, items: ErrorsOverItems | None = None) -> str:
    """Return an error as text, or the reason why it is not a number."""
    if figures.nonfinite_mismatches:
        return f"{figures.nonfinite_mismatches} NaN or inf"
    error = error_of(figures, items)
    return "equal" if error == 0.0 else "N/A" if error is None else f"{error:.3g}"


def describe_element(element: Element) -> str:
    """Return the index of an element with its values on both sides, as text."""
    place = f"{{{','.join(map(str, element.index))}}}: " if element.index else ""
    return one_line(f"{place}{element.actual} in A, {element.expected} in B")


def worst_element_of(row: Row) -> str | None:
    figures = row.tensor.figures
    return describe_element(figures.worst) if figures and figures.worst else None


def error_column(
    title: str,
    key: str,
    figures: str,
    items: str = "",
    unknown: Callable[[TensorComparison], str] = lambda tensor: "",
) -> Column[Row]:
    """Return the column of an error.

    `figures` names the attribute with the figures of a tensor, and `items` names the attribute with
    its errors over several items. `unknown` returns the text for a tensor without figures.
    """
    of = value_at(f"tensor.{figures}")
    over: Callable[[Row], Any] = value_at(f"tensor.{items}") if items else no_value

    def value(row: Row) -> float | None:
        return error_of(of(row), over(row))

    def text(row: Row) -> str:
        return format_error(of(row), over(row)) if of(row) else one_line(unknown(row.tensor))

    return Column(title, value, text, key=key, rank=1 if "truth" in key else 0, digits=ANY_DIGITS)


def rounded_column(title: str, path: str, digits: int, key: str, rank: int) -> Column[Row]:
    """Return a column of the numbers in an attribute, with a given number of decimals."""
    return number(title, f"tensor.{path}", digits, key=key, unknown="", rank=rank)


def figure_column(title: str, name: str, *, in_text: bool = False) -> Column[Row]:
    """Return a column for one figure; the printed table rounds the figure to three digits."""
    value = value_at(f"tensor.figures.{name}")
    return Column(
        title,
        value,
        lambda row: "" if (known := value(row)) is None else f"{known:.3g}",
        key=name,
        in_text=in_text,
        digits=ANY_DIGITS,
    )


def field_column(path: str) -> Column[Row]:
    """Return a CSV column with one field of each pair of tensors."""

    def value(row: Row) -> Cell:
        found: Cell | tuple[int, ...] = attrgetter(path)(row.tensor)
        return "x".join(map(str, found)) if isinstance(found, tuple) else found

    return Column(path.replace(".", "_"), value)


# All columns of the page; the text has those with `in_text`.
ROLE = Column[Row]("", lambda row: row.role or None, key="role", rank=0)
ALONE = "alone"
COLUMNS: tuple[Column[Row], ...] = (
    Column("tensor", format_pair, rank=0),
    Column("type", format_type, rank=3),
    Column("data type", format_data_type, rank=5),
    Column("matched by", value_at("tensor.matched_by"), key="matched_by", in_text=False),
    Column("problem", lambda row: one_line(row.tensor.problem) or None, in_text=False),
    error_column("off by", "relative_l2", "figures", "over_items", lambda it: it.problem),
    error_column(
        *(ALONE, "single_relative_l2", "single", "single_over_items"),
        lambda it: "not run" if it.single_problem else "",
    ),
    error_column("A to truth", "truth_actual_relative_l2", "truth.actual"),
    error_column("B to truth", "truth_expected_relative_l2", "truth.expected"),
    rounded_column("SNR dB", "figures.snr_db", 1, "snr_db", 1),
    rounded_column("SNR worst", "over_items.worst_snr_db", 1, "all_worst_snr_db", 1),
    Column("worst item", value_at("tensor.over_items.worst_item"), key="all_worst_item", rank=1),
    rounded_column("RMSE/scale", "over_items.rmse_over_scale", 3, "all_rmse_over_scale", 2),
    figure_column("error", "max_error", in_text=True),
    figure_column("max abs", "max_absolute"),
    figure_column("max rel", "max_relative"),
    figure_column("cosine", "cosine"),
    figure_column("past tolerance", "mismatches"),
    Column("worst element", worst_element_of, key="worst_element", in_text=False),
)
# The fields of the first columns of CSV: facts about the pair and about each side.
FIELDS = (
    *("passed", "depth", "constant", "is_output", "actual.name", "actual.dtype", "actual.shape"),
    *("expected.name", "expected.dtype", "expected.shape", "expected.operator_type"),
)


def table_of_all(comparison: Comparison) -> Table[Row]:
    """Return the table that is written as CSV, with a row for each pair of tensors."""
    return tensor_table(map(Row, comparison.tensors), (), "Tensors", [*map(field_column, FIELDS)])


# Several sides


def report_sides(found: ComparisonOfSides, *, everything: bool = False) -> Report:
    """Return the report of a comparison of several sides.

    The report has the origin of each side, the worst tensors (if `everything`, all tensors), and
    the side that differs.
    """
    columns = columns_of(found)
    body: list[Part] = [*describe_head_of_sides(found)]
    title, shown = "tensors:", list(found.tensors)
    if not everything:
        shown = [it for it in shown if not is_alike(it)]
        title, shown = worst_of("tensors that differ:", shown, badness_of_sides)
    if shown:
        body += ["", title, table_of(columns, shown, is_alike, heading_of(title))]
    body += ["", *format_summary_of_sides(found)]
    return report_of(found, body, table_of(columns, found.tensors, is_alike))


def is_alike(row: TensorOfSides) -> bool:
    """Return whether all sides that have the tensor agree."""
    return len(row.groups) == 1


def columns_of(found: ComparisonOfSides) -> list[Column[TensorOfSides]]:
    """Return the columns: tensor, type, errors against the first side, and deviating sides."""
    return [
        Column("tensor", name_of, name_of, rank=0),
        Column("type", lambda row: format_type_of_sides(row) or None, format_type_of_sides, rank=3),
        *(column_of_side(side) for side in range(1, len(found.sides))),
        Column("odd one out", describe_odd, describe_odd, rank=0),
    ]


def column_of_side(side: int) -> Column[TensorOfSides]:
    """Return the column of one side's error against the first side."""

    def error(row: TensorOfSides) -> Cell:
        return error_of(row.figures[side])

    def text(row: TensorOfSides) -> str:
        figures = row.figures[side]
        if figures is None:
            return "not comparable" if row.tensors[side] else "no twin"
        return format_error(figures)

    letter = ascii_uppercase[side]
    return Column(letter, error, text, key=f"error_{letter}", rank=1, digits=ANY_DIGITS)


def name_of(row: TensorOfSides) -> str:
    """Return the joined names of a tensor on all sides."""
    return " = ".join(map(shorten, dict.fromkeys(tensor.name for tensor in row.tensors if tensor)))


def format_type_of_sides(row: TensorOfSides) -> str:
    facts = next(tensor for tensor in row.tensors if tensor is not None)
    return type_of(facts.operator_type, facts.operator)


def describe_odd(row: TensorOfSides) -> str:
    """Return the letters of the sides that differ from most sides.

    If no side differs from most sides, return the groups of sides that agree with each other.
    """
    if row.odd:
        return " ".join(ascii_uppercase[side] for side in row.odd)
    groups = (" ".join(ascii_uppercase[side] for side in group) for group in row.groups)
    return "" if is_alike(row) else " | ".join(groups)


def describe_head_of_sides(found: ComparisonOfSides) -> Iterator[str]:
    """Yield the lines about the sides; lines on incomplete sides come first."""
    sides: dict[str, SideFacts] = dict(zip(ascii_uppercase, found.sides, strict=False))
    left_out = [[it for it in found.comparisons[0].left_out if it.side == "expected"]]
    left_out += [[it for it in each.left_out if it.side == "actual"] for each in found.comparisons]
    for (letter, side), lacking in zip(sides.items(), left_out, strict=True):
        yield from describe_gaps(letter, side, lacking)
    yield from describe_sides(sides)


def badness_of_sides(row: TensorOfSides) -> float:
    """Return the largest error of a tensor; infinite if two sides cannot be compared."""
    errors = map(error_of, row.figures[1:])
    known = zip(errors, row.tensors[1:], strict=True)
    return max((math.inf if error is None else error for error, it in known if it), default=0.0)


def format_summary_of_sides(found: ComparisonOfSides) -> Iterator[str]:
    """Yield the last lines of the report: notes and the result."""
    for letter, each in zip(ascii_uppercase[1:], found.comparisons, strict=False):
        yield from (one_line(f"note: {letter} against A: {note}") for note in each.notes)
    yield from (one_line(f"note: {note}") for note in found.notes)
    yield f"result: {describe_result_of_sides(found)}"


def describe_result_of_sides(found: ComparisonOfSides) -> str:
    """Return the verdict in a sentence: the deviating side, and the first tensor that differs."""
    if found.same:
        least = min(found.comparisons, key=counts_of)
        return f"the same within the tolerance ({describe_basis(least)})"
    if found.finding == "nothing":
        empty = next(it for it in found.comparisons if it.finding == "nothing")
        lacking = describe_left_out(empty) or "two sides share no output and no computed tensor"
        return f"nothing compared: {lacking}"
    words = []
    for side in sorted({side for row in found.tensors for side in row.odd}):
        first = next(row for row in found.tensors if side in row.odd)
        where = f"first at {name_of(first)}{describe_blame(found, side)}"
        words.append(f"{ascii_uppercase[side]} is the odd one out, {where}")
    return "; ".join(["different", *(words or ["no side is the odd one out"])])


def describe_blame(found: ComparisonOfSides, side: int) -> str:
    """Return the culprits that were found between a deviating side and another side."""
    # If the first side is odd, it is compared with any side that differs from it.
    differing = [number for number, each in enumerate(found.comparisons, 1) if not each.same]
    against = side or next(iter(differing), 1)
    letters = ascii_uppercase[against], ascii_uppercase[0]
    culprits = describe_culprits(found.comparisons[against - 1].culprits, letters)
    return f" ({culprits})" if culprits else ""
