"""What a CUDA device does, and when: CUPTI, NVIDIA's library for profilers, records it.

ONNX Runtime's own packages report nothing of a device. CUPTI comes with CUDA's toolkit, and as the
Python package nvidia-cuda-cupti, which PyTorch needs too. Its records are laid out as in
cupti_activity.h of CUDA 12 and 13: the fields named here stand in the same places in both.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Iterator
from ctypes import c_char_p, c_size_t, c_uint32, c_uint64
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple

PLACES = ("nvidia/cu13/lib/libcupti.so.13", "nvidia/cuda_cupti/lib/libcupti.so.12")
SYSTEMS = tuple(map(os.path.basename, PLACES))

# The kinds of records. Calls are those of the driver and of the library above it, whichever was
# called first.
MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL = 1, 2, 4, 5, 10
KINDS = (MEMCPY, MEMSET, DRIVER, RUNTIME, KERNEL)
# The fields read from a record, from its kind to the number of the call that it belongs to:
CALL_FIELDS = Struct("=8xQ16xI")  # the start
KERNEL_FIELDS = Struct("=16x2Q16xI3i3i16xI8xQ")  # start, end, stream, grid, block, call, name
TRANSFER_FIELDS = Struct("=4xB3x3Q8x2I")  # copied from where to where, bytes, start, end, stream
# CUPTI gives back full buffers; the last one when it is asked for.
BUFFER_BYTES = 4 << 20
# More than what belongs to as many operators as the engine's own profile holds; the rest is lost.
MOST_BUFFERS = 256
FORCED = 1

# Names that profilers give to kinds of copies, by NVIDIA's numbers.
MEMSET_NAME = "[CUDA memset]"
COPIES = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}


class DeviceWork(NamedTuple):
    """A kernel, copy or fill; times are Unix ones. The host asked for it at `called_ns`."""

    name: str
    called_ns: int
    start_ns: int
    end_ns: int
    stream: int
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    size_bytes: int | None = None

    def facts(self) -> dict[str, Any]:
        """Return what it is, besides when, as the fields of a span."""
        other = "memset" if self.name == MEMSET_NAME else "memcpy"
        known = ("name", "stream", "grid", "block", "size_bytes")
        return {
            "category": "kernel" if self.grid is not None else other,
            **{name: getattr(self, name) for name in known},
        }

    def moved(self, offset_ns: int) -> DeviceWork:
        """Return it with all times later by an offset."""
        return self._replace(
            called_ns=self.called_ns + offset_ns,
            start_ns=self.start_ns + offset_ns,
            end_ns=self.end_ns + offset_ns,
        )


class DeviceRecorder:
    """Records what this process has its CUDA devices do, from when it is made to `finish`."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._buffers: dict[int, Any] = {}
        self._filled: list[tuple[int, int]] = []
        # CUPTI calls these from threads of its own, as long as it records.
        self._callbacks = REQUESTED(self._give), COMPLETED(self._take)
        library.cuptiActivityRegisterCallbacks(*self._callbacks)
        now = c_uint64()
        library.cuptiGetTimestamp(ctypes.byref(now))
        self._offset_ns = time.time_ns() - now.value
        for kind in KINDS:
            library.cuptiActivityEnable(kind)

    def _give(self, buffer: Any, size: Any, most: Any) -> None:
        if len(self._buffers) == MOST_BUFFERS:
            buffer[0], size[0], most[0] = None, 0, 0
            return
        made = (c_uint64 * (BUFFER_BYTES // 8))()
        self._buffers[ctypes.addressof(made)] = made
        buffer[0], size[0], most[0] = ctypes.addressof(made), BUFFER_BYTES, 0

    def _take(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self._filled.append((buffer, valid))

    def finish(self) -> list[DeviceWork]:
        """Stop recording; return what was done, in the order in which it was asked for."""
        self._library.cuptiActivityFlushAll(FORCED)
        for kind in KINDS:
            self._library.cuptiActivityDisable(kind)
        self._library.cuptiActivityFlushAll(FORCED)
        called: dict[int, int] = {}
        works: list[tuple[int, DeviceWork]] = []
        for place in self._records():
            kind = c_uint32.from_address(place).value
            if kind in (DRIVER, RUNTIME):
                start, number = fields_at(place, CALL_FIELDS)
                called[number] = min(start, called.get(number, start))
            elif kind in KINDS:
                works.append(work_at(place, kind))
        self._buffers.clear()
        found = [
            work._replace(called_ns=called[number]).moved(self._offset_ns)
            for number, work in works
            if number in called
        ]
        return sorted(found, key=attrgetter("called_ns"))

    def _records(self) -> Iterator[int]:
        record = ctypes.c_void_p()
        for buffer, valid in self._filled:
            record.value = None
            while not self._library.cuptiActivityGetNextRecord(
                ctypes.c_void_p(buffer), c_size_t(valid), ctypes.byref(record)
            ):
                if record.value is not None:
                    yield record.value


REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(c_size_t), ctypes.POINTER(c_size_t)
)
COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, c_uint32, ctypes.c_void_p, c_size_t, c_size_t)


def fields_at(place: int, fields: Struct) -> tuple[Any, ...]:
    return fields.unpack(ctypes.string_at(place, fields.size))


def work_at(place: int, kind: int) -> tuple[int, DeviceWork]:
    """Return what a record tells, and the number of the call that asked for it."""
    if kind == KERNEL:
        start, end, stream, *sizes, number, name = fields_at(place, KERNEL_FIELDS)
        called = readable_name(c_char_p(name).value)
        extents = (tuple(sizes[:3]), tuple(sizes[3:]))
        return number, DeviceWork(called, 0, start, end, stream, *extents)
    copy, size_bytes, start, end, stream, number = fields_at(place, TRANSFER_FIELDS)
    called = f"[CUDA memcpy {COPIES.get(copy, '')}]" if kind == MEMCPY else MEMSET_NAME
    return number, DeviceWork(called, 0, start, end, stream, size_bytes=size_bytes)


def open_recorder() -> DeviceRecorder | None:
    """Begin to record what CUDA devices do; None without CUPTI."""
    files = [os.path.join(folder, place) for folder in sys.path for place in PLACES]
    for name in (*filter(os.path.exists, files), *SYSTEMS):
        with contextlib.suppress(OSError):
            return DeviceRecorder(ctypes.CDLL(name))
    return None


@cache
def readable_name(mangled: bytes | None) -> str:
    """Return a kernel's name as its source has it."""
    with contextlib.suppress(OSError, AttributeError):
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        demangle.restype = c_char_p  # the memory of a name is never freed: there are few
        mangled = demangle(c_char_p(mangled), None, None, None) or mangled
    return (mangled or b"").decode(errors="replace")
