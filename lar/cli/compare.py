"""`lar compare A B ...` prints how dumps or models differ, and which operator is at fault."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lar.cli.arguments import argument, declared, heading, option
from lar.errors import Interrupted, UsageError
from lar.options.option import Option, is_set
from lar.options.table import BENCH_OPTIONS, COPY_TO_HOST, SCHEDULER, VERBOSE, WARMUP_ITER

if TYPE_CHECKING:
    from lar.options.paths import Place
    from lar.records.comparison import Comparison, ComparisonOfSides
    from lar.reports.report import Report
    from lar.running.compared_sides import MakeOn, Side

ENGINE_HELP = """\
any option of `lar run` for how a model runs (`lar run --help all`), such as
--graph-optimization-level basic; an option in the quotes of a side is for that side alone"""

SUFFIXES = {".md": "markdown", ".csv": "csv", ".html": "html", ".json": "json"}

# The options for how a model is loaded, fed and computed once. Options that write files are left
# out.
OPTIONS_OF_SIDES: tuple[Option[Any], ...] = (
    *(each for each in BENCH_OPTIONS if each not in (WARMUP_ITER, COPY_TO_HOST)),
    VERBOSE,
)
# The arguments that the comparison takes as they are typed.
HOW = ("rtol", "atol", "raw", "case", "isolate", "only", "truth")

MISSING = "give two sides: A B"


def hint_at(known: Option[Any] | None, near: str) -> str:
    """Return the hint for an unknown flag.

    If the unknown flag is an option of `lar run`, `known` is this option, and the hint says how to
    quote the flag together with a model.
    """
    if known is None:
        return near or 'a flag for one model is quoted with it: "model.onnx --cpu"'
    return f'it is for one model alone, quoted with it: "model.onnx {known.usage}"'


ARGUMENTS = (
    declared("compare"),
    heading(
        "input of models, on all sides",
        argument("--case N", "which testcase of a file or folder to compare (default 0)", type=int),
        # Values stay texts: each run parses them, as it parses the options of its side.
        *(option(it, parse=str) for it in OPTIONS_OF_SIDES if it.purpose == "input"),
    ),
    heading(
        "engine and settings of models, on all sides",
        *(option(it, argparse.SUPPRESS, str) for it in OPTIONS_OF_SIDES if it.purpose != "input"),
        text=ENGINE_HELP,
    ),
)


def main(arguments: argparse.Namespace) -> int:
    """Compare the sides, print and write the report; return the exit code."""
    # Imported here, like the modules below: the help needs none of them.
    from lar.options.rules import SHARED, Asked, check_rules, excludes, typed

    why = "--max-err E alone decides how far elements may be apart"
    bounds = excludes(typed("--max-err"), typed("--rtol"), typed("--atol")).because(why)
    check_rules((bounds, *SHARED), Asked(vars(arguments)))
    from lar.cli.outlet import LateLine
    from lar.cli.report_files import open_places
    from lar.running.compared_sides import check_any_model, compare, side_of

    reports = [(form_of(name, arguments.format), name, "--report") for name in arguments.report]
    if arguments.format and all(map(form_named, arguments.report)):
        hint, flag = "to print the report, add --report -", f"--format {arguments.format}"
        raise UsageError("no report uses this flag: suffixes set the format", hint, flag=flag)
    with contextlib.ExitStack() as stack:
        sides = [*map(side_of, (arguments.actual, arguments.expected, *arguments.others))]
        if arguments.scheduler:
            check_any_model(sides, SCHEDULER.flag)
        read = places_read(arguments, sides) if reports else ()
        files = stack.enter_context(open_places(reports, *read))
        make_on = stack.enter_context(open_workers(arguments)) if arguments.scheduler else None
        with LateLine(sys.stderr) as line:
            comparison: Comparison | ComparisonOfSides = compare(
                sides[0],
                sides[1],
                *sides[2:],
                **{key: getattr(arguments, key) for key in HOW},
                max_error=arguments.max_err,
                models=models_of(arguments),
                progress=line.show,
                make_on=make_on,
                **options_for_models(arguments),
            )
        files.write(partial(report_of, comparison, everything=arguments.all))
    return exit_code_of(comparison)


def options_for_models(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options on the command line that apply to the models of all sides, by key."""
    values = {each.key: getattr(arguments, each.key) for each in OPTIONS_OF_SIDES}
    return {key: value for key, value in values.items() if is_set(value)}


def models_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the files that `--model` names, by the letter of a side.

    A file for all sides has the empty text as its key.
    """
    if not arguments.model:
        return {}
    from lar.engines.model_names import parse_models  # slow to import

    return parse_models(arguments.model)


def exit_code_of(comparison: Comparison | ComparisonOfSides) -> int:
    """Return the exit code of a comparison.

    0 means that no side differs, and 1 that a side differs. 2 means that lar found nothing to
    compare, and 130 that the user interrupted the comparison.
    """
    if comparison.interrupted:
        return Interrupted.exit_code
    return {"same": 0, "nothing": UsageError.exit_code}.get(comparison.finding, 1)


@contextlib.contextmanager
def open_workers(arguments: argparse.Namespace) -> Iterator[MakeOn]:
    """Connect to the scheduler; yield a function that runs a model on one of its workers.

    Raises:
        LarError: the scheduler cannot be used.
    """
    from lar.farm.runs import make_on_farm, open_farm  # few comparisons are of other machines

    with open_farm(arguments.scheduler) as farm:
        on = arguments.on or ""
        yield lambda spec, context, label: make_on_farm(farm, label or on, spec, context)


def report_of(comparison: Comparison | ComparisonOfSides, form: str, *, everything: bool) -> Report:
    """Return the report of a comparison in a format."""
    from lar.records.comparison import ComparisonOfSides
    from lar.reports.comparison_report import report_comparison, report_sides

    everything |= form == "html"
    if isinstance(comparison, ComparisonOfSides):
        return report_sides(comparison, everything=everything)
    return report_comparison(comparison, everything=everything)


def form_named(name: str) -> str:
    """Return the format that the suffix of a report's file name stands for; empty if unknown."""
    from pathlib import Path  # slow to import

    return SUFFIXES.get(Path(name).suffix.lower(), "")


def form_of(name: str, asked: str | None) -> str:
    """Return the format of a report, from its file name or else from `--format`.

    Raises:
        UsageError: neither the file name nor `--format` names a format.
    """
    form = form_named(name) or asked or ("markdown" if name == "-" else "")
    if not form:
        hint = "name the file .html, .json, .csv or .md, or give --format"
        raise UsageError("the report's format is not known", hint, flag="--report", subject=name)
    return form


def places_read(
    arguments: argparse.Namespace, sides: Sequence[Side]
) -> tuple[list[str], list[Place]]:
    """Return the files that a comparison reads, and other paths that no report may overwrite."""
    from lar.options.paths import paths_in, places_of_dump
    from lar.running.compared_sides import ModelRun
    from lar.running.plan import places_of

    read = [*paths_in(arguments.input or ()), *models_of(arguments).values()]
    places: list[Place] = []
    for side in sides:
        if isinstance(side, ModelRun):
            places += places_of(side.model, {**options_for_models(arguments), **side.options})
            read += paths_in(side.options.get("input", ()))
        else:
            places += places_of_dump(side.source, what="a dump that is compared")
    return read, places
