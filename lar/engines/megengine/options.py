"""The option table of MegEngine: a row for each option that it honours, the functions that rows
call, and the rules about options that need or exclude each other on it.

The functions set the drivers' own attributes: `lite_options` (fields of LiteOptions, set when the
network is made), `network_setup` (calls on the network before the model is loaded),
`inference_options` (arguments of the graph's optimize_for_inference), `graph_setup`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from lar.engines.megengine.spinning import SPIN_VARIABLE
from lar.engines.option_rows import Drivers, Hook, LazyModule, OptionRow
from lar.errors import count_of
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
    fact,
    needs,
    valued,
)
from lar.options.table import (
    BIN_IO_DUMP,
    BIN_OUT_DUMP,
    BINARY_EQUAL_BETWEEN_BATCH,
    C_OPR_LIB,
    CHECK_DISPATCH,
    CHECK_VAR_VALUE,
    CONST_SHAPE,
    CPU,
    CPU_DEFAULT,
    CUDA,
    DISABLE_ASSERT_THROW,
    DISABLE_MEM_OPT,
    DUMP_FILTER,
    ENABLE_CHWN4,
    ENABLE_FUSE_CONV_BIAS_NONLINEARITY,
    ENABLE_FUSE_CONV_BIAS_WITH_Z,
    ENABLE_FUSE_PREPROCESS,
    ENABLE_IOC16,
    ENABLE_JIT,
    ENABLE_NCHW88,
    ENABLE_NHWCD4,
    ENGINE_FIX,
    FAKE_FIRST,
    FAST_RUN,
    FAST_RUN_ALGO_POLICY,
    FAST_RUN_SHARED_BATCH_SIZE,
    FULL_RUN,
    GET_STATIC_MEM_INFO,
    ITER,
    LAYOUT_TRANSFORM,
    LAYOUT_TRANSFORM_DUMP,
    LAYOUTS,
    MODEL_DUMP,
    MULTI_THREAD_CORE_IDS,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    NO_SANITY_CHECK,
    NO_SPINNING,
    OPERATOR_DUMPS,
    OPTIMIZE_FOR_INFERENCE,
    PACK_CACHE,
    PACK_INFO_JSON,
    PACKED_MODEL_DUMP,
    PROFILE,
    PROFILE_FILES,
    PROFILE_HOST,
    PROFILE_MEMORY,
    PROFILE_RAW,
    PROFILE_SYSCALLS,
    PROFILES,
    RANGE,
    RANGE_BY,
    RECORD_COMP_SEQ,
    RECORD_COMP_SEQ2,
    REPRODUCIBLE,
    SEARCHES,
    SHARE_PARAM_MEM,
    TENSORRT,
    TENSORRT_CACHE,
    TEXT_DUMPS,
    THREAD,
    VERBOSE,
    WARMUP_ITER,
    WEIGHT_PREPROCESS,
    WINOGRAD_TRANSFORM,
    WORKSPACE_LIMIT,
)

if TYPE_CHECKING:
    from lar.engines.megengine import (
        algorithms,
        c_operators,
        checkers,
        dumps,
        layout_search,
        model_dump,
        packed_model,
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
    packed_model = LazyModule("lar.engines.megengine.packed_model")
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
    several = (MULTITHREAD_DEFAULT.of(driver.spec.settings) or 1) > 1
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
    if CUDA.is_given(settings):
        driver.network_setup.append(lambda network: setattr(network, "stream_id", runner))
    elif MULTITHREAD.is_given(settings):
        driver.config.device_id = runner  # not network.device_id, which a packed model resets
    elif count > 1 and not CPU_DEFAULT.of(settings) and not MULTITHREAD_DEFAULT.is_given(settings):
        run_in_calling_thread(driver, True)


def stop_spinning(_: LiteDriver | GraphDriver, __: bool) -> None:
    # The engine reads it when the first thread waits. It heeds no call.
    os.environ[SPIN_VARIABLE] = "0"


def bind_threads(driver: LiteDriver, cores: str) -> None:
    count = threads_of(driver.spec.settings)
    listed = [int(core) for core in cores.split(",")]
    driver.bind_threads(listed[count * driver.runner :][:count])


# Graph


def set_lite_option(**fields: int) -> Hook[LiteDriver, object]:
    """Return a hook that sets fields of LiteOptions."""

    def set_option(driver: LiteDriver, _: object) -> None:
        driver.lite_options.update(fields)

    return set_option


def set_inference_option(**arguments: bool) -> Hook[GraphDriver, object]:
    """Return a hook that sets arguments of the graph's optimize_for_inference."""

    def set_option(driver: GraphDriver, _: object) -> None:
        driver.inference_options = {**(driver.inference_options or {}), **arguments}

    return set_option


