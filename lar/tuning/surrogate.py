"""What candidates are worth that were not measured, from those that were.

The logarithm of a candidate's time is taken for a sum: an effect of each choice, one of each pair
of choices, and one of its own. None is known before; each is thought to be normal around 0, those
of choices wide, those of pairs and its own less so. So candidates that share choices resemble each
other, and what is expected of one, and how sure that is, follows from the measured ones (Rasmussen
and Williams, Gaussian Processes for Machine Learning, chapter 2). A process is one value, with an
error of its own; all values of a trial share the error of its plain run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from lar.records.tuning import BASELINE, Candidate
from lar.tuning.evidence import Look

# Standard deviations of logarithms, before anything is measured.
MODEL_EFFECT = 1.0
CHOICE_EFFECT = 0.3
PAIR_EFFECT = 0.08
OWN_EFFECT = 0.03
# Of processes: what it is thought to be, and the number of processes that this opinion is worth.
USUAL_NOISE = 0.012
NOISE_WEIGHT = 6.0
# A time beyond so many times the plain run's says no more than that.
MOST_VALUE = math.log(3)

Vector = NDArray[np.float64]

NORMAL = NormalDist()


@dataclass(frozen=True)
class Outlook:
    """What is expected of candidates: the means, and the covariances of their true values."""

    candidates: Sequence[Candidate]
    means: Vector
    covariances: Vector


class Surrogate:
    """What the looks say of every candidate."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks = looks
        self.noise = noise_of(looks)
        if not looks:
            return
        self.measured = [look.candidate for look in looks]
        trials = np.array([look.trial for look in looks])
        values = np.array([min(look.value, MOST_VALUE) for look in looks])
        same_trial = (trials[:, None] == trials[None, :]) + np.eye(len(looks))
        covariance = resemblance(self.measured, self.measured) + self.noise**2 * same_trial
        self.root = np.linalg.cholesky(covariance)
        self.weights = np.linalg.solve(self.root.T, np.linalg.solve(self.root, values))

    def expect(self, candidates: Sequence[Candidate]) -> Outlook:
        """Return what is expected of candidates."""
        prior = resemblance(candidates, candidates)
        if not self.looks:
            return Outlook(candidates, np.zeros(len(candidates)), prior)
        shared = resemblance(candidates, self.measured)
        part = np.linalg.solve(self.root, shared.T)
        return Outlook(candidates, shared @ self.weights, prior - part.T @ part)


def resemblance(first: Sequence[Candidate], second: Sequence[Candidate]) -> Vector:
    """Return the covariances of candidates before anything is measured; those of the plain run of
    the first model, of which all values are ratios, are 0."""
    names = {
        name: number
        for number, name in enumerate(
            dict.fromkeys((each.model, it) for each in (*first, *second) for it in each.choices)
        )
    }
    sides = []
    for side in (first, second):
        table = np.zeros((len(side), len(names) + 1))
        for row, each in enumerate(side):
            table[row, [names[each.model, it] for it in each.choices]] = 1.0
            table[row, -1] = each.model
        sides.append(table)
    shared = sides[0][:, :-1] @ sides[1][:, :-1].T
    models = (sides[0][:, -1:] == sides[1][:, -1:].T) & (sides[0][:, -1:] > 0)
    sizes = [table[:, :-1].sum(axis=1) for table in sides]
    same = (
        (sides[0][:, -1:] == sides[1][:, -1:].T)
        & (shared == sizes[0][:, None])
        & (shared == sizes[1][None, :])
        & (sizes[0][:, None] > 0)
    )
    found: Vector = (
        MODEL_EFFECT**2 * models
        + CHOICE_EFFECT**2 * shared
        + PAIR_EFFECT**2 * shared * (shared - 1) / 2
        + OWN_EFFECT**2 * same
    )
    return found


def noise_of(looks: Sequence[Look]) -> float:
    """Return the standard deviation of processes, from candidates that had several."""
    usual = NOISE_WEIGHT * USUAL_NOISE**2
    by_candidate: dict[Candidate, list[float]] = {}
    for look in looks:
        if look.candidate != BASELINE:
            by_candidate.setdefault(look.candidate, []).append(look.value)
    squares, degrees = 0.0, 0
    for values in by_candidate.values():
        middle = math.fsum(values) / len(values)
        squares += math.fsum((value - middle) ** 2 for value in values) / 2
        degrees += len(values) - 1
    return math.sqrt((usual + squares) / (NOISE_WEIGHT + degrees))


def expected_gains(gaps: Vector, variances: Vector) -> Vector:
    """Return by how much a normal value is below 0 on average, where it is; 0 where it is not."""
    deviations = np.sqrt(np.maximum(variances, 1e-12))
    scaled = -gaps / deviations
    density = np.exp(-(scaled**2) / 2) / math.sqrt(2 * math.pi)
    below = np.array([NORMAL.cdf(each) for each in scaled])
    found: Vector = -gaps * below + deviations * density
    return found
