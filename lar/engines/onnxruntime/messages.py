"""Clear errors for ONNX Runtime's own messages."""

from __future__ import annotations

import re

from lar.engines.formats import BROKEN
from lar.errors import LarError, UsageError

# What the engine says of a model that its provider cannot run as a whole.
NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"

# Pattern in the engine's message, what is wrong (\1 is the pattern's group), what to do; the first
# that matches counts.
WHILE_LOADING: tuple[tuple[str, str, str], ...] = (
    (
        r"contains compiled nodes",
        "the provider compiles it, so that its optimised graph cannot be saved",
        "leave out --model-dump and --range",
    ),
    (
        r"Failed to write external initializers|Protobuf serialization failed",
        "its optimised graph cannot be saved",
        "--model-dump can write 2 GiB",
    ),
    (
        r"Protobuf parsing failed|INVALID_PROTOBUF",
        "this is not an ONNX model, or it is damaged or cut short",
        BROKEN,
    ),
    (
        r"cannot get file size: .*\[(?:\./)?(.+)\]",
        r"its weights file \1 is missing",
        "keep it beside the model",
    ),
    (
        r"[Ee]xternal data|external_data|external initializer|initializer\.cc",
        "its external weights cannot be read",
        "keep the weight files beside the model",
    ),
    (
        r"No opset import for domain '(.*)'",
        r"it uses operators of the domain '\1' and does not say of which version",
        "export it again",
    ),
    (
        r"MLDataType for: tensor\((.*)\) is not currently registered",
        r"it has tensors of \1, which ONNX Runtime has not",
        "export it with real numbers",
    ),
    (
        r"opset|Unsupported model IR version",
        "it needs a newer ONNX Runtime",
        "export it for an older opset, or upgrade onnxruntime",
    ),
    (
        r"ModelProto does not have a graph|Load model from .* failed|INVALID_GRAPH",
        "it is not a valid model",
        "export it again",
    ),
)

# What the engine says of an operator that cannot compute what it is given: its type, its name, why.
IN_NODE = re.compile(
    r"Non-zero status code returned while running (\S+) node\. Name:'(.*?)' Status Message: (.*)"
)

# What stands before what the engine has to say.
PREAMBLE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?"
    r"(This is an invalid model\. )?(In Node, .* , Error )?"
)

# What the engine says of an operator that it lacks: its name, and the version or domain.
LACKING = (
    r"Could not find an implementation for (?P<name>[^\s(]+)\((?P<version>\d+)\)",
    r"No Op registered for (?P<name>\S+) with domain_version of (?P<version>\d+)",
    r"(?P<name>\S+)\(-?\d+\) is not a registered function/op",
)


def explain_lacking(message: str, model: str, version: str) -> LarError | None:
    """Return the error of a model with an operator that the engine lacks, None for another."""
    found = next(filter(None, (re.search(pattern, message) for pattern in LACKING)), None)
    if found is None:
        return None
    operator = "-".join(filter(None, found.groupdict().values()))
    hint = "export the model for another opset or with other types"
    if ":" in operator:  # behind a domain
        hint = "--c-opr-lib FILE loads a library of operators that has it"
    return LarError(
        f"ONNX Runtime {version} has no {operator}",
        f"{hint} (ONNX Runtime: {one_line(message)})",
        subject=model,
    )


def explain_onnxruntime(
    message: str, model: str, *, loading: bool, version: str = ""
) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one.

    `version` is the engine's.
    """
    if loading and (lacking := explain_lacking(message, model, version)):
        return lacking
    for pattern, what, hint in WHILE_LOADING if loading else ():
        if found := re.search(pattern, message):
            return UsageError(
                f"{found.expand(what)}",
                f"{hint} (ONNX Runtime: {one_line(message)})",
                subject=model,
            )
    if re.search(r"bad_alloc|Failed to allocate|out of memory|bad allocation", message):
        return LarError("out of memory in ONNX Runtime", "a smaller batch or model, or more memory")
    if failed := None if loading else IN_NODE.search(message):
        name = failed[2] and f" {failed[2]}"
        says = one_line(failed[3])
        return LarError(f"ONNX Runtime failed in {failed[1]}{name}: {says}", subject=model)
    return None


def one_line(message: str) -> str:
    """Return what the first line of a message says, at most 160 characters."""
    line = message.strip().splitlines()[0] if message.strip() else ""
    return PREAMBLE.sub("", line)[:160]
