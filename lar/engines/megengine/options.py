"""The option table of MegEngine, with a row for each option that MegEngine supports.

The module also has the functions (hooks) that the rows call to set attributes of the drivers.
`lite_options` has the fields of LiteOptions, which are set when the network is made.
`network_setup` has functions that are called with the network before the model is loaded.
`inference_options` has the arguments for the graph's function optimize_for_inference. `graph_setup`
has functions that are called with the loaded graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lar.engines.megengine.lite_fields import GRAPH_ARGUMENTS, LITE_FIELDS
from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, cores_of
from lar.options import table
from lar.options.option import Option

if TYPE_CHECKING:
    from lar.engines.megengine import (
        algorithms,
        driver,
        dumps,
        graph,
        lite,
        model_dump,
        packing,
        profile,
        symbols,
    )
    from lar.engines.megengine.graph import GraphDriver
    from lar.engines.megengine.lite import LiteDriver
else:
    add_lazy_modules(globals())

LITE: Drivers[LiteDriver] = Drivers(("lite",), __file__)
GRAPH: Drivers[GraphDriver] = Drivers(("graph",), __file__)
BOTH: Drivers[LiteDriver | GraphDriver] = Drivers(("lite", "graph"), __file__)

# Device and threads


def run_in_calling_thread(driver: LiteDriver, _: object) -> None:
    driver.network_setup.append(lambda network: network.enable_cpu_inplace_mode())
    # For a packed model with settings, lite takes the device from the config once more. The mode is
    # a device too: DEVICE_CPU_DEFAULT or DEVICE_MULTITHREAD_DEFAULT of CompNode::Locator.
    several = (table.MULTITHREAD_DEFAULT.of(driver.spec.settings) or 1) > 1
    driver.config.device_id = -1025 if several else -1024


def run_on_threads(driver: LiteDriver, count: int) -> None:
    driver.network_setup.append(lambda network: setattr(network, "threads_number", count))


def run_on_threads_with_caller(driver: LiteDriver, count: int) -> None:
    run_in_calling_thread(driver, True)
    run_on_threads(driver, count)


def run_beside_others(driver: LiteDriver, count: int) -> None:
    # Networks on one device share its threads, and wait for each other. Networks that compute in
    # their calling threads do not wait, nor those with device numbers or CUDA streams of their own.
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


def bind_threads(driver: LiteDriver, core_ids: str) -> None:
    driver.bind_threads(cores_of(driver.runner, driver.spec.runners, core_ids))


# Graph


def preprocess_weights(graph: Any) -> None:
    graph.enable_weight_preprocess()


def skip_sanity_check(graph: Any) -> None:
    graph.options.var_sanity_check_first_run = False


def disable_memory_reuse(graph: Any) -> None:
    graph.options.seq_opt.enable_mem_plan_opt = False
    graph.options.seq_opt.enable_mem_reuse_alloc = False


# The function to call on a loaded graph, by option.
GRAPH_CALLS: Mapping[Option[Any], Callable[[Any], None]] = {
    table.WEIGHT_PREPROCESS: preprocess_weights,
    table.WINOGRAD_TRANSFORM: preprocess_weights,
    table.NO_SANITY_CHECK: skip_sanity_check,
    table.DISABLE_MEM_OPT: disable_memory_reuse,
}


def row_of_fields(option: Option[Any]) -> OptionRow[Any, Any]:
    """Return the row of an option whose hook sets fields or arguments, or calls a function.

    For the lite driver, the hook sets fields of lite's options. For the graph driver, the hook sets
    arguments of optimize_for_inference, or makes the driver call a function on the loaded graph.
    """
    call, arguments = GRAPH_CALLS.get(option), GRAPH_ARGUMENTS.get(option, ())

    def set_option(driver: LiteDriver | GraphDriver, _: object) -> None:
        if driver.name == "lite":
            driver.lite_options.update(LITE_FIELDS[option])
        elif call is not None:
            driver.graph_setup.append(call)
        else:
            given = driver.inference_options or {}
            driver.inference_options = {**given, **dict.fromkeys(arguments, True)}

    on_graph: Drivers[Any] = BOTH if option in LITE_FIELDS else GRAPH
    is_of_graph = option in GRAPH_ARGUMENTS or call is not None
    return (on_graph if is_of_graph else LITE).row(option, before_load=set_option)


def keep_operators(driver: LiteDriver, _: int) -> None:
    # The workspace limit is set on the loaded operators, after the load. Optimisation would replace
    # them by copies before that, and with fast-run it does so even at level 1.
    searching = any(search.of(driver.spec.settings) for search in table.SEARCHES)
    driver.lite_options["graph_opt_level"] = 0 if searching else 1


# The options that choose algorithms, besides the cache.
ALGORITHMS: tuple[Option[Any], ...] = (
    *(table.FAST_RUN, table.FULL_RUN, table.FAST_RUN_SHARED_BATCH_SIZE),
    *(table.BINARY_EQUAL_BETWEEN_BATCH, table.REPRODUCIBLE),
)

ROWS: tuple[OptionRow[Any, Any], ...] = (
    BOTH.row(table.CPU),
    LITE.row(table.CUDA, before_load=lambda driver, device_id: driver.choose_cuda(device_id)),
    BOTH.row(table.VERBOSE, before_load=lambda driver, _: driver.set_log_level_verbose()),
    BOTH.row(table.ENGINE_FIX, before_load=symbols.apply_fix),
    LITE.row(table.CPU_DEFAULT, before_load=run_in_calling_thread),
    LITE.row(table.MULTITHREAD, before_load=run_on_threads),
    LITE.row(table.MULTITHREAD_DEFAULT, before_load=run_on_threads_with_caller),
    LITE.row(table.THREAD, before_load=run_beside_others),
    LITE.row(table.MULTI_THREAD_CORE_IDS, after_load=bind_threads),
    BOTH.row(table.NO_SPINNING, before_load=driver.stop_spinning),
    *map(row_of_fields, dict.fromkeys((*LITE_FIELDS, *GRAPH_ARGUMENTS))),
    LITE.row(
        table.LAYOUT_TRANSFORM,
        before_load=model_dump.search_layouts,
        after_load=model_dump.read_layouts,
    ),
    LITE.row(table.LAYOUT_TRANSFORM_DUMP, after_load=model_dump.write_layouts),
    *(LITE.row(option, before_load=algorithms.choose_algorithms) for option in ALGORITHMS),
    LITE.row(
        table.FAST_RUN_ALGO_POLICY,
        before_load=algorithms.choose_algorithms,
        after_run=algorithms.warn_of_missed,
    ),
    LITE.row(
        table.WORKSPACE_LIMIT,
        before_load=keep_operators,
        after_load=lambda driver, size: driver.network.set_network_algo_workspace_limit(size),
    ),
    LITE.row(table.TENSORRT, before_load=algorithms.use_tensorrt),
    LITE.row(
        table.TENSORRT_CACHE, before_load=algorithms.use_engines, after_run=algorithms.keep_engines
    ),
    row_of_fields(table.DISABLE_MEM_OPT),
    BOTH.row(table.DISABLE_ASSERT_THROW),
    GRAPH.row(table.RANGE, before_load=graph.check_range),
    GRAPH.row(table.CHECK_VAR_VALUE, before_load=graph.check_values),
    GRAPH.row(
        table.CHECK_DISPATCH,
        before_load=graph.check_dispatch,
        before_run=graph.collect_at_each_run,
        after_run=lambda driver, _: driver.dispatch_check.finish(),
    ),
    BOTH.row(table.C_OPR_LIB, before_load=symbols.load_operators),
    GRAPH.row(
        table.GET_STATIC_MEM_INFO,
        before_run=model_dump.begin_recording,
        after_run=model_dump.finish_recording,
    ),
    *(
        LITE.row(it, before_load=dumps.compute_in_calling_thread, after_load=dumps.dump_text)
        for it in table.TEXT_DUMPS
    ),
    LITE.row(
        table.BIN_IO_DUMP,
        before_load=dumps.compute_in_calling_thread,
        after_load=dumps.dump_tensors,
    ),
    BOTH.row(table.BIN_OUT_DUMP, before_run=dumps.dump_outputs),
    BOTH.row(table.DUMP_FILTER),
    *(
        BOTH.row(option, before_load=profile.begin_profile, after_load=profile.take_profile)
        for option in (table.PROFILE, table.PROFILE_HOST, table.PROFILE_RAW)
    ),
    *BOTH.rows(table.PROFILE_MEMORY, table.PROFILE_SYSCALLS, table.RANGE_BY),
    LITE.row(table.SHARE_PARAM_MEM, before_load=lite.share_weights),
    GRAPH.row(table.MODEL_DUMP, after_run=model_dump.dump_model),
    LITE.row(table.PACKED_MODEL_DUMP, after_run=packing.dump_packed),
    *LITE.rows(table.PACK_INFO_JSON, table.PACK_CACHE),
)
