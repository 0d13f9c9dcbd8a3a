"""Errors: each tells its exit code, and a mistyped word finds its neighbour."""

from __future__ import annotations

from typing import get_args

from lar.errors import (
    EXIT_CODES,
    CheckFailed,
    EngineMissing,
    LarError,
    UsageError,
    first_line,
    kind_of_error,
    out_of_address_space,
    says_out_of_memory,
)
from lar.records.run import Status


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
    assert first_line(ValueError("x" * 400)) == "x" * 300


def test_memory_that_was_refused_is_known_by_its_words() -> None:
    texts = ("std::bad_alloc", "Cannot Allocate Memory", "no such file")
    assert [says_out_of_memory(text) for text in texts] == [True, True, False]


def test_the_limit_of_the_address_space_is_in_the_hint() -> None:
    error = out_of_address_space(3 << 20)
    assert (error.exit_code, "limit of the address space" in error.message) == (4, True)
    assert error.hint == "the limit is 3 MiB: raise it with ulimit -v unlimited"
