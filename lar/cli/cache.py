"""`lar cache`: cache files of fast-run, of any engine, shown, compared, merged and edited."""

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
    """Do what the action says, as `show_cache`; return the exit code."""
    code: int = globals()[f"{arguments.action}_cache"](arguments)
    return code


def show_cache(arguments: argparse.Namespace) -> int:
    """Print what a file holds, or what several files say of the same operators."""
    paths, text, every = arguments.files, arguments.operator, arguments.all
    kind = files_of_all(paths)
    if isinstance(kind, ModelCacheFiles) and not (paths[1:] or text or every):
        report = cache_report.report_model(kind.read(paths[0]))
    else:
        how = "beside others" if paths[1:] else "by --operator" if text else "by --all"
        found = with_algorithms(kind, paths[0], f"show {how}").read(paths)
        report = cache_report.report_operators(found, paths, text, every_algorithm=every)
    named = {"files": paths} if len(paths) > 1 else {"file": paths[0]}
    content = {"format": CACHE_FORMAT, **named, **report.document}
    with open_reports(vars(arguments)) as files:
        document = json.dumps(content, indent=2) + "\n"
        files.write(lambda form: report if form == "text" else document)
    return 0


def diff_cache(arguments: argparse.Namespace) -> int:
    """Print how two files differ; return 1 when they do."""
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
    """Add the content of all files to one file, which keeps what it has."""
    paths, output = arguments.files, arguments.output
    files = with_algorithms(files_of_all([*paths, *there(output)]), paths[0], "merge")
    merged = files.merge(paths, output, arguments.prefer)
    ReportFiles().write(cache_report.describe_merge(merged, len(paths), output))
    return 0


def pick_cache(arguments: argparse.Namespace) -> int:
    """Change one choice in a file, or in OUT, which then gets what it lacks from the file."""
    path, output = arguments.file, arguments.output
    files = with_algorithms(files_of_all([path, *there(output)]), path, "pick from")
    changed = files.pick(path, arguments.operator, arguments.algorithm, output)
    ReportFiles().write(cache_report.describe_pick(changed))
    return 0


def with_algorithms(files: AnyCacheFiles, path: str, action: str) -> AlgorithmCacheFiles:
    """Return files that hold algorithms.

    Raises:
        UsageError: they hold a model, which the action cannot take; or one is damaged.
    """
    if isinstance(files, ModelCacheFiles):
        files.read(path)
        hint = "`lar cache show` and `diff` print what it was made for"
        raise UsageError(f"such a cache holds {files.holds} to {action}", hint, subject=path)
    return files


def there(output: str | None) -> list[str]:
    """Return the file to add to, if there is one."""
    return [output] if output and os.path.lexists(output) else []


def files_of(path: str) -> AnyCacheFiles:
    """Return the engine's kind of cache files that a file is of.

    Raises:
        UsageError: it cannot be read, or no engine has such a cache.
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
    """Return the one kind that several files are of.

    Raises:
        UsageError: they are of two engines.
    """
    first, *others = (files_of(path) for path in paths)
    if any(kind is not first for kind in others):
        raise UsageError("these are caches of two engines", subject=", ".join(paths))
    return first
