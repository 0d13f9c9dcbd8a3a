"""`lar bench MODEL --scenario NAME`: a model under the load of MLPerf's load generator."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from lar.errors import UsageError
from lar.options.option import flag_of

if TYPE_CHECKING:
    from lar.records.run import Scenario, ScenarioName

# The arguments that say more of a scenario.
SETTINGS = (
    *("target_rate", "target_latency", "samples_per_query", "min_queries", "min_duration"),
    "loadgen_logs",
)

# The settings that one scenario alone has.
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
    """Refuse the settings of a scenario if no scenario is asked for.

    Raises:
        UsageError: one is given.
    """
    from lar.records.run import ScenarioName  # slow to import, and the help needs nothing of it

    refuse(arguments, SETTINGS, "needs --scenario", f"it takes {', '.join(get_args(ScenarioName))}")


def refuse(arguments: argparse.Namespace, keys: Iterable[str], problem: str, hint: str) -> None:
    """Refuse the first of some flags that is given.

    Raises:
        UsageError: there is one.
    """
    for key in keys:
        if getattr(arguments, key) != arguments.parser.get_default(key):
            raise UsageError(problem, hint, flag=flag_of(key))


def run(arguments: argparse.Namespace, keys: frozenset[str]) -> int:
    """Run the scenario, print and write what LoadGen found; return the exit code.

    `keys` are those of the options of a run that `lar bench` takes.

    Raises:
        UsageError: a flag does not go with the scenario.
        LarError: the run failed.
    """
    from lar.cli.report_files import open_reports
    from lar.options.given import parse_values
    from lar.reports.report import Report
    from lar.reports.scenario_text import format_scenario
    from lar.running.api import run_scenario
    from lar.running.tasks import require_ok
    from lar.running.variants import make_variants

    asked = f"--scenario {arguments.scenario}"
    hint = "leave it out; --json FILE writes what LoadGen found"
    refuse(arguments, OF_VARIANTS, "does not go with --scenario, which compares nothing", hint)
    for key, scenario in SCENARIO_OF.items():
        if scenario != arguments.scenario:
            hint = f"leave it out, or load the model with --scenario {scenario}"
            refuse(arguments, [key], f"does not go with {asked}", hint)
    if len(arguments.models) > 1:
        raise UsageError("loads one model at a time", "give one MODEL", flag="--scenario")
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
        lines = tuple(format_scenario(result))
        files.write(Report(style="scenario", body=lines, document=result))
    require_ok(result)
    return 0


def scenario_of(arguments: argparse.Namespace, values: Mapping[str, Any]) -> Scenario:
    """Return the scenario that is asked for."""
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
