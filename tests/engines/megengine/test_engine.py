"""What MegEngine's engine names as text, to be imported later, is there."""

from __future__ import annotations

import re
from pathlib import Path

from lar.engines import megengine


def test_what_is_found_later_is_there() -> None:
    text = Path(str(megengine.__file__)).read_text()
    targets = re.findall(r'"(lar[\w.]+:\w+)"', text)
    assert len(targets) > 20
    for target in targets:
        assert megengine.find(target)
