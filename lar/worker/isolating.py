"""Tensors of a model computed from given values, one for each turn that the parent gives.

What a turn asks for stands in files of the work folder, named by its number: `1.json` has the name
of the tensor and those of the values, which are in `1.0.npy`, `1.1.npy` and so on. What comes out
is `1.npy`. A turn that names no tensor asks which of the values the graph lacks, and gets a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from lar.engines import engine_named
from lar.errors import LarError, error_of_write, first_line
from lar.records.events import ComputedAlone, Emit, PhaseEntered
from lar.records.run import RunContext, RunSpec


def compute_each(spec: RunSpec, context: RunContext, turns: Iterable[int], emit: Emit) -> None:
    """Load the model, then compute what each turn asks for; one that fails does not stop others.

    Raises:
        LarError: the model does not load.
    """
    import numpy as np

    isolation = engine_named(spec.engine).open_isolation(spec, context)
    emit(PhaseEntered("prepare"))
    folder = Path(context.work_folder)
    for number in turns:
        asked = json.loads((folder / f"{number}.json").read_bytes())
        problem = ""
        try:
            if not asked["output"]:
                missing = sorted(isolation.find_missing(asked["values"]))
                (folder / f"{number}.missing").write_text(json.dumps(missing))
            else:
                values = {
                    name: np.load(folder / f"{number}.{place}.npy")
                    for place, name in enumerate(asked["values"])
                }
                np.save(folder / f"{number}.npy", isolation.compute(asked["output"], values))
        except LarError as error:
            problem = error.message
        except OSError as error:
            problem = error_of_write(error, subject="what it gives").message
        except Exception as error:
            problem = first_line(error)
        emit(ComputedAlone(number, problem))
