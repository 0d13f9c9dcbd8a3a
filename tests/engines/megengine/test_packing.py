"""`--packed-model-dump` and what runs of a packed model do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lar
from lar.engines.megengine import packed_model
from lar.engines.megengine.packed_model import (
    LARGEST_MODEL,
    PACKED_MAGIC,
    is_packed,
    open_packed,
    plain_graph,
    unpack_model,
    write_packed,
)
from lar.engines.megengine.packing import check_info, deploy, refuse_lost_options
from lar.errors import UsageError
from lar.running.plan import plan_run
from tests.cli.failures import check_error
from tests.conftest import RunLar
from tests.engines.megengine.probed import difference, probe, run_alone
from tests.engines.megengine.programs import MODELS
from tests.engines.runs import run_ok
from tests.refusals import refused
from tests.tables import each_row

DIGITS = MODELS / "digits_cnn.mge"
INFO: dict[str, Any] = {"name": "digits", "valid": True, "version": "1.13.0"}
INPLACE = {"device": {"type": "CPU", "enable_inplace_model": True}}


@pytest.fixture(scope="module")
def folder(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache, settings, and a packed model with each."""
    folder = tmp_path_factory.mktemp("packed")
    search = ["--fast-run", "--fast-run-algo-policy", "found.cache", "--iter", "0"]
    run_lar("run", str(DIGITS), *search, "--warmup-iter", "1", cwd=folder, code=0)
    (folder / "info.json").write_text(json.dumps(INFO | INPLACE))
    for name, option in (("cache", "pack-cache=found.cache"), ("info", "pack-info-json=info.json")):
        arguments = ["--packed-model-dump", f"{name}.lite", f"--{option}", "--iter", "0"]
        run_lar("run", str(DIGITS), *arguments, cwd=folder, code=0)
    return folder


def test_what_is_packed_is_what_was_given(folder: Path) -> None:
    info, cache = open_packed(folder / "info.lite"), open_packed(folder / "cache.lite")
    assert info.info == (folder / "info.json").read_bytes()
    assert cache.cache == (folder / "found.cache").read_bytes()
    assert (info.cache, cache.info) == (None, None)
    assert (info.name, cache.name) == ("digits", "digits_cnn")
    assert bytes(info.graph) == bytes(cache.graph) == DIGITS.read_bytes()


def test_of_a_packed_model_the_rest_is_kept(run_lar: RunLar, folder: Path) -> None:
    arguments = ["--packed-model-dump", "both.lite", "--pack-info-json", "info.json", "--iter", "0"]
    assert run_lar("run", "cache.lite", *arguments, cwd=folder).returncode == 0
    both = open_packed(folder / "both.lite")
    assert both.cache == (folder / "found.cache").read_bytes()
    assert both.info == (folder / "info.json").read_bytes()
    assert bytes(both.graph) == DIGITS.read_bytes()


@each_row("engines/megengine/packing/modes")
def test_it_is_run_in_the_mode_that_is_asked_for(
    folder: Path, name: str, settings: dict[str, Any], threads: int
) -> None:
    """Settings and a cache have lite set the device anew, which once lost the inplace mode."""
    found = probe("lite", folder / f"{name}.lite", settings)
    assert len(found.new_threads) == threads
    assert difference(found, probe("lite", "digits_cnn")) < 1e-5


def test_lite_itself_computes_the_same(folder: Path, tmp_path: Path) -> None:
    models = DIGITS, folder / "info.lite", folder / "cache.lite"
    plain, *packed = (run_alone(model, tmp_path) for model in models)
    for output in packed:
        np.testing.assert_allclose(output, plain, atol=1e-5)


def test_a_search_reads_the_cache_inside(run_lar: RunLar, folder: Path) -> None:
    def search(model: str) -> str:
        done = run_lar("run", model, "--fast-run", "--verbose", "--iter", "1", cwd=folder, code=0)
        return done.stderr

    plain, packed = search(str(DIGITS)), search("cache.lite")
    assert "profiling Convolution" in plain
    assert "profiling Convolution" not in packed


