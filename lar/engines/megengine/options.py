"""The option table of MegEngine: a row for each option that it honours, the functions that rows
call, and the rules about options that need or exclude each other on it.

The functions set the drivers' own attributes: `lite_options` (fields of LiteOptions, set when the
network is made), `network_setup` (calls on the network before the model is loaded),
`inference_options` (arguments of the graph's optimize_for_inference), `graph_setup`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lar.engines.megengine.lite_fields import GRAPH_ARGUMENTS, LITE_FIELDS
from lar.engines.megengine.spinning import SPIN_VARIABLE
from lar.engines.option_rows import Drivers, Hook, LazyModule, OptionRow
from lar.errors import count_of
from lar.options import table
from lar.options.option import Option, Switch
from lar.options.rules import (
    NO_EXECUTION,
    SEVERAL_RUNNERS,
    Asked,
    Condition,
    Content,
    Limit,
    Presence,
    Rule,
    bans,
    excludes,
    needs,
    valued,
)

if TYPE_CHECKING:
    from lar.engines.megengine import (
        algorithms,
        c_operators,
        checkers,
        dumps,
        layout_search,
        model_dump,
        packing,
        profile,
        shared_weights,
        static_memory,
        tensorrt,
    )
    from lar.engines.megengine.graph import GraphDriver
    from lar.engines.megengine.lite import LiteDriver
else:
    algorithms = LazyModule("lar.engines.megengine.algorithms")
    c_operators = LazyModule("lar.engines.megengine.c_operators")
    checkers = LazyModule("lar.engines.megengine.checkers")
    dumps = LazyModule("lar.engines.megengine.dumps")
    layout_search = LazyModule("lar.engines.megengine.layout_search")
    model_dump = LazyModule("lar.engines.megengine.model_dump")
    packing = LazyModule("lar.engines.megengine.packing")
    profile = LazyModule("lar.engines.megengine.profile")
    shared_weights = LazyModule("lar.engines.megengine.shared_weights")
    static_memory = LazyModule("lar.engines.megengine.static_memory")
    tensorrt = LazyModule("lar.engines.megengine.tensorrt")

LITE: Drivers[LiteDriver] = Drivers(("lite",))
GRAPH: Drivers[GraphDriver] = Drivers(("graph",))
BOTH: Drivers[LiteDriver | GraphDriver] = Drivers(("lite", "graph"))

# Device and threads


def choose_cuda(driver: LiteDriver, device_id: int) -> None:
    driver.choose_cuda(device_id)


def show_engine_log(driver: LiteDriver | GraphDriver, _: bool) -> None:
    driver.set_log_level_verbose()


def fix_engine(_: LiteDriver | GraphDriver, name: str) -> None:
    from lar.engines.megengine.x2apic import apply_fix

    apply_fix()


def run_in_calling_thread(driver: LiteDriver, _: object) -> None:
    driver.network_setup.append(lambda network: network.enable_cpu_inplace_mode())
    # A packed model with settings has lite take the device from the config again, and this mode
    # is a device: DEVICE_CPU_DEFAULT or DEVICE_MULTITHREAD_DEFAULT of CompNode::Locator.
    several = (table.MULTITHREAD_DEFAULT.of(driver.spec.settings) or 1) > 1
    driver.config.device_id = -1025 if several else -1024


def run_on_threads(driver: LiteDriver, count: int) -> None:
    driver.network_setup.append(lambda network: setattr(network, "threads_number", count))


def run_on_threads_with_caller(driver: LiteDriver, count: int) -> None:
    run_in_calling_thread(driver, True)
    run_on_threads(driver, count)


def run_beside_others(driver: LiteDriver, count: int) -> None:
    # Networks on one device share its threads, and wait for each other. In the calling thread
    # they do not; each device number has threads of its own, each CUDA stream its own order.
    settings, runner = driver.spec.settings, driver.runner
    if table.CUDA.is_given(settings):
        driver.network_setup.append(lambda network: setattr(network, "stream_id", runner))
    elif table.MULTITHREAD.is_given(settings):
        driver.config.device_id = runner  # not network.device_id, which a packed model resets
    elif (
        count > 1
        and not table.CPU_DEFAULT.of(settings)
        and not table.MULTITHREAD_DEFAULT.is_given(settings)
    ):
        run_in_calling_thread(driver, True)


def stop_spinning(_: LiteDriver | GraphDriver, __: bool) -> None:
    # The engine reads it when the first thread waits. It heeds no call.
    os.environ[SPIN_VARIABLE] = "0"


def bind_threads(driver: LiteDriver, cores: str) -> None:
    count = threads_of(driver.spec.settings)
    listed = [int(core) for core in cores.split(",")]
    driver.bind_threads(listed[count * driver.runner :][:count])


# Graph


def set_fields(option: Option[Any]) -> Hook[LiteDriver | GraphDriver, object]:
    """Return a hook that sets what the driver at hand has for an option: fields of lite's options,
    or arguments of the graph's optimize_for_inference."""

    def set_option(driver: LiteDriver | GraphDriver, _: object) -> None:
        if driver.name == "lite":
            driver.lite_options.update(LITE_FIELDS[option])
        elif option in GRAPH_ARGUMENTS:
            arguments = dict.fromkeys(GRAPH_ARGUMENTS[option], True)
            driver.inference_options = {**(driver.inference_options or {}), **arguments}
        elif option is table.NO_SANITY_CHECK:
            driver.graph_setup.append(
                lambda graph: setattr(graph.options, "var_sanity_check_first_run", False)
            )
        else:
            driver.graph_setup.append(lambda graph: graph.enable_weight_preprocess())

    return set_option


