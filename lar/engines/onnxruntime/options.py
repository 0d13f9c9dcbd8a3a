"""The option table of ONNX Runtime: a row for each option that it honours, the functions that rows
call, and the rules about options that need or exclude each other on it.

The functions set the driver's `options`, which are the session's SessionOptions, and its
`disabled_optimizers`. Those that choose a provider are in `session`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lar.engines.onnxruntime.optimizers import OPTIMIZERS
from lar.engines.onnxruntime.providers import first_provider, short_name
from lar.engines.option_rows import Drivers, LazyModule, OptionRow
from lar.errors import UsageError, count_of, nearest
from lar.options.option import Option
from lar.options.rules import (
    Asked,
    Condition,
    Limit,
    Presence,
    Rule,
    excludes,
    having,
    needs,
)
from lar.options.table import (
    ALLOW_EXTERNAL_DATA,
    BIN_IO_DUMP,
    BIN_OUT_DUMP,
    C_OPR_LIB,
    CPU,
    CPU_DEFAULT,
    CUDA,
    DISABLE_ASSERT_THROW,
    DISABLE_MEM_OPT,
    DISABLE_OPTIMIZER,
    DUMP_FILTER,
    ENABLE_NCHW88,
    ENGINE_OPTION,
    FAST_RUN,
    FAST_RUN_ALGO_POLICY,
    GRAPH_OPTIMIZATION_LEVEL,
    MODEL_DUMP,
    MULTI_THREAD_CORE_IDS,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    NO_ARENA,
    NO_SPINNING,
    NO_TF32,
    PROFILE,
    PROFILE_MEMORY,
    PROFILE_RAW,
    PROFILE_SYSCALLS,
    PROVIDER,
    RANGE,
    RANGE_BY,
    REPRODUCIBLE,
    TENSORRT,
    TENSORRT_CACHE,
    TEXT_DUMPS,
    THREAD,
    VERBOSE,
    WEIGHT_PREPROCESS,
)

if TYPE_CHECKING:
    from lar.engines.onnxruntime import (
        cache,
        config_entries,
        dumps,
        profile,
        saving,
        session,
        value_range,
    )
    from lar.engines.onnxruntime.session import SessionDriver
else:
    cache = LazyModule("lar.engines.onnxruntime.cache")
    config_entries = LazyModule("lar.engines.onnxruntime.config_entries")
    dumps = LazyModule("lar.engines.onnxruntime.dumps")
    profile = LazyModule("lar.engines.onnxruntime.profile")
    saving = LazyModule("lar.engines.onnxruntime.saving")
    session = LazyModule("lar.engines.onnxruntime.session")
    value_range = LazyModule("lar.engines.onnxruntime.value_range")

SESSION: Drivers[SessionDriver] = Drivers(("session",))

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


def setting(name: str, value: Any) -> Callable[[SessionDriver, Any], None]:
    """Return a hook that sets an attribute of the session's options."""
    return lambda driver, _: setattr(driver.options, name, value)


def entry(name: str, value: str) -> Callable[[SessionDriver, Any], None]:
    """Return a hook that sets a configuration entry of the session."""
    return lambda driver, _: driver.options.add_session_config_entry(name, value)


def run_on_threads(driver: SessionDriver, count: int) -> None:
    driver.options.intra_op_num_threads = count


def run_beside_others(driver: SessionDriver, count: int) -> None:
    # Each runner is a thread; the engine's default, threads for all cores, is for one alone.
    if count > 1:
        driver.options.intra_op_num_threads = 1


def bind_threads(driver: SessionDriver, core_ids: str) -> None:
    """Bind the calling thread to the first core, those that the engine starts to the others.

    Raises:
        UsageError: a core that this process may not use.
    """
    listed = [int(core) for core in core_ids.split(",")]
    share = len(listed) // driver.spec.runners
    cores = listed[share * driver.runner :][:share]
    usable = os.sched_getaffinity(0)
    # ONNX Runtime itself only logs an error for such a core, and runs unbound.
    if unusable := [core for core in listed if core not in usable]:
        raise UsageError(
            f"core {unusable[0]} cannot be used here",
            f"usable cores: {', '.join(map(str, sorted(usable)))}",
            flag=f"{MULTI_THREAD_CORE_IDS.flag} {core_ids}",
        )
    driver.options.intra_op_num_threads = len(cores)
    if others := cores[1:]:
        # The engine counts cores from 1; the calling thread has no group.
        driver.options.add_session_config_entry(
            "session.intra_op_thread_affinities", ";".join(str(core + 1) for core in others)
        )
    os.sched_setaffinity(0, cores[:1])


