"""`--resume`: a dump goes on with the items of a data set whose outputs a folder lacks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lar.dumps.binary import TensorHeader
from lar.dumps.delivery import facts_of_run, files_of_items
from lar.dumps.dump import DumpIndex
from lar.dumps.graph import OUTPUT_FILE, run_of
from lar.dumps.index import read_headers, read_index, write_index
from lar.errors import UsageError
from lar.options.paths import index_place
from lar.options.table import BIN_OUT_DUMP
from lar.records.run import Item, RunSpec

Runs = defaultdict[int, list[TensorHeader]]
HINT = "give a new folder, or the same data and options as before"


def go_on(spec: RunSpec, place: Path, model_sha256: str) -> RunSpec:
    """Return the spec for the items that a folder lacks, and mark the folder as incomplete.

    If all items are done, the last one is run again, which changes nothing.

    Raises:
        UsageError: the folder has something else than a part of this run.
        OSError: it cannot be read or written.
    """
    facts = {**facts_of_run(spec, model_sha256), "files": files_of_items(spec)}
    index = DumpIndex(tensors=(), operators=(), complete=False, device=spec.device, **facts)
    if any(place.iterdir()):
        check_same_run(index, place)
        left = items_left(spec, outputs_in(place))
        check_same_data(spec, left, index, place)
        spec = replace(spec, items=left or spec.items[-1:])
    write_index(index_place(place), index)
    return spec


def other_run(place: Path | str, problem: str, hint: str = HINT) -> UsageError:
    return UsageError(problem, hint, flag="--resume", subject=place)


def check_same_run(index: DumpIndex, place: Path) -> None:
    """Refuse a folder that another run has dumped, or that has something else in it.

    Raises:
        UsageError: saying what it is, or in what they differ.
    """
    if not index_place(place).exists():
        raise other_run(place, "has no index beside it")
    theirs, ours = facts_of_index(read_index(index_place(place))), facts_of_index(index)
    for what, fact in ours.items():
        if theirs[what] != fact:
            raise other_run(place, f"was dumped by a run with another {what}")
    for entry in place.iterdir():
        if not OUTPUT_FILE.fullmatch(entry.name) or not entry.is_file():
            raise other_run(place, f"holds {entry.name}, which is not an output", "move it away")


def check_same_data(spec: RunSpec, left: Sequence[Item], index: DumpIndex, place: Path) -> None:
    """Refuse to go on if the data of finished items has changed.

    Data of an unfinished item may have changed: it may be what ended the run.

    Raises:
        UsageError: naming the file.
    """
    todo = {item.number for item in left}
    done = [item for item in spec.items if item.number not in todo]
    if not done:
        return
    theirs, ours = read_index(index_place(place)).files, index.files
    # The warm-up is of the first item; an item of a stack needs all its files.
    read = {path for item in (spec.items[0], *done) for _, path in item.inputs}
    for path in read or ours:
        if path in theirs and theirs[path] != ours.get(path):
            raise other_run("", f"{path} has changed since {place} was dumped from it")


def facts_of_index(index: DumpIndex) -> dict[str, object]:
    """Return the facts that two parts of one run share."""
    return {
        "model": index.model_sha256,
        "engine": (index.engine, index.driver),
        "data set": (index.inputs, index.items),
        "number of iterations": (index.warmup_iterations, index.iterations),
        "option": (index.feeding, {**index.settings, BIN_OUT_DUMP.key: ""}),  # except the folder
    }


def outputs_in(place: Path) -> Runs:
    """Return the whole outputs in a folder, by the numbers of their runs."""
    runs = Runs(list)
    for header in read_headers(place, damaged=True):
        runs[run_of(header)[0]].append(header)
    return runs


def items_left(spec: RunSpec, runs: Runs) -> tuple[Item, ...]:
    """Return the items that lack an output of a run; all items if the warm-up lacks one.

    A complete run has as many outputs as the run with most.
    """
    outputs = max(map(len, runs.values()), default=1)
    first, count = spec.warmup_iterations, spec.iterations

    def are_whole(begin: int, count: int) -> bool:
        return all(len(runs[number]) >= outputs for number in range(begin, begin + count))

    if not are_whole(0, first):
        return spec.items
    return tuple(it for it in spec.items if not are_whole(first + it.number * count, count))
