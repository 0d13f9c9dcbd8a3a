"""`lar cache`: what its actions print, write and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lar.engines.megengine.cache import (
    AlgorithmCache,
    bytes_of,
    operators_of,
    read_cache,
    update_cache,
)
from tests.cli.runs import cache
from tests.command_lines import ROOT
from tests.engines.megengine.caches import algorithm
from tests.tables import each_row

REAL = ROOT / "tests" / "data" / "digits_cnn.cache"
IM2COL = "CONVOLUTION_DEFAULT_IM2COLMATMUL:X86_F32_6x16:384"
WINOGRAD = "CONVOLUTION_DEFAULT_WINOGRAD:FB_GI_F32_MK4_4x8:4:4:24:3"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A cache file that may be changed."""
    path = tmp_path / "a.cache"
    path.write_bytes(REAL.read_bytes())
    return path


def chosen_in(path: Path) -> list[str]:
    return [each.chosen.name for each in operators_of(read_cache(path))]


def words_of(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


# show


def test_show_of_an_empty_cache(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(bytes(4))
    assert cache("show", tmp_path / "empty") == "operators: 0\n"


def test_show_tells_what_it_does_not_read(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(bytes_of({("jit:nvrtc:plat=cuda", b"key"): b"ptx"}))
    text = cache("show", tmp_path / "other")
    assert "jit:nvrtc:plat=cuda: 1 entries that no search made, kept as they are" in text


def test_show_json_holds_everything(tmp_path: Path) -> None:
    content = json.loads(cache("show", REAL, "--json", "-"))
    assert (content["format"], content["file"]) == ("lar.cache/1", str(REAL))
    first = content["operators"][0]
    assert (first["number"], first["operator"]) == (1, "ConvolutionForward")
    assert first["operands"][1] == {"shape": [32, 16, 3, 3], "strides": [], "dtype": "Float32"}
    assert first["settings"]["pad_h"] == 1
    assert first["settings"]["format"] == "NCHW"
    assert bytes.fromhex(first["key"]).startswith(b"1,16,8,8;Float32|")
    assert first["algorithms"][0] == {
        "name": IM2COL,
        "seconds": 1.1e-05,
        "times": [1.1e-05],
        "chosen_by": 1,
        "workspace_bytes": 103424,
        "attributes": ["reproducible"],
        "winograd": "",
    }

    printed = cache("show", REAL, "--operator", "2", "--json", tmp_path / "one.json")
    assert printed.startswith("operators: 1,")
    assert json.loads((tmp_path / "one.json").read_text())["operators"] == content["operators"][1:2]


# diff


def test_diff_prints_both_choices_and_times(copy: Path) -> None:
    cache("pick", copy, "1", WINOGRAD)
    title, header, row, spread, same = cache("diff", REAL, copy, code=1).splitlines()
    assert (title, same) == ("another choice: 1", "same choice: 8")
    both = ["ms", "of both"]
    assert words_of(header)[2:] == [str(REAL), *both, str(copy), *both, "spread"]
    assert words_of(row)[2:] == [IM2COL, "0.011", "0.011..0.011", WINOGRAD, "0.060", "0.060..0.060"]
    assert spread == "1 of 9 operators disagrees, 0 of them within the spread"


def with_times(folder: Path, name: str, **seconds: str) -> Path:
    """A cache as a search writes it: an operator `k` with algorithms of these times."""
    algorithms = sorted(
        (algorithm(each, time) for each, time in seconds.items()), key=lambda each: each.seconds
    )
    path = folder / name
    path.write_bytes(bytes_of({("profile:plat=cpu:MatrixMulv5X0", b"k"): tuple(algorithms)}))
    return path


def test_diff_says_what_lies_within_the_spread(tmp_path: Path) -> None:
    first = with_times(tmp_path, "a", A="1e-05", B="2e-05")
    second = with_times(tmp_path, "b", A="3e-05", B="1.5e-05")
    _, _, row, spread, _ = cache("diff", first, second, code=1).splitlines()
    assert words_of(row)[2:5] == ["A", "0.010", "0.010..0.030"]
    assert words_of(row)[5:] == ["B", "0.015", "0.015..0.020", "within"]
    assert spread == "1 of 1 operator disagrees, 1 of them within the spread"


# show of several files


def test_show_of_several_prints_the_spread(tmp_path: Path) -> None:
    files = [
        with_times(tmp_path, "a", A="1e-05", B="2e-05"),
        with_times(tmp_path, "b", A="1.2e-05", B="1.1e-05"),
        with_times(tmp_path, "c", A="9e-06"),
    ]
    text = cache("show", *files)
    facts, disagree, empty, header, row = text.splitlines()
    assert facts == "operators: 1, of 3 files, searched on plat=cpu"
    assert disagree == "1 of 1 operator disagrees, 1 of them within the spread"
    assert (empty, words_of(header)[3]) == ("", "chosen")
    assert words_of(row)[3:6] == ["3", "A", "2"]
    assert words_of(row)[6:8] == ["0.010", "0.009..0.012"]
    assert words_of(row)[8:11] == ["B", "0.015", "0.011..0.020"]
    assert words_of(row)[11] == "1 B (within the spread)"

    text = cache("show", *files, "--all")
    rows = [words_of(line) for line in text.splitlines()[4:]]
    assert rows[0][:4] == ["algorithm", "chosen by", "kept by", "ms"]
    assert rows[1][:5] == ["*", "A", "2", "3", "0.010"]
    assert rows[2][:4] == ["B", "1", "2", "0.015"]

    text = cache("show", *files, "--json", "-")
    content = json.loads(text)
    assert content["files"] == list(map(str, files))
    operator = content["operators"][0]
    assert (operator["searches"], operator["agree"], operator["within_spread"]) == (3, False, True)
    assert operator["algorithms"][0]["times"] == [1e-05, 1.2e-05, 9e-06]


def test_diff_prints_what_only_one_has(tmp_path: Path) -> None:
    convolutions, rest = parts_of(tmp_path)
    text = cache("diff", convolutions, rest, code=1)
    assert f"only in {convolutions}: 3\n" in text
    assert f"only in {rest}: 6\n" in text
    assert text.endswith("same choice: 0\n")


# merge


def test_merge_writes_what_any_file_knows_and_the_last_wins(copy: Path, tmp_path: Path) -> None:
    cache("pick", copy, "1", WINOGRAD)
    output = tmp_path / "out.cache"
    assert cache("merge", REAL, copy, "-o", output, "--prefer", "last").splitlines() == [
        f"{output}: operators: 9, from 2 files",
        "1 of 9 operators disagrees, 0 of them within the spread",
    ]
    assert chosen_in(output)[0] == WINOGRAD
    cache("merge", copy, REAL, "-o", output, "--prefer", "last")
    assert output.read_bytes() == REAL.read_bytes()


@each_row("cli/cases/preferences of a merge")
def test_merge_prefers_what_it_is_asked_to(
    tmp_path: Path, prefer: str, choice: str, seconds: float
) -> None:
    files = [
        with_times(tmp_path, "a", A="1e-05", B="2e-05"),
        with_times(tmp_path, "b", A="1.1e-05", B="2.1e-05"),
        with_times(tmp_path, "c", A="1.2e-05", B="9e-06"),
    ]
    output = tmp_path / "out.cache"
    text = cache("merge", *files, "-o", output, "--prefer", prefer)
    assert text.endswith("1 of 1 operator disagrees, 1 of them within the spread\n")
    chosen = operators_of(read_cache(output))[0].chosen
    assert (chosen.name, chosen.seconds) == (choice, seconds)
    if prefer == "median":
        cache("merge", *files, "-o", tmp_path / "default.cache")
        assert (tmp_path / "default.cache").read_bytes() == output.read_bytes()


def test_merge_counts_the_file_that_it_adds_to(tmp_path: Path) -> None:
    output = with_times(tmp_path, "out", A="1e-05", B="2e-05")
    second = with_times(tmp_path, "b", A="5e-05", B="3e-05")
    cache("merge", second, "-o", output)
    assert chosen_in(output) == ["B"]  # medians: 30 and 25 microseconds
    # One of the files is not counted twice.
    cache("merge", output, second, "-o", output, "--prefer", "first")
    assert chosen_in(output) == ["B"]


def test_a_choice_by_hand_outlives_a_merge(copy: Path, tmp_path: Path) -> None:
    cache("pick", copy, "1", WINOGRAD)
    cache("merge", copy, REAL, "-o", tmp_path / "out.cache")
    assert chosen_in(tmp_path / "out.cache")[0] == WINOGRAD


def parts_of(folder: Path) -> tuple[Path, Path]:
    """The convolutions and the rest of the real cache, a file each."""
    first, second = folder / "first", folder / "second"
    for path, is_first in ((first, True), (second, False)):
        part = {k: it for k, it in read_cache(REAL).items() if ("Convolution" in k[0]) is is_first}
        path.write_bytes(bytes_of(part))
    return first, second


def test_merge_keeps_what_the_file_has(copy: Path, tmp_path: Path) -> None:
    convolutions, rest = parts_of(tmp_path)
    said = f"{rest}: operators: 9, from 1 file, and 6 that it had\n"
    assert cache("merge", convolutions, "-o", rest) == said
    assert set(chosen_in(rest)) == set(chosen_in(REAL))
    cache("pick", copy, "1", WINOGRAD)
    cache("merge", copy, "-o", rest)  # what is merged wins
    assert WINOGRAD in chosen_in(rest)


def test_merge_keeps_what_comes_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convolutions, rest = parts_of(tmp_path)
    output = tmp_path / "out.cache"

    def read_slowly(name: str) -> AlgorithmCache:
        monkeypatch.undo()
        cache = read_cache(name)
        update_cache(output, lambda old: {**old, **read_cache(rest)})
        return cache

    monkeypatch.setattr("lar.engines.megengine.cache.read_cache", read_slowly)
    cache("merge", convolutions, "-o", output)
    assert set(chosen_in(output)) == set(chosen_in(REAL))


# pick


def test_pick_changes_the_file(copy: Path) -> None:
    assert cache("pick", copy, "32,16,3,3", "4:4:24:3").splitlines() == [
        "1: ConvolutionForward {1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32, pad 1",
        f"  was {IM2COL}  0.011 ms",
        f"  is  {WINOGRAD}  0.060 ms",
    ]
    assert chosen_in(copy) == [WINOGRAD, *chosen_in(REAL)[1:]]


def test_pick_into_another_file_leaves_the_first(copy: Path, tmp_path: Path) -> None:
    output = tmp_path / "b.cache"
    cache("pick", copy, "1", WINOGRAD, "-o", output)
    assert copy.read_bytes() == REAL.read_bytes()
    assert chosen_in(output)[0] == WINOGRAD


def test_picks_into_another_file_add_to_it(tmp_path: Path) -> None:
    convolutions, output = parts_of(tmp_path)
    text = cache("pick", convolutions, "1", WINOGRAD, "-o", output)
    assert f"is  {WINOGRAD}" in text
    assert len(chosen_in(output)) == 9
    # The second leaves the first as it is.
    text = cache("pick", convolutions, "2", "FALLBACK_ALGO", "-o", output)
    assert "is  FALLBACK_ALGO" in text
    assert {WINOGRAD, "FALLBACK_ALGO"} <= set(chosen_in(output))
    said = "this is the choice already\n"
    assert cache("pick", convolutions, "2", "FALLBACK_ALGO", "-o", output) == said


def test_pick_of_the_choice_changes_nothing(copy: Path) -> None:
    assert cache("pick", copy, "1", IM2COL) == "this is the choice already\n"
    assert copy.read_bytes() == REAL.read_bytes()


def test_pick_warns_of_an_algorithm_that_is_passed_over(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes().replace(b":1;6e-05;242688:", b":3;6e-05;242688:"))
    text = cache("pick", copy, "1", WINOGRAD)
    assert "note: a naive algorithm; the policy OPTIMIZED passes over it" in text
