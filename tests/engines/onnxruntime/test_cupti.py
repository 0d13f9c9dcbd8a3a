"""What CUPTI records of a CUDA device, of a library that is played."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Any

import pytest

from lar.engines.onnxruntime import cupti
from lar.engines.onnxruntime.cupti import (
    DRIVER,
    KERNEL,
    MEMCPY,
    MEMSET,
    RUNTIME,
    DeviceRecorder,
    readable_name,
)

NOW_NS = 5_000_000


class Cupti:
    """NVIDIA's library as it would be, with these records in its buffer."""

    def __init__(self, *records: bytes) -> None:
        self.records = [*records]
        self.enabled: set[int] = set()

    def cuptiActivityRegisterCallbacks(self, request: Any, complete: Any) -> None:
        self.request, self.complete = request, complete

    def cuptiGetTimestamp(self, now: Any) -> None:
        now._obj.value = NOW_NS

    def cuptiActivityEnable(self, kind: int) -> None:
        self.enabled.add(kind)

    def cuptiActivityDisable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def cuptiActivityFlushAll(self, flag: int) -> None:
        if not self.enabled or not self.records:
            return
        place, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(9)
        self.request(ctypes.byref(place), ctypes.byref(size), ctypes.byref(most))
        if place.value is None:  # what would be in it is lost
            return
        content = b"".join(self.records)
        assert most.value == 0  # no limit but that of the size
        assert size.value >= len(content)
        assert place.value is not None
        ctypes.memmove(place.value, content, len(content))
        self.ends = [sum(map(len, self.records[:n])) for n in range(len(self.records) + 1)]
        self.records = []
        self.complete(None, 0, place.value, size.value, len(content))

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, record: Any) -> int:
        place = record._obj
        at = 0 if place.value is None else self.ends.index(place.value - buffer.value) + 1
        if at + 1 >= len(self.ends):
            return 12  # what it says at the end of a buffer
        place.value = buffer.value + self.ends[at]
        return 0


def record_of(size: int, kind: int, **fields: Any) -> bytes:
    """A record with fields where cupti_activity.h of CUDA 12 and 13 has them: each as its place,
    its type and its numbers."""
    record = bytearray(size)
    struct.pack_into("=I", record, 0, kind)
    for place, form, *numbers in fields.values():
        struct.pack_into(f"={form}", record, place, *numbers)
    return bytes(record)


def call(kind: int, start: int, number: int) -> bytes:
    return record_of(40, kind, start=(8, "Q", start), number=(32, "I", number))


def transfer(kind: int, copy: int, size: int, start: int, number: int) -> bytes:
    times = (size, start, start + 100)
    tail = (40, "2I", 7, number)
    return record_of(64, kind, copy=(4, "B", copy), times=(8, "3Q", *times), tail=tail)


def test_work_is_told_in_the_order_in_which_the_host_asked_for_it() -> None:
    name = ctypes.create_string_buffer(b"_Z3addPKfi")
    kernel = record_of(
        *(144, KERNEL),
        times=(16, "2Q", 3000, 3500),
        stream=(48, "I", 7),
        grid=(52, "3i", 4, 2, 1),
        block=(64, "3i", 64, 1, 1),
        number=(92, "I", 2),
        name=(104, "Q", ctypes.addressof(name)),
    )
    recorder = DeviceRecorder(
        Cupti(
            kernel,
            call(DRIVER, 2100, 2),
            call(RUNTIME, 2000, 2),  # it called the driver
            call(RUNTIME, 1000, 1),
            transfer(MEMCPY, 1, 64, 1500, 1),
            transfer(MEMSET, 0, 8, 1, 99),  # of no call
        )
    )
    copy, kernel_work = recorder.finish()
    assert copy.facts()["category"] == "memcpy"
    assert (copy.name, copy.size_bytes) == ("[CUDA memcpy HtoD]", 64)
    assert kernel_work.facts()["category"] == "kernel"
    assert kernel_work.name == "add(float const*, int)"
    assert (kernel_work.grid, kernel_work.block, kernel_work.stream) == ((4, 2, 1), (64, 1, 1), 7)
    # On the clock of the time of day.
    assert kernel_work.start_ns - kernel_work.called_ns == 1000
    assert kernel_work.end_ns - kernel_work.start_ns == 500
    assert kernel_work.called_ns - copy.called_ns == 1000
    began = kernel_work.called_ns - 2000 + NOW_NS
    assert abs(began - time.time_ns()) < 60 * 10**9


def test_nothing_recorded_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DeviceRecorder(Cupti()).finish() == []
    monkeypatch.setattr(cupti, "MOST_BUFFERS", 0)
    assert DeviceRecorder(Cupti(call(RUNTIME, 1000, 1))).finish() == []


def test_a_name_that_is_not_mangled_stays() -> None:
    assert readable_name(b"sm90_gemm") == "sm90_gemm"
    assert readable_name(None) == ""
