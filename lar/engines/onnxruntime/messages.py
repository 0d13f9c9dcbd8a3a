"""Clear errors for ONNX Runtime's own messages."""

from __future__ import annotations

import re
from pathlib import Path

from lar.errors import LarError, UsageError

# While a model is loaded: three lines each, a pattern in the engine's message, what is wrong (\1 is
# the pattern's group), what to do. The first that matches counts; those with the engine's version
# are of operators that it lacks.
WHILE_LOADING = Path(__file__).with_name("messages.txt")

# What the engine says of a model that its provider cannot run as a whole.
NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"

# What the engine says of an operator that cannot compute what it is given: its type, its name, why.
IN_NODE = re.compile(
    r"Non-zero status code returned while running (\S+) node\. Name:'(.*?)' Status Message: (.*)"
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
    for row in WHILE_LOADING.read_text().split("\n\n") if loading else ():
        pattern, what, hint = row.strip().splitlines()
        if found := re.search(pattern, message):
            kind = LarError if "VERSION" in what else UsageError
            says = f"{hint} (ONNX Runtime: {one_line(message)})"
            return kind(found.expand(what.replace("VERSION", version)), says, subject=model)
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