def set_either(
    lite: dict[str, int], graph: dict[str, bool]
) -> Hook[LiteDriver | GraphDriver, object]:
    """Return a hook that sets what the driver at hand knows."""

    def set_option(driver: LiteDriver | GraphDriver, _: object) -> None:
        if driver.name == "lite":
            driver.lite_options.update(lite)
        else:
            driver.inference_options = {**(driver.inference_options or {}), **graph}

    return set_option


def preprocess_weights(driver: LiteDriver | GraphDriver, _: bool) -> None:
    if driver.name == "lite":
        driver.lite_options["weight_preprocess"] = 1
    else:
        driver.graph_setup.append(lambda graph: graph.enable_weight_preprocess())


def keep_operators(driver: LiteDriver, _: int) -> None:
    # The limit is set on the operators that were loaded: optimisation would copy them, before it
    # can be set, and fast-run's even at level 1.
    searching = any(search.of(driver.spec.settings) for search in SEARCHES)
    driver.lite_options["graph_opt_level"] = 0 if searching else 1


def limit_workspace(driver: LiteDriver, size_bytes: int) -> None:
    driver.network.set_network_algo_workspace_limit(size_bytes)


def skip_sanity_check(driver: LiteDriver | GraphDriver, _: bool) -> None:
    if driver.name == "lite":
        driver.lite_options["var_sanity_check_first_run"] = 0
    else:
        driver.graph_setup.append(
            lambda graph: setattr(graph.options, "var_sanity_check_first_run", False)
        )


