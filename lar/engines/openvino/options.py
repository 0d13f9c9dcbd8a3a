"""The option table of OpenVINO: a row for each option that it honours, and the
rules about options that need or exclude each other on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, LazyModule, OptionRow, dump_rows
from lar.options.rules import Presence, Rule, excludes, needs
from lar.options.table import (
    ALLOW_EXTERNAL_DATA,
    CONST_SHAPE,
    CPU,
    CPU_DEFAULT,
    DISABLE_ASSERT_THROW,
    ENGINE_OPTION,
    FAST_RUN,
    FAST_RUN_ALGO_POLICY,
    HINT,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    PRECISION,
    PROFILE,
    PROFILE_SYSCALLS,
    PROVIDER,
    RANGE_BY,
    STREAMS,
    THREAD,
    VERBOSE,
)

if TYPE_CHECKING:
    from lar.engines.openvino import cache, dumps, profile
    from lar.engines.openvino.driver import CompiledDriver
else:
    cache = LazyModule("lar.engines.openvino.cache")
    dumps = LazyModule("lar.engines.openvino.dumps")
    profile = LazyModule("lar.engines.openvino.profile")

COMPILED: Drivers[CompiledDriver] = Drivers(("compiled",))

DUMPED = "every tensor of the executed graph, before the warm-up, in models of their own"


ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(CPU, COMPILED, "the device CPU, the default"),
    OptionRow(PROVIDER, COMPILED, "that device (gpu, gpu.1, npu, ...), and no other"),
    OptionRow(CPU_DEFAULT, COMPILED, "INFERENCE_NUM_THREADS is 1"),
    OptionRow(MULTITHREAD, COMPILED, "INFERENCE_NUM_THREADS, the calling thread being one of them"),
    OptionRow(MULTITHREAD_DEFAULT, COMPILED, "as --multithread N here"),
    OptionRow(
        THREAD,
        COMPILED,
        "a request for each, of one compiled model that has a stream for each; "
        "a stream has one thread if --multithread does not give more",
    ),
    OptionRow(HINT, COMPILED, "PERFORMANCE_HINT; latency by default"),
    OptionRow(STREAMS, COMPILED, "NUM_STREAMS"),
    OptionRow(PRECISION, COMPILED, "INFERENCE_PRECISION_HINT, f32 where nothing is asked for"),
    OptionRow(CONST_SHAPE, COMPILED, "Model.reshape to what is fed, before it is compiled"),
    OptionRow(FAST_RUN, COMPILED, "builds the file of --fast-run-algo-policy"),
    OptionRow(
        FAST_RUN_ALGO_POLICY,
        COMPILED,
        "the compiled model, exported to FILE",
        before_load=cache.use_cache,
    ),
    OptionRow(ENGINE_OPTION, COMPILED, "a property that the model is compiled with"),
    OptionRow(VERBOSE, COMPILED, "LOG_LEVEL is LOG_DEBUG"),
    OptionRow(DISABLE_ASSERT_THROW, COMPILED, "an output that is not the expected one warns"),
    OptionRow(ALLOW_EXTERNAL_DATA, COMPILED, "checked before the model is read"),
    OptionRow(
        PROFILE,
        COMPILED,
        "PERF_COUNT: the mean time of each node; FLOPs and bytes from the model",
        before_run=profile.start_profiling,
    ),
    OptionRow(PROFILE_SYSCALLS, COMPILED, "strace of the process that runs the model"),
    OptionRow(RANGE_BY, COMPILED, "by the names of the executed graph's nodes"),
    *dump_rows(COMPILED, DUMPED, dumps.dump_graph, dumps.dump_outputs),
)

RULES: tuple[Rule, ...] = (
    needs(
        FAST_RUN,
        any_of=(FAST_RUN_ALGO_POLICY,),
        why="OpenVINO measures no algorithms, it can only keep the compiled model",
        hint="add --fast-run-algo-policy FILE to keep the compiled model, which loads faster",
    ),
    Presence(
        FAST_RUN_ALGO_POLICY, hint="make it with --fast-run, then run without", unless=(FAST_RUN,)
    ),
    excludes(
        CONST_SHAPE,
        FAST_RUN_ALGO_POLICY,
        why="the model is compiled before the shapes of its inputs are known",
    ),
)
