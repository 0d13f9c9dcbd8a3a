"""The searches of `lar tune`: their plans, their progress and their results."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.cli.outlet import PacedLine
from lar.cli.report_files import (
    FORMS,
    check_places,
    kept_for_later,
    open_reports,
    place_in,
    raise_all,
)
from lar.cli.screen import say
from lar.errors import LarError, UsageError, printable
from lar.files.report_file import OutputFile
from lar.files.work_folders import work_folder
from lar.options.option import is_set
from lar.options.paths import Place, paths_in
from lar.options.table import INPUT, PACKED_MODEL_DUMP
from lar.records.tuning import TuneRequest, space_of
from lar.reports.tune_report import describe_best, report_space, report_tuning, verdict_of
from lar.running.plan import places_of
from lar.tuning import outcome
from lar.tuning.outcome import check_deployment, write_packed
from lar.tuning.player import LocalPlayer, Player
from lar.tuning.search import TuneProgress, search_with
from lar.tuning.session import Facts, read_facts
from lar.tuning.space import group_models, make_request

if TYPE_CHECKING:
    from lar.farm.farm import Farm


class Command(NamedTuple):
    """The arguments that were typed, the options for all candidates, and the farm."""

    arguments: argparse.Namespace
    options: Mapping[str, Any]
    farm: Farm | None = None


class Planned(NamedTuple):
    """A search that is planned for one model; the model may have files in several formats.

    If a farm makes the search, `facts` describes the machine of the worker.
    """

    request: TuneRequest
    facts: Facts | None = None


def search_all(arguments: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """Find the best settings of each model, or list the settings to try; return the exit code.

    Raises:
        LarError: an argument is refused, or a search failed; all other searches were made.
        KeyboardInterrupt: the user ended a search; its results so far are printed.
    """
    groups = group_models(arguments.models)
    if len(groups) > 1 and arguments.session is not None:
        problem = f"is for one model, and {len(groups)} are given"
        raise UsageError(problem, "tune one model at a time", flag="--session")
    with contextlib.ExitStack() as stack:
        command = Command(arguments, options)
        if arguments.scheduler is not None:
            from lar.farm.runs import open_farm  # few searches are made elsewhere

            command = command._replace(farm=stack.enter_context(open_farm(arguments.scheduler)))
        planned = [plan(group, command) for group in groups]
        if arguments.list_space:
            report = report_space([each.request for each in planned])
            stack.enter_context(open_reports(vars(arguments))).write(report)
        elif len(planned) == 1:
            raise_end(tune(planned[0], command))
        else:
            search_several(planned, command)
    return 0


def search_several(planned: Sequence[Planned], command: Command) -> None:
    """Find the best settings of several models, one by one; print a line for each model.

    Raises:
        LarError: a search failed; the searches for all other models were made.
    """
    errors, said = list[LarError](), dict[str, str]()
    for each in planned:
        model = each.request.spaces[0].model
        try:
            found = tune(each, command, Path(model).stem)
            said[model] = verdict_of(found)
            raise_end(found)
        except LarError as error:
            said.setdefault(model, error.message)
            errors.append(error)
    prints = "-" in [getattr(command.arguments, key) for key in FORMS]
    for line in ("", *(f"{model}: {text}" for model, text in said.items())):
        say(line, sys.stderr if prints else sys.stdout)
    raise_all(errors, f"{len(errors)} of {len(planned)} models failed: ")


def plan(models: Sequence[str], command: Command) -> Planned:
    """Return the plan of the search for a model.

    With a farm, the plan has the settings that one worker of the farm can try.

    Raises:
        LarError: the plain run is refused, or no worker answers.
    """
    arguments, options, farm = command
    asked = TuneRequest(
        objective=arguments.objective,
        extent=arguments.space,
        budget_seconds=arguments.budget,
        margin=arguments.margin,
        allowed=tuple(arguments.allow),
        tolerance=arguments.tolerance,
    )
    if farm is None:
        return Planned(make_request(models, options, asked, arguments.engines))
    from lar.farm.runs import request_on_farm

    given = {key: value for key, value in options.items() if is_set(value)}
    request, machine, engines = request_on_farm(
        farm, arguments.on or "", models, given, asked, arguments.engines
    )
    return Planned(request, read_facts(request, machine, engines))


def tune(planned: Planned, command: Command, name: str = "") -> outcome.Tuning:
    """Find the best settings of a model; print, write and return the result.

    If `name` is given, the flags for files name folders, and the files in them are called `name`.

    Raises:
        LarError: the search or a file cannot be made, or the model cannot be read.
    """
    (request, facts), arguments = planned, command.arguments
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(work_folder()))
        player: Player = LocalPlayer(folder)
        if command.farm is not None and facts is not None:
            from lar.farm.runs import FarmPlayer

            player = FarmPlayer(command.farm, arguments.on or "", facts.machine)
        outputs = Outputs(request, command, stack, name)
        line = stack.enter_context(PacedLine(sys.stderr))
        place = arguments.session or str(folder / "session")
        found = search_with(
            request, place, folder, player=player, facts=facts, report=shower(line, request)
        )
        line.end()
        failure = found.failure
        if failure and found.ending == "failed" and failure.exit_code == UsageError.exit_code:
            raise failure.to_error()  # as other commands do for a file that is no model
        if not found.ranking:
            raise found.error or KeyboardInterrupt
        outputs.write(found)
    return found


def raise_end(found: outcome.Tuning) -> None:
    """Raise the error that ended a search early; the results so far are already printed.

    Raises:
        LarError: the plain run failed, or the search could not go on.
        KeyboardInterrupt: the user ended the search.
    """
    if (error := found.error) is not None:
        raise error
    if found.ending == "interrupted":
        raise KeyboardInterrupt


def shower(line: PacedLine, request: TuneRequest) -> Callable[[TuneProgress], None]:
    """Return a function that shows the first ranking of a search, and a progress line."""
    first = ["first ranking, after {:.0f} s:"]

    def show(progress: TuneProgress) -> None:
        known = [describe_best(each, request.objective) for each in progress.ranking]
        if known and first:
            line.end()
            title = first.pop().format(request.budget_seconds - progress.left_seconds)
            print(title, *map(printable, known), sep="\n  ", file=sys.stderr)
        best = f"; best so far {known[0]}" if known else ""
        doing = f"round {progress.rounds + 1}: {progress.doing}{best}"
        line.show(f"{doing}; {progress.left_seconds:.0f} s left")

    return show


class Outputs:
    """The files for the results of a search; all are opened before anything is measured."""

    def __init__(
        self, request: TuneRequest, command: Command, stack: contextlib.ExitStack, name: str
    ) -> None:
        """Open all files.

        If `name` is given, the flags for files name folders, and the files in them are called
        `name`.

        Raises:
            UsageError: a file cannot be written, or would replace a file that the command reads.
        """
        self.arguments = arguments = command.arguments
        self.reports = stack.enter_context(open_reports(vars(arguments), name))
        self.packed = ""
        self.settings: OutputFile | None = None
        opened, beside = [*self.reports.files], list[Place]()
        if arguments.output is not None:
            path = place_in(arguments.output, name, "json")
            self.settings = stack.enter_context(OutputFile(path, "--output"))
            outcome.check_settings_place(self.settings)
            opened.append(self.settings)
            beside.append(outcome.place_of_cache(self.settings))
        if arguments.packed_model_dump is not None:
            suffix = Path(request.spaces[0].model).suffix.lstrip(".")
            self.packed = place_in(arguments.packed_model_dump, name, suffix)
            for space in request.spaces:
                check_deployment(space)
            # A run writes the packed model later; this only checks that the file can be written.
            with OutputFile(self.packed, PACKED_MODEL_DUMP.flag, is_text=False) as output:
                opened.append(output)
        for space in request.spaces:
            fed = space.options.get(INPUT.key, ())
            choices = (each for dimension in space.dimensions for each in dimension.choices)
            given = {key: it for each in choices for key, it in each.options.items()}
            read = [*places_of(space.model, {**given, **space.options}), *beside]
            check_places(opened, paths_in(fed if isinstance(fed, tuple) else ()), read)

    def write(self, found: outcome.Tuning) -> None:
        """Print and write the results; if one file cannot be written, still write all other files.

        Raises:
            LarError: files cannot be written.
        """
        errors, space = list[LarError](), space_of(found)
        caches = outcome.caches_in(found.tuned) if found.tuned and self.arguments.session else {}
        if self.settings is not None and found.tuned is not None:
            with kept_for_later(errors):
                settings = outcome.write_settings(self.settings, found)
                caches = outcome.caches_in(settings, os.path.dirname(self.settings.name))
        if self.packed and space is not None and found.runs:
            with kept_for_later(errors):
                lines = write_packed(space, found.runs[-1].spec, self.packed)
                print("\n".join(map(printable, lines)), file=self.reports.console, flush=True)
        with kept_for_later(errors):
            self.reports.write(report_tuning(found, caches=caches))
        with kept_for_later(errors):
            for note in self.reports.save(found.runs):
                say(note)
        raise_all(errors)
