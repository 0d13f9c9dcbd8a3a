"""Listens to MegEngine while it chooses algorithms.

It tells its choices in messages of level DEBUG only, and the others of that level stay untold,
unless the user asked for them. The names are those of src/core/impl/common.cpp in MegEngine.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from typing import Any

from lar.dumps.graph import Kernel
from lar.engines.megengine.algorithm_log import choices_in
from lar.engines.megengine.symbols import find_function
from lar.errors import UsageError

# void (*)(LogLevel, const char* file, const char* function, int line, const char* format, va_list)
LogHandler = ctypes.CFUNCTYPE(
    *(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p),
    ctypes.c_void_p,
)
# Both return what was set before.
SET_LOG_HANDLER = "_ZN3mgb15set_log_handlerEPFvNS_8LogLevelEPKcS2_iS2_P13__va_list_tagE"
SET_LOG_LEVEL = "_ZN3mgb13set_log_levelENS_8LogLevelE"
DEBUG = 0
CHOOSER = b"setup_algo"  # the function whose messages tell a choice
VA_LIST_BYTES = 24  # System V ABI of x86-64, figure 3.34
MESSAGE_BYTES = 8192


class ChoiceListener:
    """Gives each message on a choice to `take`, from `begin` to `end`."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self.take = take
        self._format = ctypes.CDLL(None).vsnprintf
        self._buffer = ctypes.create_string_buffer(MESSAGE_BYTES)
        self._handler = LogHandler(self._handle)  # the engine calls it, so it must live
        self._print: Any = None
        self._level = DEBUG
        self._set_handler: Any = None
        self._set_level: Any = None

    def begin(self, flag: str) -> bool:
        """Listen from now on for the option `flag`; return False where this build of the engine
        has no such functions."""
        try:
            self._set_handler = find_function(flag, SET_LOG_HANDLER, [LogHandler], LogHandler)
            self._set_level = find_function(flag, SET_LOG_LEVEL, [ctypes.c_int], ctypes.c_int)
        except UsageError:
            return False
        self._print = self._set_handler(self._handler)
        self._level = self._set_level(DEBUG)
        # When Python has ended, the engine may still have something to say.
        atexit.register(self.end)
        return True

    def end(self) -> None:
        """Have the engine log as before."""
        if self._print is not None:
            self._set_handler(self._print)
            self._set_level(self._level)
            self._print = None

    def _handle(
        self, level: int, source: bytes, function: bytes, line: int, form: bytes, values: int
    ) -> None:
        show = self._print  # None when another thread has just ended it
        if function == CHOOSER:
            unread = ctypes.string_at(values, VA_LIST_BYTES)
            self._format(self._buffer, MESSAGE_BYTES, form, ctypes.c_void_p(values))
            ctypes.memmove(values, unread, VA_LIST_BYTES)
            self.take(self._buffer.value)
        if level >= self._level and show is not None:
            show(level, source, function, line, form, values)


def algorithms_in(log: str) -> dict[Kernel, str]:
    """Return the algorithms in a log, by what they were chosen for; several for one kernel, which
    differ in parameters that the engine does not tell, stand together."""
    found: dict[Kernel, list[str]] = {}
    for choice in choices_in(log):
        kernel = Kernel(choice.operator, tuple(shape for shape in choice.shapes if shape))
        found.setdefault(kernel, []).append(choice.algorithm)
    return {kernel: " or ".join(dict.fromkeys(names)) for kernel, names in found.items()}
