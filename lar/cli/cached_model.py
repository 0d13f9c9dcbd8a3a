"""`lar cache` for the caches of ONNX Runtime: one optimised model, and what it was made for."""

from __future__ import annotations

import argparse
import json
import os

from lar.engines.formats import HEAD_SIZE, ONNX, ORT, format_in
from lar.engines.onnxruntime.cache_file import ModelCache, differing_fields, read_cache
from lar.errors import UsageError
from lar.files.report_file import OutputFile
from lar.reports.tables import format_bytes, format_table


def is_cached_model(path: str) -> bool:
    """Tell a cache of ONNX Runtime, which is a model, from one of MegEngine."""
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return format_in(file.read(HEAD_SIZE)) in (ONNX, ORT)
    except OSError:  # whoever reads it will say what is wrong
        return False


def refuse_cached_models(paths: list[str], action: str) -> None:
    """Refuse an action that needs algorithms.

    Raises:
        UsageError: a file holds a model instead.
    """
    for path in filter(is_cached_model, paths):
        read_cache(path)
        raise UsageError(
            f"{path}: a cache of ONNX Runtime holds one model and no algorithms to {action}",
            "`lar cache show` and `diff` tell what it was made for",
        )


def show_cached_model(arguments: argparse.Namespace, cache_format: str) -> int:
    """Print what a cache was made for, and its sizes."""
    for flag, value in (("--operator", arguments.operator), ("--all", arguments.all)):
        if value:
            refuse_cached_models([arguments.file], f"show by {flag}")
    cache = read_cache(arguments.file)
    lines = format_cached_model(cache)
    if arguments.json is None:
        print("\n".join(lines))
        return 0
    with OutputFile(arguments.json, "--json") as file:
        if not file.to_stdout:
            print("\n".join(lines))
        content = {
            "format": cache_format,
            "file": arguments.file,
            "key": dict(cache.record.key),
            "model_bytes": len(cache.model),
            "data": cache.record.data,
            "data_bytes": cache.record.data_bytes,
            "prepacked": cache.record.prepacked,
        }
        file.write(json.dumps(content, indent=2) + "\n")
    return 0


def format_cached_model(cache: ModelCache) -> list[str]:
    """Return the lines that show a cache."""
    record = cache.record
    rows = [[name, value] for name, value in record.key.items() if value]
    rows.append(["size of the model", format_bytes(len(cache.model))])
    if record.data:
        kind = "as operators take them" if record.prepacked else "not rearranged for operators"
        rows.append(["size of its weights", f"{format_bytes(record.data_bytes)}, {kind}"])
        rows.append(["file of its weights", record.data])
    return format_table(("made for", ""), rows)


def diff_cached_models(first: str, second: str) -> int:
    """Print what two caches were made for differently; return 1 when they were.

    Raises:
        UsageError: one of them is a cache of another engine, or none.
    """
    if not (is_cached_model(first) and is_cached_model(second)):
        raise UsageError(f"{first}, {second}: these are caches of two engines")
    keys = [read_cache(name).record.key for name in (first, second)]
    differing = differing_fields(*keys)
    if differing:
        rows = [
            [name.replace("_", " "), *(key.get(name, "") for key in keys)] for name in differing
        ]
        print("\n".join(format_table(("differs in", first, second), rows)))
    print(f"the same: {len({**keys[0], **keys[1]}) - len(differing)}")
    return 1 if differing else 0
