"""`lar bench MODEL --vary FLAG=v1,v2` finds the faster variant, and says how sure this is.

`lar bench MODEL --scenario NAME` measures how a model answers the queries of MLPerf's load
generator.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from lar.cli import gates
from lar.cli.arguments import declared, headings_of
from lar.cli.screen import say
from lar.errors import UsageError
from lar.options.option import flag_of
from lar.options.table import BENCH_KEYS, BENCH_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lar.cli.report_files import ReportFiles
    from lar.records.bench import BenchResult
    from lar.records.run import Scenario, ScenarioName
    from lar.running.bench import BenchProgress
    from lar.running.variants import Variant

# The arguments that are settings of a scenario.
SETTINGS = (
    *("target_rate", "target_latency", "samples_per_query", "min_queries", "min_duration"),
    "loadgen_logs",
)

# The settings that only one scenario has.
SCENARIO_OF: Mapping[str, ScenarioName] = {
    "target_rate": "server",
    "target_latency": "server",
    "samples_per_query": "multi-stream",
}

# The arguments that `lar bench` takes for variants only.
OF_VARIANTS = (
    *("vary", "baseline", "fail_if_slower", "fail_if_unjudged", "budget", "margin"),
    *("csv", "html", "save", "tag", "store", "scheduler", "on"),
)


def refuse_settings(arguments: argparse.Namespace) -> None:
    """Refuse the flags of a scenario if `--scenario` is not given.

    Raises:
        UsageError: a flag of a scenario is given.
    """
    from lar.records.run import ScenarioName  # slow to import, and the help needs nothing of it

    refuse(arguments, SETTINGS, "needs --scenario", f"it takes {', '.join(get_args(ScenarioName))}")


def refuse(arguments: argparse.Namespace, keys: Iterable[str], problem: str, hint: str) -> None:
    """Refuse a command in which one of the flags `keys` was typed.

    `problem` and `hint` become the parts of the error.

    Raises:
        UsageError: one of the flags is given.
    """
    for key in keys:
        if getattr(arguments, key) != arguments.parser.get_default(key):
            raise UsageError(problem, hint, flag=flag_of(key))


def run(arguments: argparse.Namespace, keys: frozenset[str]) -> int:
    """Run the scenario, print and write LoadGen's results; return the exit code.

    `keys` are the keys of those options of `lar run` that `lar bench` has too.

    Raises:
        UsageError: a flag cannot be used in this scenario.
        LarError: the run failed.
    """
    from lar.cli.report_files import open_reports
    from lar.options.command_line import parse_values
    from lar.reports.report import Report
    from lar.reports.run_text import format_scenario
    from lar.running.api import run_scenario
    from lar.running.isolation import require_ok
    from lar.running.variants import make_variants

    asked = f"--scenario {arguments.scenario}"
    hint = "leave it out; --json FILE writes what LoadGen found"
    refuse(arguments, OF_VARIANTS, "does not go with --scenario, which compares nothing", hint)
    for key, scenario in SCENARIO_OF.items():
        if scenario != arguments.scenario:
            hint = f"leave it out, or load the model with --scenario {scenario}"
            refuse(arguments, [key], f"does not go with {asked}", hint)
    if len(arguments.models) > 1:
        raise UsageError("measures only one model", "give one MODEL", flag="--scenario")
    options = {key: value for key, value in vars(arguments).items() if key in keys}
    (variant,) = make_variants(arguments.models, [], options)
    with open_reports(vars(arguments)) as files:
        values = parse_values(variant.options)
        result = run_scenario(
            variant.model,
            scenario_of(arguments, values),
            values,
            log_folder=arguments.loadgen_logs or "",
        )
        files.write(Report(style="scenario", body=tuple(format_scenario(result)), document=result))
    require_ok(result)
    return 0


def scenario_of(arguments: argparse.Namespace, values: Mapping[str, Any]) -> Scenario:
    """Return the scenario that the flags describe."""
    from lar.records.run import Scenario

    latency = arguments.target_latency
    given = {
        "target_rate": arguments.target_rate,
        "target_latency_seconds": None if latency is None else latency / 1e3,
        "samples_per_query": arguments.samples_per_query,
        "min_queries": arguments.min_queries,
        "min_seconds": arguments.min_duration,
        "seed": values.get("seed"),
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    return Scenario(name=arguments.scenario, **chosen)


# The reasons for a variant without a comparison.
NO_TIME, ALONE = "no time was left for it", "no other variant has data of its shape"

# Options stay texts: each run parses them together with its own options.
ARGUMENTS = (declared("bench"), *headings_of(BENCH_OPTIONS, ", of all variants", parse=str))


def main(arguments: argparse.Namespace) -> int:
    """Measure the variants, print and write the report; return the exit code."""
    if arguments.scenario is not None:
        return run(arguments, BENCH_KEYS)
    refuse_settings(arguments)
    # Imported here: the help needs none of it.
    from lar.cli.outlet import PacedLine
    from lar.options.rules import SHARED, Asked, check_rules
    from lar.reports.bench_report import report_bench
    from lar.results.reading import runs_of_bench
    from lar.running.bench import run_bench
    from lar.running.variants import find_baseline, make_variants, parse_vary

    check_rules(SHARED, Asked(vars(arguments)))
    options = {key: value for key, value in vars(arguments).items() if key in BENCH_KEYS}
    elsewhere = arguments.scheduler is not None
    axes = [*map(parse_vary, arguments.vary)]
    variants = make_variants(arguments.models, axes, options, elsewhere=elsewhere)
    baseline = find_baseline(variants, arguments.baseline)
    refused = variants[baseline]
    if refused.failure and gates.is_asked(arguments):
        outcome = gates.failed(refused.name, "refused", refused.failure)
        return gates.close(arguments, [outcome], sys.stdout)
    with contextlib.ExitStack() as stack:
        files = open_files(arguments, variants, stack)
        line = stack.enter_context(PacedLine(sys.stderr))
        measure = run_bench
        if elsewhere:
            from lar.farm.runs import bench_on_farm, open_farm  # few benches are made elsewhere

            farm = stack.enter_context(open_farm(arguments.scheduler))
            measure = partial(bench_on_farm, farm, arguments.on or "")
        bench = measure(
            variants,
            baseline,
            budget_seconds=arguments.budget,
            margin=arguments.margin,
            report=lambda progress: line.show(describe_progress(progress)),
        )
        line.end()
        files.write(report_bench(bench))
        for note in files.save(runs_of_bench(bench)):
            say(note)
    if bench.stopped == "interrupted" or not gates.is_asked(arguments):
        check_end(bench)
        return 0
    has_pairs = len(bench.variants) < 2 or any(each.baseline for each in bench.variants)
    apart = [] if has_pairs else ["no two variants have data of one shape, so none were compared"]
    return gates.close(arguments, outcomes_of(bench), files.console, apart)


def outcomes_of(bench: BenchResult) -> list[gates.Outcome]:
    """Return the outcome of each variant; a baseline has an outcome only if it failed."""
    bases = {bench.baseline, *(each.baseline for each in bench.variants)}
    return [
        gates.failed(each.name, each.status, each.failure)
        if each.status != "ok"
        else gates.Outcome(each.name, each.difference, reason=NO_TIME if each.baseline else ALONE)
        for each in bench.variants
        if each.name not in bases or each.status != "ok"
    ]


def check_end(bench: BenchResult) -> None:
    """Raise the error that ended a bench; the results of the bench are already printed.

    Raises:
        LarError: the baseline failed.
        KeyboardInterrupt: the user ended the bench.
    """
    if bench.stopped == "interrupted":
        raise KeyboardInterrupt
    if bench.failure is not None:
        raise bench.failure.within(f"the baseline {bench.baseline!r}").to_error()


def open_files(
    arguments: argparse.Namespace, variants: Sequence[Variant], stack: contextlib.ExitStack
) -> ReportFiles:
    """Open the files to be written, before anything is measured.

    Raises:
        UsageError: a file cannot be written, or would replace a file that the command reads.
    """
    from lar.cli.report_files import check_places, open_reports
    from lar.options.paths import paths_in
    from lar.running.plan import places_of

    files = stack.enter_context(open_reports(vars(arguments)))
    for variant in variants:
        # The settings may come from a settings file.
        fed, settings = (it.inputs, it.settings) if (it := variant.spec) else ((), {})
        places = places_of(variant.model, {**variant.options, **settings})
        check_places(files.files, paths_in(fed), places)
    return files


def describe_progress(progress: BenchProgress) -> str:
    """Return the progress of a bench in a few words."""
    parts = [f"round {progress.rounds}"]
    if progress.comparisons:
        parts.append(f"{progress.decided} of {progress.comparisons} verdicts")
    if progress.detectable is not None:
        parts.append(f"detectable: {progress.detectable:.1%}")
    return f"{', '.join(parts)}, at most {progress.left_seconds:.0f} s left"