def set_optimization_level(driver: SessionDriver, level: str) -> None:
    driver.options.graph_optimization_level = getattr(
        driver.onnxruntime.GraphOptimizationLevel, LEVELS[level]
    )


def leave_out_optimizers(driver: SessionDriver, names: str) -> None:
    driver.disabled_optimizers = sorted(set(names.split(",")))


def use_blocked_layout(driver: SessionDriver, _: bool) -> None:
    """Make sure that the blocked layout is used.

    Raises:
        UsageError: the engine has no blocked layout for this processor.
    """
    from lar.engines.onnxruntime.blocked_layout import block_size

    if block_size(driver.onnxruntime) == 1:
        raise UsageError(
            "this ONNX Runtime has no blocked layout for this processor",
            "leave the flag out",
            flag=ENABLE_NCHW88.flag,
        )
    set_optimization_level(driver, "all")


def forbid_memory_reuse(driver: SessionDriver, _: bool) -> None:
    driver.options.enable_mem_pattern = False
    driver.options.enable_mem_reuse = False
    # It would hand on what one operator has released to the next.
    driver.options.enable_cpu_mem_arena = False


def load_operators(driver: SessionDriver, file: str) -> None:
    """Load a library of operators.

    Raises:
        UsageError: it is not one for ONNX Runtime.
    """
    path = os.path.abspath(file)  # a bare name would be looked for among the system's libraries
    try:
        driver.options.register_custom_ops_library(path)
    except Exception as error:  # the engine has no one kind for these
        from lar.engines.onnxruntime.messages import one_line

        raise UsageError(
            "is not a library of operators for ONNX Runtime",
            f"it must export RegisterCustomOps; ONNX Runtime says: {one_line(str(error))}",
            flag=C_OPR_LIB.flag,
            subject=file,
        ) from error


def row(option: Option[Any], how: str, **hooks: Any) -> OptionRow[Any, Any]:
    return OptionRow(option, SESSION, how, **hooks)


PROFILED = {
    "before_load": profile.start_profiling,
    "after_load": setting("enable_profiling", False),  # of sessions besides the driver's
}

