"""The report of a comparison: the culprits, the worst tensors, the verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from lar.errors import count_of, join_first, one_line
from lar.options.option import flag_of
from lar.options.table import BY_KEY
from lar.records.comparison import (
    Comparison,
    ComparisonOfSides,
    Culprit,
    Findings,
    LeftOut,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    Truth,
)
from lar.reports.compared_tensors import (
    Row,
    badness_of,
    columns_for,
    counts_of,
    describe_element,
    error_of,
    format_error,
    format_pair,
    rows_of_culprit,
    shorten,
    table_of_all,
    tensor_table,
    type_of,
)
from lar.reports.model import INDENTED, AnyTable, Cell, Column, Plot, table_of_values
from lar.reports.report import Part, Report
from lar.reports.text import cut_end

Item = TypeVar("Item")

# Limits of what is printed without --all: the worst tensors, fewer if the sides are the same, and
# the notes if the sides are the same.
MOST_ROWS = 20
MOST_ROWS_OF_SAME = 5
MOST_NOTES_OF_SAME = 4

# Longer lines are cut, for example for an operator with long parameters.
LONGEST_LINE = 2000

LETTERS = {"actual": "A", "expected": "B"}
VERDICTS = {"same": "same", "nothing": "nothing compared"}
DEPTH = (
    "Length of the difference over that of the expected tensor. Blue: within the tolerance; "
    "orange: differs; red: the output of a culprit or suspect."
)


def report_comparison(comparison: Comparison, *, everything: bool = False) -> Report:
    """Return the report of a comparison: the worst tensors, with `everything` all of them."""
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
    """Return the report of a comparison with these parts, and with a table of all tensors."""
    return Report(
        style="comparison",
        title=f"lar compare: {VERDICTS.get(found.finding, 'different')}",
        body=tuple(body),
        page_of_text=True,
        tables=(table,),
        document=found,
    )


def heading_of(line: str) -> str:
    """Return the title of a table that stands below a line."""
    return line[:1].upper() + line[1:].removesuffix(":")


def points_of(comparison: Comparison) -> Iterator[tuple[Cell, ...]]:
    """Yield `[depth, error, name, mark]` of each computed tensor.

    An error that is not a number is None. Outputs of culprits and tensors that differ are marked.
    """
    outputs = {(it.output.actual.key, it.output.expected.key) for it in comparison.culprits}
    for tensor in sorted(comparison.tensors, key=lambda it: it.depth):
        if not tensor.constant:
            is_fault = (tensor.actual.key, tensor.expected.key) in outputs
            mark = "fault" if is_fault else "" if tensor.passed else "differs"
            error = error_of(tensor.figures, tensor.over_items)
            yield tensor.depth, error, format_pair(Row(tensor)), mark


def describe_head(comparison: Comparison) -> Iterator[str]:
    """Yield the lines about the sides; what a side did not record comes first."""
    sides = {"A": comparison.actual, "B": comparison.expected}
    for letter, side in sides.items():
        left_out = (it for it in comparison.left_out if LETTERS[it.side] == letter)
        yield from describe_gaps(letter, side, left_out)
    yield from describe_sides(sides)
    if comparison.truth is not None:
        yield f"truth: {describe_side(comparison.truth.side)}"


def describe_gaps(letter: str, side: SideFacts, left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Yield why a side recorded less than it ran; outputs left out are in the verdict instead."""
    if not side.complete:
        yield f"{letter} is incomplete: its run did not end well, and tensors may be missing"
    found = ((it.name, it.reason) for it in left_out if not it.is_output)
    for names, reason in by_reason(found):
        yield one_line(f"{letter} recorded less than it ran: {names}: {reason}")


