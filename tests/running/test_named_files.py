"""Files that a command line names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lar.running.named_files import is_writable


def test_a_report_can_be_written_where_permissions_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "there.json"
    file.write_text("")
    assert is_writable(str(file))
    assert is_writable(str(tmp_path / "new.json"))
    assert not is_writable(str(tmp_path))  # a folder
    monkeypatch.setattr(os, "access", lambda name, mode: False)  # root may write everywhere
    assert not is_writable(str(file))
    assert not is_writable(str(tmp_path / "new.json"))