def test_the_graph_driver_unpacks_it(folder: Path) -> None:
    plain = folder / "plain.mge"
    result = run_ok(folder / "info.lite", driver="graph", model_dump=plain, iter=1)
    assert result.outputs[0].name == "logits"
    assert lar.read_info(plain).metadata.get("packed") is None
    assert lar.read_info(folder / "info.lite").metadata["packed"] == "digits, with settings"


@each_row("engines/megengine/packing/unread")
def test_files_that_lite_cannot_read_are_refused_before_a_worker_is_started(
    tmp_path: Path, option: str, content: str, problem: str
) -> None:
    (tmp_path / "file").write_text(content)
    values = {"packed_model_dump": str(tmp_path / "never"), option: str(tmp_path / "file")}
    refused(f"--{option.replace('_', '-')}: .*file: {problem}", plan_run, str(DIGITS), values)


def test_options_at_odds_with_the_packed_model_are_refused(
    run_lar: RunLar, folder: Path, tmp_path: Path
) -> None:
    settings = json.dumps(INFO | {"options": {"const_shape": False}}).encode()
    write_packed(tmp_path / "odd.lite", DIGITS.read_bytes(), "digits", settings)
    damaged = bytearray((folder / "cache.lite").read_bytes())
    damaged[12:16] = b"\xff\xff\xff\x7f"
    (tmp_path / "damaged.lite").write_bytes(damaged)
    runs = [
        (tmp_path / "odd.lite", ["--const-shape"], "--const-shape: "),
        (folder / "cache.lite", ["--fast-run", "--fast-run-algo-policy", "x"], "--fast-run-algo"),
        (folder / "cache.lite", ["--fast-run", "--winograd-transform"], "--winograd-transform: "),
        (tmp_path / "damaged.lite", [], "the packed model is damaged"),
    ]

    for model, arguments, said in runs:
        done = run_lar("run", str(model), *arguments, cwd=tmp_path)
        check_error(done, 2, said)
        assert "Traceback" not in done.stderr


# lite's packed files: written and read back whole, and refused when they are damaged


with_tmp_path = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60
)
blobs = st.binary(max_size=40)


class TestFormat:
    @with_tmp_path
    @given(
        graph=st.binary(min_size=1, max_size=80),
        name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        info=st.none() | blobs,
        cache=st.none() | blobs,
    )
    def test_what_is_written_is_read_back(
        self, tmp_path: Path, graph: bytes, name: str, info: bytes | None, cache: bytes | None
    ) -> None:
        path = tmp_path / "model.lite"
        write_packed(path, graph, name, info, cache)
        assert is_packed(path)
        packed = open_packed(path)
        assert (packed.name, packed.info, packed.cache) == (name, info, cache)
        assert bytes(plain_graph(packed, "it")) == graph

    @with_tmp_path
    @given(data=st.data())
    def test_a_damaged_file_is_read_or_refused_in_one_line(
        self, tmp_path: Path, data: st.DataObject
    ) -> None:
        path = tmp_path / "model.lite"
        write_packed(path, b"graph", "name", b"{}", bytes(4))
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(len(PACKED_MAGIC), len(content) - 1))
            content[place] = data.draw(st.integers(0, 255))
        content = content[: data.draw(st.integers(len(PACKED_MAGIC), len(content)))]
        said = "it: the packed model is damaged: x"
        try:
            unpack_model(bytes(content), "it")
        except UsageError as error:
            said = str(error)
        assert said.startswith("it: the packed model is damaged: ")
        assert said.isprintable()

    def test_an_encrypted_model_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "model.lite"
        write_packed(path, b"graph", "name")
        # The texts stand in the file from the last to the first.
        packed = unpack_model(path.read_bytes().replace(b"NONE", b"RC4_", 1))
        assert packed.graph_encrypted
        assert not packed.info_encrypted
        refused("it: the model in this file is encrypted", plain_graph, packed, "it")


