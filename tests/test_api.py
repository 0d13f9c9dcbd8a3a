"""The package as Python code sees it: its names, and what `help` prints of them."""

from __future__ import annotations

import pydoc

import pytest

import lar


def test_dir_lists_the_api_and_nothing_else() -> None:
    names: dict[str, object] = {}
    exec("from lar import *", names)
    assert dir(lar) == sorted({*names} - {"__builtins__"})
    assert "Any" not in dir(lar)
    assert {"run", "compare", "RunResult", "UsageError", "__version__"} <= set(dir(lar))


@pytest.mark.parametrize("name", dir(lar))
def test_each_name_is_there_and_documented(name: str) -> None:
    value = getattr(lar, name)
    assert name == "__version__" or (value.__name__ == name and value.__doc__)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'rnu'"):
        getattr(lar, "rnu")  # noqa: B009


def test_help_reads_well() -> None:
    text = pydoc.plain(pydoc.render_doc(lar))
    assert "lar.run(" in text
    assert all(name in text for name in dir(lar) if name != "__version__")
    assert "TYPE_CHECKING" not in text
    assert "_API" not in text
    assert "_MODULES" not in text
