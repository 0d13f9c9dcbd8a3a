"""Files of testcases against MegEngine itself: it reads what lar writes, and the reverse."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.datasets.testcases import graphs_in
from lar.errors import LarError, UsageError
from tests.conftest import RunLar
from tests.engines.megengine.programs import MODELS, REPOSITORY
from tests.engines.runs import failure_of, run_ok

INPUTS = REPOSITORY / "inputs"


def check(path: str) -> dict[str, Any]:
    """Run the graph behind the first 12 bytes as MegEngine's own loader takes it, with its
    assertions, once for each testcase, and return what came of it."""
    from megengine import Tensor
    from megengine.core.tensor import megbrain_graph as G
    from megengine.utils import comp_graph_tools as tools

    content = Path(path).read_bytes()
    cases = [content[begin:end] for begin, end in graphs_in(path)[1:]]
    loaded = G.load_graph(io.BytesIO(content[12:]))
    outputs = loaded.output_vars_list
    inputs = sorted(tools.get_dep_vars(outputs, "Host2DeviceCopy"), key=lambda var: var.name)
    found: dict[str, Any] = {
        "inputs": [var.name for var in inputs],
        "outputs": [var.owner.type for var in outputs],
        "cases": [],
    }
    for case in cases:
        constants = G.load_graph(io.BytesIO(case)).output_vars_list
        nodes = [G.OutputNode(var) for var in constants]
        function = constants[0].graph.compile([node.outputs[0] for node in nodes])
        function.execute()
        function.wait()
        values = [node.get_value().numpy() for node in nodes]
        how = {"device": "xpux", "graph": loaded.graph, "use_static_shape": True}
        pairs = zip(inputs, values, strict=True)
        fed = [G.InputNode(dtype=var.dtype, shape=it.shape, **how) for var, it in pairs]
        given = {var: node.outputs[0] for var, node in zip(inputs, fed, strict=True)}
        function = loaded.graph.compile(list(tools.replace_vars(outputs, given)))
        for var, node, value in zip(inputs, fed, values, strict=True):
            node.set_value(Tensor(value, dtype=var.dtype)._dev_tensor())
        try:
            function.execute()
            function.wait()
            found["cases"].append("ok")
        except RuntimeError as error:
            found["cases"].append(str(error).splitlines()[0])
    return found


def copy_into_old_format(path: str, copy: str) -> None:
    """Write each graph of the file anew, as MegEngine did before it had the newer format."""
    from megengine.core.tensor import megbrain_graph as G
    from megengine.utils import comp_graph_tools as tools

    content = Path(path).read_bytes()
    written = content[:12]
    for begin, end in graphs_in(path):
        outputs = G.load_graph(io.BytesIO(content[begin:end])).output_vars_list
        for var in tools.get_dep_vars(outputs, "Host2DeviceCopy"):
            var.owner.name = var.name
        written += G.dump_graph(outputs, keep_var_name=2, dump_format="FBS")[0]
    Path(copy).write_bytes(written)


@pytest.fixture(scope="module")
def digits(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Testcases of two shapes, of the classifier of digits."""
    place = tmp_path_factory.mktemp("digits") / "digits.mdl"
    data = (str(INPUTS / "digits.npy"), str(INPUTS / "digit_7.npy"))
    words = [word for text in data for word in ("-d", text)]
    run_lar("pack", str(MODELS / "digits_cnn.mge"), *words, "-o", str(place), "--silent", code=0)
    return place


