"""`lar tune MODEL`: the fastest settings that keep the numbers right."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from lar.cli.bench import parse_budget
from lar.errors import UsageError
from lar.options.arguments import add_option
from lar.options.option import Group, flag_of, is_set
from lar.options.values import parse_path, parse_share
from lar.options.variants import BENCH_KEYS, BENCH_OPTIONS
from lar.records.tuning import Allowed, Objective

if TYPE_CHECKING:
    from lar.records.tuning import TuneRequest, TuneResult
    from lar.tuning.campaign import TuneProgress

# Of flags that a session keeps from its beginning.
DEFAULTS: Mapping[str, object] = {
    "space": "quick",
    "objective": "latency",
    "allow": (),
    "margin": 0.01,
}
SECONDS = 120.0

MODELS = "a model, with its twin in another format if there is one; several, or a folder of them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help=MODELS)
    group = parser.add_argument_group("search")
    group.add_argument(
        "--budget",
        type=parse_budget,
        metavar="S",
        help="search for at most S seconds, or 2m, for each model (default 120)",
    )
    group.add_argument(
        "--space",
        default=DEFAULTS["space"],
        metavar="quick|full|FILE",
        help="what is tried: what often helps (the default), all, or what a file says",
    )
    group.add_argument(
        "--list-space", action="store_true", help="print what would be tried, and measure nothing"
    )
    group.add_argument("--engines", type=split_names, metavar="A,B", help="try these engines alone")
    group.add_argument(
        "--objective",
        choices=get_args(Objective),
        default=DEFAULTS["objective"],
        help="what is to be small (throughput: large): latency is the median (default latency)",
    )
    group.add_argument(
        "--allow",
        type=parse_allowed,
        default=DEFAULTS["allow"],
        metavar="A,B",
        help=f"try what needs a word of the user too: {', '.join(get_args(Allowed))}",
    )
    group.add_argument(
        "--tolerance",
        type=parse_tolerance,
        metavar="E",
        help="take outputs for right whose |a - e| / max(|a|, |e|, 1) is at most E",
    )
    group.add_argument(
        "--margin",
        type=parse_share,
        default=DEFAULTS["margin"],
        metavar="SHARE",
        help="end when nothing that is left can win by as much (default 1%%)",
    )
    group = parser.add_argument_group("session")
    group.add_argument(
        "--session", type=parse_path, metavar="FILE", help="keep the search in this file"
    )
    group.add_argument(
        "--resume", type=parse_path, metavar="FILE", help="go on with the search in this file"
    )
    group = parser.add_argument_group("report")
    group.add_argument(
        "-o",
        "--output",
        type=parse_path,
        metavar="FILE",
        help="write the best settings, for `lar MODEL --settings FILE`",
    )
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    groups: dict[Group, argparse._ArgumentGroup] = {}
    for option in BENCH_OPTIONS:
        if option.group not in groups:
            title = f"{option.group.title}, of all candidates"
            groups[option.group] = parser.add_argument_group(title)
        add_option(groups[option.group], option, parse=option.parse and str)


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


def parse_allowed(text: str) -> tuple[str, ...]:
    """Parse what --allow takes."""
    names = split_names(text)
    for name in names:
        if name not in get_args(Allowed):
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(get_args(Allowed))}")
    return names


def parse_tolerance(text: str) -> float:
    """Parse a number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return value


def main(arguments: argparse.Namespace) -> int:
    """Search, print and write; return the exit code."""
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    if arguments.resume is not None:
        refuse_beside_resume(arguments)
        return tune(arguments, None, arguments.resume)
    from lar.tuning.requests import group_models

    groups = group_models(arguments.models)
    if not groups:
        raise UsageError("is missing", "give a model file: lar tune net.mge", flag="MODEL")
    if len(groups) > 1 and arguments.session is not None:
        raise UsageError(
            f"is for one model, and {len(groups)} are given",
            "leave it out: each has a session of its own",
            flag="--session",
        )
    codes = []
    for group in groups:
        request = request_of(group, arguments, options)
        codes.append(tune(arguments, request, arguments.session, is_one=len(groups) == 1))
    return max(codes)


def refuse_beside_resume(arguments: argparse.Namespace) -> None:
    """Refuse what a session that is resumed has from its beginning.

    Raises:
        UsageError: naming it.
    """
    if arguments.models:
        raise UsageError("the session names its model", "leave MODEL out", flag="--resume")
    if arguments.session is not None:
        raise UsageError("names the session already", "leave --session out", flag="--resume")
    for key in (*BENCH_KEYS, "space", "engines", "objective", "allow", "tolerance", "margin"):
        if is_set(vars(arguments)[key]) and vars(arguments)[key] != DEFAULTS.get(key):
            raise UsageError(
                f"goes on with what the session was begun with, without {flag_of(key)}",
                "begin another session for it",
                flag="--resume",
            )


def request_of(
    models: Sequence[str], arguments: argparse.Namespace, options: Mapping[str, Any]
) -> TuneRequest:
    """Return what is asked for of a model with its twins.

    Raises:
        LarError: its plain run is refused.
    """
    from lar.tuning.requests import make_request

    return make_request(
        models,
        options,
        extent=arguments.space,
        engines=arguments.engines or (),
        objective=arguments.objective,
        allowed=arguments.allow,
        budget_seconds=SECONDS if arguments.budget is None else arguments.budget,
        margin=arguments.margin,
        tolerance=arguments.tolerance,
    )


def tune(
    arguments: argparse.Namespace,
    request: TuneRequest | None,
    place: str | None,
    *,
    is_one: bool = True,
) -> int:
    """Search with a session, print and write what was found; return the exit code."""
    from lar.cli.progress_line import PacedLine
    from lar.cli.screen import screen_of_output
    from lar.files.work_folders import work_folder
    from lar.reports.tune_text import format_tune
    from lar.tuning.campaign import Campaign
    from lar.tuning.player import LocalPlayer
    from lar.tuning.session import find_place, open_session

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(work_folder()))
        if place is None:
            assert request
            place = find_place(request)
        budget = None if request or arguments.budget is None else arguments.budget
        session = stack.enter_context(open_session(place, request, budget_seconds=budget))
        print(f"session: {place}", flush=True)
        line = stack.enter_context(PacedLine(sys.stderr))
        campaign = Campaign(
            session,
            LocalPlayer(folder),
            folder,
            report=lambda progress: line.show(describe_progress(progress)),
        )
        result = campaign.run()
        line.end()
        print("\n".join(format_tune(result, screen_of_output())), flush=True)
    return exit_code_of(result)


def exit_code_of(result: TuneResult) -> int:
    """Return the exit code of a search that has been printed.

    Raises:
        LarError: the plain run failed, so that nothing could be compared; or an interrupt.
    """
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    if result.failure is not None:
        raise result.failure.within("the plain run").to_error()
    return 0


def describe_progress(progress: TuneProgress) -> str:
    """Return how far a search has come, in a few words."""
    parts = [f"trial {progress.trials + 1}, {progress.candidates} candidates"]
    if progress.ratio is not None:
        parts.append(f"best {progress.best} {1 / progress.ratio:.2f}x as fast")
    parts.append(f"{progress.doing}, {progress.left_seconds:.0f} s left")
    return ": ".join([", ".join(parts[:-1]), parts[-1]])
