"""How MegEngine honours each option: one row an option, its functions side by side.

The drivers' own attributes are what the functions set: `lite_options` (fields of LiteOptions, set
when the network is made), `network_setup` (calls on the network before the model is loaded),
`inference_options` (arguments of the graph's optimize_for_inference) and so on.
"""

from __future__ import annotations

from typing import Any

from lar.engines.megengine.file_options import FILE_ROWS
from lar.engines.megengine.profile_options import PROFILE_ROWS
from lar.engines.table import Hook, OptionRow, calling
from lar.errors import UsageError

BOTH = ("lite", "graph")
LITE = ("lite",)
GRAPH = ("graph",)


def choose_cuda(driver: Any, device_id: int) -> None:
    driver.choose_cuda(device_id)


def choose_algorithms(driver: Any, _: object) -> None:
    # The table is read for every command line, and this is slow to import.
    from lar.engines.megengine.algorithms import choose_algorithms as choose

    choose(driver)


def show_engine_log(driver: Any, _: bool) -> None:
    driver.set_log_level_verbose()


def run_in_calling_thread(driver: Any, _: bool) -> None:
    driver.network_setup.append(lambda network: network.enable_cpu_inplace_mode())
    # A packed model with settings has lite take the device from the config again, and this mode
    # is a device: DEVICE_CPU_DEFAULT or DEVICE_MULTITHREAD_DEFAULT of CompNode::Locator.
    several = driver.spec.settings.get("multithread_default", 1) > 1
    driver.config.device_id = -1025 if several else -1024


def run_on_threads(driver: Any, count: int) -> None:
    driver.network_setup.append(lambda network: setattr(network, "threads_number", count))


def run_on_threads_with_caller(driver: Any, count: int) -> None:
    run_in_calling_thread(driver, True)
    run_on_threads(driver, count)


def run_beside_others(driver: Any, count: int) -> None:
    # Networks on one device share its threads, and wait for each other. In the calling thread
    # they do not; each device number has threads of its own, each CUDA stream its own order.
    settings, runner = driver.spec.settings, driver.runner
    if "cuda" in settings:
        driver.network_setup.append(lambda network: setattr(network, "stream_id", runner))
    elif "multithread" in settings:
        driver.config.device_id = runner  # not network.device_id, which a packed model resets
    elif count > 1 and not {"cpu_default", "multithread_default"} & settings.keys():
        run_in_calling_thread(driver, True)


def bind_threads(driver: Any, cores: str) -> None:
    settings, listed = driver.spec.settings, [int(core) for core in cores.split(",")]
    count = settings.get("multithread") or settings.get("multithread_default") or 1
    if count * driver.spec.runners != len(listed):
        raise UsageError(
            f"--multi-thread-core-ids {cores}: it names {len(listed)} cores for "
            f"{count * driver.spec.runners} threads",
            "give one core for each thread of --multithread N or --multithread-default N, "
            "for each runner of --thread N",
        )
    driver.bind_threads(listed[count * driver.runner :][:count])


def set_lite_option(**fields: int) -> Hook:
    """Return a hook that sets fields of LiteOptions."""
    return lambda driver, _: driver.lite_options.update(fields)


def set_inference_option(**arguments: bool) -> Hook:
    """Return a hook that sets arguments of the graph's optimize_for_inference."""

    def set_option(driver: Any, _: bool) -> None:
        driver.inference_options = {**(driver.inference_options or {}), **arguments}

    return set_option


def set_either(lite: dict[str, int], graph: dict[str, bool]) -> Hook:
    """Return a hook that sets what the driver at hand knows."""

    def set_option(driver: Any, _: bool) -> None:
        if driver.name == "lite":
            driver.lite_options.update(lite)
        else:
            driver.inference_options = {**(driver.inference_options or {}), **graph}

    return set_option


def preprocess_weights(driver: Any, _: bool) -> None:
    if driver.name == "lite":
        driver.lite_options["weight_preprocess"] = 1
    else:
        driver.graph_setup.append(lambda graph: graph.enable_weight_preprocess())


def keep_operators(driver: Any, _: int) -> None:
    # The limit is set on the operators that were loaded: optimisation would copy them, before it
    # can be set, and fast-run's even at level 1.
    searching = driver.spec.settings.get("fast_run") or driver.spec.settings.get("full_run")
    driver.lite_options["graph_opt_level"] = 0 if searching else 1


def limit_workspace(driver: Any, size_bytes: int) -> None:
    driver.network.set_network_algo_workspace_limit(size_bytes)


