"""The option table of ONNX Runtime: a row for each supported option, and functions for the rows.

The functions (hooks) change the driver's `options` (SessionOptions) and `disabled_optimizers`. The
hooks that choose a provider are in the module `session`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, cores_of, dump_rows
from lar.errors import UsageError
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.onnxruntime import cache, dumps, profile, saving, session
    from lar.engines.onnxruntime.session import SessionDriver
else:
    add_lazy_modules(globals())

SESSION: Drivers[SessionDriver] = Drivers(("session",), __file__)

# Names of attributes of SessionOptions, and a mark that stands for the value of lar's option.
THREADS, ARENA = "intra_op_num_threads", "enable_cpu_mem_arena"
GIVEN = object()


def setting(value: Any, *names: str) -> Callable[[SessionDriver, Any], None]:
    """Return a hook that sets attributes of the SessionOptions or configuration entries.

    The hook sets `value`, but if `value` is `GIVEN`, the hook sets the value that the user gave.
    """

    def set_value(driver: SessionDriver, given: Any) -> None:
        for name in names:
            if "." in name:
                driver.options.add_session_config_entry(name, value)
            else:
                setattr(driver.options, name, given if value is GIVEN else value)

    return set_value


def run_beside_others(driver: SessionDriver, count: int) -> None:
    # Each runner has its own thread; the engine's default is threads for all cores in each session.
    if count > 1:
        driver.options.intra_op_num_threads = 1


def bind_threads(driver: SessionDriver, core_ids: str) -> None:
    """Bind the calling thread to the first core, and the engine's threads to the other cores.

    Raises:
        UsageError: this process may not use one of the cores.
    """
    cores = cores_of(driver.runner, driver.spec.runners, core_ids)
    usable = os.sched_getaffinity(0)
    # ONNX Runtime itself only logs an error for such a core, and runs without binding.
    if unusable := [core for core in map(int, core_ids.split(",")) if core not in usable]:
        hint = f"usable cores: {', '.join(map(str, sorted(usable)))}"
        flag = f"{table.MULTI_THREAD_CORE_IDS.flag} {core_ids}"
        raise UsageError(f"this process may not run on core {unusable[0]}", hint, flag=flag)
    driver.options.intra_op_num_threads = len(cores)
    if others := cores[1:]:
        # The engine counts cores from 1, and has no entry for the calling thread.
        driver.options.add_session_config_entry(
            "session.intra_op_thread_affinities", ";".join(str(core + 1) for core in others)
        )
    os.sched_setaffinity(0, cores[:1])


def set_optimization_level(driver: SessionDriver, level: str) -> None:
    driver.options.graph_optimization_level = saving.level_named(driver.onnxruntime, level)


def leave_out_optimizers(driver: SessionDriver, names: str) -> None:
    driver.disabled_optimizers = sorted(set(names.split(",")))


def use_blocked_layout(driver: SessionDriver, _: bool) -> None:
    """Use the blocked layout, or raise an error if the processor does not support this layout.

    Raises:
        UsageError: the engine has no blocked layout for this processor.
    """
    from lar.engines.onnxruntime.kernels import block_size

    if block_size(driver.onnxruntime) == 1:
        problem = "this ONNX Runtime has no blocked layout for this processor"
        raise UsageError(problem, "leave the flag out", flag=table.ENABLE_NCHW88.flag)
    set_optimization_level(driver, "all")


def load_operators(driver: SessionDriver, file: str) -> None:
    """Load a library of operators.

    Raises:
        UsageError: the file is not a library of operators for ONNX Runtime.
    """
    path = os.path.abspath(file)  # a bare name would be looked up in the system's folders
    try:
        driver.options.register_custom_ops_library(path)
    except Exception as error:  # the engine has no one kind for these
        from lar.engines.onnxruntime.providers import one_line

        problem = "is not a library of operators for ONNX Runtime"
        hint = f"it must export RegisterCustomOps; ONNX Runtime says: {one_line(str(error))}"
        raise UsageError(problem, hint, flag=table.C_OPR_LIB.flag, subject=file) from error


def set_entries(driver: SessionDriver, _: str) -> None:
    """Set the session's configuration entries, and store the entries for the session's runs."""
    from lar.engines.onnxruntime.rules import OF_RUNS  # reads files

    for key, value in driver.properties.items():
        if key in OF_RUNS:
            driver.run_entries[key] = value
        else:
            driver.options.add_session_config_entry(key, value)


# By option: the value to set, and the engine's names of attributes or entries.
# To disable reuse of memory, the arena is off too: it gives released memory to the next operator.
SET = (
    (table.VERBOSE, 0, "log_severity_level"),
    (table.CPU_DEFAULT, 1, THREADS),
    (table.MULTITHREAD, GIVEN, THREADS),
    (table.MULTITHREAD_DEFAULT, GIVEN, THREADS),
    (table.NO_SPINNING, "0", "session.intra_op.allow_spinning"),
    (table.NO_ARENA, False, ARENA),
    (table.REPRODUCIBLE, True, "use_deterministic_compute"),
    (table.WEIGHT_PREPROCESS, "0", "session.disable_prepacking"),
    (table.DISABLE_MEM_OPT, False, "enable_mem_pattern", "enable_mem_reuse", ARENA),
)

ROWS: tuple[OptionRow[Any, Any], ...] = (
    *SESSION.rows(
        *(table.CPU, table.FAST_RUN, table.DISABLE_ASSERT_THROW, table.PROFILE_MEMORY),
        *(table.PROFILE_SYSCALLS, table.RANGE_BY),
    ),
    SESSION.row(table.CUDA, before_load=session.choose_provider),
    SESSION.row(
        table.PROVIDER, before_load=session.choose_provider, after_load=session.warn_of_fallback
    ),
    SESSION.row(table.NO_TF32, before_load=session.multiply_in_float32),
    SESSION.row(table.THREAD, before_load=run_beside_others),
    *(SESSION.row(it, before_load=setting(value, *names)) for it, value, *names in SET),
    SESSION.row(table.MULTI_THREAD_CORE_IDS, before_load=bind_threads),
    SESSION.row(table.GRAPH_OPTIMIZATION_LEVEL, before_load=set_optimization_level),
    SESSION.row(table.DISABLE_OPTIMIZER, before_load=leave_out_optimizers),
    SESSION.row(table.ENABLE_NCHW88, before_load=use_blocked_layout),
    SESSION.row(
        table.FAST_RUN_ALGO_POLICY, before_load=cache.use_cache, before_run=cache.verify_data
    ),
    SESSION.row(table.TENSORRT, before_load=session.choose_provider),
    SESSION.row(table.TENSORRT_CACHE, before_load=session.keep_tensorrt_engines),
    SESSION.row(table.RANGE, before_run=dumps.check_each_feed),
    SESSION.row(
        table.MODEL_DUMP, before_load=saving.start_model_dump, after_load=saving.finish_model_dump
    ),
    *(
        SESSION.row(
            option,
            before_load=profile.start_profiling,
            after_load=setting(False, "enable_profiling"),  # for all later sessions
        )
        for option in (table.PROFILE, table.PROFILE_RAW)
    ),
    SESSION.row(table.ALLOW_EXTERNAL_DATA),
    SESSION.row(table.C_OPR_LIB, before_load=load_operators),
    SESSION.row(table.ENGINE_OPTION, before_load=set_entries),
    # These rows are last, as a dump saves the model with the settings of all other rows.
    *dump_rows(SESSION, dumps.dump_tensors, dumps.dump_outputs, before_load=dumps.save_source),
)
