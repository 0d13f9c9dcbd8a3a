"""`lar cache`: show, compare, merge and edit the fast-run cache files of any engine."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from lar.cli.arguments import declared
from lar.cli.report_files import ReportFiles, open_reports
from lar.engines import all_engines
from lar.engines.caches import AlgorithmCacheFiles, AnyCacheFiles, ModelCacheFiles
from lar.engines.formats import HEAD_SIZE
from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.reports import cache_report

# History of what `show --json` writes:
#   lar.cache/1  first version
CACHE_FORMAT = "lar.cache/1"

ARGUMENTS = (declared("cache"),)


def main(arguments: argparse.Namespace) -> int:
    """Run the function of the action, such as `show_cache`; return the exit code."""
    code: int = globals()[f"{arguments.action}_cache"](arguments)
    return code


def show_cache(arguments: argparse.Namespace) -> int:
    """Print the content of a file, or compare several files operator by operator."""
    paths, text, every = arguments.files, arguments.operator, arguments.all
    kind = files_of_all(paths)
    if isinstance(kind, ModelCacheFiles) and not (paths[1:] or text or every):
        report = cache_report.report_model(kind.read(paths[0]))
    else:
        how = "beside others" if paths[1:] else "by --operator" if text else "by --all"
        found = with_algorithms(kind, paths[0], f"show {how}").read(paths)
        report = cache_report.report_operators(found, paths, text, every_algorithm=every)
    named = {"files": paths} if len(paths) > 1 else {"file": paths[0]}
    with open_reports(vars(arguments)) as files:
        document = json.dumps({"format": CACHE_FORMAT, **named, **report.document}, indent=2) + "\n"
        files.write(lambda form: report if form == "text" else document)
    return 0


def diff_cache(arguments: argparse.Namespace) -> int:
    """Print how two files differ; return 1 if they differ, else 0."""
    first, second = names = (arguments.first, arguments.second)
    kind = files_of_all(names)
    if isinstance(kind, ModelCacheFiles):
        keys = [kind.read(name).key for name in names]
        report, differs = cache_report.compare_models(keys, names)
    else:
        ours, theirs, both = (kind.read(paths) for paths in ([first], [second], names))
        report, differs = cache_report.compare_operators(ours, theirs, both, names)
    ReportFiles().write(report)
    return 1 if differs else 0


def merge_cache(arguments: argparse.Namespace) -> int:
    """Add the content of all files to the output file, which keeps its own content."""
    paths, output = arguments.files, arguments.output
    files = with_algorithms(files_of_all([*paths, *there(output)]), paths[0], "merge")
    merged = files.merge(paths, output, arguments.prefer)
    ReportFiles().write(cache_report.describe_merge(merged, len(paths), output))
    return 0


def pick_cache(arguments: argparse.Namespace) -> int:
    """Change the algorithm of one operator, in the file itself or in OUT.

    If OUT is given, entries that are in the file but not in OUT are copied to OUT.
    """
    path, output = arguments.file, arguments.output
    files = with_algorithms(files_of_all([path, *there(output)]), path, "pick from")
    changed = files.pick(path, arguments.operator, arguments.algorithm, output)
    ReportFiles().write(cache_report.describe_pick(changed))
    return 0


def with_algorithms(files: AnyCacheFiles, path: str, action: str) -> AlgorithmCacheFiles:
    """Return `files` if this kind of cache holds algorithms; refuse a cache that holds a model.

    Raises:
        UsageError: the cache holds a model, on which the action cannot work, or a file is damaged.
    """
    if isinstance(files, ModelCacheFiles):
        files.read(path)
        hint = "`lar cache show` and `diff` print what the cache was made for"
        raise UsageError(f"this cache has {files.holds} to {action}", hint, subject=path)
    return files


def there(output: str | None) -> list[str]:
    """Return a list with the output file, or an empty list if the file does not exist."""
    return [output] if output and os.path.lexists(output) else []


def files_of(path: str) -> AnyCacheFiles:
    """Return the kind of a cache file; each engine has its own kind.

    Raises:
        UsageError: the file cannot be read, or is not the cache of an engine.
    """
    with open_input(path, what="fast-run cache") as file:
        head = file.read(HEAD_SIZE)
    known = {engine.name: engine.cache for engine in all_engines() if engine.cache}
    for kind in known.values():
        if kind.begins(head):
            return kind
    problem = "is not a fast-run cache that an engine reads"
    raise UsageError(problem, f"engines with caches: {', '.join(known)}", subject=path)


def files_of_all(paths: Sequence[str]) -> AnyCacheFiles:
    """Return the kind of cache that all files have in common.

    Raises:
        UsageError: the files belong to two engines.
    """
    first, *others = (files_of(path) for path in paths)
    if any(kind is not first for kind in others):
        raise UsageError("the files are caches of different engines", subject=", ".join(paths))
    return first
