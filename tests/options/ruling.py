"""The rules applied to made-up options, as the parent applies them to what was typed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lar.engines import engine_named
from lar.errors import UsageError
from lar.options.rules import RULES, Asked, check_rules


def check(engine: str, values: Mapping[str, Any], **facts: Any) -> None:
    """Check options by the rules of an engine; `facts` are the other fields of `Asked`."""
    asked = Asked(values=values, **{"environment": os.environ, **facts})
    check_rules((*RULES, *engine_named(engine).option_rules()), asked)


def refusal(engine: str, values: Mapping[str, Any], **facts: Any) -> UsageError:
    """Return the error of options that break a rule."""
    try:
        check(engine, values, **facts)
    except UsageError as error:
        return error
    raise AssertionError(f"{dict(values)} are not refused")
