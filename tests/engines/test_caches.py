"""What engines do alike with the file of --fast-run-algo-policy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import lar
from lar.engines import engine_named
from tests.cli.failures import check_error
from tests.command_lines import Done
from tests.conftest import RunLar
from tests.engines.onnx_models import MODELS, needs
from tests.tables import each_row

# What each engine says of a file that is none of its caches.
COMPLAINTS: Mapping[str, str] = {
    "megengine": "is not a fast-run cache of MegEngine",
    "onnxruntime": "is not a cache that lar made for ONNX Runtime, or is damaged",
    "openvino": "is not a cache that lar made for OpenVINO, or is damaged",
}
each = pytest.mark.parametrize("engine", [pytest.param(it, marks=needs(it)) for it in COMPLAINTS])


def model_for(engine: str, name: str = "digits_cnn") -> str:
    return str(MODELS / f"{name}.{'mge' if engine == 'megengine' else 'onnx'}")


def run_cached(
    run_lar: RunLar, engine: str, place: Path, *flags: str, model: str = "digits_cnn"
) -> Done:
    words = ["--engine", engine, "--iter", "1", "--fast-run-algo-policy", str(place)]
    return run_lar(model_for(engine, model), *words, *flags)


@pytest.fixture(scope="module")
def searched(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bytes]:
    """The content of a cache that an engine has made."""

    @functools.cache
    def content(engine: str) -> bytes:
        place = tmp_path_factory.mktemp("caches") / "model.cache"
        assert run_cached(run_lar, engine, place, "--fast-run").returncode == 0
        return place.read_bytes()

    return content


@each
def test_a_link_to_a_cache_stays_one(run_lar: RunLar, tmp_path: Path, engine: str) -> None:
    (tmp_path / "caches").mkdir()
    real, link = tmp_path / "caches" / "real", tmp_path / "link"
    assert run_cached(run_lar, engine, real, "--fast-run").returncode == 0
    before = real.read_bytes()
    link.symlink_to(real)
    other = ["--fast-run", "--multithread", "1", "--input", "{2,1,8,8}"]
    assert run_cached(run_lar, engine, link, *other).returncode == 0
    assert link.is_symlink()
    assert real.read_bytes() != before
    assert {*tmp_path.iterdir()} == {link, real.parent}


@each
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        *(("empty", []), ("cut", []), ("of another engine", [])),
        *(("text", ["--fast-run"]), ("cut", ["--fast-run"])),
    ],
)
def test_what_is_no_cache_is_refused_and_left_as_it_is(
    run_lar: RunLar,
    searched: Callable[[str], bytes],
    tmp_path: Path,
    engine: str,
    flags: list[str],
    kind: str,
) -> None:
    other = "onnxruntime" if engine != "onnxruntime" else "megengine"
    content = {
        **{"empty": b"", "text": b"garbage", "cut": searched(engine)[:-5]},
        "of another engine": searched(other),
    }[kind]
    place = tmp_path / "model.cache"
    place.write_bytes(content)
    check_error(run_cached(run_lar, engine, place, *flags), 2, f"{place}: {COMPLAINTS[engine]}")
    assert place.read_bytes() == content
    assert [*tmp_path.iterdir()] == [place]


@each
def test_a_dump_of_a_cached_model_is_that_of_the_model(
    run_lar: RunLar, tmp_path: Path, engine: str
) -> None:
    place = tmp_path / "model.cache"
    cached, plain = (str(tmp_path / name) for name in ("cached", "plain"))
    assert run_cached(run_lar, engine, place, "--fast-run").returncode == 0
    assert run_cached(run_lar, engine, place, "--bin-io-dump", cached).returncode == 0
    words = [model_for(engine), "--engine", engine, "--iter", "1", "--bin-io-dump", plain]
    run_lar(*words, code=0)
    assert lar.compare(cached, plain).finding == "same"


@each_row("engines/caches/another run")
def test_one_for_another_run_is_built_again_and_says_so(
    run_lar: RunLar, tmp_path: Path, engine: str, flags: str, field: str
) -> None:
    if not engine_named(engine).is_installed:
        pytest.skip("not installed")
    place = tmp_path / "model.cache"
    another, search = ("digits_cnn", []) if flags else ("int8", ["--fast-run"])

    def made_by(*words: str, model: str = "digits_cnn") -> tuple[dict[str, bytes], list[str]]:
        """The files that there are when it has run, and what it says of the cache."""
        done = run_cached(run_lar, engine, place, *words, model=model)
        assert done.returncode == 0, done.stderr
        said = [line for line in done.stderr.splitlines() if "--fast-run-algo-policy" in line]
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}, said

    first, _ = made_by("--fast-run")
    assert made_by() == (first, [])
    other, said = made_by(*flags.split(), *search, model=another)
    warning = f"{place}: was made for a run that differs in {field}: it is built again"
    assert said == [f"lar: warning: --fast-run-algo-policy: {warning}"]
    assert len(other) == len(first)
    assert not other.items() & first.items()
    assert made_by(*flags.split(), model=another) == (other, [])
