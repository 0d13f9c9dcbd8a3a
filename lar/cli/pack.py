"""`lar pack MODEL -d DATA -o OUT` writes a model with testcases, and computes their outputs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lar.cli.arguments import declared
from lar.cli.screen import say
from lar.datasets.items import read_lines
from lar.datasets.testcases import source_of
from lar.engines import engine_for
from lar.errors import LarError, UsageError, check_text, count_of, writing
from lar.options.paths import Place, paths_in, refuse_clashes, split_items
from lar.options.rules import ONE_CHANNEL_ORDER, Asked, check_rules, excludes, fact, needs, typed
from lar.options.table import ALLOW_EXTERNAL_DATA, BY_KEY
from lar.running.plan import check_name, image_settings, plan_run, sizes_given

if TYPE_CHECKING:
    from lar.engines.engine import CasePacker
    from lar.records.events import Packed
    from lar.records.run import Packing, RunSpec

IMAGE_OPTIONS = ("input_layout", "resize", "mean", "scale", "bgr", "rgb", "seed")

RULES = (
    excludes(typed("--resize"), typed("--resize-input")).because(
        "each of them sets the size of the images"
    ),
    excludes(typed("--no-assert"), typed("--silent"), typed("--max-err")).because(
        "without expected outputs, a run has no errors to print or to limit"
    ),
    ONE_CHANNEL_ORDER,
    needs(
        (
            typed("--resize-input"),
            typed("--input-transform", default=""),
            typed("--repeat", default=1),
            *(BY_KEY[key] for key in IMAGE_OPTIONS if key != "seed"),
        ),
        any_of=(fact("data from files", lambda asked: bool(asked.values["files"])),),
    ).because(
        "random data already has the form that the model takes",
        "leave {first} out, or give a file with -d",
    ),
)


ARGUMENTS = (declared("pack"),)


def main(arguments: argparse.Namespace) -> int:
    """Pack the testcases and print what was packed; return the exit code."""
    data = read_lists(arguments.data)
    check_flags(arguments, data)
    spec, packer = plan_packing(arguments)
    # Imported here: an error in the command line should appear at once.
    from dataclasses import replace

    from lar.records.run import Packing

    packing = Packing(
        max_error=1e-4 if arguments.max_err is None else arguments.max_err,
        asserts=not arguments.no_assert,
        verbose=not arguments.silent,
        optimize=arguments.optimize,
        resize=arguments.resize_input,
        transform=arguments.input_transform,
        repeat=arguments.repeat,
    )
    spec = replace(
        spec,
        inputs=tuple(data),
        image=image_settings(vars(arguments)),
        seed=arguments.seed,
        shape=sizes_given(vars(arguments)),
    )
    read = paths_in([*[text.removeprefix("@") for text in arguments.data], *data])
    packed = write_packed(spec, packing, packer.writes, Path(arguments.output), read)
    for text in packed.warnings:
        say(f"lar: warning: {text}")
    for line in format_packed(arguments.output, packed):
        say(line, sys.stdout)
    return 0


def write_packed(
    spec: RunSpec, packing: Packing, kind: str, place: Path, read: Iterable[str]
) -> Packed:
    """Pack the testcases in a worker process, and move the new file or folder to `place`.

    Raises:
        UsageError: `place` cannot be written, or is a file that the command reads.
        LarError: the worker failed.
    """
    from lar.files.work_folders import error_of_full_disk
    from lar.records.events import Packed
    from lar.records.run import RunContext
    from lar.running.isolation import run_task
    from lar.running.steps import check_place, deliver, folder_beside

    with writing(place, "-o"):
        check_place(place, "-o", kind)
        refuse_clashes([Place(spec.model, what="the model"), Place(str(place), "-o")], read)
        with folder_beside(place, kind, "-o") as folder:
            written = Path(folder) / "written"
            names = {"--input": "-d"}
            context = RunContext(packing=packing, written={"pack": str(written)}, names=names)
            try:
                packed = run_task("pack", Packed, spec, context)
            except LarError as error:
                raise error_of_full_disk(folder) or error from None
            deliver(written, place, kind)
    return packed


def plan_packing(arguments: argparse.Namespace) -> tuple[RunSpec, CasePacker]:
    """Return the plan of the run that packs, and the engine's packer.

    Raises:
        UsageError: the model cannot be read or already has testcases, or its engine has no
            testcases.
        EngineMissing: the engine is not installed.
    """
    model = arguments.model
    check_name(model)
    if source_of(model).case_count:
        raise UsageError(
            "holds testcases already", "give a model file that contains no testcases", subject=model
        )
    engine = engine_for(Path(model), None)
    if engine.packing is None:
        raise UsageError(f"{engine.title} has no testcases", subject=model)
    values = {ALLOW_EXTERNAL_DATA.key: getattr(arguments, ALLOW_EXTERNAL_DATA.key)}
    if arguments.optimize and "optimize_for_inference" in engine.rows:
        values["optimize_for_inference"] = True
    # The options for images are left out: the rules of a run would refuse them without `--input`.
    return plan_run(model, {"iter": 0, "driver": engine.packing.driver, **values}), engine.packing


def check_flags(arguments: argparse.Namespace, data: Sequence[str]) -> None:
    """Refuse flags that break a rule, and files that cannot be the data of a testcase.

    Raises:
        UsageError: naming the flag.
    """
    for flag, text in (("-o", arguments.output), *(("-d", text) for text in data)):
        check_text(text, flag)
    check_transform(arguments.input_transform)
    files = [part for part in split_items(*data) if not part.startswith("#") and ":#" not in part]
    check_rules(RULES, Asked({**vars(arguments), "files": files}))
    if files:
        from lar.datasets.testcases import check_data  # few commands need it

        check_data(files)


def check_transform(expression: str) -> None:
    """Refuse an `--input-transform` that is not a Python expression, before loading anything.

    Raises:
        UsageError: the text is not a Python expression.
    """
    if not expression:
        return
    try:
        compile(expression, "--input-transform", "eval")
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"is not a Python expression: {error}",
            "an example of an expression: 'data / np.std(data)'",
            flag=f"--input-transform {expression!r}",
        ) from None


def read_lists(data: Sequence[str]) -> list[str]:
    """Return the texts of the testcases; each @LIST is replaced by the lines of the file LIST.

    Raises:
        UsageError: a list cannot be read, or is empty.
    """
    found = []
    for text in data:
        lines = [text]
        if text.startswith("@"):
            lines = [*filter(None, read_lines(text[1:], "-d @LIST", what="list", each="testcase"))]
        if not lines:
            raise UsageError("is empty", "write one testcase on each line", flag=f"-d {text}")
        found += lines
    return found


def format_packed(name: str, packed: Packed) -> Iterator[str]:
    """Yield the lines that report what was packed."""
    from lar.records.run import format_shape

    for number, case in enumerate(packed.fed):
        fed = (f"{it.name} {it.dtype} {format_shape(it.shape)} from {it.source}" for it in case)
        yield f"testcase {number}: {', '.join(fed)}"
    outputs = ", ".join(f"{it.name} {it.dtype} {format_shape(it.shape)}" for it in packed.outputs)
    yield f"{name}: {count_of(len(packed.fed), 'testcase')}; expected outputs: {outputs or 'none'}"
