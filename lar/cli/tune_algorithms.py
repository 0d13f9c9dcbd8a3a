"""`lar tune MODEL --algorithms CACHE`: a cache's algorithms are timed again in the model."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lar.errors import UsageError
from lar.options.option import flag_of, is_set

if TYPE_CHECKING:
    from lar.records.algorithms import AlgorithmsResult
    from lar.tuning.algorithms import AlgorithmsProgress

# Of a search for settings.
OTHERS = (
    *("space", "list_space", "engines", "objective", "allow", "tolerance", "margin"),
    *("session", "resume", "csv", "html", "markdown", "packed_model_dump", "save", "tag", "store"),
)


def time_algorithms(
    arguments: argparse.Namespace,
    options: Mapping[str, Any],
    defaults: Mapping[str, object],
    seconds: float,
) -> int:
    """Time, print and write; return the exit code. `seconds` is the budget where none is given.

    Raises:
        LarError: a flag is for another search, something cannot be used, or the model fails.
        KeyboardInterrupt: the user ended it, after what was found is printed.
    """
    from lar.cli.progress_line import PacedLine
    from lar.cli.screen import screen_of_output
    from lar.files.report_file import OutputFile
    from lar.reports.algorithms_text import format_algorithms
    from lar.tuning.algorithms import tune_algorithms

    refuse_others(arguments, defaults)
    model = only_model(arguments.models)
    with contextlib.ExitStack() as stack:
        file = None
        if arguments.json is not None:
            file = stack.enter_context(OutputFile(arguments.json, "--json"))
        line = stack.enter_context(PacedLine(sys.stderr))
        result = tune_algorithms(
            model,
            arguments.algorithms,
            output=arguments.output or "",
            budget_seconds=seconds if arguments.budget is None else arguments.budget,
            report=lambda progress: line.show(describe_progress(progress)),
            **options,
        )
        line.end()
        if file is None or not file.to_stdout:
            print("\n".join(format_algorithms(result, screen_of_output())), flush=True)
        if file is not None:
            file.write(result.to_json() + "\n")
    return exit_code_of(result)


def refuse_others(arguments: argparse.Namespace, defaults: Mapping[str, object]) -> None:
    """Refuse flags that are for a search for settings.

    Raises:
        UsageError: naming the first of them.
    """
    for key in OTHERS:
        value = getattr(arguments, key, None)
        if is_set(value) and value != defaults.get(key):
            raise UsageError(
                "is for a search for settings, not for the algorithms of a cache",
                "leave it or --algorithms out",
                flag=flag_of(key),
            )


def only_model(models: Sequence[str]) -> str:
    """Return the model.

    Raises:
        UsageError: no model is given, or several.
    """
    if len(models) != 1:
        raise UsageError(
            f"takes one model, and {len(models)} are given",
            "lar tune net.mge --algorithms net.cache",
            flag="--algorithms",
        )
    return models[0]


def exit_code_of(result: AlgorithmsResult) -> int:
    """Return the exit code of what has been printed.

    Raises:
        LarError: the model failed with the cache.
        KeyboardInterrupt: it was interrupted.
    """
    if result.ending == "interrupted":
        raise KeyboardInterrupt
    if result.failure is not None:
        raise result.failure.to_error()
    return 0


def describe_progress(progress: AlgorithmsProgress) -> str:
    """Return how far it has come, in a few words."""
    parts = [f"round {progress.rounds + 1}"]
    if progress.rivals:
        parts.append(f"{progress.decided} of {progress.rivals} algorithms decided")
        parts.append(f"{progress.faster} operators have a faster one")
    return f"{', '.join(parts)}: {progress.doing}, {progress.left_seconds:.0f} s left"
