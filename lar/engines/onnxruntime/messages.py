"""ONNX Runtime's own messages, and what they mean: messages.json."""

from __future__ import annotations

import re

from lar.engines.meanings import Meanings

# Messages about operators that the engine lacks name its `version`.
MEANINGS = Meanings(__file__)

# What the engine says of a model that its provider cannot run as a whole.
NO_FALLBACK = "fallback to CPU EP has been explicitly disabled"

# What stands before what the engine has to say.
PREAMBLE = re.compile(
    r"^\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from .*? failed:)?"
    r"(This is an invalid model\. )?(In Node, .* , Error )?"
)


def one_line(message: str) -> str:
    """Return what the first line of a message says, at most 160 characters."""
    line = message.strip().splitlines()[0] if message.strip() else ""
    return PREAMBLE.sub("", line)[:160]