ROWS: tuple[OptionRow[Any, Any], ...] = (
    row(CPU, "CPUExecutionProvider, the default"),
    row(
        *(CUDA, "CUDAExecutionProvider, without falling back to the CPU"),
        before_load=session.choose_provider,
    ),
    row(VERBOSE, "log severity 0", before_load=setting("log_severity_level", 0)),
    row(
        PROVIDER,
        "that provider (cuda, CUDAExecutionProvider, ...), falling back with NAME,cpu alone",
        before_load=session.choose_provider,
        after_load=session.warn_of_fallback,
    ),
    row(NO_TF32, "on CUDA, use_tf32 is 0", before_load=session.multiply_in_float32),
    row(
        *(THREAD, "a session for each, on one thread if --multithread does not give more"),
        before_load=run_beside_others,
    ),
    row(
        *(CPU_DEFAULT, "intra_op_num_threads is 1"),
        before_load=setting("intra_op_num_threads", 1),
    ),
    row(
        *(MULTITHREAD, "intra_op_num_threads, the calling thread being one of them"),
        before_load=run_on_threads,
    ),
    row(MULTITHREAD_DEFAULT, "as --multithread N here", before_load=run_on_threads),
    row(
        MULTI_THREAD_CORE_IDS,
        "session.intra_op_thread_affinities; the calling thread has the first core",
        before_load=bind_threads,
    ),
    row(
        *(NO_SPINNING, "session.intra_op.allow_spinning is 0"),
        before_load=entry("session.intra_op.allow_spinning", "0"),
    ),
    row(
        *(NO_ARENA, "enable_cpu_mem_arena is off"),
        before_load=setting("enable_cpu_mem_arena", False),
    ),
    row(
        *(GRAPH_OPTIMIZATION_LEVEL, "graph_optimization_level; all by default"),
        before_load=set_optimization_level,
    ),
    row(DISABLE_OPTIMIZER, "disabled_optimizers", before_load=leave_out_optimizers),
    row(
        ENABLE_NCHW88,
        "on by default, in blocks as wide as the CPU's vectors; "
        f"--disable-optimizer {BLOCKED_LAYOUT} turns it off",
        before_load=use_blocked_layout,
    ),
    row(
        *(REPRODUCIBLE, "use_deterministic_compute"),
        before_load=setting("use_deterministic_compute", True),
    ),
    row(
        *(WEIGHT_PREPROCESS, "weights are prepacked, which is the default"),
        before_load=entry("session.disable_prepacking", "0"),
    ),
    row(
        FAST_RUN,
        "builds the file of --fast-run-algo-policy; on CUDA, algorithms are always measured",
    ),
    row(
        FAST_RUN_ALGO_POLICY,
        "the optimised model in FILE, its weights, as operators take them, in a file beside it",
        before_load=cache.use_cache,
        before_run=cache.verify_data,
    ),
    row(
        *(TENSORRT, "TensorrtExecutionProvider, then CUDA, without falling back to the CPU"),
        before_load=session.choose_provider,
    ),
    row(
        *(TENSORRT_CACHE, "trt_engine_cache_path and trt_engine_cache_prefix"),
        before_load=session.keep_tensorrt_engines,
    ),
    row(
        *(DISABLE_MEM_OPT, "enable_mem_pattern, enable_mem_reuse and enable_cpu_mem_arena are off"),
        before_load=forbid_memory_reuse,
    ),
    row(DISABLE_ASSERT_THROW, "an output that is not the expected one warns"),
    row(
        *(RANGE, "every floating-point tensor, once, before the warm-up, in a session of its own"),
        before_run=value_range.check_each_feed,
    ),
    row(
        *(MODEL_DUMP, "optimized_model_filepath, with all weights in the file"),
        before_load=saving.start_model_dump,
        after_load=saving.finish_model_dump,
    ),
    row(PROFILE, "enable_profiling; FLOPs and bytes from the optimised graph", **PROFILED),
    row(PROFILE_RAW, "the file that enable_profiling writes", **PROFILED),
    row(PROFILE_MEMORY, "estimated from the tensors and their last use"),
    row(PROFILE_SYSCALLS, "strace of the process that runs the model"),
    row(RANGE_BY, "by the names of the optimised graph's nodes"),
    row(ALLOW_EXTERNAL_DATA, "checked before the session reads the model"),
    row(C_OPR_LIB, "register_custom_ops_library", before_load=load_operators),
    row(
        *(ENGINE_OPTION, "configuration entries of the session and of its runs"),
        before_load=config_entries.set_entries,
    ),
    # Last: what is dumped is saved with all that the others have set.
    *(
        row(option, DUMPED, before_load=dumps.save_source, before_run=dumps.dump_text)
        for option in TEXT_DUMPS
    ),
    row(BIN_IO_DUMP, DUMPED, before_load=dumps.save_source, before_run=dumps.dump_tensors),
    row(
        *(BIN_OUT_DUMP, "the outputs, written after each iteration"),
        before_run=dumps.dump_outputs,
    ),
    row(DUMP_FILTER, "what it leaves out is removed when the run has ended"),
)


# Rules


def is_on_cpu(values: Any) -> bool:
    """Return whether the CPU's provider is asked for, as it is without a flag."""
    provider = PROVIDER.of(values)
    by_flag = TENSORRT.of(values) or CUDA.is_given(values)
    return short_name(provider) == "cpu" if provider is not None else not by_flag


def is_on_cuda(values: Any) -> bool:
    """Return whether a provider for CUDA devices is asked for."""
    provider = PROVIDER.of(values)
    by_flag = TENSORRT.of(values) or CUDA.is_given(values)
    if provider is None:
        return bool(by_flag)
    return short_name(first_provider(provider)) in ("cuda", "tensorrt")


def find_wrong_providers(asked: Asked) -> tuple[str, str] | None:
    """Find more providers than one and, behind it, the CPU's."""
    name = str(PROVIDER.of(asked.values))
    first, comma, rest = name.partition(",")
    if not comma or (short_name(rest) == "cpu" != short_name(first)):
        return None
    return f"cannot run on {name}", "give one name, as cuda, or one with the CPU, as cuda,cpu"


