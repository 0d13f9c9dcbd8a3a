"""Which profiles MegEngine cannot make."""

from __future__ import annotations

import pytest

from lar.engines.megengine.messages import explain_megengine
from tests.options.ruling import check, refusal


@pytest.mark.parametrize("asked", ["profile", "profile_host", "profile_raw"])
@pytest.mark.parametrize("record", ["record_comp_seq", "record_comp_seq2"])
def test_a_recorded_run_is_refused(asked: str, record: str) -> None:
    flags = f"--{asked} and --{record} exclude each other: a replayed run".replace("_", "-")
    assert refusal("megengine", {asked: "p.json", record: True}).message.startswith(flags)
    check("megengine", {asked: "p.json"})
    check("megengine", {record: True})


def test_a_full_disk_is_told_without_the_engines_temporary_file() -> None:
    message = "failed to write to /p/written.json.engine: num=3 size=5 No space left on device"
    error = explain_megengine(message, "m.mge", loading=False, settings=["profile"])
    assert error is not None
    assert error.message == "MegEngine cannot write a file: No space left on device"
