"""What a reader should know beside the finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lar.comparison.culprits import Blame
from lar.comparison.pairs import Paired
from lar.errors import count_of
from lar.graphs.origins import PART
from lar.records.comparison import Finding

# Names that a note lists.
MOST_NAMED = 5


def find_notes(
    finding: Finding, blames: Sequence[Blame], paired: Paired, *, isolate: bool
) -> Iterator[str]:
    """Yield notes for the reader."""
    yield from note_dumps(paired)
    yield from note_inputs(paired)
    if paired.drawn:
        nodes = sorted({pair.expected for pair in paired.drawn}, key=lambda it: it.place)
        first = [it for it in nodes if not paired.graphs[1].random.intersection(it.parents)]
        names = listed([it.name.removeprefix(PART) for it in first or nodes])
        yield f"random operators: not comparable are {names} and what is computed from them"
    inside = [it for it in paired.compared.values() if not (it.passed or it.is_input)]
    if finding == "same" and inside:
        differ = count_of(len(inside), "tensor") + (" differs" if len(inside) == 1 else " differ")
        earliest = min(inside, key=lambda it: it.depth)
        if earliest.precision:
            differ += f", first {earliest.expected.name}"
            yield f"inside, {differ}; the outputs agree as {earliest.precision} rounds"
        else:
            yield f"inside, {differ}; nothing of it reaches the outputs"
    behind = {node for blame in blames for end in blame.expected for node in end.children}
    following = (paired.by_node[node] for node in behind & paired.by_node.keys())
    if not isolate and not all(paired.found(pair).passed for pair in following):
        yield "behind a culprit there may be more: --isolate runs each operator alone"
    steepest = paired.steepest() if finding == "rounding" else None
    if steepest:
        pair, growth = steepest
        yield (
            "no operator stands out: errors grow gradually, most at "
            f"{pair.expected.name}, to {growth:.3g} times those of its inputs"
        )


def note_dumps(paired: Paired) -> Iterator[str]:
    """Yield notes on what a dump lacks."""
    for values, name in zip(paired.values, paired.names, strict=True):
        dump = values.dump
        if values.unscaled:
            yield (
                f"nothing says which numbers {len(values.unscaled)} quantised tensors of "
                f"{name} stand for: --model FILE does"
            )
        if dump.missing:
            files = count_of(len(dump.missing), "file")
            yield f"the dump {name} lacks {files} that its index names: {listed(dump.missing)}"


def note_inputs(paired: Paired) -> Iterator[str]:
    """Yield notes on inputs of the model that differ."""
    for found in paired.wrong_inputs():
        mine, theirs = found.actual.shape, found.expected.shape
        if mine[:1] != theirs[:1] and mine[1:] == theirs[1:]:
            batches = f"{paired.names[0]} was run with {mine[0]} items, {paired.names[1]} with"
            yield f"the batch differs: {batches} {theirs[0]}"
        else:
            yield f"the input {found.expected.name} differs: the sides were fed with other data"


def listed(names: Sequence[str]) -> str:
    """Return the first of some names."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
