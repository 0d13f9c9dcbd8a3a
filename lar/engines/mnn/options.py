"""The option table of MNN: a row for each option that it honours, and the functions that rows
call, which set the driver's `config`."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, dump_rows
from lar.errors import UsageError, nearest
from lar.options import table
from lar.options.rules import Rule

if TYPE_CHECKING:
    from lar.engines.mnn import dumps, profile
    from lar.engines.mnn.session import InterpreterDriver
else:
    add_lazy_modules(globals())

INTERPRETER: Drivers[InterpreterDriver] = Drivers(("interpreter",), __file__)

# MNN's numbers of modes; those of precision by the type that they compute in where they can.
PRECISIONS = {"float32": 1, "float16": 2, "bfloat16": 3}
MODES = {"normal": 0, "high": 1, "low": 2}
CONFIGS = ("memory", "power")
# The hints of a session, in the order of their numbers.
HINTS = (
    *("max_tuning_number", "strict_check_model", "mem_allocator_type", "winograd_memory_level"),
    *("geometry_compute_mask", "dynamic_quant_options", "cpu_littlecore_decrease_rate"),
    *("attention_option", "kvcache_size_limit", "op_encoder_number_for_commit", "kvcache_info"),
    *("mmap_file_size", "use_cached_mmap", "init_thread_number", "cpu_core_ids"),
    *("cpu_sme2_instructions", "cpu_enable_kleidiai", "cpu_sme2_neon_division_ratio"),
    "cpu_sme_cores",
)


def show_messages(driver: InterpreterDriver, _: bool) -> None:
    driver.is_verbose = True


def set_precision(driver: InterpreterDriver, name: str) -> None:
    driver.config["precision"] = PRECISIONS[name]


def check_precision(driver: InterpreterDriver, name: str) -> None:
    """Refuse a type that MNN takes float32 for, without a word: tensors are then as large.

    Raises:
        UsageError: it does.
    """
    plain = driver.open_session(precision=PRECISIONS["float32"])
    if name != "float32" and driver.session.megabytes() == plain.megabytes():
        raise UsageError(
            "MNN computes in float32 here",
            "leave it out; this processor or the package of MNN lacks the type",
            flag=f"{table.PRECISION.flag} {name}",
        )


def check_property(key: str, value: str) -> None:
    """Refuse what is neither a mode of a session nor a hint with a number, or several.

    Raises:
        UsageError: naming the hint that was probably meant.
    """
    if key in CONFIGS and value not in MODES:
        raise UsageError(
            f"{key} is normal, high or low", flag=table.ENGINE_OPTION.flag, subject=value
        )
    if key in HINTS and not re.fullmatch(r"\d+(,\d+)*", value):
        problem = f"{key} is a number, or several with commas between"
        raise UsageError(problem, flag=table.ENGINE_OPTION.flag, subject=value)
    if key not in (*CONFIGS, *HINTS):
        near = nearest(key, [*CONFIGS, *HINTS])
        hint = f"did you mean {near}?" if near else f"there are {', '.join((*CONFIGS, *HINTS))}"
        raise UsageError(f"MNN has no property {key!r}", hint, flag=table.ENGINE_OPTION.flag)


def set_properties(driver: InterpreterDriver, _: object) -> None:
    for key, value in driver.properties.items():
        if key in CONFIGS:
            driver.config[key] = MODES[value]
        else:
            numbers = [*map(int, value.split(","))]
            driver.hints[HINTS.index(key)] = numbers if len(numbers) > 1 else numbers[0]


def dump_model(driver: InterpreterDriver, _: str) -> None:
    shutil.copyfile(driver.file, driver.context.written[table.MODEL_DUMP.key])


# The driver counts the threads.
ROWS: tuple[OptionRow[Any, Any], ...] = (
    INTERPRETER.row(table.CPU),
    INTERPRETER.row(table.VERBOSE, before_load=show_messages),
    *map(
        INTERPRETER.row,
        (
            *(table.CPU_DEFAULT, table.MULTITHREAD, table.MULTITHREAD_DEFAULT, table.THREAD),
            *(table.ALLOW_EXTERNAL_DATA, table.DISABLE_ASSERT_THROW, table.PROFILE_SYSCALLS),
            table.RANGE_BY,
        ),
    ),
    INTERPRETER.row(table.PRECISION, before_load=set_precision, after_load=check_precision),
    INTERPRETER.row(table.ENGINE_OPTION, before_load=set_properties),
    INTERPRETER.row(table.MODEL_DUMP, after_load=dump_model),
    INTERPRETER.row(table.PROFILE, before_run=profile.start_profiling),
    *dump_rows(INTERPRETER, dumps.dump_net, dumps.dump_outputs),
)

RULES: tuple[Rule, ...] = ()
