"""The option table of the reference evaluator: a row for each option that it honours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, dump_rows
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.reference import driver, dumps
    from lar.engines.reference.driver import EvaluatorDriver
else:
    add_lazy_modules(globals())

EVALUATOR: Drivers[EvaluatorDriver] = Drivers(("evaluator",))

DUMPED = "every tensor of the model, in float64, written in the first run"


ROWS: tuple[OptionRow[Any, Any], ...] = (
    EVALUATOR.row(table.CPU, "NumPy, the only device"),
    EVALUATOR.row(table.DISABLE_ASSERT_THROW, "an output that is not the expected one warns"),
    EVALUATOR.row(table.ALLOW_EXTERNAL_DATA, "checked before the model is read"),
    EVALUATOR.row(
        table.VERBOSE, "each operator of the first run", before_run=driver.print_operators
    ),
    *dump_rows(
        *(EVALUATOR, DUMPED, dumps.dump_tensors, dumps.dump_outputs),
        outputs="the outputs of each iteration",
        after_run=dumps.finish,
    ),
)