def disable_memory_reuse(driver: GraphDriver, _: bool) -> None:
    def disable(graph: Any) -> None:
        graph.options.seq_opt.enable_mem_plan_opt = False
        graph.options.seq_opt.enable_mem_reuse_alloc = False

    driver.graph_setup.append(disable)


ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(CPU, BOTH, "the default device"),
    OptionRow(CUDA, LITE, "LiteConfig.device_type and device_id", before_load=choose_cuda),
    OptionRow(VERBOSE, BOTH, "the engine's log level is DEBUG", before_load=show_engine_log),
    OptionRow(ENGINE_FIX, BOTH, "writes into the loaded library", before_load=fix_engine),
    OptionRow(CPU_DEFAULT, LITE, "inplace mode", before_load=run_in_calling_thread),
    OptionRow(MULTITHREAD, LITE, "threads_number", before_load=run_on_threads),
    OptionRow(
        MULTITHREAD_DEFAULT,
        LITE,
        "threads_number and inplace mode",
        before_load=run_on_threads_with_caller,
    ),
    OptionRow(
        THREAD,
        LITE,
        "a network for each, in inplace mode, or with a device number or stream of its own",
        before_load=run_beside_others,
    ),
    OptionRow(MULTI_THREAD_CORE_IDS, LITE, "thread affinity", after_load=bind_threads),
    OptionRow(NO_SPINNING, BOTH, f"{SPIN_VARIABLE} is 0", before_load=stop_spinning),
    *(
        OptionRow(
            layout,
            BOTH,
            f"LiteOptions.{layout.key}; optimize_for_inference({layout.key})",
            before_load=set_either({layout.key: 1}, {layout.key: True}),
        )
        for layout in LAYOUTS
        if layout not in (ENABLE_CHWN4, ENABLE_NHWCD4)
    ),
    OptionRow(
        ENABLE_CHWN4,
        GRAPH,
        "optimize_for_inference(enable_chwn4)",
        before_load=set_inference_option(enable_chwn4=True),
    ),
    OptionRow(
        ENABLE_NHWCD4,
        LITE,
        "LiteOptions.enable_nhwcd4",
        before_load=set_lite_option(enable_nhwcd4=1),
    ),
    OptionRow(
        LAYOUT_TRANSFORM,
        LITE,
        "enable_global_layout_transform()",
        before_load=layout_search.search_layouts,
        after_load=layout_search.read_layouts,
    ),
    OptionRow(
        LAYOUT_TRANSFORM_DUMP,
        LITE,
        "dump_layout_transform_model(), names mended",
        after_load=layout_search.write_layouts,
    ),
    OptionRow(FAST_RUN, LITE, "PROFILE | OPTIMIZED", before_load=algorithms.choose_algorithms),
    OptionRow(FULL_RUN, LITE, "PROFILE", before_load=algorithms.choose_algorithms),
    OptionRow(
        FAST_RUN_ALGO_POLICY,
        LITE,
        "the engine's cache file",
        before_load=algorithms.choose_algorithms,
        after_run=algorithms.warn_of_missed,
    ),
    OptionRow(
        FAST_RUN_SHARED_BATCH_SIZE, LITE, "fast-run batch", before_load=algorithms.choose_algorithms
    ),
    OptionRow(
        BINARY_EQUAL_BETWEEN_BATCH,
        LITE,
        "fast-run attribute",
        before_load=algorithms.choose_algorithms,
    ),
    OptionRow(REPRODUCIBLE, LITE, "REPRODUCIBLE", before_load=algorithms.choose_algorithms),
    OptionRow(
        WORKSPACE_LIMIT,
        LITE,
        "algorithm workspace limit, with the graph optimised less",
        before_load=keep_operators,
        after_load=limit_workspace,
    ),
    OptionRow(WEIGHT_PREPROCESS, BOTH, "weights transformed ahead", before_load=preprocess_weights),
    OptionRow(
        WINOGRAD_TRANSFORM,
        BOTH,
        "as --weight-preprocess; winograd algorithms preferred where a cache has them",
        before_load=preprocess_weights,
    ),
    OptionRow(
        OPTIMIZE_FOR_INFERENCE,
        GRAPH,
        "optimize_for_inference()",
        before_load=set_inference_option(),
    ),
    OptionRow(
        ENABLE_FUSE_CONV_BIAS_NONLINEARITY,
        GRAPH,
        "optimize_for_inference",
        before_load=set_inference_option(enable_fuse_conv_bias_nonlinearity=True),
    ),
    OptionRow(
        ENABLE_FUSE_CONV_BIAS_WITH_Z,
        GRAPH,
        "optimize_for_inference",
        before_load=set_inference_option(
            enable_fuse_conv_bias_nonlinearity=True, enable_fuse_conv_bias_with_z=True
        ),
    ),
    OptionRow(
        ENABLE_FUSE_PREPROCESS,
        BOTH,
        "LiteOptions.fuse_preprocess; optimize_for_inference",
        before_load=set_either({"fuse_preprocess": 1}, {"enable_fuse_preprocess": True}),
    ),
    OptionRow(
        ENABLE_IOC16,
        GRAPH,
        "optimize_for_inference",
        before_load=set_inference_option(enable_ioc16=True),
    ),
    OptionRow(
        ENABLE_JIT,
        LITE,
        "LiteOptions.jit_level 1, on CUDA alone",
        before_load=set_lite_option(jit_level=1),
    ),
    OptionRow(TENSORRT, LITE, "use_tensorrt(), on CUDA alone", before_load=tensorrt.use_tensorrt),
    OptionRow(
        TENSORRT_CACHE,
        LITE,
        "TensorRT's engine cache",
        before_load=tensorrt.use_cache,
        after_run=tensorrt.keep_cache,
    ),
    OptionRow(
        CONST_SHAPE, LITE, "LiteOptions.const_shape", before_load=set_lite_option(const_shape=1)
    ),
    OptionRow(
        FAKE_FIRST,
        LITE,
        "LiteOptions.fake_next_exec",
        before_load=set_lite_option(fake_next_exec=1),
    ),
    OptionRow(NO_SANITY_CHECK, BOTH, "var_sanity_check_first_run", before_load=skip_sanity_check),
    OptionRow(
        RECORD_COMP_SEQ,
        LITE,
        "comp_node_seq_record_level 1",
        before_load=set_lite_option(comp_node_seq_record_level=1),
    ),
    OptionRow(
        RECORD_COMP_SEQ2,
        LITE,
        "comp_node_seq_record_level 2, without the sanity check, shapes constant",
        before_load=set_lite_option(
            comp_node_seq_record_level=2, var_sanity_check_first_run=0, const_shape=1
        ),
    ),
    OptionRow(DISABLE_MEM_OPT, GRAPH, "seq_opt", before_load=disable_memory_reuse),
    OptionRow(DISABLE_ASSERT_THROW, BOTH, "an output that is not the expected one warns"),
    OptionRow(RANGE, GRAPH, "NumRangeChecker", before_load=checkers.check_range),
    OptionRow(CHECK_VAR_VALUE, GRAPH, "VarValueChecker", before_load=checkers.check_values),
    OptionRow(
        CHECK_DISPATCH,
        GRAPH,
        "CPUDispatchChecker",
        before_load=checkers.check_dispatch,
        before_run=checkers.collect_at_each_run,
        after_run=checkers.finish_check_dispatch,
    ),
    OptionRow(
        C_OPR_LIB, BOTH, "the library's mgb_c_opr_init", before_load=c_operators.load_operators
    ),
    OptionRow(
        GET_STATIC_MEM_INFO,
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
        for option in TEXT_DUMPS
    ),
    OptionRow(
        BIN_IO_DUMP,
        LITE,
        "io_bin_dump(), in inplace mode",
        before_load=dumps.compute_in_calling_thread,
        after_load=dumps.dump_tensors,
    ),
    OptionRow(
        BIN_OUT_DUMP,
        BOTH,
        "the outputs, written after each iteration",
        before_run=dumps.dump_outputs,
    ),
    OptionRow(DUMP_FILTER, BOTH, "what it leaves out is removed when the run has ended"),
    OptionRow(
        PROFILE,
        BOTH,
        "enable_profile_performance(); GraphProfiler",
        before_load=profile.begin_profile,
        after_load=profile.take_profile,
    ),
    OptionRow(
        PROFILE_HOST,
        BOTH,
        "the profile of --profile: the host's dispatch is in it",
        before_load=profile.begin_profile,
        after_load=profile.take_profile,
    ),
    OptionRow(
        PROFILE_RAW,
        BOTH,
        "the engine's JSON of the last iteration",
        before_load=profile.begin_profile,
        after_load=profile.take_profile,
    ),
    OptionRow(PROFILE_MEMORY, BOTH, "the static memory plan"),
    OptionRow(PROFILE_SYSCALLS, BOTH, "strace of the process that runs the model"),
    OptionRow(RANGE_BY, BOTH, "by the names of the graph's operators"),
    OptionRow(
        SHARE_PARAM_MEM,
        LITE,
        "LITE_load_model_from_mem on the mapped file; share_weights_with",
        before_load=shared_weights.share_weights,
    ),
    OptionRow(MODEL_DUMP, GRAPH, "dump_graph()", after_run=model_dump.dump_model),
    OptionRow(
        PACKED_MODEL_DUMP,
        LITE,
        "lite's packed model, of the file as it is",
        after_run=packed_model.dump_packed,
    ),
    OptionRow(PACK_INFO_JSON, LITE, "lite's settings of a packed model"),
    OptionRow(PACK_CACHE, LITE, "lite's cache in a packed model"),
)


