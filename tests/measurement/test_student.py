"""Student's t agrees with SciPy 1.15.3: `scipy.stats.t.ppf(probability, degrees)`."""

from __future__ import annotations

import math

import pytest

from lar.measurement.student import quantile_of_t

PROBABILITIES = (0.6, 0.975, 0.999, 1 - 1e-6)
QUANTILES = {
    1: (0.32491969623407446, 12.706204736432095, 318.3088389855419, 318309.8861736347),
    2: (0.28867513459481275, 4.302652729696142, 22.32712476997542, 707.1057205157684),
    3: (0.27667066233268983, 3.182446305284263, 10.214531852405331, 103.29946777942902),
    4.5: (0.2687518355416629, 2.6589123472044034, 6.42124288429579, 31.081356582949848),
    9: (0.26095533647391045, 2.2621571628540993, 4.296805662730113, 10.72016040990058),
    29: (0.2556836345712561, 2.045229642132703, 3.396240288341516, 5.917105540449131),
    240: (0.25362812971646354, 1.9698976350757682, 3.124535691190942, 4.872802977162254),
}


@pytest.mark.parametrize("degrees", QUANTILES)
def test_quantiles_agree_with_scipy(degrees: float) -> None:
    for probability, expected in zip(PROBABILITIES, QUANTILES[degrees], strict=True):
        assert quantile_of_t(probability, degrees) == pytest.approx(expected, rel=1e-8)
        assert quantile_of_t(1 - probability, degrees) == pytest.approx(-expected, rel=1e-8)


@pytest.mark.parametrize(("probability", "degrees"), [(0, 5), (1, 5), (math.nan, 5), (0.5, 0)])
def test_what_has_no_quantile(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        quantile_of_t(probability, degrees)
