"""Printable names for reports: each on one line, without control characters of a terminal.

A model's file may give its operators any names, and may come from anybody.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import msgspec

from lar.records.profile import Profile

R = TypeVar("R", bound=msgspec.Struct)


def with_printable_names(profile: Profile) -> Profile:
    """Return the profile with a `?` for each character that cannot be printed."""
    facts = printable_record(profile.facts)
    return replace(
        profile,
        facts=msgspec.structs.replace(facts, model=printable_record(facts.model)),
        operators=tuple(map(printable_record, profile.operators)),
        spans=tuple(map(printable_record, profile.spans)),
        counters=tuple(map(printable_record, profile.counters)),
        threads={number: printable_name(name) for number, name in profile.threads.items()},
    )


def printable_record(record: R) -> R:
    """Return a record with its own texts printable: itself if they are already."""
    changes = {
        field: printable_name(value)
        for field in record.__struct_fields__
        if isinstance(value := getattr(record, field), str) and not value.isprintable()
    }
    return msgspec.structs.replace(record, **changes) if changes else record


def printable_name(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)
