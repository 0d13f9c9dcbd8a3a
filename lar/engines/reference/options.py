"""The option table of the reference evaluator: a row for each option that it honours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, dump_rows
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.reference import driver
    from lar.engines.reference.driver import EvaluatorDriver
else:
    add_lazy_modules(globals())

EVALUATOR: Drivers[EvaluatorDriver] = Drivers(("evaluator",), __file__)

ROWS: tuple[OptionRow[Any, Any], ...] = (
    *EVALUATOR.rows(table.CPU, table.DISABLE_ASSERT_THROW, table.ALLOW_EXTERNAL_DATA),
    EVALUATOR.row(table.VERBOSE, before_run=driver.print_operators),
    *dump_rows(EVALUATOR, driver.dump_tensors, driver.dump_outputs, after_run=driver.finish),
)
