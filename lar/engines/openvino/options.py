"""The option table of OpenVINO: a row for each option that it honours, and the
rules about options that need or exclude each other on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, dump_rows
from lar.options import table
from lar.options.rules import CACHE_FILE, Rule, excludes, needs

if TYPE_CHECKING:
    from lar.engines.openvino import cache, dumps, profile
    from lar.engines.openvino.driver import CompiledDriver
else:
    add_lazy_modules(globals())

COMPILED: Drivers[CompiledDriver] = Drivers(("compiled",))

DUMPED = "every tensor of the executed graph, before the warm-up, in models of their own"


ROWS: tuple[OptionRow[Any, Any], ...] = (
    COMPILED.row(table.CPU, "the device CPU, the default"),
    COMPILED.row(table.PROVIDER, "that device (gpu, gpu.1, npu, ...), and no other"),
    COMPILED.row(table.CPU_DEFAULT, "INFERENCE_NUM_THREADS is 1"),
    COMPILED.row(table.MULTITHREAD, "INFERENCE_NUM_THREADS, the calling thread being one of them"),
    COMPILED.row(table.MULTITHREAD_DEFAULT, "as --multithread N here"),
    COMPILED.row(
        table.THREAD,
        "a request for each, of one compiled model that has a stream for each; "
        "a stream has one thread if --multithread does not give more",
    ),
    COMPILED.row(table.HINT, "PERFORMANCE_HINT; latency by default"),
    COMPILED.row(table.STREAMS, "NUM_STREAMS"),
    COMPILED.row(table.PRECISION, "INFERENCE_PRECISION_HINT, f32 where nothing is asked for"),
    COMPILED.row(table.CONST_SHAPE, "Model.reshape to what is fed, before it is compiled"),
    COMPILED.row(table.FAST_RUN, "builds the file of --fast-run-algo-policy"),
    COMPILED.row(table.ENGINE_OPTION, "a property that the model is compiled with"),
    COMPILED.row(table.VERBOSE, "LOG_LEVEL is LOG_DEBUG"),
    COMPILED.row(table.DISABLE_ASSERT_THROW, "an output that is not the expected one warns"),
    COMPILED.row(table.ALLOW_EXTERNAL_DATA, "checked before the model is read"),
    COMPILED.row(table.PROFILE_SYSCALLS, "strace of the process that runs the model"),
    COMPILED.row(table.RANGE_BY, "by the names of the executed graph's nodes"),
    COMPILED.row(
        table.FAST_RUN_ALGO_POLICY,
        "the compiled model, exported to FILE",
        before_load=cache.use_cache,
    ),
    COMPILED.row(
        table.PROFILE,
        "PERF_COUNT: the mean time of each node; FLOPs and bytes from the model",
        before_run=profile.start_profiling,
    ),
    *dump_rows(COMPILED, DUMPED, dumps.dump_graph, dumps.dump_outputs),
)

RULES: tuple[Rule, ...] = (
    needs(table.FAST_RUN, any_of=table.FAST_RUN_ALGO_POLICY).because(
        "OpenVINO measures no algorithms, it can only keep the compiled model",
        "add --fast-run-algo-policy FILE to keep the compiled model, which loads faster",
    ),
    CACHE_FILE,
    excludes(table.CONST_SHAPE, table.FAST_RUN_ALGO_POLICY).because(
        "the model is compiled before the shapes of its inputs are known"
    ),
)
