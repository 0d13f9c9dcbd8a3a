"""`lar completion SHELL`: a script that lets a shell complete lar's commands, flags and values."""

from __future__ import annotations

import argparse

from lar.cli import COMMANDS, topics
from lar.cli.arguments import Parser, all_parsers, declared
from lar.cli.run_help import GROUPS

EPILOG = """\
to switch it on:
  bash  add to ~/.bashrc:  eval "$(lar completion bash)"
  zsh   lar completion zsh > DIR/_lar, in a folder of $fpath
  fish  lar completion fish > ~/.config/fish/completions/lar.fish
"""

# In shtab's script for zsh: the branch of the last command, and a branch for a model after it.
LAST_OF_ZSH = "version) _arguments -C -s $_shtab_lar_version_options ;;\n"
RUN_OF_ZSH = "        *) _arguments -C -s $_shtab_lar_run_options ;;\n"

# The names in the help for values that are files or folders.
FILES = frozenset({"FILE", "MODEL", "PROFILE", "OTHER", "A", "B", "OUT", "ITEMS", "DATA"})
FOLDERS = frozenset({"DIR"})


ARGUMENTS = (declared("completion"),)


def main(arguments: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    import shtab  # only this command needs it

    parser = parser_of_all()
    mark_files(parser, shtab.FILE, shtab.DIRECTORY)
    # In zsh only the words after a command are completed; `lar MODEL` is short for a run.
    print(shtab.complete(parser, arguments.shell).replace(LAST_OF_ZSH, LAST_OF_ZSH + RUN_OF_ZSH))
    return 0


def parser_of_all() -> Parser:
    """Return one parser that has all commands, and also the flags of `lar MODEL`."""
    flags = Parser(add_help=False, parents=[all_parsers()["run"]], conflict_handler="resolve")
    for action in [each for each in flags._actions if not each.option_strings]:
        flags._remove_action(action)  # the model: the command has its place
    whole = Parser(prog="lar", parents=[flags], conflict_handler="resolve")
    commands = whole.add_subparsers(metavar="COMMAND")
    for name, its in all_parsers().items():
        commands.add_parser(
            name, help=COMMANDS[name], parents=[its], add_help=False, conflict_handler="resolve"
        )
    return whole


def mark_files(parser: argparse.ArgumentParser, file: object, folder: object) -> None:
    """Mark the arguments that take a file, a folder, a topic or a group of options.

    If the parser has actions, such as `list` of `lar history`, the arguments of the actions are
    marked too.
    """
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for its in action.choices.values():
                mark_files(its, file, folder)
        elif action.metavar == "TOPIC":
            action.choices = [*COMMANDS, *topics()]
        elif action.metavar == "GROUP":
            action.choices = [*(group.name for group in GROUPS), "all"]
        elif action.metavar in FILES | FOLDERS:
            action.complete = file if action.metavar in FILES else folder  # type: ignore[attr-defined]
