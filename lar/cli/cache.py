"""`lar cache`: cache files of fast-run, of any engine, shown, compared, merged and edited."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import get_args

from lar.cli.arguments import argument
from lar.cli.report_files import ReportFiles, open_reports
from lar.engines import all_engines
from lar.engines.caches import AlgorithmCacheFiles, AnyCacheFiles, ModelCacheFiles, Preference
from lar.engines.formats import HEAD_SIZE
from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.reports import cache_report

# History of what `show --json` writes:
#   lar.cache/1  first version
CACHE_FORMAT = "lar.cache/1"

# fmt: off
ACTIONS = {
    "show": ("print the algorithm chosen for each operator, and the next best", (
        argument("files FILE", "a fast-run cache file; for several of one model lar prints how far "
                 "their searches agree", nargs="+"),
        argument("--operator TEXT", "print only the operator of this number, or those with TEXT in "
                 "name or shapes", default=""),
        argument("--all", "print every algorithm in the file"),
        argument("--json FILE", "write it as JSON; - is standard output"),
    )),
    "diff": ("print the operators that one file lacks, and those with another choice", (
        argument("first A", "a fast-run cache file"),
        argument("second B", "another one"),
    )),
    "merge": ("add the operators of all files to OUT", (
        argument("files FILE", "fast-run cache files", nargs="+"),
        argument("--prefer", "for an operator in several files, keep the algorithm with the best "
                 "median (the default), the one with the shortest time (fastest), or the entry of "
                 "the first or last file", choices=get_args(Preference), default="median"),
        argument("-o --output OUT", "the file to add to", required=True),
    )),
    "pick": ("choose the algorithm of one operator by hand", (
        argument("file FILE", "the fast-run cache file to edit"),
        argument("operator OP", "the operator's number in `show`, or a piece of its name or "
                 "shapes"),
        argument("algorithm ALGORITHM", "the algorithm's name, or a piece of it"),
        argument("-o --output OUT", "write the choice to OUT and leave FILE as it is"),
    )),
}
# fmt: on


def main(arguments: argparse.Namespace) -> int:
    """Do what the action says, as `show_cache`; return the exit code."""
    code: int = globals()[f"{arguments.action}_cache"](arguments)
    return code


def show_cache(arguments: argparse.Namespace) -> int:
    """Print what a file holds; of several files, what they say of the same operators."""
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
    with open_reports(vars(arguments), ("json",)) as files:
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
        UsageError: these hold a model, so that the action cannot be; or one is damaged.
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
    engines = [engine for engine in all_engines() if engine.cache]
    for engine in engines:
        if engine.cache and engine.cache.begins(head):
            return engine.cache
    names = ", ".join(engine.name for engine in engines)
    raise UsageError(
        "is not a fast-run cache that an engine reads",
        f"engines with caches: {names}",
        subject=path,
    )


def files_of_all(paths: Sequence[str]) -> AnyCacheFiles:
    """Return the one kind that several files are of.

    Raises:
        UsageError: they are of two engines.
    """
    first, *others = (files_of(path) for path in paths)
    if any(kind is not first for kind in others):
        raise UsageError("these are caches of two engines", subject=", ".join(paths))
    return first
