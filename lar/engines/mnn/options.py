"""The option table of MNN: a row for each supported option, and the functions for these rows."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from lar.engines.engine import unknown_property
from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, dump_rows
from lar.errors import UsageError
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.mnn import session
    from lar.engines.mnn.session import InterpreterDriver
else:
    add_lazy_modules(globals())

INTERPRETER: Drivers[InterpreterDriver] = Drivers(("interpreter",), __file__)

# MNN's numbers of modes.
MODES = {"normal": 0, "high": 1, "low": 2}
CONFIGS = ("memory", "power")
# The hints of a session, in the order of their numbers.
with open(os.path.join(os.path.dirname(__file__), "hints.txt")) as file:
    HINTS = file.read().split()


def check_property(key: str, value: str) -> None:
    """Refuse a property that is neither a mode of a session nor a hint with one or more numbers.

    Raises:
        UsageError: the property is unknown to MNN, or the value is not valid for the property; the
            hint names the most similar property.
    """
    if key not in (known := [*CONFIGS, *HINTS]):
        raise unknown_property("MNN", key, known, f"there are {', '.join(known)}")
    values, what = r"\d+(,\d+)*", "a number, or several with commas between"
    if key in CONFIGS:
        values, what = "|".join(MODES), "normal, high or low"
    if not re.fullmatch(values, value):
        raise UsageError(f"{key} is {what}", flag=table.ENGINE_OPTION.flag, subject=value)


def set_properties(driver: InterpreterDriver, _: object) -> None:
    for key, value in driver.properties.items():
        if key in CONFIGS:
            driver.config[key] = MODES[value]
        else:
            numbers = [*map(int, value.split(","))]
            driver.hints[HINTS.index(key)] = numbers if len(numbers) > 1 else numbers[0]


def dump_model(driver: InterpreterDriver, _: str) -> None:
    import shutil  # slow to import, and the help reads this table

    shutil.copyfile(driver.file, driver.context.written[table.MODEL_DUMP.key])


# The driver counts the threads.
ROWS: tuple[OptionRow[Any, Any], ...] = (
    *INTERPRETER.rows(
        *(table.CPU, table.VERBOSE, table.CPU_DEFAULT, table.MULTITHREAD),
        *(table.MULTITHREAD_DEFAULT, table.THREAD),
        *(table.ALLOW_EXTERNAL_DATA, table.DISABLE_ASSERT_THROW, table.PROFILE_SYSCALLS),
        *(table.RANGE_BY, table.PRECISION),
    ),
    INTERPRETER.row(table.ENGINE_OPTION, before_load=set_properties),
    INTERPRETER.row(table.MODEL_DUMP, after_load=dump_model),
    INTERPRETER.row(table.PROFILE, before_run=session.start_profiling),
    *dump_rows(INTERPRETER, session.dump_net, session.dump_outputs),
)
