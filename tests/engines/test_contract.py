"""What every driver of every engine does: one contract, on the committed models.

The drivers run in processes of their own, one for each, since importing MegEngine changes how
this process computes (it takes subnormal numbers for zero). In such a process this file is the
program:

    python tests/engines/test_contract.py DRIVER SCRIPT OUTPUTS.npz > FACTS.json
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lar
from lar.engines import added_engines, engine_named
from lar.measurement.loop import take_samples
from lar.measurement.rows import SampleRows
from lar.records.run import RunSpec, record_to_json
from tests.engines.added import install_toy

Array = npt.NDArray[Any]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MODELS = REPOSITORY / "models"
INPUTS = REPOSITORY / "inputs"

# Each driver: its engine and the suffix of the models it runs.
DRIVERS: Mapping[str, tuple[str, str]] = {
    "lite": ("megengine", ".mge"),
    "graph": ("megengine", ".mge"),
    "session": ("onnxruntime", ".onnx"),
    "script": ("fake", ".fake"),
    "evaluator": ("reference", ".onnx"),
    "reference": ("toy", ".onnx"),  # of another package
}
REAL = [name for name in DRIVERS if name != "script"]
SCRIPT = {
    "inputs": [{"name": "data", "dtype": "float32", "shape": [2]}],
    "outputs": {"sum": [0.5], "prob": [0.25, 0.75]},
    "times": [[0.25, 0.125, 0.1875]],
}
ITERATIONS = 3


def draw(*shape: int) -> Array:
    return np.random.RandomState(len(shape)).randn(*shape).astype(np.float32)


def read_digits() -> Array:
    digits: Array = np.load(INPUTS / "digits.npy")
    return digits


# Each case: a model and what it is fed.
CASES: Mapping[str, tuple[str, Callable[[], dict[str, Array]]]] = {
    "digits": ("digits_cnn", lambda: {"data": read_digits()}),
    "one digit": ("digits_cnn", lambda: {"data": read_digits()[:1]}),
    "int8": ("int8", lambda: {"data": read_digits()}),
    "uint8": ("uint8_input", lambda: {"data": (draw(1, 224, 224, 3) * 50).astype(np.uint8)}),
    "multi_input": ("multi_input", lambda: {"a": draw(2, 3), "b": draw(3, 4)}),
    "batch of 1": ("dynamic_batch", lambda: {"data": draw(5, 16)[:1]}),
    "batch of 5": ("dynamic_batch", lambda: {"data": draw(5, 16)}),
    "one_operator": ("one_operator", lambda: {"data": np.array([-1, 0, 1, 2], np.float32)}),
}
each_case = pytest.mark.parametrize("case", CASES)
each_driver = pytest.mark.parametrize("driver", REAL)


def drive(model: Path, driver_name: str, feeds: Mapping[str, Array]) -> dict[str, Any]:
    """Use a driver as a worker does, and say what it gave."""
    engine = DRIVERS[driver_name][0]
    spec = RunSpec(model=str(model), engine=engine, driver=driver_name)
    driver = engine_named(engine).make_driver(spec)
    facts = driver.facts()
    driver.load()
    infos = driver.inputs()
    driver.feed(feeds)
    # Each measurement begins with a collection of garbage, which need not look at all there is.
    gc.freeze()
    rows, meter = SampleRows.anonymous(2 * ITERATIONS), driver.meter()
    take_samples(driver, ITERATIONS, rows, meter)
    first = {name: np.array(array) for name, array in driver.outputs().items()}
    take_samples(driver, ITERATIONS, rows, meter)
    outputs = {name: np.array(array) for name, array in driver.outputs().items()}
    driver.close()
    return {
        "facts": asdict(facts),
        "inputs": [json.loads(record_to_json(info)) for info in infos],
        "rows": [rows.row(index) for index in range(rows.count)],
        "device_is_measured": driver.device_seconds is not None,
        "unchanged": all(np.array_equal(first[name], outputs[name]) for name in outputs),
        "outputs": outputs,
    }


def main(driver_name: str, script: str, output_file: str) -> None:
    """Drive all cases twice, each time with a driver of its own."""
    outputs, told = {}, {}
    cases: dict[str, tuple[Path, dict[str, Array]]] = {
        case: (MODELS / (model + DRIVERS[driver_name][1]), feeds())
        for case, (model, feeds) in CASES.items()
    }
    if driver_name == "script":
        cases = {"script": (Path(script), {"data": np.zeros(2, np.float32)})}
    for case, (model, feeds) in cases.items():
        for turn in (0, 1):
            found = drive(model, driver_name, feeds)
            outputs.update(
                {f"{case}/{turn}/{name}": array for name, array in found.pop("outputs").items()}
            )
            told[f"{case}/{turn}"] = found
    np.savez(output_file, **outputs)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])


class Driven:
    """What a driver gave in its process."""

    def __init__(self, told: dict[str, dict[str, Any]], arrays: Mapping[str, Array]) -> None:
        self.told = told
        self._arrays = dict(arrays)

    def outputs(self, case: str, turn: int = 0) -> dict[str, Array]:
        begin = f"{case}/{turn}/"
        return {
            name.removeprefix(begin): array
            for name, array in self._arrays.items()
            if name.startswith(begin)
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the toy engine."""
    folder = tmp_path_factory.mktemp("site")
    install_toy(folder)
    return folder


