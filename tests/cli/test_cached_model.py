"""`lar cache` on caches of ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.runs import cache, write_model_cache
from tests.command_lines import ROOT, run_lar

DIGITS = ROOT / "models" / "digits_cnn.onnx"


def test_show_prints_what_it_was_made_for_and_its_sizes(tmp_path: Path) -> None:
    text = cache("show", write_model_cache(tmp_path / "a.cache"))
    assert [line.split(maxsplit=1) for line in text.splitlines()] == [
        ["made", "for"],
        ["model", "abc"],
        ["threads", "2"],
        ["size", "of the model    61.3 KiB"],
        ["size", "of its weights  2.0 KiB, as operators take them"],
        ["file", "of its weights  a.cache.0123abcd.data"],
    ]


def test_show_writes_json(tmp_path: Path) -> None:
    path = write_model_cache(tmp_path / "a.cache")
    content = json.loads(cache("show", path, "--json", "-"))
    assert content == {
        "format": "lar.cache/1",
        "file": path,
        "key": {"model": "abc", "operators": "", "threads": "2"},
        "model_bytes": DIGITS.stat().st_size,
        "data": "a.cache.0123abcd.data",
        "data_bytes": 2048,
        "prepacked": True,
    }
    assert cache("show", path, "--json", tmp_path / "a.json").startswith("made for")
    assert json.loads((tmp_path / "a.json").read_text()) == content


def test_diff_prints_what_they_were_made_for_differently(tmp_path: Path) -> None:
    first = write_model_cache(tmp_path / "a.cache")
    second = write_model_cache(tmp_path / "b.cache", threads="4", provider="CPU")
    assert [line.split() for line in cache("diff", first, second, code=1).splitlines()] == [
        ["differs", "in", first, second],
        ["threads", "2", "4"],
        ["provider", "CPU"],
        ["the", "same:", "2"],
    ]
    assert cache("diff", first, first) == "the same: 3\n"


def test_a_real_cache_is_shown(tmp_path: Path) -> None:
    path = str(tmp_path / "digits.cache")
    flags = ["--fast-run", "--fast-run-algo-policy", path, "--multithread", "2"]
    run_lar(str(DIGITS), "--iter", "0", *flags, code=0)
    shown = dict(line.split(maxsplit=1) for line in cache("show", path).splitlines()[1:])
    sha256 = (DIGITS.with_name(DIGITS.name + ".sha256")).read_text().split()[0]
    assert (shown["model"], shown["threads"], shown["optimization"]) == (sha256, "2", "all")
    assert shown["provider"] == "CPUExecutionProvider"
