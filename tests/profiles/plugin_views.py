"""Prints what the TensorBoard plugin makes of the traces in a folder, as JSON by worker.

A program of its own, since the plugin starts processes: copies of this one, as it would otherwise
import itself again in each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def load_views(folder: str) -> dict[str, dict[str, Any]]:
    from torch_tb_profiler.io import Cache  # isort: skip
    import torch_tb_profiler.profiler.loader as loader  # before the modules that import it

    with Cache() as cache:
        run = loader.RunLoader("run", folder, cache).load()
    profiles = {profile.worker: profile for profile in run.profiles.values()}
    return {worker: views_of(profile) for worker, profile in profiles.items()}


def views_of(profile: Any) -> dict[str, Any]:
    views = {
        "overview": profile.overview,
        "operator_pie": profile.operation_pie_by_name,
        "operator_table": profile.operation_table_by_name,
        "operator_table_by_shape": profile.operation_table_by_name_input,
        "kernel_table": profile.kernel_table,
        "kernel_pie": profile.kernel_pie,
        "shown": [view.display_name for view in profile.views],
        "device": profile.gpu_summary,
    }
    if profile.memory_snapshot is not None:
        views["memory"] = profile.get_memory_stats()
        views["memory_curve"] = profile.get_memory_curve()
    return views


if __name__ == "__main__":
    os.environ["TORCH_PROFILER_START_METHOD"] = "fork"
    print(json.dumps(load_views(sys.argv[1])))