# Rules


def check_pack_info(path: str) -> None:
    from lar.engines.megengine.packed_settings import read_info_file

    read_info_file(path)


def check_pack_cache(path: str) -> None:
    from lar.engines.megengine.packed_model import read_cache_file

    read_cache_file(path)


def threads_of(values: Any) -> int:
    """Return how many threads each copy of the model computes on."""
    return MULTITHREAD.of(values) or MULTITHREAD_DEFAULT.of(values) or 1


def find_cores_too_many(asked: Asked) -> tuple[str, str] | None:
    """Find a list of cores that is not one for each thread."""
    cores = str(MULTI_THREAD_CORE_IDS.of(asked.values))
    count = threads_of(asked.values) * (THREAD.of(asked.values) or 1)
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
        if not option.is_given(asked.values) or CUDA.is_given(asked.values):
            return False
        from lar.engines.megengine.defects import hangs_here

        return hangs_here(asked.environment)

    return Condition(lambda _: option.flag, holds, option)


ONLY_ONE_EXECUTION = fact(
    "--iter 0", lambda asked: (asked.warmup_iterations, asked.iterations) == (1, 0), ITER
)
NO_WARMUP = fact(
    "--warmup-iter 0",
    lambda asked: bool(asked.iterations) and not asked.warmup_iterations,
    WARMUP_ITER,
)
SEVERAL_WITHOUT_WARMUP = Condition(
    lambda asked: f"--thread {THREAD.of(asked.values)} without a warm-up",
    lambda asked: SEVERAL_RUNNERS.holds(asked) and not asked.warmup_iterations,
    THREAD,
    WARMUP_ITER,
)
RECORDS: tuple[Switch, ...] = (RECORD_COMP_SEQ, RECORD_COMP_SEQ2)

