"""What every engine must do: the checks that `lar.testing` gives to those who add one, and the
numbers of those that compute."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import lar
from lar.dumps import Dump
from lar.engines import added_engines, contract, engine_named
from lar.engines.contract import dumps_its_tensors, refuses_damaged_models
from lar.records.record import record_from_json
from lar.records.run import RunResult
from lar.testing import CHECKS, Check, ContractError, Subject, check_engine
from tests import worker_forks
from tests.engines.added import install_toy
from tests.engines.runs import run_ok
from tests.tables import each_row

Array = npt.NDArray[Any]

REPOSITORY = Path(__file__).resolve().parent.parent.parent
MODELS = REPOSITORY / "models"
INPUTS = REPOSITORY / "inputs"

# Each driver: its engine and the suffix of the models it runs.
DRIVERS: Mapping[str, tuple[str, str]] = {
    "lite": ("megengine", ".mge"),
    "graph": ("megengine", ".mge"),
    "session": ("onnxruntime", ".onnx"),
    "compiled": ("openvino", ".onnx"),
    "interpreter": ("mnn", ".onnx"),
    "evaluator": ("reference", ".onnx"),
    "script": ("fake", ".fake"),  # of other packages
    "reference": ("toy", ".toy"),
}
# Those whose numbers are compared: they read the models of `models/`.
REAL = [name for name, (_, suffix) in DRIVERS.items() if suffix in (".mge", ".onnx")]
SCRIPT = {
    "inputs": [{"name": "data", "dtype": "float32", "shape": [2]}],
    "outputs": {"sum": [0.5], "prob": [0.25, 0.75]},
    "times": [[0.25, 0.125, 0.1875]],
    "operators": [{"name": "conv", "type": "Convolution", "part": 0.75}],
}


def draw(*shape: int) -> Array:
    return np.random.RandomState(len(shape)).randn(*shape).astype(np.float32)


def read_digits() -> Array:
    digits: Array = np.load(INPUTS / "digits.npy")
    return digits


DIGIT, ROW = {"data": ("float32", (1, 1, 8, 8))}, {"data": ("float32", (1, 16))}
# Each case: a model, what it is fed, and the type and shape of its inputs before it is run.
CASES: Mapping[str, tuple[str, Callable[[], dict[str, Array]], dict[str, Any]]] = {
    "digits": ("digits_cnn", lambda: {"data": read_digits()}, DIGIT),
    "one digit": ("digits_cnn", lambda: {"data": read_digits()[:1]}, DIGIT),
    "int8": ("int8", lambda: {"data": read_digits()}, DIGIT),
    "uint8": (
        *("uint8_input", lambda: {"data": (draw(1, 224, 224, 3) * 50).astype(np.uint8)}),
        {"data": ("uint8", (1, 224, 224, 3))},
    ),
    "multi_input": (
        *("multi_input", lambda: {"a": draw(2, 3), "b": draw(3, 4)}),
        {"a": ("float32", (2, 3)), "b": ("float32", (3, 4))},
    ),
    "batch of 1": ("dynamic_batch", lambda: {"data": draw(5, 16)[:1]}, ROW),
    "batch of 5": ("dynamic_batch", lambda: {"data": draw(5, 16)}, ROW),
    "cat": (
        *("mobilenet_v2", lambda: {"data": np.load(INPUTS / "cat.npy")}),
        {"data": ("float32", (1, 3, 224, 224))},
    ),
    "one_operator": (
        *("one_operator", lambda: {"data": np.array([-1, 0, 1, 2], np.float32)}),
        {"data": ("float32", (4,))},
    ),
}
# One of several is fed in `test_another_batch_size_gives_the_same_rows`.
each_case = pytest.mark.parametrize(
    "case", [name for name in CASES if name not in ("one digit", "batch of 1")]
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the toy engine."""
    folder = tmp_path_factory.mktemp("site")
    install_toy(folder)
    return folder


