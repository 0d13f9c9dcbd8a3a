"""Dumps of a session: the tensors of the model that it runs, as text or as files.

They come from a session of their own in which MNN keeps them all (`saveTensors`). Operators were
fused by the converter, not by the session, so that it runs the same kernels; they have the names
that the converter took from the `.onnx` file, and are in plain axes.
"""

from __future__ import annotations

from lar.dumps.recording import Layer, dump_layers, number_outputs, write_outputs
from lar.engines.mnn.session import InterpreterDriver


def dump_net(driver: InterpreterDriver, _: object) -> None:
    """Write all tensors of a fed driver, and what is known of operators."""
    if driver.runner:
        return
    operators = driver.net.computed()
    taken = {name for each in operators for name in each.inputs}
    constants = [it for it in driver.net.operators if it.type == "Const"]
    weights = [name for it in constants for name in it.outputs if name in taken]
    made = [name for each in operators for name in each.outputs]
    session = driver.open_session(saveTensors=(*weights, *made))
    session.feed(driver.arrays)
    if session.run():
        raise driver.failure()
    dump_layers(
        driver,
        driver.arrays,
        (
            Layer(it.name, it.type, it.inputs, session.values_of(it.outputs), it.parameters)
            for it in operators
        ),
        driver.net.outputs,
        constants=session.values_of(weights),
    )


def dump_outputs(driver: InterpreterDriver, _: object) -> None:
    """Have the outputs of each iteration written."""
    write_outputs(driver, number_outputs(driver.net.outputs))
