"""The styles of reports: one row and one module each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Style(NamedTuple):
    """A style: `build` is `module:function`, which takes a profile and the options set, and of two
    profiles then the other: the baseline that the profile is compared with.

    `options` are the keys of those in `lar.reports.options` that it honours; any other
    is refused. `sorts` and `groups` are what --sort and --group-by may say, `views` its parts for
    --view, the first of each being the default, but for views, which are all shown. A style with
    `raw` also takes the engine's own profile file: that is `module:function`, which takes the
    file's content and its name and returns a profile. `profiles` says how many it may take.
    """

    build: str
    help: str
    options: frozenset[str] = frozenset()
    sorts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    raw: str = ""
    profiles: tuple[int, ...] = (1,)


COMMON = frozenset({"top", "sort", "filter", "view", "time_unit"})

STYLES: Mapping[str, Style] = {
    "megengine": Style(
        "lar.reports.styles.megengine:build",
        "the slowest operators",
        options=frozenset(
            {
                *("sort", "top", "filter", "type", "aggregate_by", "aggregate", "opr_name"),
                *("input_dtype", "top_end_key", "copy_time", "min_time", "max_time", "show_host"),
                *("dump_only_opr", "confluence", "print_only"),
            }
        ),
        sorts=(
            *("time", "computation", "memory", "flops", "bandwidth"),
            *("in_shapes", "in_layouts", "out_shapes", "opr_id"),
        ),
        raw="lar.engines.profile_files:read_foreign",
    ),
    "paddle": Style(
        "lar.reports.styles.paddle:build",
        "Paddle's summaries",
        COMMON | {"group_by"},
        sorts=(
            *("cpu_total", "cpu_avg", "cpu_max", "cpu_min"),
            *("gpu_total", "gpu_avg", "gpu_max", "gpu_min"),
        ),
        groups=("type", "name", "thread"),
        views=(
            *("device", "overview", "model", "operator", "kernel", "memory", "userdefined"),
            *("perf", "log"),  # the last only where it is asked for
        ),
    ),
    "torch": Style(
        "lar.reports.styles.torch:build",
        "torch's key averages",
        options=frozenset({"sort", "top", "filter", "group_by", "time_unit"}),
        sorts=(
            *("self_cpu_time_total", "cpu_time_total", "cpu_time", "cpu_time_avg"),
            *("self_device_time_total", "device_time_total", "device_time", "device_time_avg"),
            *("self_cuda_time_total", "cuda_time_total", "cuda_time", "count", "flops"),
            *("cpu_memory_usage", "self_cpu_memory_usage"),
            *("device_memory_usage", "self_device_memory_usage"),
            *("cuda_memory_usage", "self_cuda_memory_usage"),
        ),
        groups=("name", "shape", "instance"),
    ),
    "nsys": Style(
        "lar.reports.styles.nsys:build",
        "statistics as of nsys",
        COMMON,
        sorts=(*("total", "count", "average", "median", "minimum", "maximum", "stddev", "name"),),
        views=(
            *("cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_kern_exec_sum"),
            *("cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "osrt_sum", "syscall_sum"),
            *("nvtx_sum", "nvtx_pushpop_sum", "nvtx_startend_sum", "nvtx_kern_sum"),
            *("nvtx_gpu_proj_sum", "engine_api_sum", "algorithm_sum", "operator_exec_sum"),
            *("mem_time_sum", "mem_size_sum", "nvtx_algorithm_sum"),
        ),
    ),
    "ncu": Style(
        "lar.reports.styles.ncu:build",
        "roofline of operators and ranges, with ncu's metrics",
        options=frozenset({"sort", "top", "group_by", "filter", "view", "time_unit"}),
        sorts=(
            *("duration", "average", "calls", "flops", "bytes", "compute", "memory"),
            "intensity",
        ),
        groups=("operator", "type", "kernel", "range"),
        views=("roofline", "metrics"),
    ),
    "tensorboard": Style(
        "lar.reports.styles.tensorboard:build",
        "the views of the TensorBoard plugin, in its JSON (of two profiles those of the "
        "second, and a diff)",
        options=frozenset({"top", "sort", "group_by", "filter", "view"}),
        # On a CPU the default is host_self_duration.
        sorts=(
            *("device_self_duration", "device_total_duration", "host_self_duration"),
            *("host_total_duration", "calls", "name"),
        ),
        groups=("type", "name", "input_shape"),
        views=(
            *("overview", "operator_pie", "operator_table", "kernel_table", "kernel_pie"),
            *("stack", "trace", "memory", "module", "recommendations"),
            "diff",  # the only one that takes a baseline
        ),
        profiles=(1, 2),
    ),
    "html": Style(
        "lar.reports.styles.html:build",
        "one page with every view, for --html (of two profiles that of the second, compared "
        "with the first)",
        options=frozenset({"top", "view"}),
        views=(
            *("overview", "comparison", "recommendations", "latency", "breakdown", "operators"),
            *("kernels", "timeline", "roofline", "memory", "ranges"),
        ),
        profiles=(1, 2),
    ),
    "diff": Style(
        "lar.reports.styles.diff:build",
        "two runs, and which differences exceed the noise",
        options=frozenset({"top", "sort", "group_by", "filter", "view", "time_unit"}),
        sorts=("delta", "percent", "baseline", "exp", "calls", "name"),
        groups=("name", "type"),
        views=("calls", "host", "self_host", "device", "self_device"),
        profiles=(2,),
    ),
}

# The exports of a profile for other programs: `module:function`, which takes a profile and returns
# the file's content, and a description.
EXPORTS: Mapping[str, tuple[str, str]] = {
    "chrome": ("lar.profiles.export:export_chrome", "for chrome://tracing"),
    "perfetto": ("lar.profiles.export:export_chrome", "the same, for ui.perfetto.dev"),
    "tensorboard": (
        "lar.profiles.export:export_tensorboard",
        "for torch-tb-profiler; name it RUN/NAME.pt.trace.json",
    ),
}
