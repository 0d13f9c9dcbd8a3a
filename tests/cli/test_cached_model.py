"""`lar cache` on caches of ONNX Runtime."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lar.cli import cache as command
from lar.cli.parser import parser_of
from lar.engines.onnxruntime.cache import CACHE_FORMAT, ModelCache
from lar.errors import UsageError
from tests.conftest import RunLar

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "models" / "digits_cnn.onnx"
MEGENGINE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `lar cache` in this process: its exit code, and what it printed."""

    def run(*words: object) -> tuple[int, str]:
        code = command.main(parser_of("cache").parse_args(list(map(str, words))))
        return code, capsys.readouterr().out

    return run


def write_cache(path: Path, **key: str) -> Path:
    """Write a cache whose second file has 2048 bytes."""
    model, data = DIGITS.read_bytes(), bytes(2048)
    name = f"{path.name}.0123abcd.data"
    path.with_name(name).write_bytes(data)
    cache = ModelCache(
        format=CACHE_FORMAT,
        prepacked=True,
        weights=(),
        key={"model": "abc", "operators": "", "threads": "2", **key},
        model=model,
        model_crc32=zlib.crc32(model),
        data=name,
        data_bytes=len(data),
        data_crc32=zlib.crc32(data),
    )
    path.write_bytes(msgspec.json.encode(cache))
    return path


def test_show_prints_what_it_was_made_for_and_its_sizes(run: Run, tmp_path: Path) -> None:
    code, text = run("show", write_cache(tmp_path / "a.cache"))
    assert code == 0
    assert [line.split(maxsplit=1) for line in text.splitlines()] == [
        ["made", "for"],
        ["model", "abc"],
        ["threads", "2"],
        ["size", "of the model    61.3 KiB"],
        ["size", "of its weights  2.0 KiB, as operators take them"],
        ["file", "of its weights  a.cache.0123abcd.data"],
    ]


def test_show_writes_json(run: Run, tmp_path: Path) -> None:
    path = write_cache(tmp_path / "a.cache")
    code, text = run("show", path, "--json", "-")
    assert (code, json.loads(text)) == (
        0,
        {
            "format": "lar.cache/1",
            "file": str(path),
            "key": {"model": "abc", "operators": "", "threads": "2"},
            "model_bytes": DIGITS.stat().st_size,
            "data": "a.cache.0123abcd.data",
            "data_bytes": 2048,
            "prepacked": True,
        },
    )
    code, text = run("show", path, "--json", tmp_path / "a.json")
    assert text.startswith("made for")
    assert json.loads((tmp_path / "a.json").read_text())["data_bytes"] == 2048


def test_diff_prints_what_they_were_made_for_differently(run: Run, tmp_path: Path) -> None:
    first = write_cache(tmp_path / "a.cache")
    second = write_cache(tmp_path / "b.cache", threads="4", provider="CPU")
    code, text = run("diff", first, second)
    assert code == 1
    assert [line.split() for line in text.splitlines()] == [
        ["differs", "in", str(first), str(second)],
        ["threads", "2", "4"],
        ["provider", "CPU"],
        ["the", "same:", "2"],
    ]
    assert run("diff", first, first) == (0, "the same: 3\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("merge {a} {a} -o {out}", "no algorithms to merge"),
        ("merge {megengine} -o {a}", "these are caches of two engines"),
        ("pick {a} 1 X", "no algorithms to pick from"),
        ("show {a} --all", "no algorithms to show by --all"),
        ("show {a} --operator 1", "no algorithms to show by --operator"),
        ("diff {a} {megengine}", "these are caches of two engines"),
        ("diff {megengine} {a}", "these are caches of two engines"),
        ("show {model}", "is not a fast-run cache"),
        ("merge {model} -o {out}", "is not a fast-run cache"),
    ],
)
def test_what_a_model_has_no_algorithms_for_is_refused(
    run: Run, tmp_path: Path, words: str, complaint: str
) -> None:
    cache = write_cache(tmp_path / "a.cache")
    before = cache.read_bytes()
    names = {"a": cache, "out": tmp_path / "out", "megengine": MEGENGINE, "model": DIGITS}
    with pytest.raises(UsageError, match=complaint):
        run(*words.format(**names).split())
    assert cache.read_bytes() == before
    assert not (tmp_path / "out").exists()


def test_a_real_cache_is_shown(run_lar: RunLar, run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "digits.cache")
    flags = ["--fast-run", "--fast-run-algo-policy", path, "--multithread", "2"]
    assert run_lar(str(DIGITS), "--iter", "0", *flags).returncode == 0
    code, text = run("show", path)
    assert code == 0
    shown = dict(line.split(maxsplit=1) for line in text.splitlines()[1:])
    sha256 = (DIGITS.with_name(DIGITS.name + ".sha256")).read_text().split()[0]
    assert (shown["model"], shown["threads"], shown["optimization"]) == (sha256, "2", "all")
    assert shown["provider"] == "CPUExecutionProvider"
