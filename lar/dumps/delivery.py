"""What is done with a dump when its run has ended: a filter, an index, the place of an old one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lar.dumps.binary import TensorHeader, make_readable, read_header
from lar.dumps.dump import DumpIndex
from lar.dumps.graph import DumpFacts, index_of
from lar.dumps.index import index_place, tensor_files, write_index
from lar.dumps.text import filter_blocks
from lar.errors import DumpError, UsageError
from lar.records import RunResult, RunSpec


def finish_dump(
    folder: Path, facts: DumpFacts, pattern: str, spec: RunSpec, result: RunResult
) -> None:
    """Write the index beside a folder of tensors, and remove those that a pattern leaves out.

    The graph stays whole. Of a run that did not end well, tensors that were cut off are removed.
    Names are made readable to MegEngine's own tool.

    Raises:
        UsageError: nothing is left, though the run has ended well.
        DumpError: a file of such a run is damaged.
        OSError: the folder cannot be written.
    """
    complete, engine = result.status == "ok", result.engine
    headers = [*whole_tensors(folder, complete)]
    index = filter_tensors(index_of(headers, facts.operators), pattern)
    kept = {tensor.key for tensor in index.tensors}
    check_left(kept, pattern, complete)
    for name in set(tensor_files(folder)) - kept:
        (folder / name).unlink()
    for header in headers:
        if header.path.name in kept and not header.name.isascii():
            make_readable(header.path)
    # Of a run that ended otherwise, it is the one after those that were told.
    iterations = len(result.warmup.end_to_end) + len(result.samples.end_to_end)
    last = iterations // spec.runners - complete
    index = replace(
        index,
        complete=complete,
        engine=spec.engine,
        engine_version=engine.version if engine else "",
        driver=spec.driver,
        device=engine.device if engine else spec.device,
        model=spec.model,
        model_sha256=result.model.sha256 if result.model else "",
        settings=dict(spec.settings),
        items=spec.item_names,
        warmup_iterations=spec.warmup_iterations,
        iterations=spec.iterations,
        iteration=last if facts.iteration is None else facts.iteration,
    )
    write_index(index_place(folder), index)


def whole_tensors(folder: Path, complete: bool) -> Iterator[TensorHeader]:
    """Yield the headers of tensors, only those of whole ones where the dump is not complete."""
    for name in tensor_files(folder):
        if complete or is_tensor(folder / name):
            yield read_header(folder / name)


def is_tensor(path: Path) -> bool:
    """Tell a whole tensor's file from others."""
    try:
        read_header(path)
    except DumpError:
        return False
    return True


def filter_tensors(index: DumpIndex, pattern: str) -> DumpIndex:
    """Return an index of those tensors whose name, or operator's name, a pattern is found in."""
    names = {operator.key: operator.name for operator in index.operators}
    wanted = re.compile(pattern)
    return replace(
        index,
        tensors=tuple(
            tensor
            for tensor in index.tensors
            if wanted.search(tensor.name) or wanted.search(names.get(tensor.operator, ""))
        ),
    )


def finish_text(path: Path, pattern: str, complete: bool) -> None:
    """Remove the blocks of a text dump that a pattern leaves out.

    Raises:
        UsageError: nothing is left, though the run has ended well.
        OSError: the file cannot be written.
    """
    if pattern:
        check_left(filter_blocks(path, re.compile(pattern)), pattern, complete)


def check_left(left: object, pattern: str, complete: bool) -> None:
    """Refuse a filter that leaves nothing.

    Raises:
        UsageError: so it does.
    """
    if complete and pattern and not left:
        raise UsageError(
            f"--dump-filter: no variable and no operator has {pattern!r} in its name",
            "dump without it once: the index beside the dump tells the names",
        )


def is_dump(folder: Path) -> bool:
    """Tell a folder that holds dumped tensors and nothing else."""
    return all(is_tensor(path) for path in folder.iterdir())
