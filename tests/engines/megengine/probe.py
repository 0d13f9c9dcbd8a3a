"""Functions that use an engine in processes of their own and write what it gave.

The question that `main` takes is JSON: the driver, model and settings, and what to write. The
answer is written to facts.json in the current folder, the engine's text dump to dump.txt.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lar.engines import engine_named
from lar.measurement.loop import take_samples
from lar.measurement.rows import SampleRows
from lar.records.run import RunSpec


def read_threads() -> dict[str, str]:
    """Return the cores that each thread of this process may use."""
    threads = {}
    for task in sorted(Path("/proc/self/task").iterdir(), key=lambda task: int(task.name)):
        (line,) = re.findall(r"Cpus_allowed_list:\s*(\S+)", (task / "status").read_text())
        threads[task.name] = line
    return threads


def describe_operator(operator: Any) -> dict[str, Any]:
    """Describe an operator of the graph driver, by its first output."""
    parameters = json.loads(operator.params) if operator.params else {}
    if not isinstance(parameters, dict):
        parameters = {}
    (variable, *_) = operator.outputs
    return {
        "type": operator.type,
        "format": parameters.get("format"),
        "nonlinearity": parameters.get("nonlineMode"),
        "dtype": np.dtype(variable.dtype).name,
    }


def read_memory(function: Any) -> list[tuple[int, int]]:
    """Return where the chunks of a compiled graph are, and how large."""
    folder = Path("static")
    folder.mkdir()
    function.get_static_memory_alloc_info("static/x")
    # It writes beside the name that it is given.
    chunks = json.loads((folder / "graph.json").read_text())["mem_chunk"]
    return [(chunk["dev_ptr"], chunk["size"]) for chunk in chunks.values()]


def main(question: str) -> None:
    """Use a driver as a worker does, and write what it gave."""
    asked = json.loads(question)
    name, count = asked["driver"], asked["iterations"]
    spec = RunSpec(
        model=asked["model"], engine=asked["engine"], driver=name, settings=asked["settings"]
    )
    driver: Any = engine_named(spec.engine).make_driver(spec)
    before = read_threads()
    driver.load()
    random = np.random.RandomState(0)
    shapes = {info: [size or 1 for size in info.shape] for info in driver.inputs()}
    feeds = {it.name: (random.rand(*shape) * 10).astype(it.dtype) for it, shape in shapes.items()}
    if asked["dump"]:
        driver.network.io_txt_dump("dump.txt")
    driver.feed(feeds)
    rows = SampleRows.anonymous(count)
    outputs = []
    for _ in range(count):
        take_samples(driver, 1, rows, None)
        outputs.append({key: np.array(array).tolist() for key, array in driver.outputs().items()})
    facts: dict[str, Any] = {
        "new_threads": [cores for thread, cores in read_threads().items() if thread not in before],
        "calling_thread": read_threads()[str(os.getpid())],
        "times": [times[:2] for times in rows.times(0, count)],
        "outputs": outputs,
    }
    if name == "graph":
        found = driver.tools.get_oprs_seq(
            driver.output_vars, prune_reshape=False, prune_immtensor=False
        )
        facts["operators"] = [describe_operator(operator) for operator in found]
        facts["memory"] = read_memory(driver.start.__self__) if count else []
    Path("facts.json").write_text(json.dumps(facts))
    sys.stdout.flush()
    os._exit(0)  # as a worker ends


def say_with_tool(tool: str, *commands: Sequence[str]) -> list[str]:
    """Return what a tool of MegEngine prints for each of some command lines."""
    main = importlib.import_module(f"megengine.tools.{tool}").main
    said = []
    for words in commands:
        sys.argv = [tool, *words]
        with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main()
        said.append(printed.getvalue())
    return said


class Slow(logging.Filter):
    """Lets each line of a log pass after a while."""

    def filter(self, record: logging.LogRecord) -> bool:
        time.sleep(0.005)
        return True


def print_slowly(model: str) -> None:
    """Run a model with the graph driver and close it, while each line of its log takes long."""
    settings: dict[str, Any] = {"verbose": True}
    spec = RunSpec(model=model, engine="megengine", driver="graph", settings=settings)
    driver: Any = engine_named("megengine").make_driver(spec)
    logging.getLogger("megbrain").addFilter(Slow())
    driver.load()
    driver.feed({info.name: np.zeros(info.shape, info.dtype) for info in driver.inputs()})
    take_samples(driver, 1, SampleRows.anonymous(1), None)
    driver.close()
    os._exit(0)


def keep_output(model: str, layout: str, fix: str, path: str) -> None:
    """Run a model once on the input that is the same each time and write its first output, with
    the engine's own options for layouts, and with the fix of lar or without."""
    from lar.engines.megengine.lite import import_lite
    from lar.engines.megengine.symbols import apply_fix

    lite = import_lite()
    if fix:
        apply_fix()
    config = lite.LiteConfig(device_type=lite.LiteDeviceType.LITE_CPU)
    if layout:
        assert hasattr(config.options, f"enable_{layout}")
        setattr(config.options, f"enable_{layout}", 1)
    network = lite.LiteNetwork(config=config)
    network.load(model)
    random = np.random.RandomState(0)
    for name in network.get_all_input_name():
        tensor = network.get_io_tensor(name)
        data = random.rand(*tensor.layout.shapes).astype(np.dtype(tensor.layout.dtype))
        tensor.set_data_by_copy(data)
    network.forward()
    network.wait()
    np.save(path, network.get_io_tensor(network.get_all_output_name()[0]).to_numpy())
    os._exit(0)  # without the library's destructors