def find_cores_too_many(asked: Asked) -> tuple[str, str] | None:
    """Find a list of cores that is not one for each thread, or not the same for each copy."""
    cores = str(MULTI_THREAD_CORE_IDS.of(asked.values))
    named, copies = len(cores.split(",")), THREAD.of(asked.values) or 1
    counts = [option.of(asked.values) for option in (MULTITHREAD, MULTITHREAD_DEFAULT)]
    threads = next((count for count in counts if count is not None), None)
    if CPU_DEFAULT.of(asked.values):
        threads = 1
    if threads is None:  # as many as cores are named for each copy
        threads = max(1, named // copies)
    if named == threads * copies:
        return None
    needed = count_of(threads * copies, "thread")
    return f"{cores} names {count_of(named, 'core')} for {needed}", CORE_HINT


def find_unknown_optimizer(asked: Asked) -> tuple[str, str] | None:
    """Find an optimiser that the engine does not have; it would say nothing."""
    for name in names_of_optimizers(asked.values):
        if name not in OPTIMIZERS:
            by_lower = {known.lower(): known for known in OPTIMIZERS}
            near = by_lower.get(nearest(name.lower(), sorted(by_lower)))
            hint = (
                f"did you mean {near}?" if near else "names are as NchwcTransformer, ConvBNFusion"
            )
            return f"there is no optimiser {name!r}", hint
    return None


def names_of_optimizers(values: Any) -> list[str]:
    """Return the optimisers that are left out: the option may be given again, and be a list."""
    texts: Sequence[str] = values.get(DISABLE_OPTIMIZER.key) or ()
    return [name for text in texts for name in text.split(",")]


CORE_HINT = "give one core for each thread of --multithread N, for each copy of --thread N"
OTHER_DEVICE = Condition(
    lambda asked: next(
        option.flag for option in (TENSORRT, CUDA, PROVIDER) if option.is_given(asked.values)
    ),
    lambda asked: not is_on_cpu(asked.values),
    TENSORRT,
    CUDA,
    PROVIDER,
)
OTHER_PROVIDER = having(PROVIDER, lambda name: short_name(name) != "cpu")
LAYOUT_LEFT_OUT = Condition(
    lambda _: f"{DISABLE_OPTIMIZER.flag} {BLOCKED_LAYOUT}",
    lambda asked: BLOCKED_LAYOUT in names_of_optimizers(asked.values),
    DISABLE_OPTIMIZER,
)
FAST_RUN_OFF_CUDA = Condition(
    lambda _: FAST_RUN.flag,
    lambda asked: bool(FAST_RUN.of(asked.values)) and not is_on_cuda(asked.values),
    FAST_RUN,
    CUDA,
    TENSORRT,
    PROVIDER,
)
PROVIDER_CUDA = Condition(
    lambda _: "--provider cuda", lambda asked: is_on_cuda(asked.values), PROVIDER
)
CPU_OPTIONS: tuple[Option[Any], ...] = (
    *(CPU, CPU_DEFAULT, MULTITHREAD, MULTITHREAD_DEFAULT, MULTI_THREAD_CORE_IDS),
)

RULES: tuple[Rule, ...] = (
    # Device and threads
    excludes(
        TENSORRT, *CPU_OPTIONS, PROVIDER, why="TensorRT runs on a CUDA device and chooses its own"
    ),
    needs(TENSORRT_CACHE, any_of=(TENSORRT,), why="it keeps what TensorRT builds"),
    excludes(OTHER_PROVIDER, CPU, CPU_DEFAULT, why="they name different devices"),
    Limit(PROVIDER, find_wrong_providers, why="the CPU alone runs what another provider cannot"),
    excludes(NO_TF32, TENSORRT, why="ONNX Runtime cannot have TensorRT do without"),
    needs(NO_TF32, any_of=(CUDA, PROVIDER_CUDA), why="the CPU rounds to no type of fewer bits"),
    Limit(MULTI_THREAD_CORE_IDS, find_cores_too_many, why="each thread is bound to a core"),
    # Layouts and optimisers
    excludes(
        ENABLE_NCHW88,
        having(GRAPH_OPTIMIZATION_LEVEL, lambda level: level != "all"),
        LAYOUT_LEFT_OUT,
        why="the layout is one of the optimisations of the level all",
    ),
    excludes(ENABLE_NCHW88, OTHER_DEVICE, why="the layout is for the CPU alone"),
    Limit(DISABLE_OPTIMIZER, find_unknown_optimizer, why="ONNX Runtime has none of that name"),
    # Algorithms
    excludes(
        FAST_RUN_ALGO_POLICY,
        OTHER_DEVICE,
        why="ONNX Runtime keeps a cache for the CPU alone",
        hint="leave {first} out",
    ),
    needs(
        FAST_RUN_OFF_CUDA,
        any_of=(FAST_RUN_ALGO_POLICY,),
        why="ONNX Runtime measures no algorithms here, it can only keep the optimised model",
        hint="add --fast-run-algo-policy FILE to keep the optimised model, which loads faster",
    ),
    Presence(
        FAST_RUN_ALGO_POLICY, hint="make it with --fast-run, then run without", unless=(FAST_RUN,)
    ),
)
