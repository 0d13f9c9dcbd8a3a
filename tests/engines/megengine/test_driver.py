"""What MegEngine says is put into the user's words, by both drivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.engines.megengine.driver import explain_megengine, resized_inputs
from lar.errors import UsageError
from lar.records.run import TensorInfo
from tests.cli.failures import check_error
from tests.conftest import RunLar
from tests.tables import each_row

each_driver = pytest.mark.parametrize("driver", ["lite", "graph"])

ROW = TensorInfo(name="data", dtype="float32", shape=(1, 16), resizable=True)
IMAGE = TensorInfo(name="data", dtype="float32", shape=(1, 224, 200, 3), resizable=True)
BAD_SHAPE = "bad input shape for polyadic operator: {2,17}, {2,16}"


def explain(message: str, info: TensorInfo, fed: tuple[int, ...]) -> UsageError | None:
    resized = resized_inputs([info], {"data": fed})
    error = explain_megengine(message, "m.mge", loading=False, resized=resized)
    assert error is None or isinstance(error, UsageError)
    return error


@each_row("engines/megengine/blamed_flags/shapes")
def test_a_shape_that_an_operator_cannot_take(message: str) -> None:
    error = explain(message, ROW, (2, 17))
    assert error is not None
    said = "MegEngine cannot run the model with data of shape {2,17}; the model is for {1,16}"
    assert error.message == f"m.mge: {said}"
    assert error.hint == "feed it that shape: data:{1,16} generates data that fits"
    # The shape is not to blame where it is the file's own, nor for another message.
    assert explain(message, ROW, (1, 16)) is None
    assert explain("something else", ROW, (2, 17)) is None


def test_an_image_of_another_size_may_be_resized() -> None:
    for fed, hint in (
        ((1, 64, 64, 3), ", --resize 224x200 makes an image fit"),
        ((2, 224, 200, 3), ""),
    ):
        error = explain(BAD_SHAPE, IMAGE, fed)
        assert error is not None
        assert error.hint.endswith(hint)
        assert ("--resize" in error.hint) == bool(hint)


def test_the_model_file_is_closed(run_lar: RunLar, root: Path) -> None:
    command = ("models/one_operator.mge", "--driver", "graph", "--iter", "1", "--verbose")
    done = run_lar(*command, cwd=root, env={"PYTHONWARNINGS": "always"}, code=0)
    assert "ResourceWarning" not in done.stderr


# Bits of the length of a tensor's name.
@pytest.mark.parametrize(
    ("model", "bit"), [("one_operator", 224 * 8 + 7), ("multi_input", 621 * 8)]
)
@each_driver
def test_a_damaged_name_is_found_before_anything_is_timed(
    run_lar: RunLar, root: Path, tmp_path: Path, model: str, bit: int, driver: str
) -> None:
    data = bytearray((root / f"models/{model}.mge").read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    (tmp_path / "model.mge").write_bytes(data)
    done = run_lar(str(tmp_path / "model.mge"), "--iter", "1", "--driver", driver)
    check_error(done, 2, "model.mge: ", "damaged", "export the model again")
    assert "load model" not in done.stdout
    assert "Traceback" not in done.stderr


# Flags that are, and are not, to blame


@each_row("engines/megengine/blamed_flags/blamed")
def test_the_flag_that_is_to_blame_is_named(
    settings: list[str], message: str, blamed: str, hint: str
) -> None:
    error = explain_megengine(message, "m.mge", loading=False, settings=settings)
    assert isinstance(error, UsageError)
    assert error.message.startswith(blamed)
    assert hint in error.hint
    assert ("fold batch" in error.hint) == ("batch_norm" in message)


def test_an_operator_that_the_engine_lacks_is_named() -> None:
    message = "failed to find opr with type 8912, use python env config.dump_registered_oprs()"
    error = explain_megengine(message, "m.mge", loading=True)
    assert error is not None
    assert error.exit_code == 4
    said = "m.mge: MegEngine has no operator of the type 8912, or the file is damaged"
    assert error.message == said


def test_a_full_disk_is_told_without_the_engines_temporary_file() -> None:
    message = "failed to write to /p/written.json.engine: num=3 size=5 No space left on device"
    error = explain_megengine(message, "m.mge", loading=False, settings=["profile"])
    assert error is not None
    assert error.message == "MegEngine cannot write a file: No space left on device"