@pytest.fixture(scope="module")
def products(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Testcases of a model of two inputs and two outputs."""
    place = tmp_path_factory.mktemp("products") / "products.mdl"
    words = ("-d", "#rand(0,1)", "-d", "#rand(-9,9)", "--max-err", "0", "-o", str(place))
    run_lar("pack", str(MODELS / "multi_input.mge"), *words, code=0)
    return place


def test_megengine_reads_what_is_packed(
    elsewhere: Callable[..., Any], products: Path, digits: Path, tmp_path: Path
) -> None:
    assert elsewhere(check, str(products)) == {
        "inputs": ["a", "b", "product:expect", "rectified:expect"],
        "outputs": ["AssertEqual", "AssertEqual"],
        "cases": ["ok", "ok"],
    }
    content = bytearray(digits.read_bytes())
    fed = np.load(INPUTS / "digit_7.npy").astype(np.float32).tobytes()
    place = content.rfind(fed)
    content[place : place + len(fed)] = bytes(len(fed))  # another digit than the expected one
    changed = tmp_path / "changed.mdl"
    changed.write_bytes(content)
    assert elsewhere(check, str(changed))["cases"] == ["ok", "Unequal value"]
    assert failure_of(lar.run(changed, iter=1)).message.startswith("test #1: logits[0,0] is ")


def test_the_limits_are_read_from_the_engine(products: Path) -> None:
    result = lar.run(products, iter=1)
    assert [
        (verdict.output, verdict.limit, verdict.name.partition("[")[0])
        for verdict in result.cases[1].verdicts
    ] == [
        ("product", 0, "assert_eq(product:expect,product)"),
        ("rectified", 0, "assert_eq(rectified:expect,rectified)"),
    ]
    fed = {(each.name, each.source) for each in result.fed}
    assert fed == {(name, f"testcase {number}") for name in "ab" for number in (0, 1)}
    assert result.model is not None
    assert result.model.path == result.spec.model == str(products)


def test_the_older_format_is_read(
    elsewhere: Callable[..., Any], products: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "old.mdl"
    elsewhere(copy_into_old_format, str(products), str(copy))
    assert copy.read_bytes()[12:16] == b"MGBC"
    assert [case.passed for case in run_ok(copy, iter=1).cases] == [True, True]


@pytest.mark.parametrize(
    "settings", [{"driver": "graph"}, {"enable_nchw44": True, "copy_to_host": True}], ids=str
)
def test_drivers_and_layouts_run_testcases_of_several_shapes(
    digits: Path, settings: dict[str, Any]
) -> None:
    result = run_ok(digits, iter=2, **settings)
    assert [case.passed for case in result.cases] == [True, True]
    assert [output.shape for output in result.outputs] == [(1, 10)]
    assert [verdict.shown for case in result.cases for verdict in case.verdicts] == [False, False]


def test_a_recorded_execution_takes_each_testcases_inputs(products: Path) -> None:
    result = lar.run(products, iter=2, record_comp_seq=True)
    assert [case.passed for case in result.cases] == [True, True], result.failure
    first, second = (case.verdicts[0] for case in result.cases)
    assert (first.error, second.error) == (0, 0)


def test_a_damaged_file_is_told_in_one_line(products: Path, tmp_path: Path) -> None:
    content = products.read_bytes()
    model, first, second = graphs_in(str(products))
    for cut in (10, model[0] + 30, model[1], first[1] - 1, len(content) - 1):
        check_refused(content[:cut], tmp_path)
    for count in (0, 1, 3, 2**32 - 1):
        check_refused(content[:8] + count.to_bytes(4, "little") + content[12:], tmp_path)
    # The second testcase has a tensor less than the model has inputs.
    check_refused(content[: second[0]] + content[model[0] : model[1]], tmp_path)
    damaged = bytearray(content)
    damaged[model[0] + 100 : model[0] + 140] = b"\xff" * 40
    check_refused(bytes(damaged), tmp_path)


def check_refused(content: bytes, folder: Path) -> None:
    path = folder / "damaged.mdl"
    path.write_bytes(content)
    with pytest.raises(LarError) as caught:
        lar.run(path, iter=1)
    assert "\n" not in caught.value.message
    if isinstance(caught.value, UsageError):
        assert caught.value.message.startswith(f"{path}: ")
