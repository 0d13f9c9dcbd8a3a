"""The style `tensorboard`: the answers of TensorBoard's profiler plugin on a profile, as JSON.

The plugin's own classes load the trace that `--export tensorboard` writes. The plugin's classes
make the answers that the plugin's page would request. As text, the report has a line for each
answer of the plugin.
"""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lar.errors import EngineMissing, UsageError
from lar.profiles.export import export_tensorboard
from lar.reports.report import Report

if TYPE_CHECKING:
    from lar.records.profile import Profile

# The names of the only worker and the only trace that the plugin gets.
WORKER, SPAN = "lar", "1"
DEFAULT_VIEW = "overview"


class Loaded:
    """A profile that the plugin has loaded.

    `run` is the plugin's RunProfile, and `trace` is the trace that the plugin has loaded.
    """

    def __init__(self, profile: Profile) -> None:
        try:
            # The plugin's modules import each other, so this module has to be imported first.
            from torch_tb_profiler.profiler.loader import RunGenerator, RunProfileData
        except ImportError as error:
            raise EngineMissing(
                f"TensorBoard's plugin cannot be imported: {error}",
                "pip install 'lar[tensorboard]'; --export tensorboard needs no plugin",
                flag="--style tensorboard",
            ) from None
        self.trace = b"".join(export_tensorboard(profile))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as warnings about later versions of libraries
            data = RunProfileData.from_json(WORKER, SPAN, json.loads(self.trace))
            self.run: Any = RunGenerator(WORKER, SPAN, data).generate_run_profile()


def overview_of(loaded: Loaded, by_shape: bool) -> Iterator[Any]:
    """Yield the overview, together with the facts that the plugin's page shows besides it."""
    run = loaded.run
    on_device = run.has_runtime or run.has_kernel or run.has_memcpy_or_memset
    answer = {
        **run.overview,
        "environments": [
            {"title": "Number of Worker(s)", "value": "1"},
            {"title": "Device Type", "value": "GPU" if on_device else "CPU"},
        ],
    }
    if run.gpu_summary and run.gpu_tooltip:
        facts = {"data": run.gpu_summary, "tooltip": run.gpu_tooltip}
        answer["gpu_metrics"] = {"title": "GPU Summary", **facts}
    yield answer


def operators_of(loaded: Loaded, by_shape: bool) -> Iterator[Any]:
    """Yield the data of the pie charts and of the table of operators."""
    run = loaded.run
    yield run.operation_pie_by_name_input if by_shape else run.operation_pie_by_name
    yield run.operation_table_by_name_input if by_shape else run.operation_table_by_name


def kernels_of(loaded: Loaded, by_shape: bool) -> Iterator[Any]:
    """Yield the data of the table and of the pie chart of kernels; null if no device was used."""
    yield loaded.run.kernel_table
    yield loaded.run.kernel_pie


def trace_of(loaded: Loaded, by_shape: bool) -> Iterator[Any]:
    """Yield the trace, with the utilization of the device."""
    run, trace = loaded.run, loaded.trace
    yield json.loads(gzip.decompress(run.append_gpu_metrics(trace)) if run.has_kernel else trace)


def memory_of(loaded: Loaded, by_shape: bool) -> Iterator[Any]:
    """Yield the statistics, the curve and the events of memory; null if none was recorded."""
    run = loaded.run
    known = run.memory_snapshot is not None
    yield run.get_memory_stats() if known else None
    yield run.get_memory_curve() if known else None
    yield run.get_memory_events() if known else None


def modules_of(loaded: Loaded, by_shape: bool) -> Iterator[Any]:
    """Yield the tree of layers; null if the names of operators do not show layers."""
    yield loaded.run.get_module_view()


ANSWERS: Mapping[str, Callable[[Loaded, bool], Iterator[Any]]] = {
    "overview": overview_of,
    "operator": operators_of,
    "kernel": kernels_of,
    "trace": trace_of,
    "memory": memory_of,
    "module": modules_of,
}


def build(profile: Profile, options: Mapping[str, Any], baseline: Profile | None = None) -> Report:
    """Return the report with views of a profile, or of its difference from a baseline.

    Raises:
        EngineMissing: the plugin is not installed.
        UsageError: nothing was timed, or a view needs another number of profiles.
    """
    views = list(dict.fromkeys(options.get("view") or ["diff" if baseline else DEFAULT_VIEW]))
    if baseline is None and "diff" in views:
        raise UsageError("--view diff: needs two profiles", "give the baseline first")
    if baseline is not None and views != ["diff"]:
        raise UsageError("two profiles allow only --view diff", "for other views, give one profile")
    loaded = Loaded(profile)
    if baseline is not None:
        answers = {"diff": [Loaded(baseline).run.compare_run(loaded.run).get_diff_tree_summary()]}
    else:
        by_shape = options.get("group_by") == "input_shape"
        answers = {view: [*ANSWERS[view](loaded, by_shape)] for view in views}
    return Report(
        style="tensorboard",
        body=tuple(json.dumps(answer) for own in answers.values() for answer in own),
        document={view: own if len(own) > 1 else own[0] for view, own in answers.items()},
        is_for_programs=True,
    )
