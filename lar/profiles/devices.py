"""Devices by their names, and what ran on one: a CPU is the host, and no device."""

from __future__ import annotations

import re

from lar.records.profile import Profile, Span


def device_kind(device: str) -> str:
    """Return a device's name without its number: `cuda` for `cuda:1`."""
    return device.rstrip(":0123456789") or "cpu"


def device_title(device: str) -> str:
    """Return what people call a device: `CPU`, `GPU` for `cuda0`, else its own name in capitals."""
    kind = device_kind(device)
    return "GPU" if kind == "cuda" else kind.upper()


def device_number(device: str) -> int:
    """Return the number of a device: of `cuda1` and `cuda:1` it is 1."""
    number = re.search(r"[0-9]+$", device)
    return int(number[0]) if number else 0


def is_of_device(profile: Profile, span: Span) -> bool:
    """Tell what a device did: its kernels, and copies that are said to be of a device."""
    if not profile.on_device:
        return False
    if span.device is None:
        return span.category == "kernel"
    return not span.device.startswith("cpu")


def streams_of(profile: Profile) -> frozenset[int]:
    """Return the threads that stand for streams of a device: none dispatches there."""
    if not profile.on_device:
        return frozenset()
    hosts = {execution.dispatch_thread for execution in profile.executions}
    return frozenset({execution.thread for execution in profile.executions} - hosts)