ON_GRAPH = {
    **{it: f"optimize_for_inference({', '.join(names)})" for it, names in GRAPH_ARGUMENTS.items()},
    table.WEIGHT_PREPROCESS: "enable_weight_preprocess()",
    table.WINOGRAD_TRANSFORM: "enable_weight_preprocess(); algorithms as a cache has them",
    table.NO_SANITY_CHECK: "GraphOptions.var_sanity_check_first_run",
}


def row_of_fields(option: Option[Any]) -> OptionRow[Any, Any]:
    """Return the row of an option that sets fields or arguments."""
    fields = ", ".join(LITE_FIELDS.get(option, ()))
    ways = [fields and f"LiteOptions.{fields}", ON_GRAPH.get(option, "")]
    drivers: Drivers[Any] = BOTH if all(ways) else LITE if fields else GRAPH
    how = "; ".join(filter(None, ways))
    return OptionRow(option, drivers, how, before_load=set_fields(option))


def keep_operators(driver: LiteDriver, _: int) -> None:
    # The limit is set on the operators that were loaded: optimisation would copy them, before it
    # can be set, and fast-run's even at level 1.
    searching = any(search.of(driver.spec.settings) for search in table.SEARCHES)
    driver.lite_options["graph_opt_level"] = 0 if searching else 1


def disable_memory_reuse(driver: GraphDriver, _: bool) -> None:
    def disable(graph: Any) -> None:
        graph.options.seq_opt.enable_mem_plan_opt = False
        graph.options.seq_opt.enable_mem_reuse_alloc = False

    driver.graph_setup.append(disable)


