"""The settings in a packed model, as JSON: what lite 1.13 reads of them (`--pack-info-json`).

Read from MegEngine 1.13: lite/src/parse_info/default_parse.h.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec

from lar.errors import UsageError
from lar.files.input_file import read_input

Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class Known(msgspec.Struct, forbid_unknown_fields=True):
    """An object in the settings; an unknown field is a slip for one of these."""


class Shape(Known):
    dim0: Whole = 0
    dim1: Whole = 0
    dim2: Whole = 0
    dim3: Whole = 0


class Tensor(Known):
    name: str
    is_host: bool = False
    io_type: Literal["value", "shape"] = "value"
    dtype: Literal["float32", "float16", "int32", "int16", "int8", "uint8"] = "float32"
    shape: Shape | msgspec.UnsetType = msgspec.UNSET


class Tensors(Known):
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []


class Device(Known):
    type: Literal["CPU", "CUDA", "ATLAS", "CAMBRICON", "NPU"]
    device_id: Whole = 0
    number_threads: Whole = 1
    enable_inplace_model: bool = False
    use_tensorrt: bool = False


class Options(Known):
    """Some of the fields of lite's options."""

    weight_preprocess: bool = False
    fuse_preprocess: bool = False
    fake_next_exec: bool = False
    var_sanity_check_first_run: bool = True
    const_shape: bool = False
    force_dynamic_alloc: bool = False
    force_output_dynamic_alloc: bool = False
    no_profiling_on_shape_change: bool = False
    jit_level: Whole = 0
    comp_node_seq_record_level: Whole = 0
    graph_opt_level: Whole = 2
    async_exec_level: Whole = 1


class Settings(Known):
    name: str
    valid: bool
    version: Annotated[str, msgspec.Meta(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")]
    has_compression: bool = False
    backend: str = ""
    device: Device | msgspec.UnsetType = msgspec.UNSET
    options: Options | msgspec.UnsetType = msgspec.UNSET
    IO: Tensors | msgspec.UnsetType = msgspec.UNSET
    extra_info: Any = None


def read_info_file(path: str) -> bytes:
    """Read a JSON file of settings that lite takes as it is.

    Raises:
        UsageError: it is not.
    """
    data = read_input(path, "--pack-info-json")
    try:
        check_info(data)
    except ValueError as error:
        hint = "correct the file"
        raise UsageError(str(error), hint, flag="--pack-info-json", subject=path) from None
    return data


def check_info(data: bytes) -> dict[str, Any]:
    """Check settings and return them.

    Raises:
        ValueError: this is not JSON in UTF-8, or not what lite reads.
    """
    try:
        settings = msgspec.json.decode(data, type=Settings)
        info: dict[str, Any] = json.loads(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"lite does not read it: {error}") from None
    if not settings.valid:
        raise ValueError("says that it is not valid, so lite would leave it unread")
    if settings.has_compression:
        raise ValueError("says that the model is compressed, which it is not")
    return info
