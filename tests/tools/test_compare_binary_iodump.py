"""The manual's tool: what MegEngine's own prints, and what that one refuses."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import compare_binary_iodump
import numpy as np
import pytest

from lar.dumps.binary import write_tensor
from tests.command_lines import run_python
from tests.dumps.blocked_tensors import to_blocked

TOOL = "tools/compare_binary_iodump.py"


def run(*words: str) -> tuple[int, str]:
    """Run the tool in this process; return its exit code and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = compare_binary_iodump.main(words)
    return code, printed.getvalue()


def run_apart(*words: str, tool: str) -> tuple[int, str]:
    """Run this or MegEngine's tool in a process of its own."""
    command = [tool] if tool.endswith(".py") else ["-m", tool]
    done = run_python("-W", "ignore", *command, *words)
    assert "Traceback" not in done.stderr or tool.startswith("megengine")
    return done.returncode, done.stdout


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    random = np.random.default_rng(0)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    for tensor in ("000001", "000002", "000003"):
        array = random.standard_normal((2, 3, 4)).astype(np.float32)
        write_tensor(tmp_path / "one" / tensor, array, f"tensor {tensor}")
        if tensor != "000001":
            array[1, 1:, 2] += np.float32(0.02)
        write_tensor(tmp_path / "other" / tensor, array, f"tensor {tensor}")
    return str(tmp_path / "one"), str(tmp_path / "other")


def test_it_prints_what_megengines_tool_prints(folders: tuple[str, str]) -> None:
    found = run_apart(*folders, tool=TOOL)
    assert found == run_apart(*folders, tool="megengine.tools.compare_binary_iodump")
    assert found[1].count("not equal: shape=(2, 3, 4) nonequal_idx=(1, 1, 2)") == 2


def test_the_limit_and_the_first_error(folders: tuple[str, str]) -> None:
    assert run(*folders, "-e", "0.5") == (0, "")
    code, text = run(*folders, "-s")
    assert code == 1
    assert text.count("not equal") == 1
    code, text = run(f"{folders[0]}/000002", f"{folders[1]}/000002", "--max-err", "1e-3")
    assert "000002" in text


@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (1e200, 1.0, "v0=1e+200 v1=1.0 err=1.0"),
        (0.1, 0.2, "v0=0.10000000149011612 v1=0.20000000298023224 err=0.10000000149011612"),
        (3 + 4j, 0j, "v0=(3+4j) v1=0j err=1.0"),
        (True, False, "v0=1.0 v1=0.0 err=1.0"),
        (1 << 40, 1, "v0=1099511627776.0 v1=1.0 err=1.0"),
    ],
)
def test_types_that_megengine_lacks(
    one: complex, other: complex, text: str, tmp_path: Path
) -> None:
    for name, value in (("one", one), ("other", other)):
        write_tensor(tmp_path / name, np.array([value, value]), "x")
    code, printed = run(str(tmp_path / "one"), str(tmp_path / "other"))
    assert code == 0
    assert f"nonequal_idx=(0,) {text}" in printed


def test_what_megengines_tool_refuses(tmp_path: Path) -> None:
    array = np.arange(64, dtype=np.float32).reshape(1, 8, 2, 4)
    names = [name_of(1, "1(64),8(8),2(4),4(1)"), name_of(7, "1(64),2(32),2(16),4(4),4(1)")]
    arrays = [array, to_blocked(array, "nchw44")]
    weights = [np.zeros((8, 8, 3, 3), np.float32), np.zeros((2, 2, 3, 3, 4, 4), np.float32)]
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_tensor(folder / f"{1 + 6 * number:06x}", arrays[number], names[number])
        write_tensor(folder / "000005", weights[number], weight_name(weights[number].shape))
    folders = str(tmp_path / "0"), str(tmp_path / "1")
    assert run(*folders) == (0, "")
    changed = to_blocked(array + np.float32(5), "nchw44")
    write_tensor(tmp_path / "1" / "000007", changed, names[1])
    code, text = run(*folders)
    assert code == 0
    assert "not equal: shape=(1, 8, 2, 4) nonequal_idx=(0, 0, 0, 0) v0=0.0 v1=5.0 err=1.0" in text


def name_of(number: int, layout: str) -> str:
    """What MegEngine writes of a convolution's output."""
    return (
        f"var={{id:{number}, layout:{{{layout} Float32}}, Float32, owner:conv(x,w)"
        f'[{number - 1}]{{ConvolutionForward}}, name:out, slot:0, CompNode("cpu0:0" from '
        f'"cpu0:0"), s, 4, 1}} owner_opr_inputs=0={{id:9, layout:{{1(1) Float32}}, Float32, '
        'owner:h2d[8]{Host2DeviceCopy}, name:x, slot:0, CompNode("cpu0:0" from "cpu0:0"), '
        "s, 4, 4} 1={id:5, layout:{1(1) Float32}, Float32, owner:const[4]{ImmutableTensor}, "
        'name:w, slot:0, CompNode("cpu0:0" from "cpu0:0"), s, 2, 2}'
    )


def weight_name(shape: tuple[int, ...]) -> str:
    """What MegEngine writes of a constant."""
    strides = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    layout = ",".join(f"{size}({stride})" for size, stride in zip(shape, strides, strict=True))
    return (
        f"var={{id:5, layout:{{{layout} Float32}}, Float32, owner:const[4]{{ImmutableTensor}}, "
        'name:w, slot:0, CompNode("cpu0:0" from "cpu0:0"), s, 2, 2} owner_opr_inputs='
    )


def test_what_is_no_dump_ends_with_a_line(tmp_path: Path) -> None:
    assert run(str(tmp_path), str(tmp_path / "none"))[0] == 2
