"""Whether the numbers of a candidate are right, where its outputs are past the tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lar.errors import LarError
from lar.options.table import TIMEOUT
from lar.records.bench import OutputDifference
from lar.records.choices import OptionValue
from lar.records.tuning import BASELINE, Candidate, ModelSpace, TrialRow, name_of, options_of
from lar.running.compared_dumps import compare
from lar.running.compared_sides import ModelRun
from lar.running.side_runs import MakeOn

NOT_COMPARED = "its layers cannot be compared"


def judge_by_layers(
    found: OutputDifference,
    candidate: Candidate,
    spaces: Sequence[ModelSpace],
    caches: Mapping[str, str],
    limit_seconds: float,
    make_on: MakeOn | None = None,
) -> OutputDifference:
    """Return what `lar compare` finds of outputs that differ: all that both models compute is
    compared, since what rounding explains depends on the operators before.

    Outputs of other shapes or types stay different, and so do those whose layers are not there in
    `limit_seconds`. `make_on` makes the runs where the candidates are measured, if that is another
    machine.
    """
    if found.agreement != "different" or found.reason:
        return found
    ours, theirs = (
        model_run(candidate, spaces[candidate.model], caches, limit_seconds),
        model_run(BASELINE, spaces[0], {}, limit_seconds),
    )
    try:
        comparison = compare(ours, theirs, only="outputs", make_on=make_on)
    except LarError as error:
        return replace(found, reason=f"{NOT_COMPARED}: {error.problem}")
    if comparison.finding != "same":
        names = [each.output.actual.name for each in comparison.culprits]
        return replace(found, reason=f"first in {names[0]}") if names else found
    reason = f"as {comparison.precision} rounds" if comparison.precision else ""
    return replace(found, agreement="within the tolerance", reason=reason)


def model_run(
    candidate: Candidate, space: ModelSpace, caches: Mapping[str, str], limit_seconds: float
) -> ModelRun:
    """Return a candidate as a side of a comparison, which takes no longer than so."""
    options: dict[str, OptionValue] = {**options_of(candidate, space), **caches}
    options.setdefault(TIMEOUT.key, limit_seconds)
    return ModelRun(space.model, space.model, options)


def judge_by_others(
    row: TrialRow, spaces: Sequence[ModelSpace], rows: Iterable[TrialRow]
) -> OutputDifference | None:
    """Return what is found of outputs that differ: where their layers cannot be compared, what was
    found of the same bits."""
    found = row.output_difference
    if found is None or not found.reason.startswith(NOT_COMPARED):
        return found
    return judge_by_bits(row, spaces, rows)


def judge_by_bits(
    row: TrialRow, spaces: Sequence[ModelSpace], rows: Iterable[TrialRow]
) -> OutputDifference | None:
    """Return what is found of outputs that differ: where the same bits of the model, for the same
    data, were found to be right, those of another candidate perhaps, they are right again."""
    found = row.output_difference
    bits = [(each.name, each.sha256) for each in row.outputs]
    for other in rows:
        known = other.output_difference
        if (
            known is not None
            and known.agreement != "different"
            and (other.candidate.model, other.fed) == (row.candidate.model, row.fed)
            and bits == [(each.name, each.sha256) for each in other.outputs] != []
        ):
            if other.candidate == row.candidate:
                return known
            reason = f"the bits of {name_of(other.candidate, tuple(spaces))}"
            return replace(known, reason=", ".join(filter(None, [known.reason, reason])))
    return found
