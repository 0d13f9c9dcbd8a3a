"""Student's t agrees with SciPy 1.15.3: `scipy.stats.t.ppf(probability, degrees)`."""

from __future__ import annotations

import math

import pytest

from lar.measurement.student import quantile_of_t
from tests.tables import each_row

PROBABILITIES = (0.6, 0.975, 0.999, 1 - 1e-6)


@each_row("measurement/cases/quantiles of t")
def test_quantiles_agree_with_scipy(degrees: float, quantiles: list[float]) -> None:
    for probability, expected in zip(PROBABILITIES, quantiles, strict=True):
        assert quantile_of_t(probability, degrees) == pytest.approx(expected, rel=1e-8)
        assert quantile_of_t(1 - probability, degrees) == pytest.approx(-expected, rel=1e-8)


@pytest.mark.parametrize(("probability", "degrees"), [(0, 5), (1, 5), (math.nan, 5), (0.5, 0)])
def test_what_has_no_quantile(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile_of_t(probability, degrees)
