"""The record in a cache file is an entry of the model's metadata, for every reader of models."""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from lar.engines.onnxruntime.cache import CacheRecord, with_record

MODEL = Path(__file__).resolve().parents[3] / "models" / "one_operator.onnx"


def test_the_record_is_the_last_entry_of_the_metadata() -> None:
    written = with_record(
        MODEL.read_bytes(), CacheRecord(key={"threads": "2"}, weights=("w",), graph_crc32=7)
    )
    model = onnx.load_from_string(written)
    onnx.checker.check_model(model)
    entry = model.metadata_props[-1]
    assert entry.key == "lar.cache"
    record = json.loads(entry.value)
    assert (record["key"], record["weights"], record["graph_crc32"]) == ({"threads": "2"}, ["w"], 7)
