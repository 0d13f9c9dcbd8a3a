"""The last steps of a dump, when its run has ended: filter it and write its index."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lar.dumps.binary import make_readable
from lar.dumps.dump import DumpIndex
from lar.dumps.excerpts import UNFINISHED, filter_blocks
from lar.dumps.facts import SUFFIX, DumpFacts
from lar.dumps.graph import index_of
from lar.dumps.index import read_headers, read_index, tensor_files, write_index
from lar.errors import UsageError
from lar.files.work_folders import error_of_full_disk
from lar.options.paths import index_place, paths_in
from lar.records.run import RunResult, RunSpec

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
    """Write the index beside a folder of tensors, and remove those that a pattern leaves out.

    The graph stays whole. If the run failed, tensors that were cut off are removed. Names become
    readable for MegEngine's own tool. `name` adds the model's names to an index.

    Returns:
        The index.

    Raises:
        UsageError: nothing is left, though the run has ended well.
        DumpError: a file of such a run is damaged.
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
    # If the run failed, the dumped iteration is the one after the last reported one.
    iterations = len(result.warmup.end_to_end) + len(result.samples.end_to_end)
    last = iterations // spec.runners - complete
    place = index_place(folder)
    index = replace(
        index,
        # A folder that grows has an index from the start, which describes the data of that time.
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
    Path(f"{folder}{SUFFIX}").unlink(missing_ok=True)  # all of it is in the index
    return index


def facts_of_run(spec: RunSpec, model_sha256: str) -> dict[str, Any]:
    """Return the fields of an index that are known before the run."""
    feeding = {"batch_size": spec.batch_size, "shape": spec.shape or None, **asdict(spec.image)}
    return {
        **{name: getattr(spec, name) for name in FIELDS_OF_RUN},
        "model_sha256": model_sha256,
        "settings": dict(spec.settings),
        "items": spec.item_names,
        "feeding": {key: str(value) for key, value in feeding.items() if value is not None},
    }


def files_of_items(spec: RunSpec) -> dict[str, str]:
    """Return the size and time of the files from which a data set's items are read.

    A checksum would have to read them all, which takes as long as a run.
    """
    if not spec.items:
        return {}
    listed = [path for item in spec.items for _, path in item.inputs]
    files = {}
    for path in listed or paths_in(spec.inputs):  # the items of a stack have no files of their own
        with contextlib.suppress(OSError):
            status = os.stat(path)
            files[path] = f"{status.st_size} {status.st_mtime_ns}"
    return files


def number_of_run(spec: RunSpec, iteration: int) -> int:
    """Return the number of an iteration among all runs of the data set, of which this is a part."""
    if len(spec.items) == len(spec.item_names):
        return iteration
    position, rest = divmod(max(0, iteration - spec.warmup_iterations), max(1, spec.iterations))
    item = spec.items[min(position, len(spec.items) - 1)]
    return spec.warmup_iterations + item.number * spec.iterations + rest


def name_of_run(spec: RunSpec, number: int) -> str:
    """Return the item or testcase of a run, empty if all runs are alike."""
    names = spec.item_names or tuple(case.name for case in spec.cases)
    position = max(0, number - spec.warmup_iterations) // max(1, spec.iterations)
    return names[min(position, len(names) - 1)] if len(names) > 1 else ""


def filter_tensors(index: DumpIndex, pattern: str) -> DumpIndex:
    """Return an index of the tensors whose name, or operator's name, matches a pattern.

    Names of the engine and of the model count.
    """
    names = {operator.key: operator.name for operator in index.operators}
    named = ((it, (it.name, it.origin, names.get(it.operator, ""))) for it in index.tensors)
    search = re.compile(pattern).search
    return replace(index, tensors=tuple(it for it, texts in named if any(map(search, texts))))


def finish_text(path: Path, pattern: str, complete: bool) -> None:
    """Remove the blocks of a text dump that a pattern leaves out, and mark an incomplete one.

    Raises:
        UsageError: nothing is left, though the run has ended well.
        OSError: the file cannot be written; engines do not report that.
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
        UsageError: the filter leaves nothing.
    """
    if complete and pattern and not left:
        problem = f"no variable and no operator has {pattern!r} in its name"
        hint = "dump without it once: the index beside the dump lists the names"
        raise UsageError(problem, hint, flag="--dump-filter")