def build_packed(
    *,
    models: int = 1,
    texts: Sequence[str | None] = ("m", "NONE", "LITE_default", "NONE", "LITE_parse_cache"),
    is_cache: bool = True,
    info: bytes | None = b"{}",
    cache: bytes | None = b"\0\0\0\0",
    graph: str | None = "graph",
) -> bytes:
    """Build a packed file as lite's own writer would, with parts that may be left out."""
    builder: Any = flatbuffers.Builder(256)

    def add_table(*fields: int | None) -> int:
        builder.StartObject(len(fields))
        for index, field in enumerate(fields):
            if field is not None:
                builder.PrependUOffsetTRelativeSlot(index, field, 0)
        return int(builder.EndObject())

    places = [None if text is None else builder.CreateString(text) for text in texts]
    builder.StartObject(6)
    for index, place in enumerate(places):
        if place is not None:
            builder.PrependUOffsetTRelativeSlot(index, place, 0)
    builder.PrependBoolSlot(5, is_cache, False)
    header = builder.EndObject()
    blobs = [None if blob is None else builder.CreateByteVector(blob) for blob in (info, cache)]
    settings = add_table(*blobs)
    data = add_table(None if graph is None else builder.CreateByteVector(graph.encode()))
    model = add_table(header, settings, data)
    builder.StartVector(4, models, 4)
    for _ in range(models):
        builder.PrependUOffsetTRelative(model)
    builder.Finish(add_table(builder.EndVector()))
    return PACKED_MAGIC + bytes(builder.Output())


class TestParts:
    @each_row("engines/megengine/packed_settings/parts")
    def test_a_file_with_a_part_missing_is_refused(self, parts: dict[str, Any], said: str) -> None:
        refused(f"damaged: {said}$", unpack_model, build_packed(**parts))

    def test_the_largest_model_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packed_model, "LARGEST_MODEL", 5)
        write_packed(tmp_path / "model.lite", b"12345", "m")
        refused("2 GiB at most", write_packed, tmp_path / "model.lite", b"123456", "m")
        assert 2**30 < LARGEST_MODEL < 2**31


class TestSettings:
    @each_row("engines/megengine/packed_settings/taken")
    def test_what_lite_reads_is_taken(self, fields: dict[str, Any]) -> None:
        info = INFO | fields
        assert check_info(json.dumps(info).encode()) == info

    @each_row("engines/megengine/packed_settings/refused")
    def test_what_lite_does_not_is_refused(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
            check_info(json.dumps(INFO | fields).encode())
        assert said in str(caught.value)

    @pytest.mark.parametrize(
        "text", [b"", b"[]", b"{", b"\xff", b'{"name": NaN}', b"[" * 100_000, b"null", b"{}"]
    )
    def test_what_is_no_json_or_no_object_is_refused(self, text: bytes) -> None:
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            check_info(text)


class TestLostOptions:
    @each_row("engines/megengine/packed_settings/agreeing")
    def test_settings_that_agree_are_left_alone(
        self, given: dict[str, Any], fields: dict[str, int], info: dict[str, Any]
    ) -> None:
        refuse_lost_options("it", given, fields, info)

    @each_row("engines/megengine/packed_settings/lost")
    def test_an_option_that_would_be_lost_is_refused(
        self, given: dict[str, Any], fields: dict[str, int], info: dict[str, Any], said: str
    ) -> None:
        refused(said, refuse_lost_options, "it", given, fields, info)


@each_row("engines/megengine/packing/deployments")
def test_what_is_written_of_settings(
    tmp_path: Path,
    settings: dict[str, Any],
    runs: list[Any],
    device: dict[str, Any],
    options: dict[str, Any],
    held: list[str],
    left_out: list[str],
) -> None:
    """The options of each run and the one that names its file, and what lite reads."""
    found = deploy(settings, Path("models/m.mge"), tmp_path)
    assert [[[*run.options], run.writes.key] for run in found.runs] == runs
    info = json.loads((tmp_path / "info.json").read_text())
    assert (info["name"], info["device"], info["options"]) == ("m", device, options)
    assert [[*found.held], [*found.left_out]] == [held, left_out]
    assert info["extra_info"]["not_held"] == {key: settings[key] for key in left_out}
