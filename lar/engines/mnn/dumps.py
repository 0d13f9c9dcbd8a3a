"""Dumps of a session: the tensors of the model that it runs, as text or as files.

They come from a session of their own in which MNN keeps them all (`saveTensors`). Operators were
fused by the converter, not by the session, so that it runs the same kernels; they have the names
that the converter took from the `.onnx` file, and are in plain axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lar.dumps.binary import BY_DTYPE
from lar.dumps.facts import DumpFacts, OperatorFact, write_facts
from lar.dumps.layers import Dumped, text_writer, write_dumped
from lar.dumps.names import Numbering, Variable
from lar.dumps.outputs import write_outputs
from lar.options.table import BIN_IO_DUMP

if TYPE_CHECKING:
    from lar.engines.mnn.session import InterpreterDriver


class NetDump:
    """The tensors of a fed driver's model; `left_out` says why some are missing, in the end."""

    def __init__(self, driver: InterpreterDriver) -> None:
        self.driver = driver
        self.operators = driver.net.computed()
        taken = {name for each in self.operators for name in each.inputs}
        constants = [it for it in driver.net.operators if it.type == "Const"]
        self.constants = [name for it in constants for name in it.outputs if name in taken]
        self.numbering = Numbering(driver.arrays)
        self.numbering.add_constants(self.constants)
        for each in self.operators:
            self.numbering.add_node(each.type, each.name, each.inputs, each.outputs)
        self.numbering.add_constants(driver.net.outputs)
        self.left_out: dict[str, str] = {}

    def facts(self) -> DumpFacts:
        """Return what is known of the dump."""
        facts = [
            OperatorFact(self.numbering.variables[it.outputs[0]].operator_id, it.parameters)
            for it in self.operators
        ]
        return DumpFacts(
            facts, iteration=0, outputs=self.driver.net.outputs, left_out=self.left_out
        )

    def tensors(self) -> Iterator[Dumped]:
        """Yield the constants, the inputs, then what each operator gives."""
        makers = {name: each for each in self.operators for name in each.outputs}
        names = (*self.constants, *makers)
        session = self.driver.open_session(saveTensors=names)
        session.feed(self.driver.arrays)
        if session.run():
            raise self.driver.failure()
        variables = self.numbering.variables
        for name in (*self.constants, *self.driver.arrays, *makers):
            array = self.driver.arrays.get(name)
            if array is None:
                array = session.read(session.outputs[name]) if name in session.outputs else None
            if array is None or array.dtype.name not in BY_DTYPE:
                self.left_out[name] = "MNN keeps no values of it"
                continue
            variables[name] = replace(
                variables[name],
                shape=array.shape,
                stored=True,
                dtype=BY_DTYPE[array.dtype.name].name,
            )
            taken = makers[name].inputs if name in makers else ()
            yield Dumped(variables[name], tuple(variables[it] for it in taken), array)


def dump_tensors(driver: InterpreterDriver, _: object) -> None:
    """Write all tensors of a fed driver into a folder, and beside it what is known of operators."""
    if driver.runner:
        return
    folder = Path(driver.context.written[BIN_IO_DUMP.key])
    folder.mkdir()
    dump = NetDump(driver)
    write_facts(folder, dump.facts())
    for dumped in dump.tensors():
        write_dumped(folder, dumped)
    write_facts(folder, dump.facts())


def dump_text(driver: InterpreterDriver, _: object) -> None:
    """Write all tensors of a fed driver as text."""
    if driver.runner:
        return
    write = text_writer(driver.context.written)
    for dumped in NetDump(driver).tensors():
        write(dumped)


def dump_outputs(driver: InterpreterDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    names = driver.net.outputs
    write_outputs(driver, {name: Variable(id=at, name=name) for at, name in enumerate(names)})
