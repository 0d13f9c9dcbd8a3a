"""The styles of reports: one row and one module each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lar.records.profile import Profile
    from lar.reports.report import Report


class Style(NamedTuple):
    """A style: the `build` of its module takes a profile, the options that are set and, for a diff,
    the baseline.

    `options` are the keys of the options of `lar report` that it honours; it refuses others.
    `sorts` and `groups` are the values of --sort and --group-by, the first is the default. `views`
    are those of --view; by default all are shown. Text has `columns` only if --columns names them.
    `former_views` maps names that views once had to what replaces them. `profiles` are the numbers
    of profiles that it takes; with `takes_pairs` it takes more pairs too. With `as_recorded` the
    cost of profiling stays in the times.
    """

    module: str
    help: str
    options: frozenset[str] = frozenset()
    sorts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    profiles: tuple[int, ...] = (1,)
    takes_pairs: bool = False
    as_recorded: bool = False
    former_views: Mapping[str, str] = {}

    def build(self, profile: Profile, options: Mapping[str, Any], *others: Profile) -> Report:
        """Return the report; the module is imported for it."""
        made: Report = import_module(self.module).build(profile, options, *others)
        return made


def export_chrome(profile: Profile) -> Iterator[bytes]:
    from lar.profiles.export import export_chrome

    return export_chrome(profile)


def export_tensorboard(profile: Profile) -> Iterator[bytes]:
    from lar.profiles.export import export_tensorboard

    return export_tensorboard(profile)


COMMON = frozenset({"top", "sort", "filter", "view", "time_unit"})

# What was removed, and what replaces it.
GONE_STYLES = {"html": "--html FILE writes the page of any style"}

# Without --style, the first that honours the flags is taken.
STYLES: Mapping[str, Style] = {
    "operators": Style(
        "lar.reports.styles.operators",
        "the time, what is slowest and why, what to try, and a line for each operator",
        options=frozenset({"sort", "top", "group_by", "filter", "time_unit", "columns"}),
        sorts=(
            *("time", "median", "p90", "mean", "min", "max", "calls", "total", "flops", "bytes"),
            *("saving", "name"),
        ),
        groups=("operator", "type", "module", "shape", "kernel"),
        columns=(
            *("calls", "total", "median", "p90", "mean", "min", "max", "disturbed"),
            *("flops", "bytes"),
        ),
    ),
    "megengine": Style(
        "lar.reports.styles.megengine",
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
    ),
    "paddle": Style(
        "lar.reports.styles.paddle",
        "Paddle's summaries",
        COMMON | {"group_by", "columns"},
        sorts=(
            *("cpu_total", "cpu_avg", "cpu_max", "cpu_min"),
            *("gpu_total", "gpu_avg", "gpu_max", "gpu_min", "median", "p90", "saving"),
        ),
        groups=("type", "name", "thread"),
        views=(
            *("device", "overview", "model", "operator", "kernel", "memory", "userdefined"),
            *("perf", "log"),  # the last view is shown only if it is asked for
        ),
        columns=("saving", "median", "p90", "disturbed"),
    ),
    "torch": Style(
        "lar.reports.styles.torch",
        "torch's key averages",
        options=frozenset({"sort", "top", "filter", "group_by", "time_unit", "columns"}),
        sorts=(
            *("self_cpu_time_total", "cpu_time_total", "cpu_time", "cpu_time_avg"),
            *("self_device_time_total", "device_time_total", "device_time", "device_time_avg"),
            *("self_cuda_time_total", "cuda_time_total", "cuda_time", "count", "flops"),
            *("cpu_memory_usage", "self_cpu_memory_usage"),
            *("device_memory_usage", "self_device_memory_usage"),
            *("cuda_memory_usage", "self_cuda_memory_usage", "median", "p90", "saving"),
        ),
        groups=("name", "shape", "instance"),
        columns=("saving", "median", "p90", "min", "max", "disturbed"),
    ),
    "nsys": Style(
        "lar.reports.styles.nsys",
        "the tables of Nsight Systems",
        options=frozenset({"top", "sort", "filter", "view", "columns"}),
        sorts=("total", "count", "average", "minimum", "maximum", "median", "p90", "name"),
        columns=("median", "p90"),
        views=(
            *("api_calls", "computation", "memory_time", "memory_size"),
            *("os_runtime", "os_runtime_rest", "os_runtime_profiler", "ranges"),
        ),
        former_views={
            **dict.fromkeys(("cuda_api_sum", "engine_api_sum"), "api_calls"),
            **dict.fromkeys(("cuda_gpu_kern_sum", "algorithm_sum"), "computation"),
            **dict.fromkeys(("cuda_gpu_mem_time_sum", "mem_time_sum"), "memory_time"),
            **dict.fromkeys(("cuda_gpu_mem_size_sum", "mem_size_sum"), "memory_size"),
            **dict.fromkeys(("osrt_sum", "syscall_sum"), "os_runtime"),
            **dict.fromkeys(("nvtx_sum", "nvtx_pushpop_sum"), "ranges"),
        },
    ),
    "ncu": Style(
        "lar.reports.styles.ncu",
        "operators against the peak of this machine; --metrics prints those of Nsight Compute",
        options=frozenset({"sort", "top", "group_by", "filter", "view", "time_unit", "metrics"}),
        sorts=(
            *("time", "calls", "disturbed", "median", "p90", "mean", "min", "max", "total"),
            *("flops", "compute", "bytes", "memory", "intensity", "saving", "waiting"),
        ),
        groups=("operator", "type", "module", "shape", "kernel", "range"),
        views=("roofline", "metrics"),
    ),
    "tensorboard": Style(
        "lar.reports.styles.tensorboard",
        "the JSON of TensorBoard's profiler plugin, which lar[tensorboard] installs (the diff of "
        "two profiles)",
        options=frozenset({"group_by", "view"}),
        groups=("type", "input_shape"),
        views=("overview", "operator", "kernel", "trace", "memory", "module", "diff"),
        former_views={
            **dict.fromkeys(("operator_pie", "operator_table", "stack"), "operator"),
            **dict.fromkeys(("kernel_table", "kernel_pie"), "kernel"),
            "recommendations": "overview",
        },
        profiles=(1, 2),
        as_recorded=True,
    ),
    "diff": Style(
        "lar.reports.styles.diff",
        "two profiles side by side; with three pairs or more, what differs",
        options=frozenset({"top", "sort", "group_by", "filter", "time_unit"}),
        sorts=("change", "percent", "a", "b", "calls", "name"),
        groups=("name", "type", "module"),
        profiles=(2,),
        takes_pairs=True,
    ),
}

# Exports of a profile for other programs: the function that makes the content, and a description.
EXPORTS: Mapping[str, tuple[Callable[[Profile], Iterator[bytes]], str]] = {
    "chrome": (export_chrome, "for chrome://tracing"),
    "perfetto": (export_chrome, "the same, for ui.perfetto.dev"),
    "tensorboard": (export_tensorboard, "for torch-tb-profiler; name it RUN/NAME.pt.trace.json"),
}
