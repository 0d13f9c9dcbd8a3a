"""`lar report PROFILE --style NAME` prints or writes a profile in the style of a profiler."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lar.cli.arguments import argument, declared, heading, name_supporters
from lar.cli.screen import say
from lar.errors import UsageError
from lar.files.input_file import check_input
from lar.options.option import flag_of
from lar.reports.styles import (
    EXPORTS,
    GONE_STYLES,
    KEYS,
    STYLES,
    Style,
    collect_report_options,
    describe_choices,
)

if TYPE_CHECKING:
    from lar.records.profile import Profile


FORMS = ("csv", "json", "html")


def parse_style(name: str) -> str:
    """Parse the name of a style; the error for a removed style names its replacement."""
    if name in GONE_STYLES:
        raise argparse.ArgumentTypeError(f"{name!r} is no style any more: {GONE_STYLES[name]}")
    return name


def name_styles(parser: argparse._ActionsContainer) -> None:
    """Add to the help of a flag the styles that honour it, unless all styles honour the flag."""
    able = {key: [name for name, style in STYLES.items() if key in style.options] for key in KEYS}
    name_supporters(parser, {key: it for key, it in able.items() if len(it) < len(STYLES)})


STYLES_OF_TWO = ", ".join(name for name, style in STYLES.items() if 2 in style.profiles)
STYLES_OF_PAIRS = ", ".join(name for name, style in STYLES.items() if style.takes_pairs)

EPILOG = describe_choices()
# fmt: off
ARGUMENTS = (
    argument("profile PROFILE", "a file that --profile wrote; - means standard input"),
    argument("other OTHER", "a second profile, B, to compare with the first, A "
             f"[{STYLES_OF_TWO}]", nargs="?"),
    argument("more MORE", "more profiles of the same two commands, in turns, which show how "
             f"much repeated runs differ [{STYLES_OF_PAIRS}]", nargs="*"),
    argument("--style", "; ".join(f"{name}: {style.help}" for name, style in STYLES.items())
             + " (default operators; diff with two profiles)", type=parse_style,
             choices=tuple(STYLES)),
    declared("what a report shows"),
    name_styles,
    heading("where to",
        *(argument(f"--{kind} FILE", f"write the report as {kind.upper()}; - means stdout")
          for kind in FORMS),
        argument("--export", "write a trace for another program instead of a report ("
                 + "; ".join(f"{name}: {what}" for name, (_, what) in EXPORTS.items()) + ")",
                 choices=tuple(EXPORTS)),
        argument("-o --output FILE", "the file that --export writes"),
    ),
)
# fmt: on


def main(arguments: argparse.Namespace) -> int:
    """Make and print a report, or write an export; return the exit code."""
    # A profile has very many records and no cycles. The garbage collector, which looks for cycles,
    # would take a third of a report's time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return export(arguments) if arguments.export else report(arguments)
    finally:
        if was_enabled:
            gc.enable()


def report(arguments: argparse.Namespace) -> int:
    """Make and print a report; return the exit code.

    Raises:
        UsageError: the style does not honour a flag, or a file is not a profile.
    """
    name = arguments.style or default_style(arguments)
    style = STYLES[name]
    if arguments.output:
        raise UsageError(
            "works only with --export",
            "to write a report, use --csv, --json or --html",
            flag="--output",
        )
    paths = [arguments.profile, *filter(None, [arguments.other]), *arguments.more]
    check_paths(paths, name, style)
    options = collect_report_options(vars(arguments), name, style)
    asked = [kind for kind in FORMS if getattr(arguments, kind)]
    from lar.cli.report_files import open_reports  # not before: the help needs none of it

    with open_reports(vars(arguments), read=paths) as files:
        profiles = [*map(open_profile, paths)]
        # Reading a profile has imported this already.
        from lar.profiles.costs import describe_cost, fit_all_to_plain

        if not style.as_recorded:
            profiles = fit_all_to_plain(profiles)
        *baseline, profile = profiles[:2]
        if not arguments.style and name == "operators" and not profile.facts.lar_version:
            style = STYLES["megengine"]  # the style of the engine's own tool
            options = collect_report_options(vars(arguments), "megengine", style)
        made = style.build(profile, options, *baseline, *profiles[2:])
        if made.document is not None and not made.tables and (refused := set(asked) - {"json"}):
            raise UsageError(
                f"the style {name} has no tables", "use --json FILE", flag=flag_of(min(refused))
            )
        # A report of several profiles has its own line on this for each profile.
        corrected = describe_cost(profile) if profile.correction and not baseline else ""
        footer = "" if style is STYLES["operators"] else corrected
        files.write(replace(made, footer=footer, corrected=corrected))
    return 0


def default_style(arguments: argparse.Namespace) -> str:
    """Return the style for a report without `--style`.

    The style is diff for two profiles, else the first style that honours all given flags.
    """
    if arguments.other:
        return "diff"
    asked = {key for key in KEYS if getattr(arguments, key) is not None}
    able = (name for name, it in STYLES.items() if asked <= it.options and 1 in it.profiles)
    return next(able, "operators")


def check_paths(paths: list[str], name: str, style: Style) -> None:
    """Check whether a style accepts this number of profiles.

    Depending on the style, a report shows one profile, compares two profiles, or compares several
    pairs of profiles.

    Raises:
        UsageError: the style needs fewer or more profiles, or the last profile has no partner.
    """
    refusal = partial(UsageError, flag=f"--style {name}")
    if len(paths) == 1 and 1 not in style.profiles:
        raise refusal("needs two profiles", "give a second one")
    if len(paths) > 1 and 2 not in style.profiles:
        raise refusal("takes one profile", f"styles of two profiles: {STYLES_OF_TWO}")
    if len(paths) > 2 and not style.takes_pairs:
        raise refusal("takes two profiles", f"styles of more profiles: {STYLES_OF_PAIRS}")
    if len(paths) > 2 and len(paths) % 2:
        hint = "give profiles of the two commands in turns"
        raise UsageError("has no profile to compare with", hint, subject=paths[-1])


def open_profile(path: str) -> Profile:
    """Read a profile in the format of lar or of an engine; the path - is standard input.

    Raises:
        UsageError: the file is missing, or is not a profile.
    """
    if is_file := path != "-":
        check_input(path)
    # Imported here: a missing file needs nothing that is slow to import.
    from lar.engines.operator_times import decode_any, read_profile

    return read_profile(path) if is_file else decode_any(sys.stdin.buffer.read(), "standard input")


def export(arguments: argparse.Namespace) -> int:
    """Write a profile as a trace for another program.

    Raises:
        UsageError: --output is missing, or the file cannot be written.
    """
    from lar.cli.report_files import check_places
    from lar.files.report_file import OutputFile
    from lar.profiles.trace_file import is_packed_name, pack

    if arguments.other:
        raise UsageError("takes one profile", f"leave {arguments.other} out", flag="--export")
    given = {key for key, it in vars(arguments).items() if it is not None}
    keys = ("style", *FORMS, *(key for key in vars(arguments) if key in KEYS))
    if refused := ", ".join(flag_of(key) for key in keys if key in given):
        problem = f"writes a trace instead of a report, and takes no {refused}"
        raise UsageError(problem, f"leave {refused} out", flag="--export")
    if not arguments.output:
        raise UsageError("no output file is given", "add -o FILE", flag="--export")
    with OutputFile(arguments.output, "--output") as file:
        check_places([file], [arguments.profile])
        pieces = EXPORTS[arguments.export][0](open_profile(arguments.profile))
        is_file = not file.to_stdout and (not file.path.exists() or file.path.is_file())
        file.write(pack(pieces) if is_file and is_packed_name(file.path) else pieces)
    if not file.to_stdout:
        say(f"wrote {os.fspath(file.path)}", sys.stdout)
    return 0
