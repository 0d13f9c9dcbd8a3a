"""`lar compare A B ...`: what differs between dumps or models, and the operator at fault."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.errors import Interrupted, UsageError
from lar.options.arguments import add_option
from lar.options.option import Option, is_set
from lar.options.rules import Asked, check_rules, excludes, needs, typed
from lar.options.table import (
    DRIVER,
    ENGINE,
    ENGINE_ENV,
    FORCE,
    ON,
    OPTIONS,
    PYTHON,
    SCHEDULER,
    SETTINGS,
    STALL_TIMEOUT,
    TIMEOUT,
    option_of,
)
from lar.options.values import parse_limit

if TYPE_CHECKING:
    from lar.files.report_file import OutputFile
    from lar.records.comparison import Comparison, ComparisonOfSides
    from lar.records.run import RunContext, RunResult, RunSpec
    from lar.reports.report import Report
    from lar.running.compared_sides import Side
    from lar.running.side_runs import MakeOn

SIDE = (
    "a dump's folder, a tensor's file, a folder of .npy, a .npz, a .npy, the text of --io-dump, or "
    'a model with its options: "model.mge --cpu"'
)
EXPECTED = "what A should be, given in the same ways"
ENGINE_HELP = """\
any option of `lar run` that says how a model is run (`lar run --help all`), as
--graph-optimization-level basic; in the quotes of a side it is for that side alone"""

FORMATS = ("markdown", "csv", "html", "json")
SUFFIXES = {".md": "markdown", ".csv": "csv", ".html": "html", ".json": "json"}

INPUT_OPTIONS = tuple(option for option in OPTIONS if option.purpose == "input")
# How the models are loaded and computed, without what is written beside.
ENGINE_OPTIONS: tuple[Option[Any], ...] = (
    *(ENGINE, DRIVER, TIMEOUT, STALL_TIMEOUT, ENGINE_ENV, PYTHON, SETTINGS, FORCE),
    *(each for each in OPTIONS if each.purpose in ("setting", "cache") and not each.writes),
)
OPTIONS_OF_SIDES: tuple[Option[Any], ...] = (*INPUT_OPTIONS, *ENGINE_OPTIONS)

MISSING = "give two sides: A B"

# What has gone, and what does the same.
GONE = {
    "--map": "values and graphs say which tensor is which; --model FILE gives the model's names",
    "--wide": "--report FILE.html and FILE.csv have every column",
}


def hint_at(flag: str, near: str) -> str:
    """Return the hint at a flag that is not one of this command: one of `lar run` is for a side."""
    option = option_of(flag.removeprefix("--").replace("-", "_"))
    if option is None:
        return near or 'a flag for one model is quoted with it: "model.onnx --cpu"'
    return f'it is for one model alone, quoted with it: "model.onnx {option.usage}"'


def texts_of(values: Mapping[str, Any]) -> list[str]:
    """Return the sides as they were typed."""
    return [values["actual"], values["expected"], *values["others"]]


RULES = (
    excludes(typed("--max-err"), typed("--rtol"), typed("--atol")).because(
        "--max-err E alone decides how far elements may be apart"
    ),
    needs(ON, any_of=SCHEDULER).because("a label is that of a scheduler's workers"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("actual", metavar="A", help=SIDE)
    parser.add_argument("expected", metavar="B", help=EXPECTED)
    parser.add_argument(
        "others",
        metavar="C",
        nargs="*",
        help="more sides: all are compared with A, and the odd one out is named",
    )
    group = parser.add_argument_group("tolerance")
    group.add_argument(
        "--rtol",
        type=parse_tolerance,
        metavar="R",
        help="an element may differ by R times the expected one (default 1e-4 for float32)",
    )
    group.add_argument(
        "--atol",
        type=parse_tolerance,
        metavar="D",
        help="an element may differ by D besides --rtol (default R times the tensor's root mean "
        "square)",
    )
    group.add_argument(
        "-e",
        "--max-err",
        type=parse_tolerance,
        metavar="E",
        help="instead of --rtol and --atol: |a-e| / max(|a|, |e|, 1) may be E",
    )
    group.add_argument(
        "--raw",
        action="store_true",
        help="compare the integers of quantised tensors, not the real numbers that they stand for",
    )
    group.add_argument(
        "--only",
        choices=("outputs", "common"),
        default="outputs",
        help="what decides: the models' outputs (the default), or every tensor that both sides "
        "have",
    )
    group = parser.add_argument_group("matching")
    group.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="[A=]FILE",
        help="the model that a dump or arrays are of, for its names and its graph; for both sides, "
        "or for A alone",
    )
    group = parser.add_argument_group("culprits")
    group.add_argument(
        "--isolate",
        action="store_true",
        help="run every operator of A alone, on B's values of its inputs: what it is off by "
        "itself; finds a fault behind another too",
    )
    group.add_argument(
        "--truth",
        nargs="?",
        const=True,
        default=False,
        metavar="MODEL",
        help="compute in float64 what the model should give too, and how far A and B are from it: "
        "the .onnx of a side, or the one beside its model, or MODEL",
    )
    group = parser.add_argument_group("report")
    group.add_argument(
        "--all", action="store_true", help="print every tensor, not only the 20 worst that differ"
    )
    group.add_argument(
        "--report",
        action="append",
        default=[],
        metavar="FILE",
        help="write what was found to FILE.html, FILE.json, FILE.csv or FILE.md; - for stdout, "
        "in the form of --format; may be given again",
    )
    group.add_argument(
        "--format",
        choices=FORMATS,
        help="the form of a report whose name has none (default markdown for -)",
    )
    group = parser.add_argument_group("other machines")
    add_option(
        group, SCHEDULER, "have workers of this Dask scheduler run the models (`lar help farm`)"
    )
    add_option(group, ON, 'take a worker that has this label; for one side: "m.onnx --on x86"')
    group = parser.add_argument_group("input of models, on all sides")
    group.add_argument(
        "--case",
        type=int,
        metavar="N",
        help="the testcase to compare, of files and folders with several (default 0)",
    )
    for option in INPUT_OPTIONS:
        # Texts: the runs parse them, as they do those in the sides.
        add_option(group, option, parse=str)
    group = parser.add_argument_group("engine and settings of models, on all sides", ENGINE_HELP)
    for option in ENGINE_OPTIONS:
        add_option(group, option, argparse.SUPPRESS, parse=str)


def main(arguments: argparse.Namespace) -> int:
    """Compare, print and write; return the exit code."""
    check_rules(RULES, Asked(vars(arguments)))
    # Not before: the tensors' library would slow down the help.
    from lar.cli.progress_line import LateLine
    from lar.cli.report_files import ReportFiles, raise_all
    from lar.running.compared_dumps import compare
    from lar.running.compared_sides import check_any_model, side_of
    from lar.running.model_names import parse_models

    forms = [form_of(name, arguments.format) for name in arguments.report]
    if arguments.format and all(Path(name).suffix.lower() in SUFFIXES for name in arguments.report):
        raise UsageError(
            "no report needs it", "add --report -", flag=f"--format {arguments.format}"
        )
    with contextlib.ExitStack() as stack:
        sides = [side_of(text) for text in texts_of(vars(arguments))]
        if arguments.scheduler:
            check_any_model(sides, SCHEDULER.flag)
        files = open_reports(arguments, sides, stack) if arguments.report else []
        make_on = stack.enter_context(open_workers(arguments)) if arguments.scheduler else None
        with LateLine(sys.stderr) as line:
            comparison: Comparison | ComparisonOfSides = compare(
                sides[0],
                sides[1],
                *sides[2:],
                rtol=arguments.rtol,
                atol=arguments.atol,
                max_error=arguments.max_err,
                raw=arguments.raw,
                case=arguments.case,
                isolate=arguments.isolate,
                only=arguments.only,
                truth=arguments.truth,
                models=parse_models(arguments.model),
                progress=line.show,
                make_on=make_on,
                **options_for_models(arguments),
            )
        make = partial(report_of, comparison, everything=arguments.all)
        raise_all(ReportFiles(zip(forms, files, strict=True)).write(make))
    return exit_code_of(comparison)


def options_for_models(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options for the models of all sides that were typed, by key."""
    values = {option.key: getattr(arguments, option.key) for option in OPTIONS_OF_SIDES}
    return {key: value for key, value in values.items() if is_set(value)}