def fake_first_execution(driver: Any, _: bool) -> None:
    spec = driver.spec
    if not spec.iterations and spec.warmup_iterations == 1:
        raise UsageError(
            "--fake-first and --iter 0 cannot go together: the only execution computes nothing",
            "give --iter 1, or leave --fake-first out",
        )
    if spec.iterations and not spec.warmup_iterations:
        raise UsageError(
            "--fake-first and --warmup-iter 0 cannot go together: the first execution computes "
            "nothing, and its outputs would be taken for results",
            "give --warmup-iter 1, or leave --fake-first out",
        )
    if "bin_out_dump" in spec.settings:
        raise UsageError(
            "--fake-first and --bin-out-dump cannot go together: the first execution computes "
            "nothing, and what is in memory would be dumped as run 0",
            "leave one of them out",
        )
    driver.lite_options["fake_next_exec"] = 1


def skip_sanity_check(driver: Any, _: bool) -> None:
    if driver.name == "lite":
        driver.lite_options["var_sanity_check_first_run"] = 0
    else:
        driver.graph_setup.append(
            lambda graph: setattr(graph.options, "var_sanity_check_first_run", False)
        )


def disable_memory_reuse(driver: Any, _: bool) -> None:
    def disable(graph: Any) -> None:
        graph.options.seq_opt.enable_mem_plan_opt = False
        graph.options.seq_opt.enable_mem_reuse_alloc = False

    driver.graph_setup.append(disable)


def row_of_layout(name: str) -> OptionRow:
    """Return the row of a layout that both drivers know by the flag's name."""
    return OptionRow(
        f"enable_{name}",
        BOTH,
        f"LiteOptions.enable_{name}; optimize_for_inference(enable_{name})",
        before_load=set_either({f"enable_{name}": 1}, {f"enable_{name}": True}),
    )


def row_of_text_dump(key: str) -> OptionRow:
    """Return the row of a text dump, which differ in where lar prints it."""

    def dump(driver: Any, _: object) -> None:
        from lar.engines.megengine.dumping import dump_text

        dump_text(driver, key)

    return OptionRow(
        key,
        LITE,
        "io_txt_dump(), in inplace mode",
        before_load=calling("lar.engines.megengine.dumping:compute_in_calling_thread"),
        after_load=dump,
    )


def fix_engine(driver: Any, name: str) -> None:
    from lar.engines.megengine.x2apic import apply_fix

    apply_fix()


