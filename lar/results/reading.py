"""Readers of result files: files that `--json` wrote, and output of an engine's own program.

In a table, a result has the user's name for its file, or else the shortest end of the file's path
that distinguishes it from the other files.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines import all_engines
from lar.engines.engine import Engine
from lar.errors import UsageError
from lar.files.database import HEAD
from lar.files.input_file import open_input, read_input
from lar.files.unpacking import unpack
from lar.measurement.machine import read_model_file
from lar.measurement.rows import join_samples
from lar.records.bench import BenchResult, VariantResult, read_bench
from lar.records.run import (
    MachineFacts,
    ModelFile,
    RunResult,
    RunSpec,
    Samples,
    check_result,
    read_result,
)
from lar.results import NamedResult

WHAT = "result file"
HINT = "give what `lar run MODEL --json FILE` wrote, or what load_and_run printed"
MOST_BYTES = 1 << 32

# The facts that a variant of a bench has for all its processes.
OF_VARIANT = ("engine", "model", "fed", "outputs", "load_seconds", "peak_memory_bytes", "failure")

# How lar's own files begin, and the messages for formats that hold no results.
BEGINNING = re.compile(rb'\{\s*"(?:format|schema)":\s*"lar\.(\w+)/|lar \S+: using ')
NO_RESULTS = json.loads(Path(__file__).with_name("no_results.json").read_text())


class Part(NamedTuple):
    """Runs of one kind in a file; their name is empty if the file has no other runs."""

    name: str
    results: tuple[RunResult, ...]


def read_results(path: str) -> tuple[RunResult, ...]:
    """Return the results in a file, in order; `-` is standard input.

    Raises:
        UsageError: the file is missing, empty, cut short, damaged or of another kind.
    """
    return tuple(result for part in read_parts(path) for result in part.results)


def read_completed(
    files: Sequence[str], model: str | None, machine: str | None
) -> Iterator[RunResult]:
    """Yield the results in files; a result from a log gets the given model and machine.

    Raises:
        UsageError: a file holds no result, or a result of another model.
    """
    known = None if model is None else read_model_file(Path(model))
    for path in paths_of(files):
        for result in read_results(path):
            yield complete(result, known, machine)


def complete(result: RunResult, model: ModelFile | None, machine: str | None) -> RunResult:
    """Return a result with the model and machine that its log lacks.

    Raises:
        UsageError: the result is of another model.
    """
    if model is not None:
        if result.model is not None and result.model.sha256 != model.sha256:
            raise UsageError(
                "is not the model of the result", "leave it out", flag=f"--model {model.path}"
            )
        result = replace(result, model=model)
        if not result.spec.model:
            result = replace(result, spec=replace(result.spec, model=model.path))
    if machine is not None and result.machine is None:
        result = replace(result, machine=MachineFacts(processor=machine))
    return result


def read_parts(path: str) -> tuple[Part, ...]:
    """Return the results in a file, with repeated runs of one variant together.

    Raises:
        UsageError: the file is missing, empty, cut short, damaged or of another kind.
    """
    if path == "-":
        return parts_in(sys.stdin.buffer.read(), "standard input")
    if is_database(path):
        return parts_of_store(path)
    return parts_in(read_input(path, what=WHAT, limit=MOST_BYTES), os.fspath(path))


def parts_in(data: bytes, name: str) -> tuple[Part, ...]:
    """Return the parts in a file's content, which may be in gzip.

    Raises:
        UsageError: the file holds no results, or is damaged.
    """
    data = unpack(data, name, HINT)
    text = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not text:
        raise UsageError("the file is empty", HINT, subject=name)
    begins = BEGINNING.match(text)
    if begins and (refused := NO_RESULTS.get((begins[1] or b"").decode())):
        raise UsageError(*refused, subject=name)
    engine = None if text.startswith(b"{") else printer_of(data)
    try:
        return parts_of_log(engine.read_log(data, name)) if engine else read_json(text)
    except ValueError as error:
        problem = f"is damaged: {error}" if engine else problem_of(text, error)
        raise UsageError(problem, HINT, subject=name) from None


def parts_of_log(results: Sequence[RunResult]) -> tuple[Part, ...]:
    """Return the results that an engine's program printed, numbered if there are several."""
    names = (f"#{number}" if len(results) > 1 else "" for number in range(1, 1 + len(results)))
    parts = zip(names, map(check_result, results), strict=True)
    return tuple(Part(name, (result,)) for name, result in parts)


def printer_of(data: bytes) -> Engine | None:
    """Return the engine whose program printed the given content, or None for other content."""
    return next((engine for engine in all_engines() if engine.prints_log(data)), None)


def problem_of(text: bytes, error: Exception) -> str:
    """Return why a text contains no result."""
    said = str(error)
    if not text.startswith(b"{"):
        return "is not a result that lar reads"
    if "truncated" in said:
        return "was cut short"
    if "malformed" in said:
        return "is not JSON, or is damaged"
    if b'"spec"' not in text and BenchResult.format.encode() not in text:
        return "is not a result of lar"
    return f"is damaged, or of another version of lar: {said}"