@pytest.fixture(autouse=True)
def find_toy(request: pytest.FixtureRequest, site: Path) -> Iterator[None]:
    """Have that folder on the module path where a test has the driver of the toy engine: what
    forks workers is started anew for each path."""
    if "driver" not in request.fixturenames or request.getfixturevalue("driver") != "reference":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        added_engines.cache_clear()
        yield
    added_engines.cache_clear()


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Callable[[str], Driven]:
    """What a driver gave, by its name; each driver's process runs once."""
    folder = tmp_path_factory.mktemp("drivers")
    script = folder / "contract.fake"
    script.write_text(json.dumps(SCRIPT))
    found: dict[str, Driven] = {}

    def driven(name: str) -> Driven:
        engine = engine_named(DRIVERS[name][0])
        if not engine.is_installed:
            pytest.skip(f"{engine.title} is not installed")
        if name not in found:
            arrays = folder / f"{name}.npz"
            done = subprocess.run(
                [sys.executable, __file__, name, str(script), str(arrays)],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(site)]),
                    "PATH": "",
                },
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            with np.load(arrays) as outputs:
                found[name] = Driven(json.loads(done.stdout), outputs)
        return found[name]

    return driven


# Every driver


@pytest.mark.parametrize("driver", DRIVERS)
def test_each_iteration_makes_a_row_of_times(drivers: Callable[[str], Driven], driver: str) -> None:
    for told in drivers(driver).told.values():
        assert len(told["rows"]) == 2 * ITERATIONS
        for end_to_end, host, device in told["rows"]:
            assert 0 < host <= end_to_end < 30
            if told["device_is_measured"]:
                assert device >= 0


@pytest.mark.parametrize("driver", DRIVERS)
def test_outputs_are_bitwise_the_same_from_run_to_run(
    drivers: Callable[[str], Driven], driver: str
) -> None:
    driven = drivers(driver)
    for case in {key.rpartition("/")[0] for key in driven.told}:
        first, second = driven.outputs(case, 0), driven.outputs(case, 1)
        assert list(first) == list(second)
        assert first
        for name, array in first.items():
            assert array.dtype == second[name].dtype
            np.testing.assert_array_equal(array, second[name])
        assert driven.told[f"{case}/0"]["unchanged"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_facts_name_what_ran(drivers: Callable[[str], Driven], driver: str) -> None:
    for told in drivers(driver).told.values():
        facts = told["facts"]
        assert (facts["name"], facts["driver"]) == (DRIVERS[driver][0], driver)
        assert facts["device"] == "cpu"
        assert facts["version"]


def test_the_script_is_what_the_scripted_driver_gives(drivers: Callable[[str], Driven]) -> None:
    driven = drivers("script")
    assert {name: array.tolist() for name, array in driven.outputs("script").items()} == (
        SCRIPT["outputs"]
    )
    assert driven.told["script/0"]["rows"] == [[0.25, 0.125, 0.1875]] * 6


# The drivers of real engines


@each_driver
@pytest.mark.parametrize(
    ("case", "inputs"),
    [
        ("digits", {"data": ("float32", [1, 1, 8, 8])}),
        ("uint8", {"data": ("uint8", [1, 224, 224, 3])}),
        ("multi_input", {"a": ("float32", [2, 3]), "b": ("float32", [3, 4])}),
        ("batch of 5", {"data": ("float32", [1, 16])}),
        ("one_operator", {"data": ("float32", [4])}),
    ],
)
def test_inputs_are_known_before_the_first_run(
    drivers: Callable[[str], Driven], driver: str, case: str, inputs: dict[str, Any]
) -> None:
    told = drivers(driver).told[f"{case}/0"]["inputs"]
    found = {
        # An axis that takes any size stands as 1 in models that were traced.
        info["name"]: (info["dtype"], [1 if size is None else size for size in info["shape"]])
        for info in told
    }
    assert found == inputs


@pytest.mark.parametrize("driver", [name for name in REAL if name != "session"])
@each_case
def test_all_drivers_give_the_outputs_of_onnx_runtime(
    drivers: Callable[[str], Driven], case: str, driver: str
) -> None:
    actual, expected = drivers(driver).outputs(case), drivers("session").outputs(case)
    assert sorted(actual) == sorted(expected)
    for name, array in expected.items():
        assert actual[name].shape == array.shape
        assert actual[name].dtype == ("float64" if driver == "evaluator" else array.dtype)
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=1e-5)


@each_driver
@pytest.mark.parametrize("case", ["digits", "int8"])
def test_digits_are_classified_as_labelled(
    drivers: Callable[[str], Driven], driver: str, case: str
) -> None:
    labels = np.load(INPUTS / "digits_labels.npy")
    logits = drivers(driver).outputs(case)["logits"]
    assert logits.shape == (len(labels), 10)
    assert np.mean(logits.argmax(axis=1) == labels) >= 0.97