ROWS = (
    OptionRow("cpu", BOTH, "the default device"),
    OptionRow("cuda", LITE, "LiteConfig.device_type and device_id", before_load=choose_cuda),
    OptionRow("verbose", BOTH, "the engine's log level is DEBUG", before_load=show_engine_log),
    OptionRow("engine_fix", BOTH, "writes into the loaded library", before_load=fix_engine),
    OptionRow("cpu_default", LITE, "inplace mode", before_load=run_in_calling_thread),
    OptionRow("multithread", LITE, "threads_number", before_load=run_on_threads),
    OptionRow(
        "multithread_default",
        LITE,
        "threads_number and inplace mode",
        before_load=run_on_threads_with_caller,
    ),
    OptionRow(
        "thread",
        LITE,
        "a network for each, in inplace mode, or with a device number or stream of its own",
        before_load=run_beside_others,
    ),
    OptionRow("multi_thread_core_ids", LITE, "thread affinity", after_load=bind_threads),
    *map(row_of_layout, ("nchw4", "nchw44", "nchw44_dot", "nchw88", "nchw32", "nchw64")),
    OptionRow(
        "enable_chwn4",
        GRAPH,
        "optimize_for_inference(enable_chwn4)",
        before_load=set_inference_option(enable_chwn4=True),
    ),
    OptionRow(
        "enable_nhwcd4",
        LITE,
        "LiteOptions.enable_nhwcd4",
        before_load=set_lite_option(enable_nhwcd4=1),
    ),
    OptionRow(
        "layout_transform",
        LITE,
        "enable_global_layout_transform()",
        before_load=calling("lar.engines.megengine.layout_search:search_layouts"),
        after_load=calling("lar.engines.megengine.layout_search:read_layouts"),
    ),
    OptionRow(
        "layout_transform_dump",
        LITE,
        "dump_layout_transform_model(), names mended",
        after_load=calling("lar.engines.megengine.layout_search:write_layouts"),
    ),
    OptionRow("fast_run", LITE, "PROFILE | OPTIMIZED", before_load=choose_algorithms),
    OptionRow("full_run", LITE, "PROFILE", before_load=choose_algorithms),
    OptionRow(
        "fast_run_algo_policy",
        LITE,
        "the engine's cache file",
        before_load=choose_algorithms,
        after_run=calling("lar.engines.megengine.cache_use:tell_missed"),
    ),
    OptionRow("fast_run_shared_batch_size", LITE, "fast-run batch", before_load=choose_algorithms),
    OptionRow(
        "binary_equal_between_batch", LITE, "fast-run attribute", before_load=choose_algorithms
    ),
    OptionRow("reproducible", LITE, "REPRODUCIBLE", before_load=choose_algorithms),
    OptionRow(
        "workspace_limit",
        LITE,
        "algorithm workspace limit, with the graph optimised less",
        before_load=keep_operators,
        after_load=limit_workspace,
    ),
    OptionRow(
        "weight_preprocess", BOTH, "weights transformed ahead", before_load=preprocess_weights
    ),
    OptionRow(
        "winograd_transform",
        BOTH,
        "as --weight-preprocess; winograd algorithms preferred where a cache has them",
        before_load=preprocess_weights,
    ),
    OptionRow(
        "optimize_for_inference",
        GRAPH,
        "optimize_for_inference()",
        before_load=set_inference_option(),
    ),
    OptionRow(
        "enable_fuse_conv_bias_nonlinearity",
        GRAPH,
        "optimize_for_inference",
        before_load=set_inference_option(enable_fuse_conv_bias_nonlinearity=True),
    ),
    OptionRow(
        "enable_fuse_conv_bias_with_z",
        GRAPH,
        "optimize_for_inference",
        before_load=set_inference_option(
            enable_fuse_conv_bias_nonlinearity=True, enable_fuse_conv_bias_with_z=True
        ),
    ),
    OptionRow(
        "enable_fuse_preprocess",
        BOTH,
        "LiteOptions.fuse_preprocess; optimize_for_inference",
        before_load=set_either({"fuse_preprocess": 1}, {"enable_fuse_preprocess": True}),
    ),
    OptionRow(
        "enable_ioc16",
        GRAPH,
        "optimize_for_inference",
        before_load=set_inference_option(enable_ioc16=True),
    ),
    OptionRow(
        "enable_jit",
        LITE,
        "LiteOptions.jit_level 1, on CUDA alone",
        before_load=set_lite_option(jit_level=1),
    ),
    OptionRow(
        "tensorrt",
        LITE,
        "use_tensorrt(), on CUDA alone",
        before_load=calling("lar.engines.megengine.tensorrt:use_tensorrt"),
    ),
    OptionRow(
        "tensorrt_cache",
        LITE,
        "TensorRT's engine cache",
        before_load=calling("lar.engines.megengine.tensorrt:use_cache"),
        after_run=calling("lar.engines.megengine.tensorrt:keep_cache"),
    ),
    OptionRow(
        "const_shape", LITE, "LiteOptions.const_shape", before_load=set_lite_option(const_shape=1)
    ),
    OptionRow("fake_first", LITE, "LiteOptions.fake_next_exec", before_load=fake_first_execution),
    OptionRow("no_sanity_check", BOTH, "var_sanity_check_first_run", before_load=skip_sanity_check),
    OptionRow(
        "record_comp_seq",
        LITE,
        "comp_node_seq_record_level 1",
        before_load=set_lite_option(comp_node_seq_record_level=1),
    ),
    OptionRow(
        "record_comp_seq2",
        LITE,
        "comp_node_seq_record_level 2, without the sanity check, shapes constant",
        before_load=set_lite_option(
            comp_node_seq_record_level=2, var_sanity_check_first_run=0, const_shape=1
        ),
    ),
    OptionRow("disable_mem_opt", GRAPH, "seq_opt", before_load=disable_memory_reuse),
    OptionRow("disable_assert_throw", BOTH, "an output that is not the expected one warns"),
    OptionRow(
        "range",
        GRAPH,
        "NumRangeChecker",
        before_load=calling("lar.engines.megengine.checkers:check_range"),
    ),
    OptionRow(
        "check_var_value",
        GRAPH,
        "VarValueChecker",
        before_load=calling("lar.engines.megengine.checkers:check_values"),
    ),
    OptionRow(
        "check_dispatch",
        GRAPH,
        "CPUDispatchChecker",
        before_load=calling("lar.engines.megengine.checkers:check_dispatch"),
        before_run=calling("lar.engines.megengine.checkers:collect_at_each_run"),
        after_run=calling("lar.engines.megengine.checkers:finish_check_dispatch"),
    ),
    OptionRow(
        "c_opr_lib",
        BOTH,
        "the library's mgb_c_opr_init",
        before_load=calling("lar.engines.megengine.c_operators:load_operators"),
    ),
    OptionRow(
        "get_static_mem_info",
        GRAPH,
        "get_static_memory_alloc_info()",
        before_run=calling("lar.engines.megengine.static_memory:begin_recording"),
        after_run=calling("lar.engines.megengine.static_memory:finish_recording"),
    ),
    *map(row_of_text_dump, ("io_dump", "io_dump_stdout", "io_dump_stderr")),
    OptionRow(
        "bin_io_dump",
        LITE,
        "io_bin_dump(), in inplace mode",
        before_load=calling("lar.engines.megengine.dumping:compute_in_calling_thread"),
        after_load=calling("lar.engines.megengine.dumping:dump_tensors"),
    ),
    OptionRow(
        "bin_out_dump",
        BOTH,
        "the outputs, written after each iteration",
        before_run=calling("lar.engines.megengine.dumping:dump_outputs"),
    ),
    OptionRow("dump_filter", BOTH, "what it leaves out is removed when the run has ended"),
    *PROFILE_ROWS,
    *FILE_ROWS,
)
