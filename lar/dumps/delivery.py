"""The last steps of a dump, after the run has ended: filter the tensors, and write the index.

With `--resume`, only those items of a data set are run whose outputs are missing in the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lar.dumps import SUFFIX, DumpFacts, DumpIndex
from lar.dumps.binary import TensorHeader, make_readable
from lar.dumps.excerpts import UNFINISHED, filter_blocks
from lar.dumps.graph import OUTPUT_FILE, index_of, run_of
from lar.dumps.index import read_headers, read_index, tensor_files, write_index
from lar.errors import UsageError
from lar.files.work_folders import error_of_full_disk
from lar.options.paths import index_place, paths_in
from lar.options.table import BIN_OUT_DUMP, ENGINE_ENV
from lar.records.run import Item, RunResult, RunSpec

# The fields that a run's spec and an index share.
FIELDS_OF_RUN = ("engine", "driver", "model", "inputs", "warmup_iterations", "iterations")


def finish_dump(
    folder: Path,
    facts: DumpFacts,
    pattern: str,
    spec: RunSpec,
    result: RunResult,
    name: Callable[[DumpIndex], DumpIndex] = lambda index: index,
) -> DumpIndex:
    """Write the index beside a folder of tensors; remove the tensors that do not match a pattern.

    The index keeps all operators, even if the tensors of an operator are removed. If the run
    failed, tensors that were cut off are removed. Names are rewritten so that MegEngine's own tool
    can read them. `name` is a function that adds the model's names to an index.

    Returns:
        The index.

    Raises:
        UsageError: the run ended well, but no tensor matches the pattern.
        DumpError: the run ended well, but a file is damaged.
        OSError: the folder cannot be written.
    """
    complete, engine = result.status == "ok", result.engine
    headers = read_headers(folder, damaged=not complete)
    index = filter_tensors(name(index_of(headers, facts)), pattern)
    kept = {tensor.key for tensor in index.tensors}
    check_left(kept, pattern, complete)
    for file in set(tensor_files(folder)) - kept:
        (folder / file).unlink()
    for header in headers:
        if header.path.name in kept and not header.name.isascii():
            make_readable(header)
    # If the run failed, the dumped iteration is the one after the last reported iteration.
    iterations = len(result.warmup.end_to_end) + len(result.samples.end_to_end)
    last = iterations // spec.runners - complete
    place = index_place(folder)
    index = replace(
        index,
        # With --resume, an index was written before the run. It describes the data of that time.
        files=read_index(place).files if place.exists() else files_of_items(spec),
        complete=complete,
        outputs=tuple(facts.outputs),
        left_out=dict(facts.left_out),
        engine_version=engine.version if engine else "",
        device=engine.device if engine else spec.device,
        provider=engine.libraries.get("provider", "") if engine else "",
        products=engine.products if engine else "",
        system=result.machine.system if result.machine else "",
        architecture=result.machine.architecture if result.machine else "",
        processor=result.machine.processor if result.machine else "",
        iteration=number_of_run(spec, last if facts.iteration is None else facts.iteration),
        **facts_of_run(spec, result.model.sha256 if result.model else ""),
    )
    write_index(place, index)
    Path(f"{folder}{SUFFIX}").unlink(missing_ok=True)  # the index has all facts
    return index


def facts_of_run(spec: RunSpec, model_sha256: str) -> dict[str, Any]:
    """Return those fields of an index that are known before the run."""
    variables = " ".join(f"{key}={value}" for key, value in sorted(spec.environment.items()))
    feeding = {"batch_size": spec.batch_size, "shape": spec.shape or None, **asdict(spec.image)}
    return {
        **{name: getattr(spec, name) for name in FIELDS_OF_RUN},
        "model_sha256": model_sha256,
        "settings": {**spec.settings, **({ENGINE_ENV.key: variables} if variables else {})},
        "items": spec.item_names,
        "feeding": {key: str(value) for key, value in feeding.items() if value is not None},
    }


def files_of_items(spec: RunSpec) -> dict[str, str]:
    """Return size and modification time of each file from which a data set's items are read.

    Checksums are not used: to read all files would take as long as a run.
    """
    if not spec.items:
        return {}
    listed = [path for item in spec.items for _, path in item.inputs]
    files = {}
    for path in listed or paths_in(spec.inputs):  # items of a stack share its files
        with contextlib.suppress(OSError):
            status = os.stat(path)
            files[path] = f"{status.st_size} {status.st_mtime_ns}"
    return files


def number_of_run(spec: RunSpec, iteration: int) -> int:
    """Return the number of an iteration, counted over the whole data set.

    With `--resume`, a run covers only a part of the data set.
    """
    if len(spec.items) == len(spec.item_names):
        return iteration
    position, rest = divmod(max(0, iteration - spec.warmup_iterations), max(1, spec.iterations))
    item = spec.items[min(position, len(spec.items) - 1)]
    return spec.warmup_iterations + item.number * spec.iterations + rest


def name_of_run(spec: RunSpec, number: int) -> str:
    """Return the name of an iteration's item or testcase; empty if the run has only one."""
    names = spec.item_names or tuple(case.name for case in spec.cases)
    position = max(0, number - spec.warmup_iterations) // max(1, spec.iterations)
    return names[min(position, len(names) - 1)] if len(names) > 1 else ""


