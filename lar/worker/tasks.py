"""Tasks of a worker besides runs: reading a model, packing testcases, computing single tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from lar.datasets.testcase_data import feed_datum
from lar.engines import engine_named
from lar.errors import LarError, UsageError, first_line, writing
from lar.inputs import Array
from lar.inputs.dtypes import count_nonfinite
from lar.measurement.rows import SampleRows
from lar.records.events import Emit, Packed, PhaseEntered, TurnEnded
from lar.records.run import ModelInfo, Packing, RunContext, RunSpec
from lar.worker.execution import Copies, Feeder, explaining, summarize_outputs


def read_model_at(spec: RunSpec, context: RunContext, emit: Emit) -> ModelInfo:
    """Read the model file of a spec, for the input shapes that the spec gives."""
    engine, path = engine_named(spec.engine), Path(spec.model)
    feeder = Feeder(spec, engine.read_model(path).inputs, context.names, emit, [])
    shapes = {each.name: each.shape for each in feeder.feed_of_inputs().fed}
    return engine.read_model_at(path, shapes)


def pack(spec: RunSpec, context: RunContext) -> Packed:
    """Pack a testcase for each of the spec's `inputs`.

    Returns:
        The inputs of each testcase, the expected outputs, and warnings.

    Raises:
        LarError: the model does not load or fails, or the inputs do not fit the model.
    """
    packer, packing = engine_named(spec.engine).packing, context.packing or Packing()
    assert packer is not None
    copies = Copies(spec, context, [SampleRows.anonymous(len(spec.inputs))])
    (driver,) = copies.drivers
    copies.load()
    infos = driver.inputs()
    cases, fed, warnings = [], [], dict[str, None]()
    for number, text in enumerate(spec.inputs):
        feed = feed_datum(spec, packing, text, number, infos)
        outputs = compute(copies, feed.arrays) if packing.asserts else {}
        cases.append((dict(items_of(feed.arrays)), outputs))
        fed.append(feed.fed)
        warnings |= dict.fromkeys(feed.warnings)
        warnings |= dict.fromkeys(
            f"testcase {number}: the output {name} holds NaN or infinite values, which only "
            "lar takes for equal"
            for name, array in outputs.items()
            if count_nonfinite(array)
        )
    packer.write(driver, cases, context.written["pack"])
    return Packed(tuple(fed), tuple(summarize_outputs(cases[0][1])), tuple(warnings))


def items_of(given: Mapping[str, Array | list[Array]]) -> Iterator[tuple[str, Array]]:
    """Yield the names and arrays of inputs; each item of a sequence has its own name."""
    for name, value in given.items():
        if isinstance(value, list):
            yield from ((f"{name}[{at}]", each) for at, each in enumerate(value))
        else:
            yield name, value


def compute(copies: Copies, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs that the engine computes from the inputs.

    Raises:
        LarError: the engine fails.
        UsageError: an output is not an array of numbers.
    """
    (driver,) = copies.drivers
    with explaining(driver):
        copies.prepare(arrays)
        copies.run(1)
        outputs = {**driver.outputs()}
    for name, value in outputs.items():
        if isinstance(value, str):
            problem = f"output {name} is a {value.removeprefix('a ')}, which cannot be packed"
            raise UsageError(problem, "with --no-assert, lar packs only the inputs")
    return {name: np.array(value) for name, value in outputs.items()}


def compute_each(spec: RunSpec, context: RunContext, turns: Iterable[int], emit: Emit) -> None:
    """Load the model; then, in each turn that the parent gives, compute a tensor from given values.

    If a tensor fails, the later tensors are computed anyway. The parent writes the request of a
    turn into the work folder. The file `asked.json` has the name of the tensor and the names of the
    values; the values are in the files `0.npy`, `1.npy` and so on. The answer is written to
    `answer.npy`. If a request names no tensor, nothing is computed: the answer lists which of the
    named values are not in the graph.

    Raises:
        LarError: the model does not load.
    """
    engine = engine_named(spec.engine)
    isolation = engine.isolation(engine.make_driver(spec, context))
    emit(PhaseEntered("prepare"))
    folder = Path(context.work_folder)
    for _ in turns:
        asked = json.loads((folder / "asked.json").read_bytes())
        problem = ""
        try:
            if asked["output"]:
                places = enumerate(asked["values"])
                values = {name: np.load(folder / f"{at}.npy") for at, name in places}
                answer = isolation.compute(asked["output"], values)
            else:
                answer = np.array(sorted(isolation.find_missing(asked["values"])), str)
            with writing("what it gives"):
                np.save(folder / "answer.npy", answer)
        except LarError as error:
            problem = error.message
        except Exception as error:
            problem = first_line(error)
        emit(TurnEnded(problem))
