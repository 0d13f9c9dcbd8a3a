"""`--resume`: going on with a data set some of whose outputs are dumped already."""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lar.datasets.item import Item
from lar.dumps.dump import DumpIndex
from lar.dumps.index import index_place, read_index, tensor_files
from lar.errors import UsageError
from lar.records import RunSpec

RUN = re.compile(r"run(\d+)-var")


def go_on(spec: RunSpec, place: Path, written: Path, model_sha256: str) -> RunSpec:
    """Give the spec of the items that are left, and put what is done to where the run writes.

    Of a data set that is done to the end the last item is run again, which changes nothing.

    Raises:
        UsageError: the folder holds something else than a part of this run.
        OSError: it cannot be read, or copied.
    """
    if not place.is_dir() or not any(place.iterdir()):
        return spec
    check_same_run(spec, place, model_sha256)
    files = tensor_files(place)
    written.mkdir()
    for name in files:
        link_or_copy(place / name, written / name)
    left = items_left(spec, files)
    return replace(spec, items=left or spec.items[-1:])


def link_or_copy(source: Path, target: Path) -> None:
    """Have a file in another folder too; where a file system knows no links it is copied."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def check_same_run(spec: RunSpec, place: Path, model_sha256: str) -> None:
    """Refuse a folder that another run has dumped.

    Raises:
        UsageError: saying in what they differ.
    """
    hint = "give a new folder, or the same options as before"
    if not index_place(place).exists():
        raise UsageError(f"--resume: {place}: no index stands beside it, as lar leaves one", hint)
    index = read_index(index_place(place))
    theirs = facts_of_index(index)
    for what, ours in facts_of_spec(spec, model_sha256).items():
        if theirs[what] != ours:
            raise UsageError(f"--resume: {place}: was dumped by a run with another {what}", hint)


def facts_of_index(index: DumpIndex) -> dict[str, object]:
    """Return what two parts of one run have in common."""
    return {
        "model": index.model_sha256,
        "engine": (index.engine, index.driver),
        "data set": index.items,
        "number of iterations": (index.warmup_iterations, index.iterations),
        "option": settings_of(index.settings),
    }


def facts_of_spec(spec: RunSpec, model_sha256: str) -> dict[str, object]:
    """Return the same of a run to be made."""
    return {
        "model": model_sha256,
        "engine": (spec.engine, spec.driver),
        "data set": spec.item_names,
        "number of iterations": (spec.warmup_iterations, spec.iterations),
        "option": settings_of(spec.settings),
    }


def settings_of(settings: dict[str, bool | int | float | str]) -> dict[str, object]:
    """Return the settings without the folder's own name."""
    return {key: value for key, value in settings.items() if key != "bin_out_dump"}


def items_left(spec: RunSpec, files: Sequence[str]) -> tuple[Item, ...]:
    """Return the items that lack an output of any of their runs.

    A run has as many outputs as the one that has most.
    """
    runs = Counter(int(match[1]) for name in files if (match := RUN.match(name)))
    outputs = max(runs.values(), default=1)
    first = spec.warmup_iterations
    return tuple(
        item
        for item in spec.items
        if any(
            runs[first + item.number * spec.iterations + iteration] < outputs
            for iteration in range(spec.iterations)
        )
    )
