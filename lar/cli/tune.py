"""`lar tune MODEL`: the fastest settings that keep the numbers right."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, get_args

from lar.cli.bench import add_run_options, open_asked_store, print_saved
from lar.errors import LarError, UsageError, error_of_write, error_with_code, printable
from lar.files.path_conflicts import paths_in
from lar.options.arguments import add_option
from lar.options.option import flag_of, is_set
from lar.options.rules import Asked, check_rules, excludes, needs, typed
from lar.options.table import (
    FORCE,
    INPUT,
    ON,
    PACKED_MODEL_DUMP,
    SAVE,
    SCHEDULER,
    SETTINGS,
    STORE,
    TAG,
)
from lar.options.values import parse_duration, parse_path, parse_share
from lar.options.variants import BENCH_KEYS
from lar.records.choices import Allowed, Objective

if TYPE_CHECKING:
    from lar.cli.searches import Ended
    from lar.farm.field import Field
    from lar.files.path_conflicts import Place
    from lar.files.report_file import OutputFile
    from lar.records.tuning import TuneRequest, TuneResult
    from lar.reports.text import Screen
    from lar.tuning.campaign import Campaign, TuneProgress
    from lar.tuning.session import Planned, TuningSession

# Of flags that a session keeps from its beginning.
DEFAULTS: Mapping[str, object] = {
    "space": "quick",
    "objective": "latency",
    "allow": (),
    "margin": 0.01,
}
SECONDS = 120.0


RULES = (
    needs(ON, any_of=(SCHEDULER,), why="a label is that of a scheduler's workers"),
    excludes(SCHEDULER, typed("--algorithms"), why="algorithms are timed on this machine"),
)


class Written(NamedTuple):
    """The settings file that was written, empty if none was, and the files of the caches beside it
    by the key of their option."""

    settings: str = ""
    caches: Mapping[str, str] = {}


def format_json(result: TuneResult, _: Written) -> str:
    return result.to_json() + "\n"


def format_csv(result: TuneResult, _: Written) -> str:
    from lar.reports.tune_text import format_csv

    return format_csv(result)


def format_html(result: TuneResult, written: Written) -> str:
    from lar.reports.tune_html import format_html

    return format_html(result, settings=written.settings, caches=written.caches)


def format_markdown(result: TuneResult, written: Written) -> str:
    from lar.reports.tune_text import format_markdown

    return format_markdown(result, settings=written.settings, caches=written.caches)


FORMATS: Mapping[str, Callable[[TuneResult, Written], str]] = {
    "json": format_json,
    "csv": format_csv,
    "html": format_html,
    "markdown": format_markdown,
}
SHOWN = {
    "json": "write all that was measured as JSON; - is standard output",
    "csv": "write the ranking as CSV; - is standard output",
    "html": "write a page with the course of the search; - is standard output",
    "markdown": "write what is printed as Markdown; - is standard output",
}
SUFFIXES = {"markdown": "md"}
SEVERAL = "; of several models a folder, with a file for each"

MODELS = "a model, with its twin in another format if there is one; several, or a folder of them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="*", help=MODELS)
    group = parser.add_argument_group("search")
    group.add_argument(
        "--budget",
        type=parse_duration,
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
    group.add_argument(
        "--engines",
        type=split_names,
        action=AddNames,
        metavar="A,B",
        help="try these engines alone",
    )
    group.add_argument(
        "--objective",
        choices=get_args(Objective),
        default=DEFAULTS["objective"],
        help="what is to be small (throughput: large): latency is the median (default latency)",
    )
    group.add_argument(
        "--allow",
        type=parse_allowed,
        action=AddNames,
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
    group.add_argument(
        "--algorithms",
        action="append",
        type=parse_path,
        metavar="CACHE",
        help="time the algorithms in this fast-run cache again instead, and write a better cache; "
        "given again: of several searches",
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
        help="write the best settings, for `lar MODEL --settings FILE`"
        + SEVERAL
        + "; with --algorithms the better cache (default CACHE itself)",
    )
    for key, text in SHOWN.items():
        group.add_argument(f"--{key}", type=parse_path, metavar="FILE", help=text)
    add_option(
        group,
        PACKED_MODEL_DUMP,
        "write the model with the best settings and their cache into one file, as far as the "
        "engine has one; what it cannot hold is printed" + SEVERAL,
    )
    add_option(group, SAVE, "keep the winner's results, and the plain run's, for `lar history`")
    add_option(group, TAG, "keep the results with this tag")
    add_option(group, STORE, "keep them in this store instead of the user's own")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
    group = parser.add_argument_group("other machines")
    add_option(group, SCHEDULER, "measure on workers of this Dask scheduler (`lar help farm`)")
    add_option(group, ON)
    add_run_options(parser, "all candidates")


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas."""
    return tuple(filter(None, (each.strip() for each in text.split(","))))


