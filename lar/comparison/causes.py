"""What is said of a culprit: its operators, the weights that differ, what is wrong in words."""

from __future__ import annotations

from collections.abc import Sequence

from lar.comparison.culprits import Blame
from lar.comparison.fault_kinds import Names, Sides, find_kind
from lar.comparison.pairs import Paired, error_of, facts_from
from lar.graphs.elements import whole
from lar.graphs.graph import Node
from lar.graphs.signatures import Values
from lar.records.comparison import Culprit, OperatorFacts, TensorComparison


def culprit_of(blame: Blame, paired: Paired) -> Culprit:
    """Return the record of a culprit, with those of its own weights that differ."""
    parameters = [it for it in paired.constants_of(blame.actual) if not is_identical(it)]
    alone = blame.alone.found
    return Culprit(
        actual=tuple(operator_facts(paired, 0, node) for node in blame.actual),
        expected=tuple(operator_facts(paired, 1, node) for node in blame.expected),
        inputs=tuple(map(paired.found, blame.inputs)),
        output=blame.output,
        parameters=tuple(parameters),
        proven=blame.proven,
        alone=alone.figures if alone else None,
        doubt=blame.alone.doubt,
        is_coarse=blame.is_coarse,
        kind=blame.scale or kind_of_weights(parameters, paired) or kind_of(blame.output, paired),
    )


def kind_of_weights(parameters: Sequence[TensorComparison], paired: Paired) -> str:
    """Return which weights differ most, where and how; empty if all agree."""
    wrong = [it for it in parameters if not it.passed and it.figures]
    if not wrong:
        return ""
    found = max(wrong, key=error_of)
    texts = describe_difference(found, paired.names), kind_of(found, paired)
    return f"weights: {'; '.join(filter(None, texts))}"


def kind_of(output: TensorComparison, paired: Paired) -> str:
    """Return what is wrong with what a culprit gives or with its weights, where the elements show
    it."""
    if output.figures is None or output.axes or paired.measure.excerpts:
        return ""
    keys = output.actual.key, output.expected.key
    tensors = [it.dump.tensor(key) for it, key in zip(paired.values, keys, strict=True)]
    arrays = map(whole, map(Values.elements, paired.values, tensors))
    one, other = (array.reshape(output.expected.shape) for array in arrays)
    found = map(Values.quantization_of, paired.values, tensors)
    step = max((max(it.scale) for it in found if it), default=0.0)
    # Of weights the channels of the output come first.
    axis = 0 if output.constant else None
    return find_kind(Sides(one, other, step, axis, paired.names))


def describe_difference(found: TensorComparison, names: Names) -> str:
    """Return the name of a tensor and by how much it differs."""
    figures = found.figures
    text = found.expected.name or found.actual.name
    if figures is None or figures.relative_l2 is None:
        return f"{text} differs"
    text += f" differs by {figures.relative_l2:.2%} of its length"
    if figures.worst is None:
        return text
    worst = figures.worst
    place = "{" + ",".join(map(str, worst.index)) + "}"
    return f"{text}, most at {place}: {worst.actual} in {names[0]}, {worst.expected} in {names[1]}"


def operator_facts(paired: Paired, side: int, node: Node) -> OperatorFacts:
    operator = node.operator
    assert operator
    layout = node.tensor.layout if node.tensor else ""
    opaque = operator.type.lower() in paired.graphs[side].kinds.opaque
    return facts_from(OperatorFacts, operator, output=node.name, layout=layout, opaque=opaque)


def is_identical(found: TensorComparison) -> bool:
    return found.figures is not None and found.figures.max_absolute in (0.0, None)
