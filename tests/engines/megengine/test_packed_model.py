"""lite's packed files: written and read back whole, and refused when they are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flatbuffers
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from lar.engines.megengine.packed_settings import check_info
from lar.engines.megengine.packing import refuse_lost_options
from lar.errors import UsageError

NEEDED = {"name": "m", "valid": True, "version": "1.13.0"}
DEVICE = {"type": "CPU", "number_threads": 2, "enable_inplace_model": True, "device_id": 0}
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
        said = "it: a packed model that is damaged: x"
        try:
            unpack_model(bytes(content), "it")
        except UsageError as error:
            said = str(error)
        assert said.startswith("it: a packed model that is damaged: ")
        assert said.isprintable()

    def test_an_encrypted_model_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "model.lite"
        write_packed(path, b"graph", "name")
        # The texts stand in the file from the last to the first.
        content = path.read_bytes().replace(b"NONE", b"RC4_", 1)
        packed = unpack_model(content)
        assert packed.graph_encrypted
        assert not packed.info_encrypted
        with pytest.raises(UsageError, match="it: the model in it is encrypted"):
            plain_graph(packed, "it")


def build_packed(
    *,
    models: int = 1,
    texts: tuple[str | None, ...] = ("m", "NONE", "LITE_default", "NONE", "LITE_parse_cache"),
    is_cache: bool = True,
    info: bytes | None = b"{}",
    cache: bytes | None = b"\0\0\0\0",
    graph: bytes | None = b"graph",
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
    data = add_table(None if graph is None else builder.CreateByteVector(graph))
    model = add_table(header, settings, data)
    builder.StartVector(4, models, 4)
    for _ in range(models):
        builder.PrependUOffsetTRelative(model)
    builder.Finish(add_table(builder.EndVector()))
    return PACKED_MAGIC + bytes(builder.Output())


class TestParts:
    @pytest.mark.parametrize(
        ("parts", "said"),
        [
            ({"models": 0}, "it holds no model, or several"),
            ({"models": 2}, "it holds no model, or several"),
            ({"graph": None}, "it holds no model"),
            ({"graph": b""}, "it holds no model"),
            ({"is_cache": False}, "its cache is not one of fast-run"),
            ({"texts": ("m", "NONE", "d", "NONE", "other")}, "its cache is not one of fast-run"),
            ({"texts": ("m", "NONE", "d", "NONE")}, "its cache is not one of fast-run"),
            ({"texts": ("m", "NONE", "d", None, "LITE_parse_cache")}, "its header is not whole"),
            ({"texts": (None, "NONE", "d", "NONE", "LITE_parse_cache")}, "its header is not whole"),
            ({"texts": ("m", None, "d", "NONE", "LITE_parse_cache")}, "its header is not whole"),
            ({"texts": ("m", "NONE", None, "NONE", "LITE_parse_cache")}, "its header is not whole"),
        ],
        ids=str,
    )
    def test_a_file_with_a_part_missing_is_refused(self, parts: dict[str, Any], said: str) -> None:
        with pytest.raises(UsageError, match=f"damaged: {said}$"):
            unpack_model(build_packed(**parts))

    def test_the_largest_model_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(packed_model, "LARGEST_MODEL", 5)
        write_packed(tmp_path / "model.lite", b"12345", "m")
        with pytest.raises(UsageError, match="2 GiB at most"):
            write_packed(tmp_path / "model.lite", b"123456", "m")
        assert 2**30 < LARGEST_MODEL < 2**31

    def test_a_text_must_end(self) -> None:
        whole = build_packed(texts=("name", "NONE", "d", "NONE", "LITE_parse_cache"))
        place = whole.index(b"name")
        cut = whole[: place + 4] + b"x" + whole[place + 5 :]
        with pytest.raises(UsageError, match="a text does not end"):
            unpack_model(cut)


class TestSettings:
    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"backend": "MGE", "has_compression": False, "extra_info": {"any": ["thing", 1.5]}},
            {"device": DEVICE},
            {"options": {"weight_preprocess": True, "graph_opt_level": 2}},
            {"IO": {"inputs": [{"name": "x", "dtype": "int8", "shape": {"dim0": 4}}]}},
        ],
        ids=str,
    )
    def test_what_lite_reads_is_taken(self, fields: dict[str, Any]) -> None:
        info = NEEDED | fields
        assert check_info(json.dumps(info).encode()) == info

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"name": None}, "Expected `str`, got `null` - at `$.name`"),
            ({"valid": False}, "says that it is not valid"),
            ({"valid": 1}, "Expected `bool`, got `int` - at `$.valid`"),
            ({"version": "1.13"}, "- at `$.version`"),
            ({"has_compression": True}, "says that the model is compressed"),
            ({"device": {}}, "missing required field `type` - at `$.device`"),
            ({"device": {"type": "GPU"}}, "Invalid enum value 'GPU' - at `$.device.type`"),
            ({"device": {"type": "CPU", "number_threads": -1}}, "at `$.device.number_threads`"),
            ({"device": {"type": "CPU", "number_threads": True}}, "Expected `int`, got `bool`"),
            ({"device": []}, "Expected `object`, got `array` - at `$.device`"),
            ({"device": {"type": "CPU", "enable_inplace_mode": True}}, "`enable_inplace_mode`"),
            ({"options": {"weight_preproces": True}}, "`weight_preproces` - at `$.opt"),
            ({"IO": {"inputs": {}}}, "Expected `array`, got `object` - at `$.IO.inputs`"),
            ({"IO": {"inputs": [{}]}}, "missing required field `name`"),
            ({"unheard": 1}, "unknown field `unheard`"),
        ],
        ids=str,
    )
    def test_what_lite_does_not_is_refused(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
            check_info(json.dumps(NEEDED | fields).encode())
        assert said in str(caught.value)

    @pytest.mark.parametrize(
        "text", [b"", b"[]", b"{", b"\xff", b'{"name": NaN}', b"[" * 100_000, b"null", b"{}"]
    )
    def test_what_is_no_json_or_no_object_is_refused(self, text: bytes) -> None:
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            check_info(text)


class TestLostOptions:
    @pytest.mark.parametrize(
        ("given", "fields", "info"),
        [
            ({}, {}, {"device": DEVICE}),
            ({"multithread": 2}, {}, {"device": {"type": "CPU", "number_threads": 2}}),
            ({"multithread": 3}, {}, {"device": {"type": "CPU", "number_threads": 1}}),
            ({"cpu_default": True}, {}, {"device": DEVICE}),
            ({"cuda": 1}, {}, {"device": {"type": "CUDA", "device_id": 1}}),
            ({"const_shape": True}, {"const_shape": 1}, {"options": {"const_shape": True}}),
        ],
        ids=str,
    )
    def test_settings_that_agree_are_left_alone(
        self, given: dict[str, Any], fields: dict[str, int], info: dict[str, Any]
    ) -> None:
        refuse_lost_options("it", given, fields, info)

    @pytest.mark.parametrize(
        ("given", "fields", "info", "said"),
        [
            (
                *({"winograd_transform": True}, {"weight_preprocess": 1}),
                {"options": {"weight_preprocess": False}},
                "--winograd-transform: it has .*weight_preprocess is false",
            ),
            (
                *({"record_comp_seq2": True}, {"comp_node_seq_record_level": 2}),
                {"options": {"comp_node_seq_record_level": 0}},
                "--record-comp-seq2.*comp_node_seq_record_level is 0",
            ),
            ({"multithread": 3}, {}, {"device": DEVICE}, "--multithread.*number_threads is 2"),
            (
                *({"cpu_default": True}, {}, {"device": {"type": "CPU", "device_id": 0}}),
                "--cpu-default.*device_id is 0",
            ),
            ({}, {}, {"device": {"type": "CUDA"}}, "packed for the device CUDA, not for CPU"),
            ({"cuda": 0}, {}, {"device": {"type": "CPU"}}, "the device CPU, not for CUDA"),
        ],
        ids=str,
    )
    def test_an_option_that_would_be_lost_is_refused(
        self, given: dict[str, Any], fields: dict[str, int], info: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(UsageError, match=said):
            refuse_lost_options("it", given, fields, info)
