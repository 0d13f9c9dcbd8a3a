"""tools/make_models.py: reproducible files, and no success when the engines disagree."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import model_zoo
import numpy as np
import onnx
import onnx_twin
import pytest
from network import Network

from tests.command_lines import ROOT, run_python

TOOLS = ROOT / "tools"

CHEAP = ("uint8_input", "multi_input", "dynamic_batch", "one_operator")
# Made from seeded draws alone, so the same on every machine.
SAME_EVERYWHERE = ("multi_input", "dynamic_batch", "one_operator")


# Runs the script several times, each after a statement: its imports take longest. In a process of
# its own, as making models hides the GPU from the process that does it.
SEVERAL = """
import contextlib, io, json, runpy, sys
import digits_training, make_models
right = make_models.run_onnx
answers = []
for change, arguments in json.loads(sys.argv[1]):
    exec(change)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if change:
                code = make_models.main(arguments)
            else:
                sys.argv = ["make_models.py", *arguments]
                runpy.run_path("make_models.py", run_name="__main__")
        except SystemExit as leaving:
            code = leaving.code
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""
# An epoch of training on two batches of digits is too little.
SHORT_TRAINING = """
digits_training.EPOCH_COUNT = 1
all_digits = digits_training.split_digits()
few = type(all_digits[0])(*(each[: 2 * digits_training.BATCH_SIZE] for each in all_digits[0]))
digits_training.split_digits = lambda: (few, all_digits[1])
"""
ADD_ERROR = "make_models.run_onnx = lambda *a: {{key: v + {} for key, v in right(*a).items()}}"


class Answer(NamedTuple):
    """What a run of the script gave: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


def run_several(*asked: tuple[str, list[str]]) -> list[Answer]:
    """Run the script in one process with several command lines, each after a statement."""
    done = run_python("-c", SEVERAL, json.dumps(asked), cwd=TOOLS, code=0)
    return [Answer(*answer) for answer in json.loads(done.stdout.splitlines()[-1])]


MadeTwice = dict[str, tuple[Answer, Path]]


@pytest.fixture(scope="module")
def made_twice(tmp_path_factory: pytest.TempPathFactory) -> MadeTwice:
    """What the script answers, and where it writes, in two processes at once."""
    folder = tmp_path_factory.mktemp("made")

    def ask(*asked: tuple[str, str, list[str]]) -> MadeTwice:
        folders = [folder / key for key, _, _ in asked]
        answers = run_several(
            *(
                (change, [*words, "--output-dir", str(target)])
                for (_, change, words), target in zip(asked, folders, strict=True)
            )
        )
        keys = [key for key, _, _ in asked]
        return dict(zip(keys, zip(answers, folders, strict=True), strict=True))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(
            ask,
            ("cheap", "", [*CHEAP]),
            ("training", SHORT_TRAINING, ["digits_cnn", "int8"]),
            ("off by 0.01", ADD_ERROR.format(0.01), ["multi_input"]),
            ("not a number", ADD_ERROR.format("float('nan')"), ["multi_input"]),
            ("list", "", ["--list"]),
            ("unknown", "", ["resnet51"]),
        )
        second = pool.submit(
            ask, ("training again", SHORT_TRAINING, ["digits_cnn", "int8"]), ("again", "", [*CHEAP])
        )
        return first.result() | second.result()


@pytest.fixture
def cheap_folder(made_twice: MadeTwice) -> Path:
    answer, folder = made_twice["cheap"]
    assert answer.code == 0, answer.out + answer.err
    return folder


def describe(name: str) -> tuple[Network, onnx.ModelProto, int]:
    """A network, its ONNX form and how much it computes; neither needs MegEngine."""
    network = model_zoo.NETWORKS[name]()
    model = onnx_twin.onnx_of(network)
    return network, model, onnx_twin.count_macs(model)


def test_makes_both_formats_of_each_name(cheap_folder: Path) -> None:
    made = sorted(path.name for path in cheap_folder.iterdir())
    suffixes = (".mge", ".onnx", ".mge.sha256", ".onnx.sha256")
    assert made == sorted(f"{name}{suffix}" for name in CHEAP for suffix in suffixes)


def test_second_run_writes_the_same_bytes(cheap_folder: Path, made_twice: MadeTwice) -> None:
    answer, folder = made_twice["again"]
    assert answer.code == 0
    for path in cheap_folder.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("name", SAME_EVERYWHERE)
def test_committed_files_are_what_the_script_makes(name: str, cheap_folder: Path) -> None:
    for suffix in (".mge", ".onnx"):
        committed = ROOT / "models" / (name + suffix)
        assert committed.read_bytes() == (cheap_folder / committed.name).read_bytes()


def test_reports_what_it_made(made_twice: MadeTwice) -> None:
    (_, printed, _), folder = made_twice["cheap"]
    size_bytes = (folder / "multi_input.mge").stat().st_size
    assert f"multi_input.mge {size_bytes} bytes" in printed
    assert "product -5.652 to 1.664, greatest difference" in printed
    assert "parameters 808, MACs 768" in printed


@pytest.mark.parametrize(
    ("error", "printed"),
    [("off by 0.01", "greatest difference 0.01"), ("not a number", "greatest difference nan")],
)
def test_disagreeing_twins_fail(error: str, printed: str, made_twice: MadeTwice) -> None:
    answer, _ = made_twice[error]
    assert answer.code == 1
    assert printed in answer.out
    assert "FAILED" in answer.out


def test_training_is_reproducible_and_must_reach_its_accuracy(made_twice: MadeTwice) -> None:
    (first, first_folder), (second, second_folder) = (
        made_twice[key] for key in ("training", "training again")
    )
    for answer in (first, second):
        assert answer.code == 1
        assert "test accuracy" in answer.out
    for name in ("digits_cnn.mge", "digits_cnn.onnx", "int8.mge", "int8.onnx"):
        assert (first_folder / name).read_bytes() == (second_folder / name).read_bytes(), name


def test_lists_all_names(made_twice: MadeTwice) -> None:
    answer, _ = made_twice["list"]
    assert answer.code == 0
    assert {line.split()[0] for line in answer.out.splitlines()} == {
        *CHEAP,
        "digits_cnn",
        "int8",
        "mobilenet_v2",
        "encoder",
        "resnet18",
        "resnet50",
    }


def test_unknown_name_is_a_usage_error(made_twice: MadeTwice) -> None:
    answer, _ = made_twice["unknown"]
    assert answer.code == 2
    assert "no model 'resnet51'; there are digits_cnn" in answer.err


def test_resnet18_is_the_real_one_and_he_initialisation_keeps_the_scale() -> None:
    network, model, macs = describe("resnet18")
    # Published: 11.7 M and 1.8 G; without the batch norms' own numbers.
    assert network.count_parameters() == 11_684_712
    assert macs == 1_814_073_344
    (data,) = model.graph.input
    assert [axis.dim_value for axis in data.type.tensor_type.shape.dim] == [1, 3, 224, 224]
    weight = next(node for node in network.nodes if node.name == "layer4.1.conv2").weights["weight"]
    np.testing.assert_allclose(weight.std(), np.sqrt(2 / (512 * 9)), rtol=0.01)


def test_resnet50_is_the_real_one() -> None:
    # Published: 25.6 M; without the batch norms' own numbers.
    assert model_zoo.NETWORKS["resnet50"]().count_parameters() == 25_530_472


def test_descriptions_are_seeded() -> None:
    first, second = (describe("mobilenet_v2")[1].SerializeToString() for _ in range(2))
    assert first == second
