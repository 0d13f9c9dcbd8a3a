"""The outputs of each iteration, a file a tensor: `run0-var5`, the warm-up's runs included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lar.dumps.binary import write_tensor
from lar.dumps.facts import DumpFacts, write_facts
from lar.dumps.names import Variable, format_name
from lar.dumps.values import ELEMENT, Unheld, part_of
from lar.errors import UsageError, error_of_write
from lar.options.table import BIN_OUT_DUMP
from lar.records.run import RunContext

if TYPE_CHECKING:
    import numpy as np


class OutputDriver(Protocol):
    """A driver as far as a dump of its outputs needs it (`lar.engines.driver.Driver`)."""

    runner: int
    run_number: int | None
    after_iteration: Callable[[], object] | None

    context: RunContext

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any] | str]: ...


def write_outputs(driver: OutputDriver, named: Mapping[str, Variable] | Sequence[str]) -> None:
    """Have a driver's outputs written after each iteration, those of the first runner.

    `named` are the outputs, with what the engine's graph calls them where that is another name;
    their shapes and dtypes come from the arrays.
    """
    if driver.runner:
        return
    variables = (
        named
        if isinstance(named, Mapping)
        else {name: Variable(id=at, name=name) for at, name in enumerate(named)}
    )
    folder, write_others = Path(driver.context.written[BIN_OUT_DUMP.key]), driver.after_iteration
    # Those of the parts of sequences and maps come after them.
    numbers = {name: variable.id for name, variable in variables.items()}
    write_facts(folder, DumpFacts(outputs=[*variables]))
    folder.mkdir(exist_ok=True)  # with the files of a run that this one goes on with

    def write() -> None:
        if write_others is not None:
            write_others()
        if driver.run_number is not None:
            outputs = driver.outputs()
            for name in outputs:
                whole = name if name in variables else ELEMENT.sub("", name)
                if whole in variables:
                    number = numbers.setdefault(name, 1 + max(numbers.values()))
                    variable = replace(variables[whole], name=name, id=number)
                    place = folder / f"run{driver.run_number}-var{number}"
                    write_output(place, outputs[name], variable)
            driver.run_number += 1

    driver.after_iteration = write


def write_output(place: Path, value: np.ndarray[Any, Any] | str, variable: Variable) -> None:
    """Write an output of an iteration.

    Raises:
        UsageError: no file holds it, or it cannot be written.
    """
    part = Unheld(variable.name, value) if isinstance(value, str) else part_of(variable.name, value)
    if isinstance(part, Unheld):
        problem = f"the output {variable.name} cannot be written: {part.reason}"
        raise UsageError(problem, flag=BIN_OUT_DUMP.flag)
    name = format_name(replace(variable, shape=part.array.shape, dtype=part.dtype))
    try:
        write_tensor(place, part.array, name)
    except OSError as error:
        raise error_of_write(error, flag=BIN_OUT_DUMP.flag, subject=place.name) from None