def read_json(text: bytes) -> tuple[Part, ...]:
    """Return the runs in the JSON of a run or a bench, as parts; each process of a bench is a run.

    Raises:
        ValueError: the text is neither a run nor a bench, or is damaged.
    """
    try:
        return (Part("", (read_result(text),)),)
    except ValueError:
        if BenchResult.format.encode() not in text:
            raise
    bench = read_bench(text)
    runs = [(each.name, map(check_result, runs_of_variant(bench, each))) for each in bench.variants]
    return tuple(Part(name, tuple(checked)) for name, checked in runs)


def parts_of_store(path: str) -> tuple[Part, ...]:
    """Return the results in a store by kind; each part is named by its options.

    Raises:
        UsageError: the file is another database, or contains no result.
    """
    from lar.results.store import open_store  # few files are stores

    with open_store(path) as store:
        entries = store.entries()
        several = len({(each.model, each.engine, each.driver) for each in entries}) > 1
        kinds: dict[tuple[str, str, str], list[RunResult]] = {}
        store.refuse_damaged(entries)
        for entry in entries:
            name = f"{entry.engine if several else ''} {entry.options or 'plain'}".strip()
            kinds.setdefault((name, entry.model, entry.driver), []).append(store.result(entry.id))
    if not kinds:
        raise UsageError("holds no result", HINT, subject=path)
    return tuple(Part(name, tuple(results)) for (name, *_), results in kinds.items())


def is_database(path: str) -> bool:
    """Return whether a file is an SQLite database, as stores of results are.

    Raises:
        UsageError: the file is missing or cannot be read.
    """
    with open_input(path, what=WHAT) as file:
        return file.read(len(HEAD)) == HEAD


def runs_of_bench(bench: BenchResult) -> tuple[RunResult, ...]:
    """Return a result for each process of each variant."""
    return tuple(run for each in bench.variants for run in runs_of_variant(bench, each))


def runs_of_variant(bench: BenchResult, variant: VariantResult) -> tuple[RunResult, ...]:
    """Return a result for each timed process of a variant, or one result without samples."""
    model = variant.model.path if variant.model else variant.values.get("model", "")
    shared = {name: getattr(variant, name) for name in OF_VARIANT}
    result = RunResult(
        spec=variant.spec or RunSpec(model=model, engine="", driver=""),
        status="failed" if variant.status == "refused" else variant.status,
        phase="done" if variant.status == "ok" else "start",
        lar_version=bench.lar_version,
        started_at=bench.started_at,
        machine=bench.machine,
        **shared,
    )
    rounds: dict[int, list[Samples]] = {}
    for turn in variant.turns:
        rounds.setdefault(turn.round, []).append(turn.samples)
    joined = (replace(join_samples(parts), runner=()) for parts in rounds.values())
    return tuple(replace(result, samples=samples) for samples in joined) or (result,)


def read_named(words: Sequence[str]) -> list[NamedResult]:
    """Return the results in files, with the names that they get in a table.

    Raises:
        UsageError: a file holds no result.
    """
    names, paths = [split_name(word)[0] for word in words], paths_of(words)
    shorts = shorten(paths) if len(paths) > 1 else [""]  # the runs of one file have names
    parts = [
        (f"{name or short} {part.name}".strip() or os.path.basename(path), name, path, part)
        for name, short, path in zip(names, shorts, paths, strict=True)
        for part in read_parts(path)
    ]
    labels = distinguish([label for label, *_ in parts])
    return [
        NamedResult(label, result, path, name)
        for label, (_, name, path, part) in zip(labels, parts, strict=True)
        for result in part.results
    ]


def paths_of(words: Sequence[str]) -> list[str]:
    """Return the paths in arguments of the form `FILE` or `NAME=FILE`.

    Raises:
        UsageError: standard input is given twice.
    """
    paths = [split_name(word)[1] for word in words]
    if paths.count("-") > 1:
        raise UsageError("standard input is given twice", "give it once", subject="-")
    return paths


def split_name(word: str) -> tuple[str, str]:
    """Return the name and the path in `NAME=FILE`; an existing file `NAME=FILE` is only a path."""
    name, equals, path = word.partition("=")
    return ("", word) if not equals or not name or os.path.lexists(word) else (name, path)


def shorten(paths: Sequence[str]) -> list[str]:
    """Return each path in the shortest form that distinguishes it from the other paths."""
    normal = [os.path.normpath(path) for path in paths]
    counts = Counter(chain.from_iterable(map(endings_of, set(normal))))
    return [
        next((ending for ending in endings_of(path) if counts[ending] == 1), path)
        for path in normal
    ]


def endings_of(path: str) -> list[str]:
    """Return the last part of a path, its last two parts, and so on."""
    parts = path.split(os.sep)
    return [os.sep.join(parts[-count:]) for count in range(1, len(parts) + 1)]


def distinguish(names: Sequence[str]) -> list[str]:
    """Return names without duplicates: the second `a` becomes `a (2)`."""
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    labels: dict[str, None] = {}
    for name in names:
        label = name
        while label in labels:
            label = f"{name} ({next(numbers[name])})"
        labels[label] = None
    return [*labels]


def name_of_baseline(asked: str, named: Sequence[NamedResult]) -> str:
    """Return the name of the row if the baseline is given as a path; else return `asked`."""
    if any(each.name == asked for each in named):
        return asked
    return next((each.name for each in named if each.path == asked), asked)


def schema_of_result() -> dict[str, Any]:
    """Return the JSON Schema of `RunResult`."""
    import msgspec

    return msgspec.json.schema(RunResult)
