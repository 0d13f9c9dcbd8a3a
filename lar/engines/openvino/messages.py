"""Clear errors for OpenVINO's own messages."""

from __future__ import annotations

import re

from lar.engines.formats import BROKEN
from lar.errors import LarError, UsageError
from lar.options.table import ENGINE_OPTION

# Pattern in the engine's message, what is wrong (\1 is the pattern's group), what to do; the first
# that matches counts.
WHILE_LOADING: tuple[tuple[str, str, str], ...] = (
    (
        r"No conversion rule found for operations: (.+)",
        r"OpenVINO has no \1",
        "export the model for another opset, or give another --engine",
    ),
    (
        r"Model can't be parsed|Unable to read the model|Conversion of .* failed to read",
        "this is not a model that OpenVINO reads, or it is damaged or cut short",
        BROKEN,
    ),
    (
        r"(tags mismatch|Error parsing|res\.status == pugi)",
        "this is not a whole OpenVINO model: it is damaged or cut short",
        BROKEN,
    ),
    (
        r"Incorrect weights in bin file|Attribute and shape size are inconsistent",
        "its weights file is cut short, or belongs to another model",
        BROKEN,
    ),
    (
        r"doesn't support .* with dynamic rank|rank has to be known|rank\(\)\.is_static",
        "it does not say how many axes its inputs have",
        "export it with the shapes of its inputs",
    ),
    (
        r"Cannot load library .*?(\w+\.so[\w.]*): cannot open",
        r"OpenVINO needs the library \1 for this device",
        "install the device's driver, or leave out --provider",
    ),
    (
        r"Conversion is failed for: (.+)",
        r"OpenVINO cannot convert \1",
        "give the shapes of its inputs, export it for another opset, or give another --engine",
    ),
)
# What the engine says of a property that it does not take, or of its value.
PROPERTY = r"for property key|Unsupported property|/runtime/properties\.hpp"


def explain(message: str, model: str, *, loading: bool) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one."""
    said = last_line(message)
    for pattern, what, hint in WHILE_LOADING if loading else ():
        if found := re.search(pattern, message):
            return UsageError(found.expand(what), f"{hint} (OpenVINO: {said})", subject=model)
    if re.search(PROPERTY, message):
        return UsageError(f"OpenVINO refuses a property: {said}", flag=ENGINE_OPTION.flag)
    if re.search(r"bad_alloc|out of memory|not enough memory", message, re.IGNORECASE):
        return LarError("out of memory in OpenVINO", "a smaller batch or model, or more memory")
    return None if loading else LarError(f"OpenVINO failed: {said}", subject=model)


def last_line(message: str) -> str:
    """Return what the last line of a message says, at most 160 characters: those before it say
    where in its own source the engine found it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return re.sub(r"^\w+: ", "", lines[-1])[:160] if lines else ""
