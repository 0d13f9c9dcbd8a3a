"""The option table of the reference evaluator: a row for each option that it honours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, LazyModule, OptionRow
from lar.options.table import (
    ALLOW_EXTERNAL_DATA,
    BIN_IO_DUMP,
    BIN_OUT_DUMP,
    CPU,
    DISABLE_ASSERT_THROW,
    DUMP_FILTER,
    TEXT_DUMPS,
    VERBOSE,
)

if TYPE_CHECKING:
    from lar.engines.reference import driver, dumps
    from lar.engines.reference.driver import EvaluatorDriver
else:
    driver = LazyModule("lar.engines.reference.driver")
    dumps = LazyModule("lar.engines.reference.dumps")

EVALUATOR: Drivers[EvaluatorDriver] = Drivers(("evaluator",))

DUMPED = "every tensor of the model, in float64, written in the first run"

ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(CPU, EVALUATOR, "NumPy, the only device"),
    OptionRow(
        VERBOSE, EVALUATOR, "each operator of the first run", before_run=driver.print_operators
    ),
    OptionRow(DISABLE_ASSERT_THROW, EVALUATOR, "an output that is not the expected one warns"),
    OptionRow(ALLOW_EXTERNAL_DATA, EVALUATOR, "checked before the model is read"),
    *(
        OptionRow(each, EVALUATOR, DUMPED, before_run=dumps.dump_text, after_run=dumps.finish)
        for each in TEXT_DUMPS
    ),
    OptionRow(
        BIN_IO_DUMP, EVALUATOR, DUMPED, before_run=dumps.dump_tensors, after_run=dumps.finish
    ),
    OptionRow(
        BIN_OUT_DUMP, EVALUATOR, "the outputs of each iteration", before_run=dumps.dump_outputs
    ),
    OptionRow(DUMP_FILTER, EVALUATOR, "what it leaves out is removed when the run has ended"),
)
