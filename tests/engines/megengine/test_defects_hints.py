"""The hint behind a finished run: only what this run of this model has suffered from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lar.engines.megengine import defects
from lar.engines.megengine.defects import hints_for
from lar.records.run import RunResult, RunSpec, Samples
from tests.conftest import RunLar
from tests.engines.megengine.programs import MODELS
from tests.tables import each_row

MKL = "MKL runs generic code on AMD, which takes 1.5 to 3 times as long"
WRONG_INT8 = "--enable-nchw4 and --enable-nchw32 give wrong numbers on int8 models"
ONE = Samples(end_to_end=(0.1,), host=(0.1,), device=(None,), queue_delay=(None,))


@pytest.fixture(autouse=True)
def amd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defects, "read_instruction_sets", lambda: "AuthenticAMD fpu avx2")


def result_of(
    model: str | Path,
    settings: dict[str, Any] | None = None,
    *,
    samples: Samples = ONE,
    warmup: Samples = ONE,
    uncached_operators: int = 0,
) -> RunResult:
    path = str(model if isinstance(model, Path) else MODELS / f"{model}.mge")
    spec = RunSpec(model=path, engine="megengine", driver="lite", settings=settings or {})
    facts: dict[str, Any] = {"samples": samples, "warmup": warmup}
    facts["uncached_operators"] = uncached_operators
    return RunResult(spec=spec, status="ok", phase="finish", **facts)


def effects_of(*arguments: Any, **keywords: Any) -> list[str]:
    """Return what a hint tells of, without the ways round."""
    hint = hints_for(result_of(*arguments, **keywords), {})
    return [each.partition("; way round: ")[0] for each in hint.split("; also: ") if each]


@each_row("engines/megengine/defects/hints")
def test_a_quirk_is_told_where_the_model_meets_it(
    model: str, settings: dict[str, Any], expected: list[str]
) -> None:
    assert effects_of(model, settings) == expected


def test_several_stand_on_one_line_and_wrong_numbers_first() -> None:
    hint = hints_for(result_of("int8", {"enable_nchw4": True, "io_dump": "d"}), {})
    assert hint.startswith(f"{WRONG_INT8}; way round: --enable-nchw44, or no layout; also: the ")
    assert "the times are those of a run with --io-dump: MegEngine dumps in" in hint
    settings = {"enable_nchw4": True, "check_var_value": "3"}
    found = [each[:17] for each in effects_of("digits_cnn", settings)]
    assert found == ["MKL runs generic ", "--check-var-value"]


def test_nothing_is_said_of_times_that_were_not_taken() -> None:
    none = Samples()
    assert effects_of("digits_cnn", {"io_dump": "d"}, samples=none) == []
    assert effects_of("int8", {"enable_nchw4": True}, samples=none) == [WRONG_INT8]
    assert effects_of("int8", {"enable_nchw4": True}, warmup=none) == [WRONG_INT8]
    searched = ["--full-run: only the warm-up was run, which makes the search"]
    assert effects_of("digits_cnn", {"full_run": True}, samples=none) == searched
    for settings in ({}, {"enable_nchw4": True}, {"check_var_value": "3"}):
        assert effects_of("int8", settings, samples=none, warmup=none) == []


def test_a_cache_spares_only_a_run_that_takes_it() -> None:
    settings = {"fast_run_algo_policy": "f"}
    assert effects_of("digits_cnn", settings, uncached_operators=2) == [MKL]


def test_a_run_prints_one_hint(run_lar: RunLar, tmp_path: Path) -> None:
    flags = ["--enable-nchw4", "--io-dump", str(tmp_path / "d.txt"), "--iter", "1"]
    done = run_lar("run", str(MODELS / "int8.mge"), *flags, code=0)
    assert len([line for line in done.stderr.splitlines() if line.startswith("hint: ")]) == 1
    assert run_lar("run", str(MODELS / "one_operator.mge"), "--iter", "1").stderr.count("hint") == 0