@pytest.fixture
def find_toy(driver: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have that folder on the module path for the driver of the toy engine alone: what forks
    workers is started anew for each path. It forks those of this engine too."""
    if driver != "reference":
        yield
        return
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(worker_forks, "OWN_ENGINES", [*worker_forks.OWN_ENGINES, "toy"])
    added_engines.cache_clear()
    yield
    added_engines.cache_clear()


def subject_of(driver: str, folder: Path) -> Subject:
    """The smallest model of an engine's format, for one of its drivers."""
    name, suffix = DRIVERS[driver]
    engine = engine_named(name)
    if not engine.is_installed:
        pytest.skip(f"{engine.title} is not installed")
    if engine.name == "toy":  # in the format of its own
        model = folder / "digits_cnn.toy"
        model.write_bytes(b"toy model\n" + (MODELS / "digits_cnn.onnx").read_bytes())
        return Subject(engine, driver, model, folder)
    if driver != "script":
        return Subject(engine, driver, MODELS / f"digits_cnn{suffix}", folder)
    script = folder / "contract.fake"
    script.write_text(json.dumps({**SCRIPT, "real_time": True, "times": [[0.02, 0.01, 0.015]]}))
    return Subject(engine, driver, script, folder)


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.usefixtures("find_toy")
def test_an_engine_does_what_every_engine_must(
    monkeypatch: pytest.MonkeyPatch, driver: str, check: Check, tmp_path: Path
) -> None:
    # One check computes all that time.
    monkeypatch.setattr("lar.engines.contract.DEADLINE_SECONDS", 0.2)
    check(subject_of(driver, tmp_path))


def test_each_failure_is_a_line_with_the_driver_and_the_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never_holds(subject: Subject) -> None:
        raise ContractError("the moon is no cheese")

    monkeypatch.setattr("lar.engines.contract.CHECKS", (*CHECKS[:2], never_holds))
    with pytest.raises(ContractError) as caught:
        check_engine("onnxruntime", MODELS / "one_operator.onnx")
    assert str(caught.value) == "session: never_holds: the moon is no cheese"
    check_engine("onnxruntime", MODELS / "one_operator.onnx", without=["never_holds"])


def said_by(check: Check, subject: Subject) -> str:
    """What a check says of an engine that fails it; empty if the engine does not fail."""
    try:
        check(subject)
    except ContractError as error:
        return str(error)
    return ""


RIGHT = json.loads(Path(__file__).with_name("contract.json").read_text())["right"]


@dataclass(frozen=True)
class Played(Subject):
    """A subject whose runs are known: each is the right one with other values of some fields."""

    changes: Sequence[dict[str, Any]] = ()

    def run(self, **options: Any) -> RunResult:
        change, *later = self.changes
        vars(self)["changes"] = later
        for_all = {"arrays": {}, "profile": [], **change}
        arrays = {name: np.array(it) for name, it in for_all.pop("arrays").items()}
        (self.folder / "profile.json").write_text(json.dumps(for_all.pop("profile")))
        result = record_from_json(json.dumps({**RIGHT, **for_all}), RunResult)
        return result.with_arrays(arrays)


@each_row("engines/contract/runs")
def test_a_run_that_is_not_as_it_should_be_fails_a_check(
    tmp_path: Path, check: str, changes: list[dict[str, Any]], says: str
) -> None:
    whole, expected = subject_of("script", tmp_path), {"y": np.array([0.5, 1])}
    played = Played(
        *(whole.engine, whole.driver, whole.model, tmp_path, None, expected, 0.25), changes=changes
    )
    assert said_by(getattr(contract, check), played) == says
    assert played.changes == []


@each_row("engines/contract/scripts")
def test_choices_that_no_row_has_fail_a_check(
    tmp_path: Path, script: dict[str, Any], says: str
) -> None:
    path = tmp_path / "dimensions.fake"
    path.write_text(json.dumps(script))
    subject = Subject(engine_named("fake"), "script", path, tmp_path)
    assert said_by(contract.is_declared_well, subject) == says


def test_a_small_model_is_cut_short_to_less_than_it_is(tmp_path: Path) -> None:
    script = tmp_path / "small.fake"
    script.write_text('{"outputs": {"y": [1]}}')
    assert len(script.read_bytes()) < 40
    refuses_damaged_models(Subject(engine_named("fake"), "script", script, tmp_path))


# The numbers of engines that compute


@pytest.fixture(scope="module")
def outputs() -> Callable[[str, str], dict[str, Array]]:
    """The outputs of a driver for a case; each is run once."""
    found: dict[tuple[str, str], dict[str, Array]] = {}

    def run(driver: str, case: str) -> dict[str, Array]:
        name, suffix = DRIVERS[driver]
        if not engine_named(name).is_installed:
            pytest.skip(f"{name} is not installed")
        if (driver, case) == ("interpreter", "int8"):
            pytest.skip("MNN's converter has no QLinearConv")
        model, feed, expected = CASES[case]
        if (driver, case) not in found:
            path = MODELS / f"{model}{suffix}"
            result = run_ok(path, feed(), engine=name, driver=driver, iter=2, keep_outputs=True)
            found[driver, case] = dict(result.arrays)
            inputs = {
                # An axis that takes any size stands as 1 in models that were traced.
                info.name: (info.dtype, tuple(1 if size is None else size for size in info.shape))
                for info in lar.read_info(path, name).inputs
            }
            assert inputs == expected
        return found[driver, case]

    return run


Outputs = Callable[[str, str], dict[str, Array]]


@pytest.mark.parametrize("driver", [name for name in REAL if name != "session"])
@each_case
def test_all_drivers_give_the_outputs_of_onnx_runtime(
    outputs: Outputs, case: str, driver: str
) -> None:
    actual, expected = outputs(driver, case), outputs("session", case)
    tolerance = 1e-4 if case == "cat" else 1e-5
    assert sorted(actual) == sorted(expected)
    for name, array in expected.items():
        assert actual[name].shape == array.shape
        assert actual[name].dtype == ("float64" if driver == "evaluator" else array.dtype)
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", ["digits", "int8"])
def test_digits_are_classified_as_labelled(outputs: Outputs, case: str) -> None:
    labels = np.load(INPUTS / "digits_labels.npy")
    assert outputs("session", case)["logits"].argmax(axis=1).tolist() == labels.tolist()


def test_mobilenet_is_far_from_saturated(outputs: Outputs) -> None:
    logits = outputs("session", "cat")["logits"].astype(np.float64)
    assert (np.exp(logits) / np.exp(logits).sum()).max() < 0.5
    assert logits.std() > 0.5


@pytest.mark.parametrize(("one", "many"), [("one digit", "digits"), ("batch of 1", "batch of 5")])
def test_another_batch_size_gives_the_same_rows(outputs: Outputs, one: str, many: str) -> None:
    """As it does with all drivers, which give the same."""
    alone, together = outputs("session", one)["logits"], outputs("session", many)["logits"]
    assert len(together) > len(alone) == 1
    np.testing.assert_allclose(alone, together[:1], rtol=0, atol=1e-5)


def test_outputs_are_those_of_the_operators(outputs: Outputs) -> None:
    assert outputs("session", "one_operator")["output"].tolist() == [0, 0, 1, 2]
    a, b = draw(2, 3), draw(3, 4)
    found = outputs("session", "multi_input")
    np.testing.assert_allclose(found["product"], a @ b, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found["rectified"], a.clip(min=0))


@pytest.mark.skipif(not engine_named("megengine").is_installed, reason="needs MegEngine")
def test_the_graph_driver_measures_the_device() -> None:
    samples = lar.run(MODELS / "digits_cnn.mge", driver="graph").samples
    for device, end_to_end in zip(samples.device, samples.end_to_end, strict=True):
        assert device is not None
        assert 0 < device <= end_to_end


@pytest.mark.parametrize(
    ("change", "problem"), [(np.negative, "other values of"), (np.ravel, "is dumped with shape")]
)
def test_a_dump_that_is_not_what_the_run_gave_breaks_the_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Array], Array], problem: str
) -> None:
    read = Dump.read
    monkeypatch.setattr(Dump, "read", lambda dump, key: change(read(dump, key)))
    with pytest.raises(ContractError, match=problem):
        dumps_its_tensors(subject_of("session", tmp_path))
