"""The reports of `lar cache`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.runs import cache
from tests.cli.test_cache import IM2COL, REAL, WINOGRAD, with_times
from tests.reports.golden_files import check_golden


def test_caches_print_their_golden_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_times(Path(), "a", A="1e-05", B="2e-05", C="0")
    with_times(Path(), "b", A="1.2e-05", B="1.1e-05")
    with_times(Path(), "c", A="9e-06")
    Path("real").write_bytes(REAL.read_bytes())
    Path("other").write_bytes(REAL.read_bytes())
    texts = [cache("pick", "other", "1", WINOGRAD), cache("pick", "other", "1", IM2COL)]
    cache("pick", "other", "1", WINOGRAD)
    texts += [cache("show", *words) for words in (["real"], ["real", "--all", "--operator", "3"])]
    texts += [cache("show", "a", "b", "c", *words) for words in ([], ["--all"])]
    texts += [
        cache("diff", *names, code=1) for names in (("a", "b"), ("real", "other"), ("a", "real"))
    ]
    texts += [cache("merge", *words) for words in (["a", "b", "-o", "d"], ["c", "-o", "d"])]
    check_golden("caches.txt", "\n".join(texts))
