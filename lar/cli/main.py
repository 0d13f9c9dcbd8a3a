"""The entry point of the command line, which runs the command and prints every error."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from lar.cli import COMMANDS, PAGES, load_command, other_way, overview
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
from lar.options.suggestions import hint_after, nearest_spelling, suggest_flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from lar.cli.arguments import Parser

STDOUT = "standard output"
# One thread for NumPy in this process, which computes little: threads that get no memory would wait
# for ever. Child processes get `os.environ`, which does not have this variable.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "1")
# The garbage collector looks for cycles after this many new objects. A command leaves hardly any
# cycles, and each look passes through all results in memory.
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
            code = dispatch(words, is_shell=argv is None)
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
    except Exception as error:  # a defect of lar is printed as one line too
        if debug:
            print_traceback()
        print_error(*explain_refusal(error))
        if isinstance(error, OSError) and error.filename == STDOUT:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
        return LarError.exit_code


def explain_refusal(error: Exception) -> tuple[str, str]:
    """Return message and hint for an error of the operating system, or for a defect of lar."""
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
        return f"the system refuses to open more files: {reason}", "raise the limit: ulimit -n 256"
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


def dispatch(words: list[str], *, is_shell: bool) -> int:
    """Find the command, parse its flags and run it; return the exit code.

    If `is_shell` is true, this process is the program `lar`, and interrupts are handled.
    """
    if not words:
        print(SHORT_HELP)
        return 2
    if words[0] in ("-h", "--help") or words == ["help"]:
        print(overview())
        return 0
    name, rest = ("version", []) if words[0] == "--version" else command_of(words)
    flag, group, *_ = [*rest, "", ""]
    if name == "run" and flag in ("-h", "--help") and not group.startswith("-"):
        from lar.cli.run_help import print_run_help  # which needs no parser

        print_run_help(group)
        return 0
    from lar.cli.arguments import MAX_FILE_SIZE, normalize_flags, parser_of  # slow to import
    from lar.files.input_file import VARIABLE

    arguments, unknown = parser_of(name).parse_known_args(normalize_flags(rest))
    if unknown:
        # A command with several actions has a parser for each action.
        first = min(unknown, key=lambda it: not it.startswith("-"))  # a flag, if there is one
        refuse_unknown(first, words, arguments.parser, load_command(name))
    if (most := vars(arguments).get(MAX_FILE_SIZE)) is not None:
        os.environ[VARIABLE] = str(most)
    if is_shell:  # until now an interrupt had nothing to clean up
        from lar.running.interrupts import heed_interrupts

        heed_interrupts()
        gc.freeze()  # objects made so far stay to the end
        gc.enable()
    # A debugger adds threads to this process, which a fork would lack.
    arguments.can_be_copied = is_shell and len(sys._current_frames()) == 1
    code: int = load_command(name).main(arguments)
    return code


def command_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the command of a command line, and the arguments after it.

    The command of `lar MODEL` is "run".

    Raises:
        UsageError: the first word is neither a command nor a model nor a flag.
    """
    first = words[0]
    if first in COMMANDS:
        return first, words[1:]
    if first.startswith("-") or "." in first or os.sep in first or os.path.exists(first):
        return "run", words
    near = nearest_spelling(first, COMMANDS) or nearest_spelling(first, PAGES)
    meant = near if near in COMMANDS else f"help {near}"
    hint = other_way("commands", first) or (f"did you mean `lar {meant}`?" if near else "")
    raise UsageError(
        f"unknown command {first!r}",
        hint or "`lar help` lists the commands; `lar FILE` runs a model",
    )


def refuse_unknown(word: str, words: list[str], parser: Parser, command: ModuleType) -> NoReturn:
    """Refuse a word of a command line that the command does not accept.

    The hint names a similar flag, or a command that accepts the word.

    Raises:
        UsageError: always.
    """
    flag = word.partition("=")[0]
    flags = [name for action in parser._actions for name in action.option_strings]
    flags += ["--version"] * (word == words[0])
    if not word.startswith("-"):
        from lar.engines.formats import FORMATS

        hint = hint_after(words, word)
        if parser.prog == "lar run" and any(word.endswith(each.suffixes) for each in FORMATS):
            hint = "`lar bench` compares the times of models, `lar compare` their numbers"
        raise UsageError(f"{word!r} is one argument too many", hint)
    if flag in flags:
        raise UsageError("stands after --, where no flag may stand", "leave the -- out", flag=flag)
    from lar.options.table import option_of  # not for other errors: some commands need no table

    hint = other_way(command.__name__.rpartition(".")[2], flag) or suggest_flag(flag, flags)
    known = option_of(flag.lstrip("-").replace("-", "_"))
    if hasattr(command, "hint_at"):
        hint = command.hint_at(known, hint)
    taken = "`lar run` takes it; " if known else ""
    lists = f"{taken}`{parser.prog} --help{' all' * (parser.prog == 'lar run')}` lists the flags"
    raise UsageError(f"unknown flag {flag}", hint or lists)


def print_error(message: str, hint: str) -> None:
    """Print an error on one line and its hint on the next, after flushing standard output."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):  # the exit code still reports the error
        print(f"lar: error: {one_line(message)}", file=sys.stderr)
        if hint:
            print(f"hint: {one_line(hint)}", file=sys.stderr)


def print_traceback(detail: str = "") -> None:
    """Print the traceback of the current error.

    If the error was raised in another process, `detail` is the traceback from that process. lar
    prints both tracebacks.
    """
    import traceback

    print(printable_lines(traceback.format_exc() + detail), end="", file=sys.stderr)


class StandardOutput(io.FileIO):
    """Standard output that adds its name to the error of a failed write."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STDOUT
            raise


def replace_streams() -> None:
    """Replace closed standard streams by the null device, and set how open streams treat errors.

    A character that the terminal's encoding lacks is printed as an escape. If standard output
    cannot be written, the error names standard output.
    """
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
    """Run the command line of this process, and end the process."""
    gc.set_threshold(MANY_OBJECTS)
    if ONE_THREAD[0] not in os.environ:
        os.putenv(*ONE_THREAD)
    replace_streams()
    try:
        code = main()
    except KeyboardInterrupt:  # before the command began, or while it printed an error
        print_error("interrupted", "")
        code = EXIT_CODES["interrupted"]
    # Not sys.exit: nothing is left to save, and to free all modules would take as long as to
    # parse the command line.
    os._exit(code)