RULES: tuple[Rule, ...] = (
    # Device and threads
    needs(
        ENABLE_JIT,
        any_of=(CUDA,),
        why="MegEngine compiles elementwise operators for CUDA devices alone",
        hint="add --cuda, or leave the flag out",
    ),
    needs(
        TENSORRT,
        any_of=(CUDA,),
        why="TensorRT runs on CUDA devices alone",
        hint="add --cuda, or leave the flag out",
    ),
    needs(TENSORRT_CACHE, any_of=(TENSORRT,), why="it keeps what TensorRT builds"),
    Limit(MULTI_THREAD_CORE_IDS, find_cores_too_many, why="each thread is bound to a core"),
    # Layouts
    needs(
        LAYOUT_TRANSFORM_DUMP, any_of=(LAYOUT_TRANSFORM,), why="it writes what that search finds"
    ),
    needs(
        valued(LAYOUT_TRANSFORM, "cuda"),
        any_of=(CUDA,),
        why="MegEngine searches on the device that it runs on",
        hint="add --cuda, or give cpu or unspec",
    ),
    excludes(
        valued(LAYOUT_TRANSFORM, "cpu"),
        CUDA,
        why="MegEngine searches on the device that it runs on",
        hint="give --layout-transform cuda or unspec",
    ),
    bans(
        valued(LAYOUT_TRANSFORM, "arm", "opencl"),
        why="MegEngine searches on the device that it runs on, and that is the CPU or CUDA",
        hint="give cpu, cuda or unspec",
    ),
    excludes(
        LAYOUT_TRANSFORM,
        RECORD_COMP_SEQ2,
        why="recording frees the graph before what was found is read",
        hint="take --record-comp-seq",
    ),
    needs(
        (hanging(ENABLE_NCHW88), hanging(LAYOUT_TRANSFORM)),
        any_of=(ENGINE_FIX,),
        why="it hangs on processors other than Intel's, where MKL-DNN cannot read the number of "
        "cores",
        hint="--engine-fix x2apic mends it in the loaded library, for this run",
    ),
    # Algorithms
    needs(
        FAST_RUN_SHARED_BATCH_SIZE,
        any_of=(FAST_RUN, FULL_RUN, FAST_RUN_ALGO_POLICY),
        why="it is the batch that a search measures with, and its cache is read by it",
        hint="add --fast-run, or --fast-run-algo-policy FILE",
    ),
    excludes(
        SEARCHES,
        NO_EXECUTION,
        why="the search is made in the first iteration",
        hint="give --warmup-iter 1",
    ),
    excludes(
        SEARCHES,
        SEVERAL_WITHOUT_WARMUP,
        why="the copies would search at once, and damage what they find",
        hint="give --warmup-iter 1: then the first copy searches",
    ),
    Presence(
        FAST_RUN_ALGO_POLICY, hint="make it with --fast-run, then run without", unless=SEARCHES
    ),
    # Execution
    excludes(
        FAKE_FIRST, *RECORDS, why="the first execution is recorded, and would compute nothing"
    ),
    excludes(
        FAKE_FIRST,
        ONLY_ONE_EXECUTION,
        why="the only execution would compute nothing",
        hint="give --iter 1, or leave --fake-first out",
    ),
    excludes(
        FAKE_FIRST,
        NO_WARMUP,
        why="the first execution computes nothing, and its outputs would be taken for results",
        hint="give --warmup-iter 1, or leave --fake-first out",
    ),
    excludes(
        FAKE_FIRST,
        BIN_OUT_DUMP,
        why="the first execution computes nothing, and what is in memory would be dumped as run 0",
    ),
    excludes(
        SEVERAL_RUNNERS,
        RECORD_COMP_SEQ2,
        why="MegEngine can record one model at a time, and aborts",
        hint="take --record-comp-seq",
    ),
    # Dumps and profiles
    excludes(TEXT_DUMPS, BIN_IO_DUMP, why="MegEngine makes one dump at a time", hint="run twice"),
    excludes(BIN_IO_DUMP, NO_EXECUTION, why="MegEngine dumps what it runs", hint="give --iter 1"),
    excludes(
        OPERATOR_DUMPS, *RECORDS, why="a replayed run passes by the operators that are dumped"
    ),
    excludes(
        PROFILES,
        SEVERAL_RUNNERS,
        why="MegEngine profiles one copy of a model",
        hint="leave --thread out",
    ),
    excludes(
        PROFILE_FILES,
        *RECORDS,
        why="a replayed run passes by the operators whose times are recorded",
    ),
    excludes(
        GET_STATIC_MEM_INFO,
        NO_EXECUTION,
        why="the first iteration plans the memory",
        hint="give --iter 1",
    ),
    # Model files
    needs(
        (PACK_INFO_JSON, PACK_CACHE),
        any_of=(PACKED_MODEL_DUMP,),
        why="it is put into the packed model",
    ),
    Content(PACK_INFO_JSON, check_pack_info),
    Content(PACK_CACHE, check_pack_cache),
)