@each_driver
@pytest.mark.parametrize(
    ("one", "many", "name"),
    [("one digit", "digits", "logits"), ("batch of 1", "batch of 5", "logits")],
)
def test_another_batch_size_gives_the_same_rows(
    drivers: Callable[[str], Driven], driver: str, one: str, many: str, name: str
) -> None:
    driven = drivers(driver)
    alone, together = driven.outputs(one)[name], driven.outputs(many)[name]
    assert len(together) > len(alone) == 1
    np.testing.assert_allclose(alone, together[:1], rtol=0, atol=1e-5)


@each_driver
def test_outputs_are_those_of_the_operators(drivers: Callable[[str], Driven], driver: str) -> None:
    driven = drivers(driver)
    assert driven.outputs("one_operator")["output"].tolist() == [0, 0, 1, 2]
    a, b = draw(2, 3), draw(3, 4)
    outputs = driven.outputs("multi_input")
    np.testing.assert_allclose(outputs["product"], a @ b, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(outputs["rectified"], a.clip(min=0))


def test_the_graph_driver_measures_the_device(drivers: Callable[[str], Driven]) -> None:
    for case, told in drivers("graph").told.items():
        assert told["device_is_measured"]
        times = [(end_to_end, device) for end_to_end, _, device in told["rows"]]
        assert all(0 <= device <= end_to_end for end_to_end, device in times), case
    # One operator may take less time than the engine's clock tells apart.
    assert all(device > 0 for _, _, device in drivers("graph").told["digits/0"]["rows"])


# Through a worker


def chosen(driver: str) -> dict[str, Any]:
    return {"engine": DRIVERS[driver][0], "driver": driver}


def model_of(driver: str, name: str = "digits_cnn") -> Path:
    return MODELS / (name + DRIVERS[driver][1])


@each_driver
def test_a_run_gives_the_drivers_outputs(drivers: Callable[[str], Driven], driver: str) -> None:
    import hashlib

    outputs = drivers(driver).outputs("digits")
    digits = INPUTS / "digits.npy"
    result = lar.run(model_of(driver), f"data:{digits}", **chosen(driver), iter=2)
    assert result.status == "ok", result.failure
    assert {output.name: output.sha256 for output in result.outputs} == {
        name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in outputs.items()
    }
    (fed,) = result.fed
    assert (fed.name, fed.dtype, fed.shape) == ("data", "float32", (32, 1, 8, 8))
    assert fed.source.endswith("digits.npy")
    assert not fed.generated
    for times in (result.warmup, result.samples):
        assert all(seconds > 0 for seconds in times.end_to_end)


@each_driver
@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("{1,3,8,8}", ["{1,3,8,8}", "data", "axis 1 must be 1"]),
        ("{8,8}", ["{8,8}", "data", "axes"]),
        ("label:{1,1,8,8}", ["label"]),
    ],
)
def test_an_input_that_does_not_fit_is_told_clearly(
    driver: str, inputs: str, words: list[str]
) -> None:
    result = lar.run(model_of(driver), inputs, **chosen(driver))
    assert (result.status, result.phase) == ("failed", "load")
    assert result.failure is not None
    assert result.failure.exit_code == 2
    text = result.failure.message + result.failure.hint
    assert all(word in text for word in words), text


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_a_size_that_only_the_engine_can_refuse_is_told_with_its_reason(driver: str) -> None:
    result = lar.run(model_of(driver), "{1,1,16,16}", driver=driver)
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.exit_code == 2
    fed, own = "data of shape {1,1,16,16}", "it was dumped for {1,1,8,8}"
    assert result.failure.message.endswith(f"MegEngine cannot compute it with {fed}; {own}")
    assert result.samples.end_to_end == ()


@each_driver
@pytest.mark.parametrize(("name", "content"), [("cut", slice(0, 2000)), ("head", slice(0, 40))])
def test_a_model_that_is_cut_short_is_a_usage_error(
    tmp_path: Path, driver: str, name: str, content: slice
) -> None:
    path = tmp_path / (name + DRIVERS[driver][1])
    path.write_bytes(model_of(driver).read_bytes()[content])
    result = lar.run(path, **chosen(driver))
    assert result.status == "failed", result
    assert result.failure is not None
    assert result.failure.exit_code == 2, result.failure.message
    assert str(path) in result.failure.message


@each_driver
def test_the_engine_may_tell_all_it_does(driver: str) -> None:
    result = lar.run(model_of(driver, "one_operator"), **chosen(driver), verbose=True, iter=1)
    assert result.status == "ok", result.failure
    assert result.spec.settings == {"verbose": True}


def test_a_number_alone_is_summarised_as_one(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("ReduceSum", ["data"], ["sum"], keepdims=0)],
        "scalar",
        [value("data", onnx.TensorProto.FLOAT, [3])],
        [value("sum", onnx.TensorProto.FLOAT, [])],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
    onnx.save(model, tmp_path / "scalar.onnx")
    (output,) = lar.run(tmp_path / "scalar.onnx", "[1.0,2.0,3.0]".strip("[]"), iter=1).outputs
    assert (output.shape, output.mean) == ((), 6)
