"""The theory of queues, and the queue of paced iterations against it."""

from __future__ import annotations

import pytest
from queueing_theory import expected_wait, waits_by_recursion

from lar.records.run import Pacing
from tests.measurement.test_pacing import scattered, served, waits_of


def test_a_queue_waits_as_long_as_theory_says() -> None:
    count = 20_000
    services = [time for time, _ in zip(scattered(1, 0.03), range(count), strict=False)]
    samples, _ = served(Pacing(rate=20), services, count)
    waits, expected = waits_of(samples), expected_wait(20, services)
    assert 20 * sum(services) / count == pytest.approx(0.6, rel=0.01)
    assert sum(waits) / count == pytest.approx(expected, rel=0.1)
    arrivals = [began - wait for began, wait in zip(samples.began, waits, strict=True)]
    assert waits == pytest.approx(waits_by_recursion(arrivals, services), abs=1e-8)