class AddNames(argparse.Action):
    """Names, added to those of the same flag before."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add the names."""
        before = getattr(namespace, self.dest) or ()
        setattr(namespace, self.dest, tuple(dict.fromkeys((*before, *values))))


def parse_allowed(text: str) -> tuple[str, ...]:
    """Parse what --allow takes."""
    names = split_names(text)
    for name in names:
        if name not in get_args(Allowed):
            known = ", ".join(get_args(Allowed))
            raise argparse.ArgumentTypeError(f"{name!r} cannot be allowed; give {known}")
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
    check_rules(RULES, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    if arguments.algorithms:
        from lar.cli.tune_algorithms import time_algorithms

        return time_algorithms(arguments, options, DEFAULTS, SECONDS)
    for option in (SETTINGS, FORCE):
        if option.is_given(options):
            raise UsageError(
                "a search finds settings, and begins without",
                "leave it out; `lar bench` compares settings",
                flag=option.flag,
            )
    with contextlib.ExitStack() as stack:
        farm: Field | None = None
        if arguments.scheduler is not None:
            from lar.farm.runs import open_farm  # few searches are made elsewhere

            farm = stack.enter_context(open_farm(arguments.scheduler))
        return search(arguments, options, farm)


def search(arguments: argparse.Namespace, options: Mapping[str, Any], farm: Field | None) -> int:
    """Search for each model, or list what would be tried; return the exit code. With a farm, its
    workers measure."""
    if arguments.resume is not None:
        refuse_beside_resume(arguments)
        return exit_code_of(tune(arguments, None, arguments.resume, farm))
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
    planned = [plan(group, arguments, options, farm) for group in groups]
    if arguments.list_space:
        print_spaces([each.request for each in planned], arguments.json)
        return 0
    if len(planned) == 1:
        return exit_code_of(tune(arguments, planned[0], arguments.session, farm))
    most = 1 if farm is None else farm.count_devices(arguments.on or "")
    if most > 1:
        from lar.cli.screen import screen_of_output
        from lar.cli.searches import search_at_once

        # What is printed there comes to this screen in the end.
        tune_there = functools.partial(tune_on_farm, screen=screen_of_output())
        ended = search_at_once(tune_there, arguments, planned, most)
    else:
        ended = [tune_one_of_several(arguments, each, farm) for each in planned]
    models = [each.request.spaces[0].model for each in planned]
    prints = "-" in [getattr(arguments, key) for key in FORMATS]
    print_ended(dict(zip(models, ended, strict=True)), sys.stderr if prints else sys.stdout)
    if found := [each.error for each in ended if each.error is not None]:
        raise join_errors(found, len(planned))
    return 0


def tune_one_of_several(
    arguments: argparse.Namespace,
    planned: Planned,
    farm: Field | None,
    show: Callable[[str], None] | None = None,
    screen: Screen | None = None,
) -> Ended:
    """Search for one model, and return what was found or why it failed: the others are searched all
    the same, unless this is interrupted."""
    from lar.cli.searches import Ended
    from lar.reports.tune_text import verdict_of

    try:
        result = tune(arguments, planned, None, farm, is_one=False, show_text=show, screen=screen)
    except LarError as error:
        return Ended(error.message, error)
    if result.ending == "interrupted" and result.error is None:
        raise KeyboardInterrupt
    return Ended(verdict_of(result), result.error)


def tune_on_farm(
    arguments: argparse.Namespace, planned: Planned, show: Callable[[str], None], screen: Screen
) -> Ended:
    """Search for one model of several, in a process of its own."""
    from lar.cli.searches import Ended
    from lar.farm.runs import open_farm

    try:
        with open_farm(arguments.scheduler) as farm:
            return tune_one_of_several(arguments, planned, farm, show, screen)
    except LarError as error:
        return Ended(error.message, error)


def print_ended(searches: Mapping[str, Ended], console: TextIO) -> None:
    """Print what came of the search for each of several models, in a line each."""
    from lar.cli.screen import screen_of_output

    screen = screen_of_output()
    print(file=console)
    for model, ended in searches.items():
        text = printable(f"{model}: {ended.said}")
        print(*screen.wrap(text, "  "), sep="\n", file=console)


def join_errors(errors: Sequence[LarError], count: int) -> LarError:
    """Return one error for those of some of `count` models, with the highest exit code."""
    if len(errors) == 1:
        return errors[0]
    worst = max(errors, key=lambda error: error.exit_code)
    return error_with_code(
        worst.exit_code,
        f"{len(errors)} of {count} models failed: " + "; ".join(each.message for each in errors),
        worst.hint,
    )


def print_spaces(requests: Sequence[TuneRequest], place: str | None) -> None:
    """Print what would be tried, and write it as JSON into a file that is named.

    Raises:
        UsageError: the file cannot be written.
    """
    from lar.cli.screen import screen_of_output
    from lar.files.report_file import OutputFile
    from lar.records.run import record_to_json
    from lar.reports.space_text import format_spaces
    from lar.tuning.campaign import find_not_tried

    listed = [(request.spaces, tuple(find_not_tried(request))) for request in requests]
    if place is not None:
        with OutputFile(place, "--json") as file:
            records = [{"spaces": spaces, "not_tried": left_out} for spaces, left_out in listed]
            file.write(record_to_json(records).decode() + "\n")
            if file.to_stdout:
                return
    texts = ["\n".join(format_spaces(*each, screen_of_output())) for each in listed]
    print("\n\n".join(texts))


def refuse_beside_resume(arguments: argparse.Namespace) -> None:
    """Refuse a folder, and what a session that is resumed has from its beginning.

    Raises:
        UsageError: naming it.
    """
    place: str = arguments.resume
    if os.path.isdir(place):
        raise UsageError("is a folder; give a file name", flag="--resume", subject=place)
    if arguments.models:
        raise UsageError("the session names its model", "leave MODEL out", flag="--resume")
    if arguments.session is not None:
        raise UsageError("names the session already", "leave --session out", flag="--resume")
    if arguments.list_space:
        raise UsageError(
            "goes on with a search, and measures", "leave --list-space out", flag="--resume"
        )
    for key in (*BENCH_KEYS, "space", "engines", "objective", "allow", "tolerance", "margin"):
        if is_set(vars(arguments)[key]) and vars(arguments)[key] != DEFAULTS.get(key):
            raise UsageError(
                f"goes on with what the session was begun with, without {flag_of(key)}",
                "begin another session for it",
                flag="--resume",
            )


def plan(
    models: Sequence[str],
    arguments: argparse.Namespace,
    options: Mapping[str, Any],
    farm: Field | None,
) -> Planned:
    """Return what is asked for of a model with its twins; with a farm, what one of its workers
    can try.

    Raises:
        LarError: its plain run is refused, or no worker can be asked.
    """
    asked = {
        "extent": arguments.space,
        "engines": arguments.engines or (),
        "objective": arguments.objective,
        "allowed": arguments.allow,
        "budget_seconds": SECONDS if arguments.budget is None else arguments.budget,
        "margin": arguments.margin,
        "tolerance": arguments.tolerance,
    }
    from lar.tuning.session import Elsewhere, Planned

    if farm is None:
        from lar.tuning.requests import make_request

        return Planned(make_request(models, options, **asked))
    from lar.farm.tuning import request_on_farm

    given = {key: value for key, value in options.items() if is_set(value)}
    found = request_on_farm(farm, arguments.on or "", models, given, **asked)
    return Planned(found.request, Elsewhere(found.machine, found.engines))


def plan_resumed(arguments: argparse.Namespace, place: str, farm: Field | None) -> Planned:
    """Return what a session was begun with; with a farm, the machine of it that goes on with it.

    Raises:
        LarError: there is no such session, or no worker is like the one that it began on.
    """
    from lar.tuning.session import Elsewhere, Planned, read_session

    with read_session(place) as session:
        request, machine = session.request, session.facts.machine
    if farm is None:
        return Planned(request)
    from lar.farm.tuning import request_on_farm

    models = list(dict.fromkeys(space.model for space in request.spaces))
    engines = tuple(space.engine for space in request.spaces)
    found = request_on_farm(farm, arguments.on or "", models, {}, machine, engines=engines)
    return Planned(request, Elsewhere(found.machine, found.engines))


def tune(
    arguments: argparse.Namespace,
    planned: Planned | None,
    place: str | None,
    farm: Field | None = None,
    *,
    is_one: bool = True,
    show_text: Callable[[str], None] | None = None,
    screen: Screen | None = None,
) -> TuneResult:
    """Search with a session, print and write what was found, and return it.

    `planned` is None for a session that is resumed. Progress is shown on standard error, unless
    `show_text` shows it. What was found is printed for `screen`, that of standard output if None.
    """
    from lar.cli.progress_line import PacedLine
    from lar.files.work_folders import work_folder
    from lar.tuning.campaign import Campaign, is_refused
    from lar.tuning.player import LocalPlayer, Player
    from lar.tuning.session import find_place, open_session, read_facts

    with contextlib.ExitStack() as after, contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(work_folder()))
        asked, elsewhere = planned or plan_resumed(arguments, str(place), farm)
        player: Player = LocalPlayer(folder)
        if farm is not None and elsewhere is not None:
            from lar.farm.tuning import FarmPlayer

            player = FarmPlayer(farm, arguments.on or "", elsewhere.machine)
        name = Path(asked.spaces[0].model).stem
        outputs = Outputs(arguments, asked, "" if is_one else name, stack)
        if place is None:
            place = find_place(asked, read_facts(asked, elsewhere))
        is_new = not os.path.exists(place)
        session = stack.enter_context(
            open_session(
                place,
                planned and planned.request,
                budget_seconds=arguments.budget,
                elsewhere=elsewhere,
            )
        )
        announced = Announcement(f"session: {place}{describe_known(session)}", outputs.console)
        line = stack.enter_context(PacedLine(sys.stderr))

        def show(progress: TuneProgress) -> None:
            if progress.has_begun:
                announced.print()
            (show_text or line.show)(describe_progress(progress))

        campaign = Campaign(session, player, folder, report=show)
        result = campaign.run()
        line.end()
        failure = result.failure
        if is_new and failure is not None and is_refused(result):
            # As of any other file that is no model: nothing is kept, and nothing else is printed.
            after.callback(os.unlink, place)
            raise failure.to_error()
        announced.print()
        if failure is not None and result.ending == "interrupted":
            hint = failure.hint
            if "--resume" not in hint:
                goes_on = f"`{command_to_resume(arguments, place)}` goes on"
                hint = f"{hint}; {goes_on}" if hint else goes_on
            result = replace(result, failure=replace(failure, hint=hint))
        outputs.write(result, campaign, screen)
    return result


