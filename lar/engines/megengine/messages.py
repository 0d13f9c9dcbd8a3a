"""Clear errors for MegEngine's own messages, for both drivers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lar.engines.formats import BROKEN
from lar.errors import CheckFailed, LarError, UsageError
from lar.options.table import (
    CHECK_VAR_VALUE,
    ENABLE_IOC16,
    FAKE_FIRST,
    FAST_RUN,
    LAYOUT_CHOICES,
    OPERATOR_DUMPS,
    PROFILE,
    PROFILE_FILES,
)

if TYPE_CHECKING:
    from lar.records.run import TensorInfo

# Pattern in the engine's message, what is wrong, what to do; the first that matches counts.
BROKEN_FILE: tuple[tuple[str, str], ...] = (
    (
        r"m_offset \+ size <= m_size|(m_refhold|ptr) && size|unexpected (end|eof)",
        "the file is cut short",
    ),
    (r"model verification failed", "its content is damaged (verification failed)"),
    (
        r"invalid model format|access invalid Maybe value",
        "this is not a MegEngine model, or it is damaged",
    ),
    (
        r"tensor name must be .* input tensor name",
        "its content is damaged: it does not have a tensor that it names",
    ),
    (r"device < nr_gpu", "it asks for a CUDA device, and this machine has no such one"),
)

FULL_DISK = re.compile(
    r"failed to write to .*(No space left on device|Disk quota exceeded|File too large)"
)

# Of a variable of bytes, which the dumps do not know.
UNDUMPED = re.compile(
    r"is_contiguous\(\)' failed at .*\bdump_tensor\(|can not handle dtype \w+ in print_host_val"
)

# What the checkers say: the graph's variable and the place of its first wrong element, as in
#   var: {id:9, ..., owner:relu(x)[8]{Elemwise}, name:y, slot:0, ...}
OUT_OF_RANGE = re.compile(
    r"float value out of range: var: \{.*, owner:.*\{(?P<type>\w+)\}, name:(?P<name>.*), slot:.*"
    r"\n value=(?P<value>\S+) range=(?P<limit>\S+) index=(?P<index>\S+)/(?P<shape>\S+)"
)
CHANGED = re.compile(
    r"Unequal value\nValue of: .* owner:get:\{.*?, owner:.*?\{(?P<type>\w+)\}, "
    r"name:(?P<name>.*?), slot:.*\n +Actual: (?P<value>\S+)\nExpected: .*\nWhich is: (?P<first>\S+)"
    r"\nAt index: (?P<index>\S+)/(?P<shape>\S+)"
)


def explain_check(message: str) -> CheckFailed | None:
    """Return what one of the engine's checkers has found, None for another message."""
    if found := OUT_OF_RANGE.search(message):
        return CheckFailed(
            "--range {limit}: {name} has the value {value} at index {index} of {shape}".format(
                **found.groupdict()
            ),
            f"the operator that computes it is of type {found['type']}",
        )
    if found := CHANGED.search(message):
        return CheckFailed(
            "--check-var-value: {name} has the value {value} at index {index} of {shape}, it had "
            "{first} in the first run".format(**found.groupdict()),
            f"the operator that computes it is of type {found['type']}; those that draw random "
            "numbers change by nature",
        )
    return None


def type_error(model: str, type_name: str) -> UsageError:
    """Return the error of a model with an input or output of a type that lite lacks."""
    return UsageError(
        f"an input or output is of type {type_name}, which MegEngine's lite lacks",
        "--driver graph takes it; or cast it to float32 or int32 in the model, and dump it again",
        subject=model,
    )


def resized_inputs(
    infos: Iterable[TensorInfo], fed_shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorInfo, tuple[int, ...]]]:
    """Return the inputs that are fed with another shape than their file's, with that shape."""
    fed = [(info, fed_shapes[info.name]) for info in infos if info.name in fed_shapes]
    return [(info, shape) for info, shape in fed if shape != info.shape]


def shape_error(model: str, resized: Sequence[tuple[TensorInfo, tuple[int, ...]]]) -> UsageError:
    """Return the error of a model that cannot be computed with the shapes that are fed."""
    from lar.inputs.axes import hint_to_generate
    from lar.inputs.image_settings import image_size  # imports NumPy
    from lar.records.run import format_shape

    fed = ", ".join(f"{info.name} of shape {format_shape(shape)}" for info, shape in resized)
    own = ", ".join(format_shape(info.shape) for info, _ in resized)
    (info, shape), *_ = resized
    hint = f"feed it that shape: {hint_to_generate(info)}"
    if len(shape) == 4 and image_size(shape) != image_size(info.shape):
        height, width = image_size(info.shape)
        hint += f", --resize {height}x{width} makes an image fit"
    return UsageError(
        f"MegEngine cannot compute it with {fed}; it was dumped for {own}", hint, subject=model
    )