ALGORITHMS: Mapping[Option[Any], str] = {
    table.FAST_RUN: "PROFILE | OPTIMIZED",
    table.FULL_RUN: "PROFILE",
    table.FAST_RUN_SHARED_BATCH_SIZE: "fast-run batch",
    table.BINARY_EQUAL_BETWEEN_BATCH: "fast-run attribute",
    table.REPRODUCIBLE: "REPRODUCIBLE",
}

ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(table.CPU, BOTH, "the default device"),
    OptionRow(table.CUDA, LITE, "LiteConfig.device_type and device_id", before_load=choose_cuda),
    OptionRow(table.VERBOSE, BOTH, "the engine's log level is DEBUG", before_load=show_engine_log),
    OptionRow(table.ENGINE_FIX, BOTH, "writes into the loaded library", before_load=fix_engine),
    OptionRow(table.CPU_DEFAULT, LITE, "inplace mode", before_load=run_in_calling_thread),
    OptionRow(table.MULTITHREAD, LITE, "threads_number", before_load=run_on_threads),
    OptionRow(
        table.MULTITHREAD_DEFAULT,
        LITE,
        "threads_number and inplace mode",
        before_load=run_on_threads_with_caller,
    ),
    OptionRow(
        table.THREAD,
        LITE,
        "a network for each, in inplace mode, or with a device number or stream of its own",
        before_load=run_beside_others,
    ),
    OptionRow(table.MULTI_THREAD_CORE_IDS, LITE, "thread affinity", after_load=bind_threads),
    OptionRow(table.NO_SPINNING, BOTH, f"{SPIN_VARIABLE} is 0", before_load=stop_spinning),
    *map(row_of_fields, dict.fromkeys((*LITE_FIELDS, *GRAPH_ARGUMENTS))),
    OptionRow(
        table.LAYOUT_TRANSFORM,
        LITE,
        "enable_global_layout_transform()",
        before_load=layout_search.search_layouts,
        after_load=layout_search.read_layouts,
    ),
    OptionRow(
        table.LAYOUT_TRANSFORM_DUMP,
        LITE,
        "dump_layout_transform_model(), names mended",
        after_load=layout_search.write_layouts,
    ),
    *(
        OptionRow(option, LITE, how, before_load=algorithms.choose_algorithms)
        for option, how in ALGORITHMS.items()
    ),
    OptionRow(
        table.FAST_RUN_ALGO_POLICY,
        LITE,
        "the engine's cache file",
        before_load=algorithms.choose_algorithms,
        after_run=algorithms.warn_of_missed,
    ),
    OptionRow(
        table.WORKSPACE_LIMIT,
        LITE,
        "algorithm workspace limit, with the graph optimised less",
        before_load=keep_operators,
        after_load=lambda driver, size: driver.network.set_network_algo_workspace_limit(size),
    ),
    OptionRow(
        table.TENSORRT, LITE, "use_tensorrt(), on CUDA alone", before_load=tensorrt.use_tensorrt
    ),
    OptionRow(
        table.TENSORRT_CACHE,
        LITE,
        "TensorRT's engine cache",
        before_load=tensorrt.use_cache,
        after_run=tensorrt.keep_cache,
    ),
    OptionRow(table.DISABLE_MEM_OPT, GRAPH, "seq_opt", before_load=disable_memory_reuse),
    OptionRow(table.DISABLE_ASSERT_THROW, BOTH, "an output that is not the expected one warns"),
    OptionRow(table.RANGE, GRAPH, "NumRangeChecker", before_load=checkers.check_range),
    OptionRow(table.CHECK_VAR_VALUE, GRAPH, "VarValueChecker", before_load=checkers.check_values),
    OptionRow(
        table.CHECK_DISPATCH,
        GRAPH,
        "CPUDispatchChecker",
        before_load=checkers.check_dispatch,
        before_run=checkers.collect_at_each_run,
        after_run=checkers.finish_check_dispatch,
    ),
    OptionRow(
        table.C_OPR_LIB,
        BOTH,
        "the library's mgb_c_opr_init",
        before_load=c_operators.load_operators,
    ),
    OptionRow(
        table.GET_STATIC_MEM_INFO,
        GRAPH,
        "get_static_memory_alloc_info()",
        before_run=static_memory.begin_recording,
        after_run=static_memory.finish_recording,
    ),
    *(
        OptionRow(
            option,
            LITE,
            "io_txt_dump(), in inplace mode",
            before_load=dumps.compute_in_calling_thread,
            after_load=dumps.dump_text,
        )
        for option in table.TEXT_DUMPS
    ),
    OptionRow(
        table.BIN_IO_DUMP,
        LITE,
        "io_bin_dump(), in inplace mode",
        before_load=dumps.compute_in_calling_thread,
        after_load=dumps.dump_tensors,
    ),
    OptionRow(
        table.BIN_OUT_DUMP,
        BOTH,
        "the outputs, written after each iteration",
        before_run=dumps.dump_outputs,
    ),
    OptionRow(table.DUMP_FILTER, BOTH, "what it leaves out is removed when the run has ended"),
    *(
        OptionRow(
            option,
            BOTH,
            how,
            before_load=profile.begin_profile,
            after_load=profile.take_profile,
        )
        for option, how in {
            table.PROFILE: "enable_profile_performance(); GraphProfiler",
            table.PROFILE_HOST: "the profile of --profile: the host's dispatch is in it",
            table.PROFILE_RAW: "the engine's JSON of the last iteration",
        }.items()
    ),
    OptionRow(table.PROFILE_MEMORY, BOTH, "the static memory plan"),
    OptionRow(table.PROFILE_SYSCALLS, BOTH, "strace of the process that runs the model"),
    OptionRow(table.RANGE_BY, BOTH, "by the names of the graph's operators"),
    OptionRow(
        table.SHARE_PARAM_MEM,
        LITE,
        "LITE_load_model_from_mem on the mapped file; share_weights_with",
        before_load=shared_weights.share_weights,
    ),
    OptionRow(table.MODEL_DUMP, GRAPH, "dump_graph()", after_run=model_dump.dump_model),
    OptionRow(
        table.PACKED_MODEL_DUMP,
        LITE,
        "lite's packed model, of the file as it is",
        after_run=packing.dump_packed,
    ),
    OptionRow(table.PACK_INFO_JSON, LITE, "lite's settings of a packed model"),
    OptionRow(table.PACK_CACHE, LITE, "lite's cache in a packed model"),
)


