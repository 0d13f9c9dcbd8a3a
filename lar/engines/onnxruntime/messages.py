"""Clear errors for ONNX Runtime's own messages."""

from __future__ import annotations

import re

from lar.engines.formats import BROKEN
from lar.errors import LarError, UsageError

# What the engine says of a model that its provider cannot run as a whole.
NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"

# An operator that the engine lacks.
ANOTHER_OPSET = "export the model for another opset or with other types"
NAME, NUMBER = r"([^\s(]+)", r"(\d+)"

# Pattern in the engine's message, what is wrong (\1 is the pattern's group), what to do; the first
# that matches counts.
WHILE_LOADING: tuple[tuple[str, str, str], ...] = (
    (rf"Could not find an implementation for {NAME}\({NUMBER}\)", r"has no \1-\2", ANOTHER_OPSET),
    (
        rf"No Op registered for {NAME} with domain_version of {NUMBER}",
        r"has no \1-\2",
        ANOTHER_OPSET,
    ),
    (rf"{NAME}\(-?\d+\) is not a registered function/op", r"has no \1", ANOTHER_OPSET),
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

# What stands before what the engine has to say.
PREAMBLE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?"
    r"(This is an invalid model\. )?(In Node, .* , Error )?"
)


def explain_onnxruntime(
    message: str, model: str, *, loading: bool, version: str = ""
) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one.

    `version` is the engine's.
    """
    for pattern, what, hint in WHILE_LOADING if loading else ():
        if found := re.search(pattern, message):
            says = f"{hint} (ONNX Runtime: {one_line(message)})"
            if hint == ANOTHER_OPSET:
                what = f"ONNX Runtime {version} {found.expand(what)}"
                return LarError(what, says, subject=model)
            return UsageError(found.expand(what), says, subject=model)
    if re.search(r"bad_alloc|Failed to allocate|out of memory|bad allocation", message):
        return LarError("out of memory in ONNX Runtime", "a smaller batch or model, or more memory")
    return None


def one_line(message: str) -> str:
    """Return what the first line of a message says, at most 160 characters."""
    line = message.strip().splitlines()[0] if message.strip() else ""
    return PREAMBLE.sub("", line)[:160]
