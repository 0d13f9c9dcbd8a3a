"""How ONNX Runtime honours each option: one row an option, its functions side by side.

The functions set the driver's `options`, which are the session's SessionOptions, and its
`disabled_optimizers`. The providers' are in `providers`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lar.engines.onnxruntime.optimizers import OPTIMIZERS
from lar.engines.onnxruntime.providers import (
    choose_cuda,
    choose_provider,
    choose_tensorrt,
    flag_for,
    keep_tensorrt_engines,
    measure_algorithms,
)
from lar.engines.table import OptionRow, calling
from lar.errors import UsageError, nearest
from lar.options.option import flag_of

SESSION = ("session",)

# Of --graph-optimization-level, the engine's names.
LEVELS = {
    "disable": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}

# The optimiser that gives convolutions the blocked layout.
BLOCKED_LAYOUT = "NchwcTransformer"

DUMPED = "every tensor of the optimised model, before the warm-up, in sessions of their own"
SAVE_SOURCE = calling("lar.engines.onnxruntime.dumping:save_source")


def show_engine_log(driver: Any, _: bool) -> None:
    driver.set_log_level_verbose()


def run_in_calling_thread(driver: Any, _: bool) -> None:
    driver.options.intra_op_num_threads = 1


def run_on_threads(driver: Any, count: int) -> None:
    driver.options.intra_op_num_threads = count


def run_beside_others(driver: Any, count: int) -> None:
    # Each runner is a thread; the engine's default, threads for all cores, is for one alone.
    if count > 1:
        driver.options.intra_op_num_threads = 1


def bind_threads(driver: Any, core_ids: str) -> None:
    """Bind the calling thread to the first core, those that the engine starts to the others.

    Raises:
        UsageError: a core that this process may not use, or not one core for each thread.
    """
    listed = [int(core) for core in core_ids.split(",")]
    runners, runner = driver.spec.runners, driver.runner
    share = len(listed) // runners
    cores = listed[share * runner :][:share]
    usable = os.sched_getaffinity(0)
    # ONNX Runtime itself only logs an error for such a core, and runs unbound.
    if unusable := [core for core in listed if core not in usable]:
        raise UsageError(
            f"--multi-thread-core-ids {core_ids}: core {unusable[0]} cannot be used here",
            f"usable cores: {', '.join(map(str, sorted(usable)))}",
        )
    settings = driver.spec.settings
    asked = {
        key: settings[key] for key in ("multithread", "multithread_default") if key in settings
    }
    asked |= {"cpu_default": 1} if "cpu_default" in settings else {}
    if not asked and share * runners != len(listed):
        asked = {"thread": 1}
    for key, count in asked.items():
        if count * runners != len(listed):
            raise UsageError(
                f"{flag_of(key)} and --multi-thread-core-ids {core_ids} do not fit together: "
                f"threads: {count * runners}, cores: {len(listed)}",
                "give one core for each thread",
            )
    driver.options.intra_op_num_threads = len(cores)
    if others := cores[1:]:
        # The engine counts cores from 1; the calling thread has no group.
        driver.options.add_session_config_entry(
            "session.intra_op_thread_affinities", ";".join(str(core + 1) for core in others)
        )
    os.sched_setaffinity(0, cores[:1])


def set_optimization_level(driver: Any, level: str) -> None:
    driver.options.graph_optimization_level = getattr(
        driver.onnxruntime.GraphOptimizationLevel, LEVELS[level]
    )


def leave_out_optimizers(driver: Any, text: str) -> None:
    """Leave out optimisers, which are named with commas between.

    Raises:
        UsageError: the engine has none of that name; it would say nothing.
    """
    names = sorted(set(text.split(",")))
    if unknown := [name for name in names if name not in OPTIMIZERS]:
        name = unknown[0]
        by_lower = {known.lower(): known for known in OPTIMIZERS}
        near = by_lower.get(nearest(name.lower(), sorted(by_lower)))
        raise UsageError(
            f"--disable-optimizer: ONNX Runtime has no optimiser {name!r} to leave out",
            f"did you mean {near}?" if near else "names are as NchwcTransformer, ConvBNFusion",
        )
    driver.disabled_optimizers = names


def use_blocked_layout(driver: Any, _: bool) -> None:
    """Make sure that the blocked layout is used.

    Raises:
        UsageError: another flag turns it off, or the engine has none for this processor.
    """
    settings = driver.spec.settings
    level = settings.get("graph_optimization_level", "all")
    if level != "all":
        raise UsageError(
            f"--enable-nchw88 and --graph-optimization-level {level} exclude each other",
            "the layout is part of the level all",
        )
    if BLOCKED_LAYOUT in driver.disabled_optimizers:
        raise UsageError(
            f"--enable-nchw88 and --disable-optimizer {BLOCKED_LAYOUT} exclude each other"
        )
    if not driver.runs_on_cpu():
        raise UsageError(
            f"--enable-nchw88 and {flag_for(settings)} exclude each other",
            "the layout is one of the CPU alone",
        )
    from lar.engines.onnxruntime.blocked_layout import block_size

    if block_size(driver.onnxruntime) == 1:
        raise UsageError(
            "--enable-nchw88: this ONNX Runtime has no blocked layout for this processor",
            "leave the flag out",
        )
    set_optimization_level(driver, "all")


def use_cache(driver: Any, file: str) -> None:
    """Load the optimised model from a cache file.

    Raises:
        UsageError: another device than the CPU is asked for.
    """
    if not driver.runs_on_cpu():
        raise UsageError(
            "--fast-run-algo-policy: ONNX Runtime keeps a cache for the CPU alone",
            "leave the flag out",
        )
    from lar.engines.onnxruntime.cache import open_cached

    driver.open = lambda: open_cached(driver, Path(file))


def verify_cache(driver: Any, _: str) -> None:
    from lar.engines.onnxruntime.cache import verify_data

    verify_data(driver)


def forbid_memory_reuse(driver: Any, _: bool) -> None:
    driver.options.enable_mem_pattern = False
    driver.options.enable_mem_reuse = False
    # It would hand on what one operator has released to the next.
    driver.options.enable_cpu_mem_arena = False


def check_range(driver: Any, limit: float) -> None:
    from lar.engines.onnxruntime.value_range import check_range as check

    check(driver, limit)
    driver.feed_checks.append(lambda: check(driver, limit))


def row_of_text_dump(key: str) -> OptionRow:
    """Return the row of a text dump, which differ in where lar prints it."""

    def dump(driver: Any, _: object) -> None:
        from lar.engines.onnxruntime.dumping import dump_text

        dump_text(driver, key)

    return OptionRow(key, SESSION, DUMPED, before_load=SAVE_SOURCE, before_run=dump)


def row_of_profile(key: str, how: str) -> OptionRow:
    """Return the row of a profile, which differ in what is written of it."""
    return OptionRow(
        key,
        SESSION,
        how,
        before_load=calling("lar.engines.onnxruntime.profiling:start_profiling"),
        after_load=calling("lar.engines.onnxruntime.profiling:profile_no_other"),
    )


def start_model_dump(driver: Any, _: str) -> None:
    from lar.engines.onnxruntime.saving import start_model_dump as start

    start(driver)


def finish_model_dump(driver: Any, _: str) -> None:
    from lar.engines.onnxruntime.saving import finish_model_dump as finish

    finish(driver)


def load_operators(driver: Any, file: str) -> None:
    """Load a library of operators.

    Raises:
        UsageError: there is none, or it is not one for ONNX Runtime.
    """
    path = os.path.abspath(file)  # a bare name would be looked for among the system's libraries
    if not os.path.isfile(path):
        raise UsageError(f"--c-opr-lib: {file}: no such file", "check the path")
    try:
        driver.options.register_custom_ops_library(path)
    except Exception as error:  # the engine has no one kind for these
        from lar.engines.onnxruntime.messages import one_line

        raise UsageError(
            f"--c-opr-lib: {file}: is not a library of operators for ONNX Runtime",
            f"it must export RegisterCustomOps; ONNX Runtime says: {one_line(str(error))}",
        ) from error


def compute_deterministically(driver: Any, _: bool) -> None:
    driver.options.use_deterministic_compute = True


def preprocess_weights(driver: Any, _: bool) -> None:
    driver.options.add_session_config_entry("session.disable_prepacking", "0")


ROWS = (
    OptionRow("cpu", SESSION, "CPUExecutionProvider, the default"),
    OptionRow(
        "cuda",
        SESSION,
        "CUDAExecutionProvider, without falling back to the CPU",
        before_load=choose_cuda,
    ),
    OptionRow("verbose", SESSION, "log severity 0", before_load=show_engine_log),
    OptionRow(
        "provider",
        SESSION,
        "that provider (cuda, CUDAExecutionProvider, ...), without falling back to the CPU",
        before_load=choose_provider,
    ),
    OptionRow(
        "thread",
        SESSION,
        "a session for each, on one thread if --multithread does not give more",
        before_load=run_beside_others,
    ),
    OptionRow(
        "cpu_default", SESSION, "intra_op_num_threads is 1", before_load=run_in_calling_thread
    ),
    OptionRow(
        "multithread",
        SESSION,
        "intra_op_num_threads, the calling thread being one of them",
        before_load=run_on_threads,
    ),
    OptionRow(
        "multithread_default", SESSION, "as --multithread N here", before_load=run_on_threads
    ),
    OptionRow(
        "multi_thread_core_ids",
        SESSION,
        "session.intra_op_thread_affinities; the calling thread has the first core",
        before_load=bind_threads,
    ),
    OptionRow(
        "graph_optimization_level",
        SESSION,
        "graph_optimization_level; all by default",
        before_load=set_optimization_level,
    ),
    OptionRow(
        "disable_optimizer", SESSION, "disabled_optimizers", before_load=leave_out_optimizers
    ),
    OptionRow(
        "enable_nchw88",
        SESSION,
        "on by default, in blocks as wide as the CPU's vectors; "
        f"--disable-optimizer {BLOCKED_LAYOUT} turns it off",
        before_load=use_blocked_layout,
    ),
    OptionRow(
        "reproducible",
        SESSION,
        "use_deterministic_compute",
        before_load=compute_deterministically,
    ),
    OptionRow(
        "weight_preprocess",
        SESSION,
        "weights are prepacked, which is the default",
        before_load=preprocess_weights,
    ),
    OptionRow(
        "fast_run",
        SESSION,
        "builds the file of --fast-run-algo-policy; on CUDA, cudnn_conv_algo_search is EXHAUSTIVE",
        before_load=measure_algorithms,
    ),
    OptionRow(
        "fast_run_algo_policy",
        SESSION,
        "the optimised model in FILE, its weights, as operators take them, in a file beside it",
        before_load=use_cache,
        before_run=verify_cache,
    ),
    OptionRow(
        "tensorrt",
        SESSION,
        "TensorrtExecutionProvider, then CUDA, without falling back to the CPU",
        before_load=choose_tensorrt,
    ),
    OptionRow(
        "tensorrt_cache",
        SESSION,
        "trt_engine_cache_path and trt_engine_cache_prefix",
        before_load=keep_tensorrt_engines,
    ),
    OptionRow(
        "disable_mem_opt",
        SESSION,
        "enable_mem_pattern, enable_mem_reuse and enable_cpu_mem_arena are off",
        before_load=forbid_memory_reuse,
    ),
    OptionRow("disable_assert_throw", SESSION, "an output that is not the expected one warns"),
    OptionRow(
        "range",
        SESSION,
        "every floating-point tensor, once, before the warm-up, in a session of its own",
        before_run=check_range,
    ),
    OptionRow(
        "model_dump",
        SESSION,
        "optimized_model_filepath, with all weights in the file",
        before_load=start_model_dump,
        after_load=finish_model_dump,
    ),
    row_of_profile("profile", "enable_profiling; FLOPs and bytes from the optimised graph"),
    row_of_profile("profile_raw", "the file that enable_profiling writes"),
    OptionRow("profile_memory", SESSION, "estimated from the tensors and their last use"),
    OptionRow("profile_syscalls", SESSION, "strace of the process that runs the model"),
    OptionRow("range_by", SESSION, "by the names of the optimised graph's nodes"),
    OptionRow("allow_external_data", SESSION, "checked before the session reads the model"),
    OptionRow("c_opr_lib", SESSION, "register_custom_ops_library", before_load=load_operators),
    # Last: what is dumped is saved with all that the others have set.
    *map(row_of_text_dump, ("io_dump", "io_dump_stdout", "io_dump_stderr")),
    OptionRow(
        "bin_io_dump",
        SESSION,
        DUMPED,
        before_load=SAVE_SOURCE,
        before_run=calling("lar.engines.onnxruntime.dumping:dump_tensors"),
    ),
    OptionRow(
        "bin_out_dump",
        SESSION,
        "the outputs, written after each iteration",
        before_run=calling("lar.engines.onnxruntime.dumping:dump_outputs"),
    ),
    OptionRow("dump_filter", SESSION, "what it leaves out is removed when the run has ended"),
)