# Rules


def check_pack_info(path: str) -> None:
    from lar.engines.megengine.packed_settings import read_info_file

    read_info_file(path)


def check_pack_cache(path: str) -> None:
    from lar.engines.megengine.packing import read_cache_file

    read_cache_file(path)


def threads_of(values: Any) -> int:
    """Return how many threads each copy of the model computes on."""
    return table.MULTITHREAD.of(values) or table.MULTITHREAD_DEFAULT.of(values) or 1


def find_cores_too_many(asked: Asked) -> tuple[str, str] | None:
    """Find a list of cores that is not one for each thread."""
    cores = str(table.MULTI_THREAD_CORE_IDS.of(asked.values))
    count = threads_of(asked.values) * (table.THREAD.of(asked.values) or 1)
    named = len(cores.split(","))
    if named == count:
        return None
    return (
        f"{cores} names {count_of(named, 'core')} for {count_of(count, 'thread')}",
        "give one core for each thread of --multithread N or --multithread-default N, for each "
        "copy of --thread N",
    )


def hanging(option: Option[Any]) -> Condition:
    """The option is given, and hangs on this processor."""

    def holds(asked: Asked) -> bool:
        if not option.is_given(asked.values) or table.CUDA.is_given(asked.values):
            return False
        from lar.engines.megengine.defects import hangs_here

        return hangs_here(asked.environment)

    return Condition(lambda _: option.flag, holds, option)


NO_FULL_EXECUTION = Condition(
    lambda asked: "--warmup-iter 0" if asked.iterations else "--iter 0",
    lambda asked: (
        (asked.warmup_iterations, asked.iterations) == (1, 0)
        or bool(asked.iterations) > bool(asked.warmup_iterations)
    ),
    table.ITER,
    table.WARMUP_ITER,
)
SEVERAL_WITHOUT_WARMUP = Condition(
    lambda asked: f"--thread {table.THREAD.of(asked.values)} without a warm-up",
    lambda asked: SEVERAL_RUNNERS.holds(asked) and not asked.warmup_iterations,
    table.THREAD,
    table.WARMUP_ITER,
)
RECORDS: tuple[Switch, ...] = (table.RECORD_COMP_SEQ, table.RECORD_COMP_SEQ2)