def explain_megengine(
    message: str,
    model: str,
    *,
    loading: bool,
    settings: Iterable[str] = (),
    resized: Sequence[tuple[TensorInfo, tuple[int, ...]]] = (),
) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one.

    `resized` are the inputs fed with other shapes than those of the model file.
    """
    if failed := explain_check(message):
        return failed
    if lacking := re.search(r"unsupport dtype in lite : \{.* (\w+)\}", message):
        return type_error(model, lacking[1])
    if loading and (lacking := re.search(r"failed to find opr with type (\w+)", message)):
        return LarError(
            f"MegEngine has no operator of the type {lacking[1]}, or the file is damaged",
            f"dump the model with this version of MegEngine, or {BROKEN}",
            subject=model,
        )
    for pattern, what in BROKEN_FILE if loading else ():
        if re.search(pattern, message):
            return UsageError(what, BROKEN, subject=model)
    if re.search(r"failed to malloc|bad_alloc|out of memory|cudaErrorMemoryAllocation", message):
        return LarError("out of memory in MegEngine", "a smaller batch or model, or more memory")
    dump = next((each for each in OPERATOR_DUMPS if each.key in settings), None)
    if dump is not None and UNDUMPED.search(message):
        return UsageError(
            f"{model} has a variable that MegEngine cannot dump, as batch "
            "normalisation has that is not folded",
            "dump the model with optimize_for_inference, which folds it; --bin-out-dump DIR writes "
            "the outputs alone",
            flag=dump.flag,
        )
    # The engine's checks of shapes say so, or stand in functions that are called so.
    if resized and re.search("shape|layout", message):
        return shape_error(model, resized)
    if full := FULL_DISK.search(message):
        why = full[1].lower()
        return LarError(f"MegEngine cannot write a file: {why}", "make room on the disk")
    if "ExternCOprRunner::load" in message:
        return UsageError(
            "it has an operator in C that no loaded library has",
            "name its library: lar run --c-opr-lib FILE",
            subject=model,
        )
    if "`ch >= 1'" in message and "json.cpp" in message:
        asked = next((each for each in PROFILE_FILES if each.key in settings), PROFILE)
        return UsageError(
            f"{model} has a name that is not ASCII, which MegEngine cannot write into its profile",
            "export the model with other names, or leave the flag out",
            flag=asked.flag,
        )
    said = message.strip().splitlines()[0] if message.strip() else "nothing"
    if "attempt to modify ExecutionPolicy" in message:
        return UsageError(
            "MegEngine cannot set it on this model with these options",
            "leave it or the layout out",
            flag="--workspace-limit",
        )
    if "contain_attribute_all(positive_attr)" in message and FAST_RUN.key in settings:
        return UsageError(
            f"an operator of {model} has naive algorithms alone with these options, "
            "and --fast-run takes none",
            "--full-run takes them too; or leave the layout out",
            flag="--fast-run",
        )
    if CHECK_VAR_VALUE.key in settings and "param.mode == Param::Mode::" in message:
        return UsageError(
            f"{model} has quantised variables, which MegEngine cannot compare",
            "--range looks at its floating-point values",
            flag="--check-var-value",
        )
    if ENABLE_IOC16.key in settings:
        return UsageError(
            f"--enable-ioc16: MegEngine cannot run {model} in float16",
            f"leave the flag out; it says: {said}",
        )
    for layout in (each for each in LAYOUT_CHOICES if each.key in settings):
        if FAKE_FIRST.key in settings and "value.initialized()" in message:
            return UsageError(
                f"--fake-first and {layout.flag} cannot go together on {model}: MegEngine "
                "computes weights in that layout in executions of their own",
                f"leave one of them out; it says: {said}",
            )
        fold = ", or fold batch normalisation before the dump" if "batch_norm" in message else ""
        return UsageError(
            f"MegEngine cannot run {model} in this layout",
            f"leave the flag out{fold}; it says: {said}",
            flag=layout.flag,
        )
    if "map.find(desc) != map.end()" in message:
        return UsageError(
            "the cache names an algorithm that is not here",
            "it was made on another machine or by another version: search again",
            flag="--fast-run-algo-policy",
        )
    return None
