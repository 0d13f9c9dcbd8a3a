"""What CUPTI records of a CUDA device, of a library that is played."""

from __future__ import annotations

import ctypes
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
    CallRecord,
    DeviceRecorder,
    KernelRecord,
    TransferRecord,
    readable_name,
)

NOW_NS = 5_000_000


class Cupti:
    """NVIDIA's library as it would be, with these records in its buffer."""

    def __init__(self, *records: ctypes.Structure) -> None:
        self.records = [bytes(record) for record in records]
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


def call(kind: int, start: int, correlation: int) -> CallRecord:
    return CallRecord(kind=kind, start=start, end=start + 9, correlation=correlation)


def test_fields_are_where_the_library_writes_them() -> None:
    # As cupti_activity.h of CUDA 12 and 13 lays them out.
    fields = [KernelRecord.start, KernelRecord.grid, KernelRecord.correlation, KernelRecord.name]
    assert [field.offset for field in fields] == [16, 52, 92, 104]
    assert (TransferRecord.start.offset, TransferRecord.correlation.offset) == (16, 44)
    assert (CallRecord.start.offset, CallRecord.correlation.offset) == (8, 32)


def test_work_is_told_in_the_order_in_which_the_host_asked_for_it() -> None:
    name = b"_Z3addPKfi"
    kernel = KernelRecord(
        kind=KERNEL, start=3000, end=3500, stream=7, correlation=2, name=name, device=0
    )
    kernel.grid[:], kernel.block[:] = (4, 2, 1), (64, 1, 1)
    recorder = DeviceRecorder(
        Cupti(
            kernel,
            call(DRIVER, 2100, 2),
            call(RUNTIME, 2000, 2),  # it called the driver
            call(RUNTIME, 1000, 1),
            TransferRecord(
                kind=MEMCPY, copy=1, bytes=64, start=1500, end=1600, stream=7, correlation=1
            ),
            TransferRecord(kind=MEMSET, bytes=8, start=1, end=2, correlation=99),  # of no call
        )
    )
    copy, kernel_work = recorder.finish()
    assert (copy.name, copy.facts()["category"], copy.size_bytes) == (
        *("[CUDA memcpy HtoD]", "memcpy", 64),
    )
    assert (kernel_work.name, kernel_work.facts()["category"]) == (
        "add(float const*, int)",
        "kernel",
    )
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
