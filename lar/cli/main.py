"""The command line: chooses the command, and is the only place that prints errors."""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import io
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from lar.cli.arguments import COMMANDS, MAX_FILE_SIZE, load_command, other_way, parser_of
from lar.errors import (
    EXIT_CODES,
    NO_ROOM,
    LarError,
    UsageError,
    memory_error,
    one_line,
    printable_lines,
    reason_of_write,
)
from lar.files.input_file import VARIABLE
from lar.options.suggestions import nearest_spelling, suggest_flag
from lar.running.interrupts import heed_interrupts

STDOUT = "standard output"
# For NumPy in this process, which computes little: threads without memory would wait for ever.
# Processes that it starts get `os.environ`, which lacks it.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")
# The objects that are made before cycles of them are looked for. A command leaves hardly any, and
# each look passes through all results that were read.
MANY_OBJECTS = 10_000

SHORT_HELP = """\
usage: lar MODEL [--input FILE] [--iter N] [flags]
       lar COMMAND ...

  lar models/mobilenet_v2.mge --input inputs/cat.npy --iter 10

`lar help` lists the commands and the topics of the manual, `lar run --help` the flags of a run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        try:
            code = dispatch(words)
        except SystemExit as leaving:  # argparse has printed a help text
            code = leaving.code if isinstance(leaving.code, int) else 0
        sys.stdout.flush()
        return code
    except LarError as error:
        if debug:
            print_traceback(error.detail)
        print_error(error.message, error.hint)
        return error.exit_code
    except KeyboardInterrupt:
        print_error("interrupted", "")
        return EXIT_CODES["interrupted"]
    except BrokenPipeError:
        # The program that reads our output has gone (`lar ... | head`).
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        return 141
    except Exception as error:  # a defect too ends as one line
        if debug:
            print_traceback()
        print_error(*explain_refusal(error))
        if isinstance(error, OSError) and error.filename == STDOUT:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        return LarError.exit_code


def explain_refusal(error: Exception) -> tuple[str, str]:
    """Return what the system refused, and what to do about it; any other error is a defect."""
    if refused := memory_error(error):
        return refused.problem, refused.hint
    if not isinstance(error, OSError):
        return f"{type(error).__name__}: {error}", "this is a defect of lar; --debug shows where"
    reason = (error.strerror or str(error)).lower()
    if error.filename == STDOUT:
        return f"{STDOUT} cannot be written: {reason}", ""
    if error.errno == errno.ENOENT and not has_folder():
        return "the current folder does not exist any more", "change to a folder that exists"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"the system refuses to open more: {reason}", "raise the limit: ulimit -n 256"
    if error.errno in NO_ROOM:
        reason, hint = reason_of_write(error)
        return f"{error.filename or 'a file'} cannot be written: {reason}", hint
    what = "the system refused" if error.filename is None else error.filename
    return f"{what}: {reason}", "--debug shows where"


def has_folder() -> bool:
    """Return whether the current folder exists."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def dispatch(words: list[str]) -> int:
    """Find the command, parse its flags and run it."""
    if not words:
        print(SHORT_HELP)
        return 2
    if words[0] in ("-h", "--help", "--version"):
        words = ["version" if words[0] == "--version" else "help"]
    name, rest = command_of(words)
    arguments, unknown = parser_of(name).parse_known_args(normalize_flags(rest))
    if unknown:
        # A command of several actions has a parser for each of them.
        refuse_unknown(unknown[0], arguments.parser, load_command(name))
    if (most := vars(arguments).get(MAX_FILE_SIZE)) is not None:
        os.environ[VARIABLE] = str(most)
    code: int = load_command(name).main(arguments)
    return code


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the command of a command line and the words after it; `lar MODEL` is a run.

    Raises:
        UsageError: the first word is neither a command nor a model nor a flag.
    """
    first = words[0]
    if first in COMMANDS:
        return first, words[1:]
    if first.startswith("-") or "." in first or os.sep in first or os.path.exists(first):
        return "run", words
    near = nearest_spelling(first, COMMANDS)
    hint = other_way("commands", first) or (f"did you mean `lar {near}`?" if near else "")
    raise UsageError(
        f"unknown command {first!r}",
        hint or "`lar help` lists the commands; a model is a file: `lar FILE`",
    )


def normalize_flags(words: list[str]) -> list[str]:
    """Return the words as the parser wants them, up to a `--`: flags as declared, and a value
    that begins with a minus, as in `--mean -1,2`, joined to its flag."""
    normal: list[str] = []
    for index, word in enumerate(words):
        if word == "--":
            return normal + words[index:]
        if re.match(r"-[\d.]", word) and normal and re.fullmatch(r"--[a-z-]+", normal[-1]):
            normal[-1] += "=" + word
        else:
            normal.append(normalize_flag(word))
    return normal


def normalize_flag(word: str) -> str:
    """Return a flag as it is declared: `--warmup_iter=1` is `--warmup-iter=1`, and the device
    number of `--cuda` and `--cuda:1` becomes its value."""
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    flag = flag.replace("_", "-")
    if flag.startswith("--cuda:") and not equals:
        return "--cuda=" + flag.partition(":")[2]
    return "--cuda=0" if flag + equals == "--cuda" else flag + equals + value


def refuse_unknown(word: str, parser: argparse.ArgumentParser, command: ModuleType) -> NoReturn:
    """Refuse a flag or word that the command does not take, naming the flag that was meant.

    Raises:
        UsageError: always.
    """
    flag = word.partition("=")[0]
    flags = [name for action in parser._actions for name in action.option_strings]
    if not word.startswith("-"):
        raise UsageError(f"{word!r} is one argument too many", "flags begin with --")
    if flag in flags:
        raise UsageError("stands after --, where no flags do", "leave the -- out", flag=flag)
    hint = other_way(command.__name__.rpartition(".")[2], flag) or suggest_flag(flag, flags)
    if hasattr(command, "hint_at"):
        hint = command.hint_at(flag, hint)
    raise UsageError(f"unknown flag {flag}", hint or f"`{parser.prog} --help` lists the flags")


def print_error(message: str, hint: str) -> None:
    """Print an error as one line, and what to do as another, after what was printed before."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # the exit code says it all the same
        print(f"lar: error: {one_line(message)}", file=sys.stderr)
        if hint:
            print(f"hint: {one_line(hint)}", file=sys.stderr)


