"""The folder in which command lines of the tables are run."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.cli.runs import (
    fill_store,
    save_kinds,
    write_dump,
    write_model_cache,
    write_profile_of_two,
)
from tests.command_lines import ROOT

ONE = '{"inputs": [{"name": "data", "dtype": "float32", "shape": %s}], "outputs": {"prob": [1.0]}}'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the refused command lines: models, inputs, dumps, results, and what is none."""
    place = tmp_path_factory.mktemp("refused")
    for name in ("models", "inputs"):
        shutil.copytree(ROOT / name, place / name)
    (place / "data").symlink_to(ROOT / "tests/data")
    for short, name in (("m", "one_operator"), ("d", "digits_cnn")):
        for suffix in (".onnx", ".mge"):
            shutil.copy(ROOT / "models" / f"{name}{suffix}", place / f"{short}{suffix}")
    for name in ("digits/a.npy", "digits/b.npy", "seven.npy"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "inputs/digit_7.npy", place / name)
    (place / "digits.txt").write_text("seven.npy\nseven.npy\n")
    np.save(place / "four.npy", np.ones(4, np.float32))
    np.save(place / "four_integers.npy", np.ones(4, np.int32))
    shutil.copy(ROOT / "README.md", place)
    shutil.copy(place / "data/digits_cnn.cache", place / "a.cache")
    for name, shape in (("s.fake", "[4]"), ("photo.fake", "[1, 3, 224, 224]")):
        (place / name).write_text(ONE % shape)
    (place / "link.fake").symlink_to("s.fake")
    (place / "link.npy").symlink_to("four.npy")
    (place / "hard.npy").hardlink_to(place / "four.npy")
    (place / "fours.txt").write_text("four.npy\n")
    for folder in ("folder", "folder.index.json", "full"):
        (place / folder).mkdir()
    log = (place / "data/load_and_run/mobilenet_default.txt").read_bytes()
    for name, content in (
        ("full/file", b""),
        ("empty.json", b""),
        ("brace.json", b"{"),
        ("object.json", b'{"traceEvents": []}'),
        ("future.json", b'{"schema":"lar.profile/9"}'),
        ("foreign.index.json", b"a,b\n1,2\n"),
        ("whole.txt", log),
        ("cut.txt", log[:1900]),
        ("text", b"text " * 200),
        ("torn.onnx", b"\x08\x07 torn"),
    ):
        (place / name).write_bytes(content)
    for name in ("one", "other", "damaged"):
        arrays = {f"00000{number}": np.full((2, 3), number, np.float32) for number in (1, 2)}
        write_dump(place / name, **arrays)
    tensor = place / "damaged/000002"
    tensor.write_bytes(tensor.read_bytes()[:-4])
    save_kinds(place / "kinds")
    write_model_cache(place / "m.cache")
    fill_store(place / "store.sqlite")
    write_profile_of_two(place / "p.json")
    return place
