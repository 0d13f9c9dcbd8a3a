"""What an engine cannot do is refused in one line that names it, and leaves no file behind.

`refusals.json` has, by who refuses, the model and the flags, the words that the line and its hint
have. CORE is a core that may be used, CORES are all of them, MODEL is the path of the model, INPUTS
that of the inputs, LIBRARY one of C that has no operators.
"""

from __future__ import annotations

import _ctypes
import json
import os
import re
from pathlib import Path

import pytest

from lar.engines import engine_for
from lar.engines.megengine import defects
from tests.cli.failures import check_error, check_not_started
from tests.conftest import RunLar

HERE = Path(__file__).resolve().parent
MODELS, INPUTS = HERE.parents[1] / "models", HERE.parents[1] / "inputs"
ROWS = [
    pytest.param(who, model, flags, words, id=f"{model} {flags}")
    for who, models in json.loads((HERE / "refusals.json").read_text()).items()
    for model, refused in models.items()
    for flags, words in refused.items()
]


@pytest.mark.parametrize(("who", "model", "flags", "words"), ROWS)
def test_what_cannot_be_is_refused(
    run_lar: RunLar,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    model: str,
    flags: str,
    words: list[str],
) -> None:
    path = MODELS / model
    asked = re.search(r"--engine (\w+)", flags)
    if not engine_for(path, asked[1] if asked else None).is_installed:
        pytest.skip("its engine is not installed")
    cores = [*map(str, sorted(os.sched_getaffinity(0)))]
    names = {"CORES": ", ".join(cores), "CORE": cores[0], "MODEL": str(path)}
    names |= {"INPUTS": str(INPUTS), "LIBRARY": _ctypes.__file__}

    def filled(text: str) -> str:
        return re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[0]], text)

    # Where lar knows of the most defects of MegEngine.
    monkeypatch.setattr(defects, "read_instruction_sets", lambda: "AuthenticAMD fpu avx2 avx512f")
    asked_for = [*map(filled, flags.split())] + ([] if "--iter" in flags else ["--iter", "1"])
    done = run_lar(str(path), *asked_for, cwd=tmp_path)
    if who.startswith("before"):
        check_error(done, 2, *map(filled, words))
        check_not_started(done)
    # An engine may print other lines before.
    assert done.returncode == (4 if "crash" in who else 2), done.stderr
    said = done.stderr[done.stderr.index("lar: error: ") :]
    assert said.count("\n") <= 2
    assert [each for each in map(filled, words) if each not in said] == [], said
    assert not [*tmp_path.iterdir()]
