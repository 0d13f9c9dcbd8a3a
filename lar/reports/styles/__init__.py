"""The styles of `lar report`, as a table with a row for each style.

Each style has its own module.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.errors import UsageError
from lar.options.option import flag_of
from lar.options.values import parse_duration, read_number, require

if TYPE_CHECKING:
    from lar.records.profile import Profile
    from lar.reports.report import Report


class Style(NamedTuple):
    """A style of reports, with the values of options that it accepts.

    The function `build` of the style's module gets a profile, the options that are set and, for a
    diff, the baseline. `options` has the keys of the options of `lar report` that the style
    accepts. `sorts` and `groups` are the values of --sort and --group-by, with the default first.
    `views` are the values of --view; by default all views are shown. The text has a column of
    `columns` only if --columns names this column. `former_views` maps old names of views to new
    ones. `profiles` has the accepted numbers of profiles; with `takes_pairs`, further pairs of
    profiles are accepted. With `as_recorded`, the cost of profiling is not subtracted from times.
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
        """Import the module of the style, and return the report that `build` makes."""
        made: Report = import_module(self.module).build(profile, options, *others)
        return made


def export_chrome(profile: Profile) -> Iterator[bytes]:
    from lar.profiles.export import export_chrome

    return export_chrome(profile)


def export_tensorboard(profile: Profile) -> Iterator[bytes]:
    from lar.profiles.export import export_tensorboard

    return export_tensorboard(profile)


COMMON = frozenset({"top", "sort", "filter", "view", "time_unit"})

# Removed styles, with hints at their replacements.
GONE_STYLES = {"html": "--html FILE writes the page of any style"}

# Without --style, the first style that honours all given flags is used.
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
        "operators against the peak of this machine, or with --metrics Nsight Compute's metrics",
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
        "two profiles side by side, or a verdict on three pairs of profiles or more",
        options=frozenset({"top", "sort", "group_by", "filter", "time_unit"}),
        sorts=("change", "percent", "a", "b", "calls", "name"),
        groups=("name", "type", "module"),
        profiles=(2,),
        takes_pairs=True,
    ),
}

# Exports of a profile for other programs: the function that makes the content, and its help.
EXPORTS: Mapping[str, tuple[Callable[[Profile], Iterator[bytes]], str]] = {
    "chrome": (export_chrome, "for chrome://tracing"),
    "perfetto": (export_chrome, "for ui.perfetto.dev, the same file as for chrome"),
    "tensorboard": (export_tensorboard, "for torch-tb-profiler; name it RUN/NAME.pt.trace.json"),
}


# The options of `lar report` that choose the content of a report


# The keys of all options that any style honours.
KEYS = frozenset().union(*(style.options for style in STYLES.values()))


def parse_time(text: str) -> float:
    """Parse a time limit in seconds, which may have a unit, or be 0, negative or infinite."""
    with contextlib.suppress(argparse.ArgumentTypeError):
        return parse_duration(text)
    problem = f"{text!r} is not a number of seconds"
    value = read_number(text, problem)
    require(not math.isnan(value), problem)
    return value


def parse_rows(text: str) -> int:
    """Parse a number of rows; 0 means all rows, and becomes the largest number."""
    require(re.fullmatch(r"[0-9]{1,9}", text), f"{text!r} is not a number of rows; 0 shows all")
    return int(text) or sys.maxsize


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names that are separated by commas."""
    return tuple(name.strip() for name in text.split(","))


def describe_choices() -> str:
    """Return the values of --sort, --group-by, --view and --columns, a paragraph for each style."""
    paragraphs = []
    for name, style in STYLES.items():
        kinds = (
            *(("--sort", style.sorts), ("--group-by", style.groups), ("--view", style.views)),
            ("--columns", style.columns),
        )
        choices = [f"{flag} {', '.join(known)}" for flag, known in kinds if known]
        if choices:
            text = f"{name}: {'; '.join(choices)}"
            paragraphs.append(textwrap.fill(text, 98, subsequent_indent="  "))
    return "\n".join(["keys of the styles:", *paragraphs])


def collect_report_options(values: Mapping[str, Any], name: str, style: Style) -> dict[str, Any]:
    """Return the report options that are set, after a check against the style.

    Raises:
        UsageError: the style does not honour an option, or does not accept its value.
    """
    given = {key: it for key, it in values.items() if key in KEYS and it is not None}
    for key in given:
        if key not in style.options:
            able = [other for other, each in STYLES.items() if key in each.options]
            raise UsageError(
                f"the style {name} does not know this option",
                f"styles with this option: {', '.join(able)}",
                flag=flag_of(key),
            )
    check_choice("sort", given.get("sort"), style.sorts, name)
    check_choice("group_by", given.get("group_by"), style.groups, name)
    for view in given.get("view", ()):
        if now := style.former_views.get(view):
            hint = f"use --view {now} instead"
            raise UsageError("is no longer a view", hint, flag=f"--view {view}")
        check_choice("view", view, style.views, name)
    for column in given.get("columns", ()):
        check_choice("columns", column, style.columns, name)
    return given


def check_choice(key: str, value: str | None, known: tuple[str, ...], name: str) -> None:
    """Refuse a value that a style does not accept; a sort key may begin with + or -.

    Raises:
        UsageError: the style does not accept the value; the hint lists the accepted values.
    """
    plain = re.sub(r"^[+-]", "", value or "")
    if value is None or not known or plain in known:
        return
    from lar.options.suggestions import nearest_spelling

    near = nearest_spelling(plain, known)
    raise UsageError(
        f"the style {name} does not know this value",
        f"{near and f'did you mean {near}? '}known values: {', '.join(known)}",
        flag=f"{flag_of(key)} {value}",
    )
