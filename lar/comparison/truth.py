"""How far both sides of a comparison are from the truth: what the model should give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lar.dumps.dump import Dump
from lar.records.comparison import Comparison, Findings, TensorComparison, Truth, TruthErrors

# At most so many reasons for a missing truth are listed.
MOST_REASONS = 3


def judge_by_truth(
    found: Comparison, against: Sequence[Comparison], truth: Dump, *, nearest: int
) -> Comparison:
    """Return a comparison of two dumps with the distance of both from the truth, `against` which
    each was compared.

    Twins in the truth are found for the side that is `nearest` to its model, 0 or 1.
    """
    mine, theirs = (
        {it.actual.key: it for it in against[side].tensors if not it.constant} for side in (0, 1)
    )

    def add_truth(tensor: TensorComparison) -> TensorComparison:
        one, other = mine.get(tensor.actual.key), theirs.get(tensor.expected.key)
        twin = (one, other)[nearest] or one or other
        if tensor.constant or twin is None:
            return tensor
        actual, expected = (it.figures if it else None for it in (one, other))
        errors = TruthErrors(tensor=twin.expected, actual=actual, expected=expected)
        return replace(tensor, truth=errors)

    sides = [without_doubt(found, against[side], side) for side in (0, 1)]
    doubted = dict.fromkeys(kind for _, kinds in sides for kind in kinds)
    return replace(
        found,
        tensors=tuple(map(add_truth, found.tensors)),
        culprits=tuple(culprit.with_tensors(add_truth) for culprit in found.culprits),
        truth=Truth(side=against[nearest].expected, actual=sides[0][0], expected=sides[1][0]),
        notes=(
            *found.notes,
            *(f"no truth for {kind} here (both engines differ from it alike)" for kind in doubted),
            *dict.fromkeys(list(truth.index.left_out.values())[:MOST_REASONS]),
        ),
    )


def without_doubt(found: Comparison, against: Comparison, side: int) -> tuple[Findings, list[str]]:
    """Return how a side differs from the truth, and the types of operators whose truth is in doubt.

    It is in doubt if both sides agree with each other but not with the truth: a side is at fault
    only if the sides differ too.
    """
    blamed = {(it.output.actual, it.output.expected)[side].key for it in found.culprits}
    compared = {(it.actual, it.expected)[side].key for it in found.tensors}
    kept, doubted = [], []
    for culprit in against.culprits:
        key = culprit.output.actual.key
        if key in blamed or (key not in compared and not found.same):
            kept.append(culprit)
        else:
            doubted += [culprit.actual[0].type] if culprit.actual else []
    finding = against.finding
    if not kept and (doubted or (found.same and finding != "same")):
        finding = "nothing"
    return Findings(finding=finding, culprits=tuple(kept)), doubted


def has_coarse_tensors(dump: Dump) -> bool:
    """Return whether a dump has quantised tensors or tensors of half precision.

    Its model may have them too, as one that was made from another model.
    """
    return any(it.quantization is not None or it.dtype in ("float16", "BFloat16") for it in dump)
