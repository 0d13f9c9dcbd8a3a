"""Errors: each tells its exit code, and a mistyped word finds its neighbour."""

from __future__ import annotations

import errno
import os
from typing import get_args

from lar.errors import (
    EXIT_CODES,
    CheckFailed,
    EngineMissing,
    LarError,
    UsageError,
    check_text,
    count_of,
    error_of_write,
    first_line,
    join_first,
    kind_of_error,
    memory_error,
    one_line,
    out_of_address_space,
    printable,
    printable_lines,
    says_out_of_memory,
)
from lar.records.run import Status
from tests.known import known
from tests.refusals import refused


def test_each_error_has_its_exit_code() -> None:
    codes = {LarError: 4, CheckFailed: 1, UsageError: 2, EngineMissing: 3}
    assert {kind: kind("what is wrong").exit_code for kind in codes} == codes
    assert str(LarError("what is wrong", "what to do")) == "what is wrong"


def test_each_exit_code_of_a_failure_has_its_error() -> None:
    for code in (1, 2, 3, 4, 124, 130):
        error = kind_of_error(code)("what", "hint", "detail")
        assert (error.exit_code, error.message, error.hint) == (code, "what", "hint")
        assert error.detail == "detail"


def test_each_status_of_a_run_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(get_args(Status))


def test_an_error_is_one_line() -> None:
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError(" padded ")) == "padded"
    assert first_line(ValueError()) == "ValueError"
    assert first_line(MemoryError()) == "out of memory"
    assert first_line(ValueError("x" * 400)) == "x" * 300
    assert one_line(" a\n\tb \x1b") == "a b \\u001b"
    assert one_line("x" * 800) == "x" * 800
    assert one_line("a" * 650 + "b" * 151) == "a" * 600 + " ... " + "b" * 150


def test_texts_are_printable() -> None:
    assert printable("gr\u00fc\u00df\t\x1b\u2028") == "gr\u00fc\u00df\\t\\u001b\\u2028"
    assert printable_lines("a\tb\n\x07c\n") == "a\tb\n\\u0007c\n"


def test_numbers_have_their_nouns_and_long_lists_are_cut() -> None:
    assert [count_of(it, "core") for it in (0, 1, 2)] == ["0 cores", "1 core", "2 cores"]
    assert [join_first("abc"), join_first("abcde", "; ")] == ["a, b, c", "a; b; c; 2 more"]


def test_what_cannot_be_written_is_an_error_of_the_user_unless_the_disk_is_full() -> None:
    full, denied = (OSError(it, os.strerror(it)) for it in (errno.ENOSPC, errno.EACCES))
    error = error_of_write(denied, flag="--json", subject="a")
    assert (type(error), error.hint) == (UsageError, "choose another place")
    assert error.message == "--json: a: cannot be written: permission denied"
    error = error_of_write(full, subject="a")
    assert (error.exit_code, error.hint) == (4, "make room on the disk")


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    check_text("gr\u00fc\u00df")
    error = refused("", check_text, "a\udcff", "--input")
    assert (error.message, error.hint) == ("--input: 'a\\udcff': is not UTF-8", "rename the file")


def test_a_process_without_memory_says_so() -> None:
    unmapped = ImportError("a.so: failed to map segment from shared object")
    caused, later = ValueError("no"), ValueError("no")
    caused.__cause__, later.__context__ = MemoryError(), unmapped
    for error, said in (
        (MemoryError(), "out of memory"),
        (RuntimeError("failed to map segment"), "out of memory"),
        (unmapped, f"out of memory for a library: {unmapped}"),
        (caused, "out of memory"),
        (later, "out of memory"),
    ):
        found = known(memory_error(error))
        assert found.message == said
        assert found.hint == "close other programs, or raise the memory limit: ulimit -v unlimited"
    assert memory_error(ValueError("no")) is memory_error(LarError("out of memory")) is None


def test_memory_that_was_refused_is_known_by_its_words() -> None:
    texts = ("std::bad_alloc", "Cannot Allocate Memory", "no such file")
    assert [says_out_of_memory(text) for text in texts] == [True, True, False]


def test_the_limit_of_the_address_space_is_in_the_hint() -> None:
    error = out_of_address_space(3 << 20)
    assert (error.exit_code, "limit of the address space" in error.message) == (4, True)
    assert error.hint == "the limit is 3 MiB: raise it with ulimit -v unlimited"
