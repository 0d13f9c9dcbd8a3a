"""`--c-opr-lib`: an operator written in C runs, in both drivers; other files are refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import lar
from tests.conftest import RunLar
from tests.engines.megengine.programs import MODELS, REPOSITORY
from tests.engines.runs import run_ok

ONE_OPERATOR = MODELS / "one_operator.mge"

each_driver = pytest.mark.parametrize("driver", ["lite", "graph"])

SOURCE = REPOSITORY / "tests" / "data" / "twice.c"


def dump_model(path: str) -> None:
    """Dump a model that takes the positive numbers twice, by the operator of the library."""
    from lar.engines.megengine.graph import import_megengine

    import_megengine()
    from megengine.core.ops import builtin
    from megengine.core.tensor import megbrain_graph
    from megengine.utils import comp_graph_tools

    (positive,) = megbrain_graph.load_graph(str(ONE_OPERATOR)).output_vars_list
    (data,) = comp_graph_tools.get_dep_vars([positive], "Host2DeviceCopy")
    data.owner.name = data.name
    operator = builtin.ExternOpr([tuple(positive.shape)], "twice", b"x", 1, [np.float32])
    (twice,) = megbrain_graph.apply_normal_varnode(operator, positive)
    content, _ = megbrain_graph.dump_graph([twice], keep_var_name=2)
    Path(path).write_bytes(content)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    folder = tmp_path_factory.mktemp("library")
    arguments = [compiler, "-shared", "-fPIC", "-o", "libtwice.so", str(SOURCE)]
    subprocess.run(arguments, cwd=folder, check=True, timeout=60)
    return folder / "libtwice.so"


@pytest.fixture(scope="module")
def model(elsewhere: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that needs it."""
    path = tmp_path_factory.mktemp("model") / "twice.mge"
    elsewhere(dump_model, str(path))
    return path


@each_driver
def test_an_operator_in_c_computes(model: Path, library: Path, driver: str) -> None:
    inputs = {"data": np.array([-1, 0.5, 2, 3], np.float32)}
    result = run_ok(model, inputs, iter=2, driver=driver, c_opr_lib=library)
    (output,) = result.outputs
    assert (output.minimum, output.maximum, output.mean) == (0, 6, 11 / 4)
    assert "unknown version: 0\nadded: 1\nadded again: 0" in result.log_tail


def test_several_runners_load_the_library_once(model: Path, library: Path) -> None:
    assert run_ok(model, iter=1, thread=2, c_opr_lib=library).log_tail.count("added: 1") == 1


@each_driver
def test_a_model_without_its_library_says_so(model: Path, driver: str) -> None:
    failure = lar.run(model, iter=1, driver=driver).failure
    assert failure is not None
    assert failure.exit_code == 2
    assert failure.message == f"{model}: it has an operator in C that no loaded library has"
    assert "--c-opr-lib" in failure.hint


def test_the_library_is_found_from_the_current_folder(
    run_lar: RunLar, model: Path, library: Path
) -> None:
    arguments = ["run", str(model), "--iter", "1", "--c-opr-lib", library.name]
    assert run_lar(*arguments, cwd=library.parent).returncode == 0
