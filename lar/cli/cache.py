"""`lar cache`: fast-run cache files shown, compared, merged and edited.

What the actions do is in `cached_algorithms`, for the caches of ONNX Runtime in `cached_model`.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="show|diff|merge|pick", required=True)

    def add(name: str, run: str, text: str) -> argparse.ArgumentParser:
        action: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text, allow_abbrev=False
        )
        action.set_defaults(run=run, parser=action)
        action.add_argument("--debug", action="store_true", help="show the traceback of an error")
        return action

    show = add("show", "show_cache", "the algorithm chosen for each operator, and the next best")
    show.add_argument("file", metavar="FILE", help="a fast-run cache file")
    show.add_argument(
        "--operator",
        metavar="TEXT",
        default="",
        help="only the one of this number, or those with this in name or shapes",
    )
    show.add_argument("--all", action="store_true", help="every algorithm that was kept")
    show.add_argument("--json", metavar="FILE", help="write it as JSON; - is standard output")

    diff = add("diff", "diff_caches", "operators of one file only, and other choices; 0: the same")
    diff.add_argument("first", metavar="A", help="a fast-run cache file")
    diff.add_argument("second", metavar="B", help="another one")

    merge = add(
        "merge", "merge_files", "add the operators of all files to OUT; the later file wins"
    )
    merge.add_argument("files", metavar="FILE", nargs="+", help="fast-run cache files")
    merge.add_argument("-o", "--output", metavar="OUT", required=True, help="the file to add to")

    pick = add("pick", "pick_algorithm", "choose the algorithm of one operator by hand")
    pick.add_argument("file", metavar="FILE", help="the fast-run cache file to edit")
    pick.add_argument(
        "operator", metavar="OP", help="its number in `show`, or a piece of its name or shapes"
    )
    pick.add_argument("algorithm", metavar="ALGORITHM", help="its name, or a piece of it")
    pick.add_argument("-o", "--output", metavar="OUT", help="add it to OUT and leave FILE as it is")


def main(arguments: argparse.Namespace) -> int:
    """Do what the action says; return the exit code."""
    # Not before: an error in the command line should cost no more than it must.
    from lar.cli import cached_algorithms

    code: int = getattr(cached_algorithms, arguments.run)(arguments)
    return code