def exit_code_of(comparison: Comparison | ComparisonOfSides) -> int:
    """Return the exit code: 0 if the sides are the same, 1 if they differ, 2 if nothing could be
    compared, 130 if the user interrupted the comparison."""
    if comparison.interrupted:
        return Interrupted.exit_code
    return {"same": 0, "nothing": UsageError.exit_code}.get(comparison.finding, 1)


@contextlib.contextmanager
def open_workers(arguments: argparse.Namespace) -> Iterator[MakeOn]:
    """Connect to the scheduler; return what makes a run on one of its workers.

    Raises:
        LarError: it cannot be used.
    """
    from lar.farm.runs import make_on_farm, open_farm  # few comparisons are of other machines

    with open_farm(arguments.scheduler) as farm:

        def make_on(spec: RunSpec, context: RunContext, label: str) -> RunResult:
            return make_on_farm(farm, label or arguments.on or "", spec, context)

        yield make_on


def report_of(comparison: Comparison | ComparisonOfSides, form: str, *, everything: bool) -> Report:
    """Return the report of a comparison for a form."""
    from lar.records.comparison import ComparisonOfSides

    everything |= form == "html"
    if isinstance(comparison, ComparisonOfSides):
        from lar.reports.sides_report import report_sides

        return report_sides(comparison, everything=everything)
    from lar.reports.comparison_report import report_comparison

    return report_comparison(comparison, everything=everything)


def form_of(name: str, asked: str | None) -> str:
    """Return the form of a report: that of its name, else the one asked for.

    Raises:
        UsageError: neither says it.
    """
    form = SUFFIXES.get(Path(name).suffix.lower()) or asked or ("markdown" if name == "-" else "")
    if not form:
        raise UsageError(
            "its format is not known",
            "name it .html, .json, .csv or .md, or say --format",
            flag="--report",
            subject=name,
        )
    return form


def open_reports(
    arguments: argparse.Namespace, sides: Sequence[Side], stack: contextlib.ExitStack
) -> list[OutputFile]:
    """Open the reports before anything is compared.

    Raises:
        UsageError: one cannot be written, or would spoil what is compared.
    """
    from lar.dumps.dump import Dump
    from lar.files.path_conflicts import Place, paths_in, places_of_dump
    from lar.files.report_file import OutputFile, check_places
    from lar.running.model_names import parse_models
    from lar.running.places import places_of

    files = [stack.enter_context(OutputFile(name, "--report")) for name in arguments.report]
    read = [*paths_in(arguments.input or ()), *parse_models(arguments.model).values()]
    places: list[Place] = []
    for side in sides:
        if isinstance(side, Dump):
            places += places_of_dump(side.source, what="a dump that is compared")
        else:
            places += places_of(side.model, {**options_for_models(arguments), **side.options})
            read += paths_in(side.options.get("input", ()))
    check_places(files, read, places)
    return files


def parse_tolerance(text: str) -> float:
    """Parse a tolerance: 0 or more."""
    return 0.0 if re.fullmatch(r"0+(\.0*)?", text) else parse_limit(text)
