"""`lar tune MODEL`: the fastest settings that keep the numbers right."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from lar.cli.bench import add_run_options, open_asked_store, print_saved
from lar.errors import LarError, UsageError, printable
from lar.files.path_conflicts import paths_in
from lar.options.arguments import add_option
from lar.options.option import is_set
from lar.options.rules import Asked, check_rules, needs
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
from lar.options.values import parse_budget, parse_error, parse_path, parse_share
from lar.options.variants import BENCH_KEYS
from lar.records.choices import Allowed, Objective

if TYPE_CHECKING:
    from lar.cli.progress_line import PacedLine
    from lar.farm.farm import Farm
    from lar.files.path_conflicts import Place
    from lar.files.report_file import OutputFile
    from lar.records.tuning import TuneRequest
    from lar.tuning.outcome import Tuning
    from lar.tuning.search import TuneProgress
    from lar.tuning.session import Facts

RULES = (needs(ON, any_of=(SCHEDULER,), why="a label is that of a scheduler's workers"),)

FORMATS = {
    "json": "write the ranking and the best settings as JSON; - is standard output",
    "csv": "write the ranking as CSV; - is standard output",
    "html": "write the ranking as a page; - is standard output",
    "markdown": "write what is printed as Markdown; - is standard output",
}
SEVERAL = "; of several models a folder, with a file for each"
MODELS = "a model, with its twin in another format if there is one; several, or a folder of them"

# What has gone, and what does the same.
GONE = {
    "--resume": "`lar tune MODEL --session FILE` goes on with what FILE holds",
    "--algorithms": "`lar bench MODEL --vary fast-run-algo-policy=A,B` compares caches",
}


def hint_at(flag: str, near: str) -> str:
    """Return the hint at a flag that is not taken."""
    return GONE.get(flag, near)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="MODEL", nargs="+", help=MODELS)
    group = parser.add_argument_group("search")
    group.add_argument(
        "--budget",
        type=parse_budget,
        default=120.0,
        metavar="S",
        help="search for at most S seconds, or 2m, for each model (default 120)",
    )
    group.add_argument(
        "--space",
        default="quick",
        metavar="quick|full|FILE",
        help="what is tried: what often helps (the default), all, or what a file says",
    )
    group.add_argument(
        "--list-space", action="store_true", help="print what would be tried, and measure nothing"
    )
    group.add_argument(
        "--engines",
        type=split_names,
        action="extend",
        default=[],
        metavar="A,B",
        help="try these engines alone",
    )
    group.add_argument(
        "--objective",
        choices=get_args(Objective),
        default="latency",
        help="what is to be small (throughput: large): latency is the median (default latency)",
    )
    group.add_argument(
        "--allow",
        type=parse_allowed,
        action="extend",
        default=[],
        metavar="A,B",
        help=f"try what needs your permission too: {', '.join(get_args(Allowed))}",
    )
    group.add_argument(
        "--tolerance",
        type=parse_error,
        metavar="E",
        help="take outputs for right whose |a - e| / max(|a|, |e|, 1) is at most E",
    )
    group.add_argument(
        "--margin",
        type=parse_share,
        default=0.01,
        metavar="SHARE",
        help="end when nothing that is left can win by as much (default 1%%)",
    )
    group.add_argument(
        "--session",
        type=parse_path,
        metavar="FILE",
        help="keep what is measured in this store, and go on with what it holds; `lar results "
        "FILE` shows it",
    )
    group = parser.add_argument_group("report")
    group.add_argument(
        "-o",
        "--output",
        type=parse_path,
        metavar="FILE",
        help="write the best settings, for `lar MODEL --settings FILE`" + SEVERAL,
    )
    for key, text in FORMATS.items():
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


def parse_allowed(text: str) -> tuple[str, ...]:
    """Parse what --allow takes."""
    names = split_names(text)
    for name in names:
        if name not in get_args(Allowed):
            known = ", ".join(get_args(Allowed))
            raise argparse.ArgumentTypeError(f"{name!r} cannot be allowed; give {known}")
    return names


def main(arguments: argparse.Namespace) -> int:
    """Search for each model, or list what would be tried; return the exit code."""
    check_rules(RULES, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    for option in (SETTINGS, FORCE):
        if option.is_given(options):
            raise UsageError(
                "a search finds settings, and begins without",
                "leave it out; `lar bench` compares settings",
                flag=option.flag,
            )
    from lar.tuning.requests import group_models

    groups = group_models(arguments.models)
    if len(groups) > 1 and arguments.session is not None:
        raise UsageError(
            f"is for one model, and {len(groups)} are given",
            "tune them one after the other",
            flag="--session",
        )
    with contextlib.ExitStack() as stack:
        farm: Farm | None = None
        if arguments.scheduler is not None:
            from lar.farm.runs import open_farm  # few searches are made elsewhere

            farm = stack.enter_context(open_farm(arguments.scheduler))
        planned = [plan(group, arguments, options, farm) for group in groups]
        if arguments.list_space:
            print_spaces([request for request, _ in planned], arguments.json)
            return 0
        if len(planned) == 1:
            return exit_code_of(tune(arguments, *planned[0], farm))
        return search_several(arguments, planned, farm)


def search_several(
    arguments: argparse.Namespace,
    planned: Sequence[tuple[TuneRequest, Facts | None]],
    farm: Farm | None,
) -> int:
    """Search for several models, one after the other, and print a line for each; one that fails
    does not keep the others from being searched.

    Raises:
        LarError: one has failed.
    """
    from lar.cli.report_files import raise_all
    from lar.reports.tune_report import verdict_of

    errors, said = list[LarError](), dict[str, str]()
    for request, facts in planned:
        model = request.spaces[0].model
        try:
            found = tune(arguments, request, facts, farm, is_one=False)
            said[model] = verdict_of(found)
            exit_code_of(found)
        except LarError as error:
            said.setdefault(model, error.message)
            errors.append(error)
    prints = "-" in [getattr(arguments, key) for key in FORMATS]
    lines = [printable(f"{model}: {text}") for model, text in said.items()]
    print("", *lines, sep="\n", file=sys.stderr if prints else sys.stdout)
    raise_all(errors, f"{len(errors)} of {len(planned)} models failed: ")
    return 0


def print_spaces(requests: Sequence[TuneRequest], place: str | None) -> None:
    """Print what would be tried, and write it as JSON into a file that is named.

    Raises:
        UsageError: the file cannot be written.
    """
    from lar.cli.screen import screen_of_output
    from lar.files.report_file import OutputFile
    from lar.records.run import record_to_json
    from lar.reports.space_text import format_spaces

    if place is not None:
        with OutputFile(place, "--json") as file:
            records = [{"spaces": it.spaces, "not_tried": it.not_tried} for it in requests]
            file.write(record_to_json(records).decode() + "\n")
            if file.to_stdout:
                return
    screen = screen_of_output()
    texts = ["\n".join(format_spaces(it.spaces, it.not_tried, screen)) for it in requests]
    print("\n\n".join(texts))


def plan(
    models: Sequence[str],
    arguments: argparse.Namespace,
    options: Mapping[str, Any],
    farm: Farm | None,
) -> tuple[TuneRequest, Facts | None]:
    """Return what is asked for of a model with its twins; with a farm, what one of its workers
    can try, and the facts of that machine.

    Raises:
        LarError: its plain run is refused, or no worker can be asked.
    """
    from lar.records.tuning import TuneRequest

    asked = TuneRequest(
        objective=arguments.objective,
        extent=arguments.space,
        budget_seconds=arguments.budget,
        margin=arguments.margin,
        allowed=tuple(arguments.allow),
        tolerance=arguments.tolerance,
    )
    if farm is None:
        from lar.tuning.requests import make_request

        return make_request(models, options, asked, arguments.engines), None
    from lar.farm.tuning import request_on_farm
    from lar.tuning.session import read_facts

    given = {key: value for key, value in options.items() if is_set(value)}
    request, machine, engines = request_on_farm(
        farm, arguments.on or "", models, given, asked, arguments.engines
    )
    return request, read_facts(request, machine, engines)


def tune(
    arguments: argparse.Namespace,
    request: TuneRequest,
    facts: Facts | None,
    farm: Farm | None,
    *,
    is_one: bool = True,
) -> Tuning:
    """Search for a model, print and write what was found, and return it.

    Raises:
        LarError: the search or a file cannot be made, or the model cannot be read.
    """
    from lar.cli.progress_line import PacedLine
    from lar.files.work_folders import work_folder
    from lar.tuning.player import LocalPlayer, Player
    from lar.tuning.search import search_with

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(work_folder()))
        player: Player = LocalPlayer(folder)
        if farm is not None and facts is not None:
            from lar.farm.tuning import FarmPlayer

            player = FarmPlayer(farm, arguments.on or "", facts.machine)
        name = "" if is_one else Path(request.spaces[0].model).stem
        outputs = Outputs(arguments, request, name, stack)
        progress = Progress(stack.enter_context(PacedLine(sys.stderr)), request)
        found = search_with(
            request,
            arguments.session or str(folder / "session"),
            folder,
            player=player,
            facts=facts,
            report=progress.show,
        )
        progress.line.end()
        failure = found.failure
        if failure and found.ending == "failed" and failure.exit_code == UsageError.exit_code:
            raise failure.to_error()  # as of any other file that is no model
        if not found.ranking:
            raise found.error or KeyboardInterrupt
        outputs.write(found)
    return found


class Progress:
    """What is shown while a search goes on: the first ranking, and a line."""

    def __init__(self, line: PacedLine, request: TuneRequest) -> None:
        self.line = line
        self.request = request
        self.has_ranking = False

    def show(self, progress: TuneProgress) -> None:
        """Show how far a search has come."""
        from lar.reports.tune_report import build_first_report, describe_best

        ranking, objective = progress.ranking, self.request.objective
        if ranking and not self.has_ranking:
            self.has_ranking = True
            spent = self.request.budget_seconds - progress.left_seconds
            self.line.end()
            print(f"first ranking, after {spent:.0f} s:", file=sys.stderr)
            print(build_first_report(ranking, objective).text, file=sys.stderr, end="", flush=True)
        best = f"; best so far {describe_best(ranking[0], objective)}" if ranking else ""
        doing = f"round {progress.rounds + 1}: {progress.doing}{best}"
        self.line.show(printable(f"{doing}; {progress.left_seconds:.0f} s left"))


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
        from lar.cli.report_files import ReportFiles, place_in
        from lar.files.report_file import OutputFile, check_places
        from lar.running.places import places_of

        self.arguments = arguments
        self.reports = ReportFiles(arguments, FORMATS, stack, name)
        self.settings: OutputFile | None = None
        beside: list[Place] = []
        if arguments.output is not None:
            from lar.tuning.outcome import check_settings_place, place_of_cache

            path = place_in(arguments.output, name, "json")
            self.settings = stack.enter_context(OutputFile(path, "--output"))
            check_settings_place(self.settings)
            beside.append(place_of_cache(self.settings))
        opened = [*self.reports.files.values(), *filter(None, [self.settings])]
        self.packed = ""
        if arguments.packed_model_dump is not None:
            from lar.tuning.deployment import check_deployment

            suffix = Path(request.spaces[0].model).suffix.lstrip(".")
            self.packed = place_in(arguments.packed_model_dump, name, suffix)
            for space in request.spaces:
                check_deployment(space)
            # A run writes it in the end: now it is only seen that this is possible.
            with OutputFile(self.packed, PACKED_MODEL_DUMP.flag) as output:
                opened.append(output)
        for space in request.spaces:
            fed = space.options.get(INPUT.key, ())
            choices = (each for dimension in space.dimensions for each in dimension.choices)
            given = {key: it for each in choices for key, it in each.options.items()}
            read = [*places_of(space.model, {**given, **space.options}), *beside]
            check_places(opened, paths_in(fed if isinstance(fed, tuple) else ()), read)
        self.store = open_asked_store(arguments, stack)

    def write(self, found: Tuning) -> None:
        """Print and write what was found; a file that cannot be written keeps back nothing else.

        Raises:
            LarError: files cannot be written, or nothing was measured that could be.
        """
        from lar.cli.report_files import kept_for_later, raise_all
        from lar.reports.tune_report import build_report
        from lar.tuning.outcome import caches_in, write_settings

        errors: list[LarError] = []
        caches = caches_in(found.tuned) if found.tuned and self.arguments.session else {}
        written = ""
        if self.settings is not None and found.tuned is not None:
            with kept_for_later(errors):
                settings = write_settings(self.settings, found)
                written = self.settings.name
                caches = caches_in(settings, os.path.dirname(written))
        if self.packed:
            with kept_for_later(errors):
                self.pack(found)
        report = build_report(found, settings=written, caches=caches)
        self.reports.write(report, errors)
        if self.store is not None:
            with kept_for_later(errors):
                print_saved(self.store.add(found.runs, self.arguments.tag or ""), self.store)
        raise_all(errors)

    def pack(self, found: Tuning) -> None:
        """Write the model with the settings that won.

        Raises:
            LarError: it cannot be written.
        """
        from lar.records.tuning import space_of
        from lar.tuning.deployment import write_packed

        space = space_of(found)
        if space is not None and found.runs:
            lines = write_packed(space, found.runs[-1].spec, self.packed)
            print("\n".join(lines), file=self.reports.console, flush=True)


def exit_code_of(found: Tuning) -> int:
    """Return the exit code of a search that has been printed.

    Raises:
        LarError: the plain run failed, so that nothing could be compared, or the search could not
            go on; or an interrupt.
    """
    if (error := found.error) is not None:
        raise error
    if found.ending == "interrupted":
        raise KeyboardInterrupt
    return 0
