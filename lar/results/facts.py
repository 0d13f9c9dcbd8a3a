"""The facts about a result: they find it, group it and distinguish it from others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from lar.options import table
from lar.options.option import flag_of

if TYPE_CHECKING:  # slow to import, and the help of a command needs only the names of facts
    from lar.records.run import MachineFacts, RunResult, RunSpec

# The facts that `--by` may name, in the order of the columns; `option` stands for all options.
NAMES = ("model", "machine", "engine", "version", "driver", "device", "option", "input")

# The flags of files in which engines keep what they found.
CACHES = frozenset(option.flag for option in table.OPTIONS if option.purpose == "cache")


class NamedResult(NamedTuple):
    """A result, its name in tables, its file, and the user's name for the file.

    If a result does not name its machine, the machine has the user's name for the file.
    """

    name: str
    result: RunResult
    path: str = ""
    given_name: str = ""


def facts_of(result: RunResult, machine: str = "") -> dict[str, str]:
    """Return the facts of a result by name; an option's name is its flag.

    An unknown fact is an empty text; `machine` is the name of an unknown one.
    """
    spec, engine = result.spec, result.engine
    return {
        "model": os.path.basename(spec.model),
        "machine": describe_machine(result.machine) if result.machine else machine,
        "engine": spec.engine,
        "version": engine.version if engine else "",
        "driver": spec.driver,
        "device": spec.device,
        **options_of(spec),
        "input": "; ".join(spec.inputs),
    }


def describe_machine(machine: MachineFacts) -> str:
    """Return the processor, the cores that may be used, and the memory."""
    if not machine.cores:  # named by hand
        return machine.processor
    usable = "" if machine.usable_cores == machine.cores else f"{machine.usable_cores} of "
    size = [] if machine.memory_bytes is None else [f"{machine.memory_bytes / 2**30:.0f} GiB"]
    return ", ".join([machine.processor, f"{usable}{machine.cores} cores", *size])


def options_of(spec: RunSpec) -> dict[str, str]:
    """Return the options that decide how fast a run is, by flag: `yes` for a switch.

    Files that are only written have no value: their place does not matter.
    """
    pacing = spec.pacing
    pairs = (f"{key}={value}" for key, value in sorted(spec.environment.items()))
    idle = pacing.idle_seconds
    others = {
        table.BATCH_SIZE.flag: spec.batch_size,
        table.SHAPE.flag: ",".join(f"{axis}={size}" for axis, size in spec.shape.items()),
        table.COPY_TO_HOST.flag: "yes" if spec.copy_outputs else "",
        table.IDLE_MS.flag: "" if idle is None else f"{1e3 * idle:g}",
        table.RATE.flag: f"{pacing.rate:g}" if pacing.rate else "",
        table.ARRIVALS.flag: pacing.arrivals if pacing.rate else "",
        "--scenario": spec.scenario.name if spec.scenario else "",
        table.PYTHON.flag: spec.python,
        table.ENGINE_ENV.flag: " ".join(pairs),
    }
    return {
        **{flag_of(key): text_of(key, value) for key, value in sorted(spec.settings.items())},
        **{flag: str(value) for flag, value in others.items() if value},
    }


def fed_shapes(result: RunResult) -> str:
    """Return the shapes of a run's inputs, empty if they are not known."""
    return ", ".join(
        f"{fed.name} {fed.dtype} {'x'.join(map(str, fed.shape))}" for fed in result.fed
    )


def text_of(key: str, value: object) -> str:
    option = table.BY_KEY.get(key)
    text = str(value).replace("\n", " ")  # of an option that is given several times
    return "yes" if value is True or (option and option.writes) else text


def is_option(name: str) -> bool:
    """Return whether a fact is an option."""
    return name.startswith("--")


def describe_options(facts: Mapping[str, str]) -> str:
    """Return the options among facts as the user would type them; empty without any."""
    return " ".join(
        name if value == "yes" else f"{name} {value}"
        for name, value in facts.items()
        if is_option(name) and value and name != table.INPUT.flag
    )


def describe_kind_of_options(facts: Mapping[str, str]) -> str:
    """Return the options among facts that make runs one kind: a cache's place does not matter."""
    return describe_options(
        {name: "yes" if name in CACHES and value else value for name, value in facts.items()}
    )
