"""--workspace-limit: which algorithms MegEngine then chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engines.megengine.chosen import chosen_in, names_in
from tests.engines.megengine.programs import DIGITS, run_well

if TYPE_CHECKING:
    from tests.conftest import RunLar


def test_a_workspace_limit_changes_the_choice(run_lar: RunLar) -> None:
    plain, limited = (
        run_lar("run", DIGITS, "--iter", "1", "--verbose", *arguments).stderr
        for arguments in ([], ["--workspace-limit", "0"])
    )
    assert names_in(limited) != names_in(plain)
    assert max(each.workspace_mib for each in chosen_in(plain)) > 0


@pytest.mark.parametrize("arguments", [[], ["--fast-run"]], ids=["heuristic", "search"])
def test_no_algorithm_needs_more_workspace_than_the_limit(
    run_lar: RunLar, arguments: list[str]
) -> None:
    limit = ["--workspace-limit", "0", "--iter", "1", "--verbose"]
    done = run_well(run_lar, "run", DIGITS, *limit, *arguments)
    chosen = [each for each in chosen_in(done.stderr) if each.operator == "ConvolutionForward"]
    assert len(chosen) == 3
    assert [each for each in chosen if each.workspace_mib > 0] == []


@pytest.mark.parametrize("layout", ["--enable-nchw44", "--enable-nhwcd4"])
def test_a_workspace_limit_with_a_layout_holds_or_is_refused_by_its_name(
    run_lar: RunLar, layout: str
) -> None:
    done = run_lar("run", DIGITS, "--workspace-limit", "1M", layout, "--iter", "1")
    assert done.returncode in (0, 2)
    assert done.returncode == 0 or "--workspace-limit" in done.stderr