RULES: tuple[Rule, ...] = (
    # Device and threads
    needs(
        (table.ENABLE_JIT, table.TENSORRT),
        any_of=(table.CUDA,),
        why="MegEngine has it for CUDA devices alone",
        hint="add --cuda, or leave the flag out",
    ),
    needs(table.TENSORRT_CACHE, any_of=(table.TENSORRT,), why="it keeps what TensorRT builds"),
    Limit(table.MULTI_THREAD_CORE_IDS, find_cores_too_many, why="each thread is bound to a core"),
    # Layouts
    needs(
        table.LAYOUT_TRANSFORM_DUMP,
        any_of=(table.LAYOUT_TRANSFORM,),
        why="it writes what that search finds",
    ),
    needs(
        valued(table.LAYOUT_TRANSFORM, "cuda"),
        any_of=(table.CUDA,),
        why="MegEngine searches on the device that it runs on",
        hint="add --cuda, or give cpu or unspec",
    ),
    excludes(
        valued(table.LAYOUT_TRANSFORM, "cpu"),
        table.CUDA,
        why="MegEngine searches on the device that it runs on",
        hint="give --layout-transform cuda or unspec",
    ),
    bans(
        valued(table.LAYOUT_TRANSFORM, "arm", "opencl"),
        why="MegEngine searches on the device that it runs on, and that is the CPU or CUDA",
        hint="give cpu, cuda or unspec",
    ),
    excludes(
        table.LAYOUT_TRANSFORM,
        table.RECORD_COMP_SEQ2,
        why="recording frees the graph before what was found is read",
        hint="take --record-comp-seq",
    ),
    needs(
        (hanging(table.ENABLE_NCHW88), hanging(table.LAYOUT_TRANSFORM)),
        any_of=(table.ENGINE_FIX,),
        why="it hangs on processors other than Intel's, where MKL-DNN cannot read the number of "
        "cores",
        hint="--engine-fix x2apic mends it in the loaded library, for this run",
    ),
    # Algorithms
    needs(
        table.FAST_RUN_SHARED_BATCH_SIZE,
        any_of=(table.FAST_RUN, table.FULL_RUN, table.FAST_RUN_ALGO_POLICY),
        why="it is the batch that a search measures with, and its cache is read by it",
        hint="add --fast-run, or --fast-run-algo-policy FILE",
    ),
    excludes(
        table.SEARCHES,
        NO_EXECUTION,
        why="the search is made in the first iteration",
        hint="give --warmup-iter 1",
    ),
    excludes(
        table.SEARCHES,
        SEVERAL_WITHOUT_WARMUP,
        why="the copies would search at once, and damage what they find",
        hint="give --warmup-iter 1: then the first copy searches",
    ),
    Presence(
        table.FAST_RUN_ALGO_POLICY,
        hint="make it with --fast-run, then run without",
        unless=table.SEARCHES,
    ),
    # Execution
    excludes(
        table.FAKE_FIRST,
        *RECORDS,
        NO_FULL_EXECUTION,
        table.BIN_OUT_DUMP,
        why="the first execution computes nothing, and would be recorded, or taken for a result",
        hint="leave one of them out, or give --warmup-iter 1 --iter 1",
    ),
    excludes(
        SEVERAL_RUNNERS,
        table.RECORD_COMP_SEQ2,
        why="MegEngine can record one model at a time, and aborts",
        hint="take --record-comp-seq",
    ),
    # Dumps and profiles
    excludes(
        table.TEXT_DUMPS,
        table.BIN_IO_DUMP,
        why="MegEngine makes one dump at a time",
        hint="run twice",
    ),
    excludes(
        table.BIN_IO_DUMP, NO_EXECUTION, why="MegEngine dumps what it runs", hint="give --iter 1"
    ),
    excludes(
        (*table.OPERATOR_DUMPS, *table.PROFILE_FILES),
        *RECORDS,
        why="a replayed run passes by the operators that are dumped or timed",
    ),
    excludes(
        table.PROFILES,
        SEVERAL_RUNNERS,
        why="MegEngine profiles one copy of a model",
        hint="leave --thread out",
    ),
    excludes(
        table.GET_STATIC_MEM_INFO,
        NO_EXECUTION,
        why="the first iteration plans the memory",
        hint="give --iter 1",
    ),
    # Model files
    needs(
        (table.PACK_INFO_JSON, table.PACK_CACHE),
        any_of=(table.PACKED_MODEL_DUMP,),
        why="it is put into the packed model",
    ),
    Content(table.PACK_INFO_JSON, check_pack_info),
    Content(table.PACK_CACHE, check_pack_cache),
)
