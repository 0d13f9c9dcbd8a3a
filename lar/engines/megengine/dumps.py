"""Writes the dumps of a lite network: the results of its operators, or only its outputs.

The results of operators are written as text or as tensors. In one run, lite can make only one dump
of operators, and lite writes this dump in every iteration. A later iteration appends its text to
the text dump, but overwrites the tensors of the previous iteration.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from lar.dumps import NO_FACTS, DumpFacts, Kernel, OperatorFact, keep_freed, read_facts, write_facts
from lar.engines.megengine.algorithms import ChoiceListener, algorithms_in
from lar.engines.megengine.graph_operators import parameters_of, read_quantizations
from lar.engines.megengine.symbols import attach_profiler
from lar.errors import LarError
from lar.options.table import BIN_IO_DUMP, CUDA, TEXT_DUMPS

if TYPE_CHECKING:
    from lar.engines.megengine.graph import GraphDriver
    from lar.engines.megengine.lite import LiteDriver

PROFILE = ".profile.json"
CHOICES = ".choices"


def compute_in_calling_thread(driver: LiteDriver, _: object) -> None:
    """Have the network compute in the calling thread, in which MegEngine writes the dump.

    If MegEngine computes in separate threads, the dump takes up to twenty times as long. The dumped
    numbers do not depend on the thread that computes them.
    """
    if driver.runner == 0 and not CUDA.is_given(driver.spec.settings):
        driver.network_setup.append(lambda network: network.enable_cpu_inplace_mode())


def dump_text(driver: LiteDriver, _: object) -> None:
    """For the first runner, have the engine write each operator's results as text."""
    if driver.runner == 0:
        written = driver.context.written
        place = next(written[dump.key] for dump in TEXT_DUMPS if dump.key in written)
        driver.network.io_txt_dump(place)


def dump_tensors(driver: LiteDriver, _: object) -> None:
    """For the first runner, have the engine write operators' results, each tensor in its own file.

    The engine's file names contain neither the parameters of the operators nor their order.
    Therefore lar writes facts about the operators, such as their order, into other files beside the
    dump.
    """
    if driver.runner == 0:
        folder = driver.context.written[BIN_IO_DUMP.key]
        os.mkdir(folder)
        keep_freed()  # the engine copies each tensor twice, which takes a third of the dump's time
        keep_choices(Path(folder + CHOICES))
        driver.network.io_bin_dump(folder)
        keep_operators(driver, Path(folder + PROFILE))
        facts = NO_FACTS
        # The files of tensors name quantised types without their scale and zero point.
        with contextlib.suppress(ValueError, LookupError, OSError, LarError, struct.error):
            facts = read_quantizations(driver.model_file)
        write_facts(Path(folder), facts._replace(outputs=[*driver.outputs()]))


def keep_operators(driver: LiteDriver, place: Path) -> None:
    """Write the engine's facts about operators into a file after the first iteration.

    The facts about operators do not change between iterations. If lar does not know the build of
    MegEngine, it cannot read the facts, and writes nothing.
    """
    read_profile = attach_profiler(driver.network)
    if read_profile is None:
        return

    def write() -> None:
        if place.exists():
            return
        profile = read_profile()
        if json.loads(profile)["host"]:  # the first execution of --fake-first runs no operator
            with contextlib.suppress(OSError):
                place.write_bytes(profile)

    driver.after_iteration = write


def keep_choices(place: Path) -> None:
    """From now on, write the engine's messages about chosen algorithms into a file."""
    file = place.open("ab", buffering=0)

    def write(message: bytes) -> None:
        with contextlib.suppress(OSError):
            file.write(message + b"\n")

    ChoiceListener(write).begin("--bin-io-dump")


def dump_outputs(driver: LiteDriver | GraphDriver, _: object) -> None:
    """Write the outputs of each iteration.

    With the graph driver, the outputs have the numbers that load_and_run prints. With the lite
    driver, the outputs are numbered from 0.
    """
    # Imported here, as the formats of dumps are slow to import and other dumps do not need them.
    from lar.dumps.binary import Variable
    from lar.dumps.recording import write_outputs

    if driver.name == "graph":
        found = driver.loaded.output_vars_list
        known = ((it.id, it.name, it.owner.name, it.owner.type) for it in found)
    else:
        known = ((number, name, "", "") for number, name in enumerate(driver.outputs()))
    variables = {
        name: Variable(id=number, name=name, operator=operator, operator_type=type)
        for number, name, operator, type in known
    }
    write_outputs(driver, variables)


def describe_dump(folder: Path) -> DumpFacts:
    """Return the facts about the operators whose tensors are in a folder."""
    algorithms: dict[Kernel, str] = {}
    with contextlib.suppress(OSError):  # the file of choices may be missing
        algorithms = algorithms_in(Path(str(folder) + CHOICES).read_text(errors="replace"))
    return read_facts(folder)._replace(operators=operators_of(folder), algorithms=algorithms)


def operators_of(folder: Path) -> list[OperatorFact]:
    """Return the operators whose tensors are in a folder, in the order of execution.

    The list is empty if no iteration has ended, since lar writes the facts after the first
    iteration.
    """
    try:
        profile = json.loads(Path(str(folder) + PROFILE).read_bytes())
        order, work = order_of(profile["host"]), profile["opr_footprint"]
        return [OperatorFact(int(it), parameters_of(work.get(it, {}).get("param"))) for it in order]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def order_of(times: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Return the operators in the order of their starts.

    `times` has the times of each operator in each thread. If an operator started in several
    threads, the earliest of these starts is used.
    """
    began = {key: min(each["start"] for each in threads.values()) for key, threads in times.items()}
    return sorted(began, key=began.__getitem__)
