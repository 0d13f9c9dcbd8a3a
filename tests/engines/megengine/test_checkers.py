"""The checkers: what each finds, that it finds nothing else, and that it really looks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lar
from lar.engines.megengine.driver import explain_megengine
from lar.engines.megengine.graph import RANGE, UNDISPATCHED
from lar.engines.megengine.symbols import find_address, find_function
from lar.errors import UsageError
from tests.conftest import RunLar
from tests.engines.megengine.programs import DIGITS, MODELS
from tests.engines.megengine.traced import dump_traced
from tests.engines.runs import failure_of
from tests.tables import each_row

MULTI = MODELS / "multi_input.mge"


def dump_models(folder: str) -> None:
    """Dump a model that draws random numbers, and one with an operator that computes nothing."""
    from megengine import functional

    def drop(data: Any) -> Any:
        return functional.dropout(data, 0.5, training=True)

    def convert_nothing(data: Any) -> Any:
        return data[0:0].astype("int32"), data * 2

    inputs = {"data": np.ones((4, 8), np.float32)}
    how: dict[str, Any] = {"optimize_for_inference": False}
    dump_traced(Path(folder, "random.mge"), drop, inputs, output_names=["dropped"], **how)
    names = ["nothing", "doubled"]
    dump_traced(Path(folder, "empty.mge"), convert_nothing, inputs, output_names=names, **how)


@pytest.fixture(scope="module")
def made(elsewhere: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models that are made for these tests."""
    folder = tmp_path_factory.mktemp("made")
    elsewhere(dump_models, str(folder))
    return folder


def refuse_no_graph(model: str) -> str:
    """Return why something else than a graph is refused."""
    from lar.engines.megengine.graph import address_of, import_megengine

    import_megengine()
    from megengine.core.tensor import megbrain_graph

    graph = megbrain_graph.load_graph(model).graph
    assert address_of("--range", graph)
    with pytest.raises(UsageError) as refused:
        address_of("--range", graph.options)
    return refused.value.message


def run(model: str | Path, iterations: int = 1, **options: Any) -> lar.RunResult:
    """Run a model, the warm-up counted as an iteration."""
    return lar.run(model, iter=iterations, warmup_iter=0, **options)


def message_of(result: lar.RunResult) -> str:
    assert result.status == "failed"
    return failure_of(result, 1).message


class TestRange:
    def test_a_value_that_is_too_large_is_named_with_its_place(self, tmp_path: Path) -> None:
        inputs = {"a": np.full((2, 3), 1, np.float32), "b": np.full((3, 4), 1, np.float32)}
        inputs["b"][2, 3] = -9
        assert run(MULTI, inputs=inputs, range=9.5).status == "ok"
        inputs["a"][1, 2] = 2  # the product of row 1 and column 3 is 1 + 1 - 18
        assert message_of(run(MULTI, inputs=inputs, range=9.5)) == (
            "--range 9.5: product has the value -16 at index {1,3} of {2,4}"
        )

    def test_a_value_that_is_not_a_number_ends_the_command_with_code_1(
        self, run_lar: RunLar, tmp_path: Path
    ) -> None:
        data = np.ones((1, 1, 8, 8), np.float32)
        data[0, 0, 3, 4] = np.nan
        np.save(tmp_path / "nan.npy", data)
        arguments = ["run", DIGITS, "--iter", "1", "--input", str(tmp_path / "nan.npy")]
        # The model swallows it: its outputs are finite.
        assert run_lar(*arguments).returncode == 0
        done = run_lar(*arguments, "--range", "1000000", code=1)
        assert "lar: error: --range 1e+06: data has the value nan at index {0,0,3,4}" in done.stderr
        assert "Traceback" not in done.stderr


class TestValues:
    @each_row("engines/megengine/cases/turns of variables")
    def test_each_variable_has_its_turn(self, made: Path, interval: str, passing: int) -> None:
        """The first run is kept to compare with. Variables 0 and 1 are the input's, the latter one
        that is not on the device and is passed over; 2 is the dropout's."""
        model, options = made / "random.mge", {"check_var_value": interval, "fill": "ones"}
        assert run(model, passing, **options).status == "ok"
        message = message_of(run(model, passing + 1, **options))
        assert message.startswith("--check-var-value: dropped has the value ")
        assert message.endswith(" in the first run")

    def test_a_model_that_computes_the_same_each_time_passes(self) -> None:
        options = {"check_var_value": "1", "enable_fuse_conv_bias_nonlinearity": True}
        result = run(DIGITS, 30, **options)
        assert result.status == "ok"
        found = re.findall(r"going to check #(\d+): .*\{(\w+)\}, name:", result.log_tail)
        assert int(found[-1][0]) >= 19
        assert "ConvBiasForward" in [kind for _, kind in found]  # of the graph that runs


class TestDispatch:
    def test_an_operator_that_gives_no_kernel_is_named(self, made: Path) -> None:
        message = message_of(run(made / "empty.mge", check_dispatch=True))
        assert message.startswith("--check-dispatch: operator asInt32(")
        assert message.endswith(" (TypeCvt) gives the CPU no kernel to run")

    def test_operators_that_compute_nothing_by_nature_do_not_count(self, run_lar: RunLar) -> None:
        """What the checker prints is shown at each iteration; it is more than a pipe holds."""
        model = str(MODELS / "mobilenet_v2.mge")
        done = run_lar("run", model, "--iter", "9", "--check-dispatch", "--verbose", code=0)
        assert len(done.stderr) > 1 << 16
        found = Counter(kind for _, kind in UNDISPATCHED.findall(done.stderr.encode()))
        assert set(found) == {b"ImmutableTensor", b"InputCallback", b"OutputCallback", b"Reshape"}
        assert {found[kind] for kind in set(found) - {b"ImmutableTensor"}} == {10}


class TestAnotherBuild:
    def test_a_library_that_lacks_a_function_is_refused(self) -> None:
        # Here it is not even loaded.
        with pytest.raises(UsageError, match=f"^--range: this is another build .* {RANGE}$"):
            find_function("--range", RANGE, [])
        with pytest.raises(UsageError, match=r"^--c-opr-lib: this is another build "):
            find_address("--c-opr-lib", "mgb_get_extern_c_opr_api_versioned")

    def test_what_is_no_graph_is_refused(self, elsewhere: Callable[..., str]) -> None:
        assert elsewhere(refuse_no_graph, str(MODELS / "one_operator.mge")) == (
            "--range: this is another build of MegEngine, it has no graph where it should be"
        )


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20)
INDICES = st.lists(st.integers(0, 10**6), min_size=1, max_size=7).map(
    lambda sizes: "{" + ",".join(map(str, sizes)) + "}"
)


@settings(deadline=None)
@given(name=NAMES, value=st.floats(), index=INDICES, shape=INDICES)
def test_every_message_about_a_range_is_read(
    name: str, value: float, index: str, shape: str
) -> None:
    message = (
        "float value out of range: var: {id:65, layout:{8(8),8(1) Float32}, Float32, "
        f'owner:relu({name})[64]{{Elemwise}}, name:{name}, slot:0, CompNode("cpu0:0"), s, 2, 1}}\n'
        f" value={value:g} range=3 index={index}/{shape}\n\nbacktrace:\nlibrary.so(+0x1)"
    )
    error = explain_megengine(message, "m.mge", loading=False)
    assert error is not None
    assert error.message == f"--range 3: {name} has the value {value:g} at index {index} of {shape}"
