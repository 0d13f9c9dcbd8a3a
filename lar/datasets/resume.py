"""`--resume`: the classes of the items of a data set that an earlier run has done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lar.datasets.classes import classes_of
from lar.dumps.binary import read_tensor
from lar.dumps.delivery import outputs_in
from lar.options.table import BIN_OUT_DUMP
from lar.records.run import RunResult, RunSpec


def add_earlier_classes(spec: RunSpec, result: RunResult) -> RunResult:
    """Return the result of a resumed run, with the classes of the items done before it.

    They come from the dumped outputs, which outlive whatever ended the run before: of each item
    from the first output, or from its only one.
    """
    place = Path(str(spec.settings[BIN_OUT_DUMP.key]))
    if not place.exists():  # nothing came, now or before
        return result
    runs = outputs_in(place)
    found = {item.number: item for item in result.items}
    first = result.outputs[0].name if result.outputs else ""
    for item in spec.items:
        last = runs[spec.warmup_iterations + (item.number + 1) * spec.iterations - 1]
        named = [each for each in last if each.meaning and each.meaning.variable.name == first]
        for header in named[:1] or (last if len(last) == 1 else ()):
            if item.number not in found:
                found[item.number] = classes_of(item, read_tensor(header.path)[1].values)
    return replace(result, items=tuple(found[number] for number in sorted(found)))
