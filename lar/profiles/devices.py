"""Devices by their names, what ran on a device, and its kernels.

A CPU is the host and not a device. If an engine reports no kernels, operators stand for them, by
the names of their algorithms.
"""

from __future__ import annotations

import re

from lar.records.profile import Profile, ProfiledOperator, Span


def device_kind(device: str) -> str:
    """Return a device's name without its number: `cuda` for `cuda:1`."""
    return device.rstrip(":0123456789") or "cpu"


def device_title(device: str) -> str:
    """Return what people call a device: `CPU`, `GPU` for `cuda0`, else its own name in capitals."""
    kind = device_kind(device)
    return "GPU" if kind == "cuda" else kind.upper()


def device_number(device: str) -> int:
    """Return the number of a device: 1 for `cuda1` and `cuda:1`."""
    number = re.search(r"[0-9]{1,9}$", device)
    return int(number[0]) if number else 0


def is_of_device(profile: Profile, span: Span) -> bool:
    """Return whether a span is of a device: a kernel, or a copy that a device made."""
    if not profile.on_device:
        return False
    if span.device is None:
        return span.category == "kernel"
    return not span.device.startswith("cpu")


def streams_of(profile: Profile) -> frozenset[int]:
    """Return the threads that stand for streams of a device: nothing is dispatched from these."""
    if not profile.on_device:
        return frozenset()
    hosts = {execution.dispatch_thread for execution in profile.executions}
    return frozenset({execution.thread for execution in profile.executions} - hosts)


def kernel_name_of(operator: ProfiledOperator) -> str:
    """Return the algorithm or, if that is not known, the provider and the operator's type."""
    if operator.algorithm:
        return operator.algorithm
    return f"{operator.provider}::{operator.type}" if operator.provider else operator.type