def by_reason(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the names with the same reason, as one text, and the reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in found:
        reasons.setdefault(reason, []).append(shorten(name))
    yield from ((join_first(names), reason) for reason, names in reasons.items())


def describe_sides(sides: Mapping[str, SideFacts]) -> Iterator[str]:
    """Yield the lines about the sides by letter: the origin, and the machines if they differ."""
    yield from (f"{letter}: {describe_side(side)}" for letter, side in sides.items())
    machines = {letter: describe_machine(side) for letter, side in sides.items()}
    if len(set(machines.values())) > 1:
        yield from (f"{letter} on: {machine or 'unknown'}" for letter, machine in machines.items())


def describe_machine(side: SideFacts) -> str:
    """Return the system, the architecture and the processor of a side, empty if unknown."""
    system = " ".join(filter(None, (side.system, side.architecture)))
    return ", ".join(filter(None, (system, side.processor)))


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
    return f"{side.model or side.source} ({facts})"


def format_culprits(
    comparison: Comparison, columns: Sequence[Column[Row]]
) -> Iterator[str | AnyTable]:
    """Yield the culprits, then the suspects: what each is, its proof, and its table."""
    for word, culprits in by_word(comparison.culprits).items():
        for number, culprit in enumerate(culprits, 1):
            of = f" {number} of {len(culprits)}" if len(culprits) > 1 else ""
            yield ""
            yield f"{word}{of}: {describe_culprit(culprit)}"
            yield from describe_proof(culprit)
            yield from describe_sides_of(culprit)
            table = tensor_table(rows_of_culprit(culprit), columns, f"{word.capitalize()}{of}")
            yield replace(table, layout=INDENTED)


def by_word(culprits: Iterable[Culprit]) -> dict[str, list[Culprit]]:
    """Return culprits and suspects by these words; if several read alike, only the first."""
    found: dict[str, dict[str, Culprit]] = {}
    for culprit in sorted(culprits, key=is_suspect):
        word = "suspect" if is_suspect(culprit) else "culprit"
        found.setdefault(word, {}).setdefault(describe_culprit(culprit), culprit)
    return {word: list(each.values()) for word, each in found.items()}


def is_suspect(culprit: Culprit) -> bool:
    """Whether nothing proves a culprit; the values alone prove a scale that is too coarse."""
    return not (culprit.proven or culprit.is_coarse)


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
    """Return the first operators of a side by their names in the model.

    If the engine changed them, the text says how it runs them. The lines below a culprit have all.
    """
    return join_first([describe_operator(it) for it in operators], " + ")


def describe_operator(operator: OperatorFacts) -> str:
    """Return an operator's type, its name in the model or its output's, and the engine's form."""
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
    """Return the name of an operator without its number.

    It is empty if MegEngine made the name from the names of the inputs.
    """
    name = re.sub(r"\[\d+\]$", "", operator.name)
    return name.partition("(")[0] if operator.origin else "" if "(" in name else name


def describe_proof(culprit: Culprit) -> Iterator[str]:
    """Yield the proof of a culprit, or why there is none, and what is wrong with its output."""
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
    """Yield the operators of a culprit with their facts, only once if both sides are alike."""
    actual = [describe_facts(it, culprit.expected) for it in culprit.actual]
    expected = [describe_facts(it, culprit.actual) for it in culprit.expected]
    sides = {"A and B": actual} if actual == expected else {"A": actual, "B": expected}
    yield from (f"  {letter}: {text}" for letter, texts in sides.items() for text in texts)


def describe_facts(operator: OperatorFacts, others: Sequence[OperatorFacts]) -> str:
    """Return the facts of an operator, with those parameters that the other side does not share."""
    twin = {key: value for it in others for key, value in it.parameters.items()}
    parameters = operator.parameters.items()
    differing = {key: value for key, value in parameters if key not in twin or twin[key] != value}
    facts = [f"{key}={value}" for key, value in differing.items()]
    facts += [f"algorithm {operator.algorithm}"] if operator.algorithm else []
    return cut_end(one_line("; ".join([describe_operator(operator), *facts])), LONGEST_LINE)


def rows_to_show(comparison: Comparison, everything: bool) -> tuple[str, list[TensorComparison]]:
    """Return the tensors of the table in the order of execution, and the line above it.

    These are the tensors that differ. If there are none, they are those that were also run alone,
    or compared with the truth or over items.
    """
    if everything:
        return "tensors:", list(comparison.tensors)
    title, found = "tensors that differ:", [it for it in comparison.tensors if not it.passed]
    if not found:
        title = "tensors:"
        found = [it for it in comparison.tensors if it.single or it.truth or it.over_items]
    most = MOST_ROWS_OF_SAME if comparison.same else MOST_ROWS
    # An engine may make several tensors of one operator: the worst of one name stands for all.
    worst = {format_pair(Row(it)): id(it) for it in sorted(found, key=badness_of)}
    kept = {*worst.values()}
    return worst_of(title, [it for it in found if id(it) in kept], badness_of, most)


def worst_of(
    title: str, found: Sequence[Item], badness: Callable[[Item], Any], most: int = MOST_ROWS
) -> tuple[str, list[Item]]:
    """Return the worst of some rows in their order, and the title with their number."""
    worst = sorted(found, key=badness, reverse=True)[:most]
    if len(worst) < len(found):
        title += f" the {most} worst of {len(found)}; --all prints every tensor"
    kept = set(map(id, worst))
    return title, [it for it in found if id(it) in kept]


def format_unmatched(comparison: Comparison) -> Iterator[str | AnyTable]:
    """Yield the tensors without a twin."""
    rows = [
        (LETTERS[it.side], shorten(it.tensor.name), one_line(it.reason))
        for it in comparison.unmatched
    ]
    if rows:
        yield from ("", "tensors without a twin:")
        columns = ("side", "tensor", "why")
        yield table_of_values("unmatched", "Tensors without a twin", columns, rows)


def format_summary(comparison: Comparison, *, everything: bool = True) -> Iterator[str]:
    """Yield the last lines: how many tensors differ, notes, and the result."""
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
    """Return the verdict in a sentence, and what it is based on."""
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
    """Return how many outputs and computed tensors a verdict is based on."""
    outputs, computed = counts_of(comparison)
    basis = count_of(computed, "computed tensor")
    return f"{count_of(outputs, 'output')}, {basis}" if outputs else basis


def describe_left_out(comparison: Comparison) -> str:
    """Return the outputs that could not be compared, and why."""
    outputs = (it for it in comparison.left_out if it.is_output)
    found = by_reason((f"{it.name} of {LETTERS[it.side]}", it.reason) for it in outputs)
    return one_line("; ".join(f"output {names} ({reason})" for names, reason in found))


def describe_agreement(comparison: Comparison) -> str:
    """Return how closely two sides are the same."""
    if not comparison.precision:
        return "the same within the tolerance"
    if comparison.precision.startswith("int"):
        snr = comparison.snr_db
        at = "" if snr is None else f": {snr:.0f} dB"
        return f"the same as {comparison.precision} rounds{at}"
    return f"the same within {comparison.precision}'s rounding"


def describe_difference(comparison: Comparison) -> str:
    """Return what makes two sides different, as far as known."""
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
    """Return the first culprits and suspects in a few words."""
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
    """Return which side is off."""
    return f"A {describe_against(truth.actual)}, B {describe_against(truth.expected)}"


def describe_against(against: Findings) -> str:
    """Return how one side compares with the truth.

    Operators are those of the truth, if it has any.
    """
    names = [describe_operators(it.expected or it.actual) for it in against.culprits]
    off = f"is off in {join_first(names)}" if names else "is off"
    return AGAINST_TRUTH.get(against.finding, off)