def filter_tensors(index: DumpIndex, pattern: str) -> DumpIndex:
    """Return an index of the tensors whose own name, or whose operator's name, matches a pattern.

    The pattern is searched for in the engine's name and in the model's name of a tensor.
    """
    names = {operator.key: operator.name for operator in index.operators}
    named = ((it, (it.name, it.origin, names.get(it.operator, ""))) for it in index.tensors)
    search = re.compile(pattern).search
    return replace(index, tensors=tuple(it for it, texts in named if any(map(search, texts))))


def finish_text(path: Path, pattern: str, complete: bool) -> None:
    """Remove the blocks of a text dump that do not match a pattern, and mark an incomplete dump.

    Raises:
        UsageError: the run ended well, but the pattern matches no block.
        OSError: the engine could not write the whole file, or the file cannot be rewritten.
    """
    with path.open("rb+") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        ended = file.read() in (b"\n", b"")
        if complete and not ended:
            raise error_of_full_disk(str(path.parent)) or OSError(errno.ENOSPC, "No space left")
        if not complete:
            file.write(b"\n" * (not ended) + f"{UNFINISHED}\n".encode())
    if pattern:
        check_left(filter_blocks(path, re.compile(pattern)), pattern, complete)


def check_left(left: object, pattern: str, complete: bool) -> None:
    """Refuse a filter that leaves nothing of a complete dump.

    Raises:
        UsageError: no name in the dump matches the filter.
    """
    if complete and pattern and not left:
        problem = f"no variable and no operator has {pattern!r} in its name"
        hint = "dump without this flag once: the index beside the dump lists the names"
        raise UsageError(problem, hint, flag="--dump-filter")


Runs = defaultdict[int, list[TensorHeader]]
HINT = "give a new folder, or the same data and options as before"


def go_on(spec: RunSpec, place: Path, model_sha256: str) -> RunSpec:
    """Return a spec that runs the items missing in a folder; mark the folder as incomplete.

    If all items are done, the last item is run again, which changes nothing.

    Raises:
        UsageError: the folder contains files that are not outputs of this run.
        OSError: the folder cannot be read or written.
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
    """Refuse a folder that contains the dump of another run, or other files.

    Raises:
        UsageError: a file in the folder is not an output, or the run that made the folder differs
            from the present run.
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

    The data of unfinished items may have changed: if damaged data ended the run, the user may have
    repaired the data.

    Raises:
        UsageError: a file of a finished item has changed.
    """
    todo = {item.number for item in left}
    done = [item for item in spec.items if item.number not in todo]
    if not done:
        return
    theirs, ours = read_index(index_place(place)).files, index.files
    # The warm-up uses the first item. If items are slices of a stack, all files of the stack count.
    read = {path for item in (spec.items[0], *done) for _, path in item.inputs}
    for path in read or ours:
        if path in theirs and theirs[path] != ours.get(path):
            raise other_run("", f"{path} has changed since {place} was dumped from it")


def facts_of_index(index: DumpIndex) -> dict[str, object]:
    """Return the facts of an index that must be equal in all parts of one run."""
    return {
        "model": index.model_sha256,
        "engine": (index.engine, index.driver),
        "data set": (index.inputs, index.items),
        "number of iterations": (index.warmup_iterations, index.iterations),
        "option": (index.feeding, {**index.settings, BIN_OUT_DUMP.key: ""}),  # except the folder
    }


def outputs_in(place: Path) -> Runs:
    """Return the headers of all complete outputs in a folder, by the number of the iteration."""
    runs = Runs(list)
    for header in read_headers(place, damaged=True):
        runs[run_of(header)[0]].append(header)
    return runs


def items_left(spec: RunSpec, runs: Runs) -> tuple[Item, ...]:
    """Return the items with an incomplete iteration; all items if the warm-up is incomplete.

    An iteration is complete if no other iteration has more outputs.
    """
    outputs = max(map(len, runs.values()), default=1)
    first, count = spec.warmup_iterations, spec.iterations

    def are_whole(begin: int, count: int) -> bool:
        return all(len(runs[number]) >= outputs for number in range(begin, begin + count))

    if not are_whole(0, first):
        return spec.items
    return tuple(it for it in spec.items if not are_whole(first + it.number * count, count))
