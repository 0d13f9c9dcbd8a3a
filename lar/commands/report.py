"""`lar report PROFILE --style NAME`: the tables and pages that profilers make, from one profile."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines import load_name
from lar.errors import UsageError
from lar.profiling.report_options import (
    add_report_options,
    collect_report_options,
    describe_choices,
)
from lar.profiling.styles import EXPORTS, STYLES, Style

if TYPE_CHECKING:
    from lar.profiling.profile import Profile
    from lar.reports.output import OutputFile

RENDERINGS = {
    "csv": "lar.profiling.rendering:format_csv",
    "json": "lar.profiling.rendering:format_json",
    "html": "lar.profiling.rendering:format_html",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = describe_choices()
    parser.add_argument("profile", metavar="PROFILE", help="a file that --profile wrote")
    parser.add_argument("other", metavar="OTHER", nargs="?", help="another, for a diff")
    styles = "; ".join(f"{name}: {style.help}" for name, style in STYLES.items())
    parser.add_argument(
        "--style",
        choices=tuple(STYLES),
        help=f"{styles} (default megengine; diff with two profiles)",
    )
    add_report_options(parser)
    group = parser.add_argument_group("where to")
    for kind in RENDERINGS:
        group.add_argument(
            f"--{kind}", metavar="FILE", help=f"write it as {kind.upper()}; - for stdout"
        )
    exports = "; ".join(f"{name}: {what}" for name, (_, what) in EXPORTS.items())
    group.add_argument(
        "--export",
        choices=tuple(EXPORTS),
        help=f"instead of a report, a trace for another program ({exports})",
    )
    group.add_argument("-o", "--output", metavar="FILE", help="where --export writes")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def main(arguments: argparse.Namespace) -> int:
    """Make and print a report; return the exit code."""
    name = arguments.style or ("diff" if arguments.other else "megengine")
    style = STYLES[name]
    if arguments.export:
        return export(arguments)
    if arguments.output:
        raise UsageError("--output: goes with --export", "--csv, --json or --html write a report")
    if style.compares and not arguments.other:
        raise UsageError(f"--style {name}: compares two profiles", "give a second one")
    if arguments.other and not style.compares:
        able = [other for other, each in STYLES.items() if each.compares]
        raise UsageError(f"--style {name}: takes one profile", f"two: --style {', '.join(able)}")
    options = collect_report_options(vars(arguments), name, style)
    asked = [kind for kind in RENDERINGS if getattr(arguments, kind)]
    paths = [arguments.profile, *([arguments.other] if arguments.other else [])]
    with contextlib.ExitStack() as stack:
        files = open_files(arguments, asked, paths, stack)
        report = load_name(style.build)(*(open_profile(path, style) for path in paths), options)
        if not any(file.to_stdout for file in files):
            sys.stdout.write(report.text)
            sys.stdout.flush()
        for kind, file in zip(asked, files, strict=True):
            file.write(load_name(RENDERINGS[kind])(report))
    return 0


def open_files(
    arguments: argparse.Namespace, asked: list[str], paths: list[str], stack: contextlib.ExitStack
) -> list[OutputFile]:
    """Open what is written, before anything is read.

    Raises:
        UsageError: it cannot be written, or would replace the profile.
    """
    if not asked:
        return []
    from lar.reports.output import OutputFile, check_places

    files = [
        stack.enter_context(OutputFile(getattr(arguments, kind), f"--{kind}")) for kind in asked
    ]
    check_places(files, paths)
    return files


def open_profile(path: str, style: Style) -> Profile:
    """Read a profile of lar, or an engine's own where the style takes those.

    Raises:
        UsageError: there is none, or it is no profile.
    """
    from lar.profiling.trace_file import decode_profile

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path}: cannot be read: {reason}", "check the path") from None
    if style.raw and b'"schema"' not in data[:200]:
        profile: Profile = load_name(style.raw)(data, path)
        return profile
    return decode_profile(data, path)


def export(arguments: argparse.Namespace) -> int:
    """Write a profile as a trace for another program.

    Raises:
        UsageError: it is not said where to, or cannot be written.
    """
    from lar.profiling.trace_file import read_profile
    from lar.reports.output import OutputFile, check_places

    refused = [key for key in ("style", "csv", "json", "html", "other") if getattr(arguments, key)]
    if refused:
        raise UsageError(f"--export goes without {', '.join(refused)}", "leave that out")
    if not arguments.output:
        raise UsageError("--export: where to is not said", "add -o FILE")
    with OutputFile(arguments.output, "--output") as file:
        check_places([file], [arguments.profile])
        content: Any = load_name(EXPORTS[arguments.export][0])(read_profile(arguments.profile))
        file.write(content if isinstance(content, str) else json.dumps(content))
    print(f"wrote {os.fspath(file.path)}" if not file.to_stdout else "", end="\n")
    return 0