def command_to_resume(arguments: argparse.Namespace, place: str) -> str:
    """Return the command that goes on with a session."""
    words = ["lar", "tune", "--resume", place]
    for option in (SCHEDULER, ON):
        if value := getattr(arguments, option.key):
            words += [option.flag, value]
    return shlex.join(words)


class Announcement:
    """A line that is printed once."""

    def __init__(self, text: str, file: TextIO) -> None:
        self.text = text
        self.file = file

    def print(self) -> None:
        if self.text:
            print(self.text, file=self.file, flush=True)
        self.text = ""


def describe_known(session: TuningSession) -> str:
    """Return what a session has to go on with, empty for a new one."""
    if not session.trials:
        return ""
    spent, budget = session.spent_seconds, session.request.budget_seconds
    trials = "1 trial" if len(session.trials) == 1 else f"{len(session.trials)} trials"
    began = session.began_at[:16].replace("T", " ")
    return f" (goes on: {trials}, {spent:.0f} of {budget:g} s, begun {began})"


class Outputs:
    """Where what was found goes; all is opened before anything is measured."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        request: TuneRequest,
        name: str,
        stack: contextlib.ExitStack,
    ) -> None:
        """`name` is that of the model in folders, where several are tuned.

        Raises:
            UsageError: a file cannot be written, or would replace what is read.
        """
        from lar.files.report_file import OutputFile, check_places
        from lar.running.places import places_of

        self.tag = arguments.tag or ""
        self.files = {
            key: stack.enter_context(
                OutputFile(place_of(path, name, SUFFIXES.get(key, key)), f"--{key}")
            )
            for key in FORMATS
            if (path := getattr(arguments, key)) is not None
        }
        self.settings: OutputFile | None = None
        beside: list[Place] = []
        if arguments.output is not None:
            from lar.tuning.outcome import check_settings_place, place_of_cache

            path = place_of(arguments.output, name, "json")
            self.settings = stack.enter_context(OutputFile(path, "--output"))
            check_settings_place(self.settings)
            beside.append(place_of_cache(self.settings))
        self.packed = ""
        checked: list[OutputFile] = []
        if arguments.packed_model_dump is not None:
            from lar.tuning.deployment import check_deployment

            suffix = Path(request.spaces[0].model).suffix.lstrip(".")
            self.packed = place_of(arguments.packed_model_dump, name, suffix)
            for space in request.spaces:
                check_deployment(space)
            # A run writes it in the end: now it is only seen that this is possible.
            with OutputFile(self.packed, PACKED_MODEL_DUMP.flag) as output:
                checked.append(output)
        opened = [*self.files.values(), *filter(None, [self.settings]), *checked]
        for space in request.spaces:
            fed = space.options.get(INPUT.key, ())
            choices = (each for dimension in space.dimensions for each in dimension.choices)
            given = {key: it for each in choices for key, it in each.options.items()}
            read = [*places_of(space.model, {**given, **space.options}), *beside]
            check_places(opened, paths_in(fed if isinstance(fed, tuple) else ()), read)
        self.store = open_asked_store(arguments, stack)
        prints = any(file.to_stdout for file in self.files.values())
        self.console = sys.stderr if prints else sys.stdout

    def write(self, result: TuneResult, campaign: Campaign, screen: Screen | None = None) -> None:
        """Print and write what was found; a file that cannot be written keeps back nothing else.

        Raises:
            LarError: files cannot be written, or nothing was measured that could be.
        """
        from lar.cli.screen import screen_of_output
        from lar.reports.tune_text import format_tune

        failures: list[LarError] = []
        written = Written()
        with kept_for_later(failures):
            written = self.write_settings(result, campaign)
        with kept_for_later(failures):
            self.pack(result, campaign)
        if self.console is sys.stdout:
            lines = format_tune(result, screen or screen_of_output(), **written._asdict())
            print("\n".join(lines), flush=True)
        for key, file in self.files.items():
            with kept_for_later(failures):
                file.write(FORMATS[key](result, written))
        with kept_for_later(failures):
            self.save(result, campaign)
        raise_all(failures)

    def write_settings(self, result: TuneResult, campaign: Campaign) -> Written:
        """Write the settings that won, where that is asked for, and their caches.

        Raises:
            LarError: they cannot be written.
        """
        if self.settings is None or not is_measured(result):
            return Written()
        from lar.tuning.outcome import write_settings

        files = campaign.winners_files(result)
        settings = write_settings(self.settings, result, files)
        folder = os.path.dirname(self.settings.name)
        caches = {key: os.path.join(folder, str(settings.options[key])) for key in files}
        return Written(self.settings.name, caches)

    def save(self, result: TuneResult, campaign: Campaign) -> None:
        """Keep the runs in a store, where that is asked for.

        Raises:
            LarError: it cannot be written.
        """
        if self.store is not None:
            from lar.tuning.outcome import runs_of_tune, saved_candidates

            specs = {each: campaign.spec_of(each) for each in saved_candidates(result)}
            known = {each: spec for each, spec in specs.items() if spec is not None}
            added = self.store.add(runs_of_tune(result, known), self.tag)
            print_saved(added, self.store)

    def pack(self, result: TuneResult, campaign: Campaign) -> None:
        """Write the model with the settings that won, where that is asked for.

        Raises:
            LarError: it cannot be written.
        """
        winner = result.winner
        spec = campaign.spec_of(winner.candidate) if winner and is_measured(result) else None
        if not self.packed or winner is None or spec is None:
            return
        from lar.tuning.deployment import write_packed

        space = campaign.request.spaces[winner.candidate.model]
        lines = write_packed(space, spec, self.packed)
        print("\n".join(lines), file=self.console, flush=True)


@contextlib.contextmanager
def kept_for_later(failures: list[LarError]) -> Iterator[None]:
    """Add an error to those that are raised in the end."""
    try:
        yield
    except LarError as error:
        failures.append(error)


def raise_all(failures: Sequence[LarError]) -> None:
    """Raise errors, several as one.

    Raises:
        LarError: if there are any.
    """
    if len(failures) == 1:
        raise failures[0]
    if failures:
        text = "; ".join(each.message for each in failures)
        are_mistakes = all(isinstance(each, UsageError) for each in failures)
        raise (UsageError if are_mistakes else LarError)(text, failures[0].hint)


def is_measured(result: TuneResult) -> bool:
    """Return whether there are settings that were measured: an interrupt may come before."""
    return result.ending != "failed" and any(
        row.turns and row.status == "ok" for trial in result.trials for row in trial.rows
    )


def place_of(path: str, name: str, suffix: str) -> str:
    """Return where a file goes: of several models into a folder, which is made.

    Raises:
        UsageError: it is not a folder, or cannot be made.
    """
    if not name or path == "-":
        return path
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise error_of_write(error, subject=path, hint="give a folder") from None
    return os.path.join(path, f"{name}.{suffix}")


def exit_code_of(result: TuneResult) -> int:
    """Return the exit code of a search that has been printed.

    Raises:
        LarError: the plain run failed, so that nothing could be compared, or the search could not
            go on; or an interrupt.
    """
    if (error := result.error) is not None:
        raise error
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    return 0


def describe_progress(progress: TuneProgress) -> str:
    """Return how far a search has come, in a few words."""
    parts = [f"trial {progress.trials + 1}, {progress.candidates} candidates"]
    if progress.ratio is not None:
        parts.append(f"best {progress.best} {1 / progress.ratio:.2f}x as fast")
    parts.append(f"{progress.doing}, {progress.left_seconds:.0f} s left")
    return ": ".join([", ".join(parts[:-1]), parts[-1]])
