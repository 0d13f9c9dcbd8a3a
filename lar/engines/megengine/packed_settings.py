"""The settings in a packed model, as JSON: what lite reads of them (`--pack-info-json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from lar.errors import UsageError, nearest
from lar.files.input_file import read_input

IO = {
    "name": str,
    "is_host": bool,
    "io_type": ("value", "shape"),
    "dtype": ("float32", "float16", "int32", "int16", "int8", "uint8"),
    "shape": {"dim0": int, "dim1": int, "dim2": int, "dim3": int},
}
# What lite 1.13 reads (lite/src/parse_info/default_parse.h): types, values to choose from,
# objects, lists of objects; None is anything.
FIELDS: Mapping[str, Any] = {
    "name": str,
    "valid": bool,
    "version": str,
    "has_compression": bool,
    "backend": str,
    "device": {
        "type": ("CPU", "CUDA", "ATLAS", "CAMBRICON", "NPU"),
        "device_id": int,
        "number_threads": int,
        "enable_inplace_model": bool,
        "use_tensorrt": bool,
    },
    "options": {
        "weight_preprocess": bool,
        "fuse_preprocess": bool,
        "fake_next_exec": bool,
        "var_sanity_check_first_run": bool,
        "const_shape": bool,
        "force_dynamic_alloc": bool,
        "force_output_dynamic_alloc": bool,
        "no_profiling_on_shape_change": bool,
        "jit_level": int,
        "comp_node_seq_record_level": int,
        "graph_opt_level": int,
        "async_exec_level": int,
    },
    "IO": {"inputs": [IO], "outputs": [IO]},
    "extra_info": None,
}
NEEDED = ("name", "valid", "version")
TYPE_NAMES = {str: "a text", bool: "true or false", int: "a whole number from 0"}


def read_info_file(path: str) -> bytes:
    """Read a JSON file of settings that lite takes as it is.

    Raises:
        UsageError: it is not.
    """
    data = read_input(path, "--pack-info-json")
    try:
        check_info(data)
    except ValueError as error:
        raise UsageError(
            str(error), "correct the file", flag="--pack-info-json", subject=path
        ) from None
    return data


def check_info(data: bytes) -> dict[str, Any]:
    """Check settings and return them.

    Raises:
        ValueError: this is not JSON in UTF-8, or not what lite reads.
    """
    try:
        info = json.loads(data.decode(), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    check_value(info, FIELDS, "the file")
    for name in NEEDED:
        if name not in info:
            raise ValueError(f"lacks {name!r}, which lite needs")
    if "device" in info and "type" not in info["device"]:
        raise ValueError("lacks 'type' in 'device', which lite needs")
    if not all("name" in each for kind in info.get("IO", {}).values() for each in kind):
        raise ValueError("lacks a 'name' in 'IO', which lite needs")
    if not re.fullmatch(r"\d{1,6}\.\d{1,6}\.\d{1,6}", info["version"]):
        raise ValueError(f"the version {info['version']!r} is not like '1.13.0'")
    if not info["valid"]:
        raise ValueError("says that it is not valid, so lite would leave it unread")
    if info.get("has_compression"):
        raise ValueError("says that the model is compressed, which it is not")
    return dict(info)


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def check_value(value: Any, expected: Any, where: str) -> None:
    """Check a value of the settings against what lite reads."""
    if isinstance(expected, Mapping):
        if not isinstance(value, dict):
            raise ValueError(f"{where} is not an object with fields")
        for name, each in value.items():
            if name not in expected:
                near = nearest(name, expected)
                hint = f"; did you mean {near!r}?" if near else ""
                raise ValueError(f"lite knows no field {name!r} in {where}{hint}")
            check_value(each, expected[name], repr(name))
    elif isinstance(expected, list):
        if not isinstance(value, list):
            raise ValueError(f"{where} is not a list")
        for each in value:
            check_value(each, expected[0], where)
    elif isinstance(expected, tuple):
        if value not in expected:
            raise ValueError(f"{where} is not one of {', '.join(expected)}")
    elif expected is not None and (
        type(value) is not expected or (expected is int and not 0 <= value < 2**31)
    ):
        raise ValueError(f"{where} is not {TYPE_NAMES[expected]}")