def print_traceback(detail: str = "") -> None:
    """Print the traceback of the current error, and the one that it had in another process."""
    import traceback

    print(printable_lines(traceback.format_exc() + detail), end="", file=sys.stderr)


class StandardOutput(io.FileIO):
    """Standard output whose errors name it; else they could be those of any file."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STDOUT
            raise


def replace_streams() -> None:
    """Replace closed standard streams, write names that the terminal's encoding lacks as escapes,
    and have errors of standard output say so."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
        elif name == "stdout":
            sys.stdout = io.TextIOWrapper(
                io.BufferedWriter(StandardOutput(stream.fileno(), "w", closefd=False)),
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=stream.line_buffering,
            )
        else:
            stream.reconfigure(errors="backslashreplace")


def run_from_shell() -> NoReturn:
    """The `lar` command."""
    gc.set_threshold(MANY_OBJECTS)
    if ONE_THREAD[0] not in os.environ:
        os.putenv(*ONE_THREAD)
    replace_streams()
    try:
        heed_interrupts()
        code = main()
    except KeyboardInterrupt:  # before the command began, or while it printed an error
        print_error("interrupted", "")
        code = EXIT_CODES["interrupted"]
    # Not sys.exit: there is nothing left to save, and freeing all that was loaded takes as long
    # as parsing the command line did.
    os._exit(code)
