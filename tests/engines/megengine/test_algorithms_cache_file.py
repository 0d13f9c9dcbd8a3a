"""Which cache files a fast-run takes without having made them, and which it refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lar.cli.main import dispatch
from lar.engines.megengine.algorithms import use_cache, work_copy
from lar.engines.megengine.cache import read_cache
from lar.errors import UsageError
from lar.records.run import RunContext
from tests.cli.failures import check_error
from tests.engines.megengine.programs import DIGITS, MODELS

if TYPE_CHECKING:
    from tests.conftest import RunLar

POLICY = "--fast-run-algo-policy"


def test_an_empty_cache_is_one(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "empty.cache"
    cache.write_bytes(bytes(4))
    assert run_lar("run", DIGITS, POLICY, str(cache), "--iter", "1").returncode == 0
    assert cache.read_bytes() == bytes(4)


def test_a_missing_file_is_no_cache_to_read(run_lar: RunLar, tmp_path: Path) -> None:
    cache = tmp_path / "none.cache"
    done = run_lar("run", DIGITS, POLICY, str(cache))
    check_error(done, 2, f"{POLICY}: {cache}: no such file", "--fast-run")
    assert not cache.exists()


@pytest.mark.parametrize("name", ["none/new.cache", "."])
def test_a_place_where_no_file_can_be_is_refused_before_the_search(
    run_lar: RunLar, tmp_path: Path, name: str
) -> None:
    done = run_lar("run", DIGITS, "--fast-run", POLICY, name, cwd=tmp_path)
    assert done.returncode == 2
    assert "iter 0/" not in done.stdout
    assert re.search(r"cannot be written|not a file", done.stderr)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused_before_the_search(
    run_lar: RunLar, tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    done = run_lar("run", DIGITS, "--fast-run", POLICY, str(tmp_path / "new.cache"))
    tmp_path.chmod(0o700)
    assert done.returncode == 2
    assert "cannot be written: permission denied" in done.stderr


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="there is no such folder")
def test_the_cause_is_named_where_nobody_may_write(run_lar: RunLar) -> None:
    done = run_lar("run", DIGITS, "--fast-run", POLICY, "/sys/kernel/new.cache")
    assert (done.returncode, "iter 0/" in done.stdout) == (2, False)
    problem, hint = done.stderr.splitlines()[-2:]
    assert re.search(
        r"--fast-run-algo-policy: /sys/kernel/new\.cache: cannot be written: "
        "(permission denied|read-only file system|operation not permitted)$",
        problem,
    )
    assert hint == "hint: choose another file"


@pytest.mark.parametrize(
    ("cache", "others"),
    [
        *(("w", f"{flag} w") for flag in ("--json", "--csv", "--profile", "--io-dump")),
        ("w", "--packed-model-dump ./w"),
        *(("d/w", f"{flag} d") for flag in ("--bin-out-dump", "--bin-io-dump")),
    ],
)
@pytest.mark.parametrize("model", ["digits_cnn.mge", "digits_cnn.onnx"])
def test_what_is_written_does_not_take_the_place_of_the_cache(
    model: str, cache: str, others: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    if model.endswith(".onnx"):
        others = others.replace("--packed-model-dump", "--model-dump")
    words = [str(MODELS / model), "--fast-run", POLICY, cache, *others.split(), "--iter", "1"]
    with pytest.raises(UsageError, match=f"this is the file of {POLICY}|is inside d, where "):
        dispatch(words)
    assert [*tmp_path.rglob("w")] == []


def test_a_search_without_a_file_begins_with_an_empty_cache(tmp_path: Path) -> None:
    given: list[tuple[str, bool]] = []
    library = SimpleNamespace(set_persistent_cache=lambda *asked: given.append(asked))
    context = RunContext(work_folder=str(tmp_path))
    lite = SimpleNamespace(LiteGlobal=library)
    driver: Any = SimpleNamespace(runner=0, context=context, lite=lite)
    use_cache(driver, None, searching=True)
    assert given == [(str(work_copy(context)), True)]
    assert read_cache(work_copy(context)) == {}
