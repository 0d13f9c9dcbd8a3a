"""What candidates are worth that were not measured, from those that were.

The logarithm of a candidate's time is taken for a sum: an effect of each choice, one of each pair
of choices, and one of its own. None is known before; each is thought to be normal around 0, those
of choices wide, those of pairs and its own less so. So candidates that share choices resemble each
other, and what is expected of one, and how sure that is, follows from the measured ones (Rasmussen
and Williams, Gaussian Processes for Machine Learning, chapter 2). A process is one value, with an
error of its own; all values of a round share the error of its plain run. How large these are, is
what makes the values likeliest (chapter 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lar.records.tuning import BASELINE, Candidate

Matrix = NDArray[np.float64]


# Standard deviations of logarithms before anything is measured: of another model's plain run, of
# the effect of a choice, of two together beyond those of each, and of a candidate beyond these.
MODEL_SCALE = 1.0
CHOICE_SCALE = 0.3
PAIR_SCALE = 0.12
OWN_SCALE = 0.03
# Of processes: the usual deviation, and others that are taken where the looks say so; those of the
# plain run, which all of a round have in common, may be larger, as on a machine that is not quiet.
USUAL_NOISE = 0.012
NOISES = (0.006, 0.012, 0.025, 0.05, 0.1, 0.2)
PLAIN_NOISES = (0.03, 0.1, 0.3, 1.0, 3.0)
# What others must gain, as a logarithm of the likelihood, for each step away from the usual.
STEP_AWAY = 1.0
# For this, effects may be so many times as wide: choices that help much in a first round shall not
# be taken for a plain run that something disturbed.
WIDE = 4.0
# The looks by which they are told apart.
LOOKS_FOR_NOISE = 150
# So much slower than the plain run of its model is all that is said of a candidate.
MOST_VALUE = math.log(3)
# More looks than these are not taken into account: those of the fastest are.
MOST_LOOKS = 500
LEAST_VARIANCE = 1e-12

NORMAL = NormalDist()


@dataclass(frozen=True)
class Look:
    """A process of a candidate: the logarithm of its objective over that of the plain run.

    `round` has the numbers that the process has in common with those of the same time, the plain
    run's among them: of the trial, and of its round.
    """

    round: tuple[int, int]
    candidate: Candidate
    value: float


@dataclass(frozen=True)
class Outlook:
    """What is expected of candidates: the means, and the covariances of their true values."""

    candidates: Sequence[Candidate]
    means: Matrix
    covariances: Matrix

    def gaps(self) -> tuple[Matrix, Matrix]:
        """Return by how much each is slower than the first, with the variances."""
        known = self.covariances
        variances = np.diag(known) + known[0, 0] - 2 * known[0]
        return self.means - self.means[0], np.maximum(variances, LEAST_VARIANCE)

    def gains(self) -> Matrix:
        """Return how much faster each is than the first where it is, and 0 where it is not, on
        average."""
        gaps, variances = self.gaps()
        deviations = np.sqrt(variances)
        scaled = -gaps / deviations
        density = np.exp(-(scaled**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([NORMAL.cdf(each) for each in scaled])
        found: Matrix = -gaps * below + deviations * density
        return found

    def chances(self, margin: float) -> list[float]:
        """Return the probabilities that each is faster than the first by this logarithm."""
        gaps, variances = self.gaps()
        return [NORMAL.cdf(each) for each in -(gaps + margin) / np.sqrt(variances)]


class Surrogate:
    """What looks say of every candidate."""

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks = choose_looks(looks)
        self.noise = USUAL_NOISE
        if not self.looks:
            return
        self.measured = [look.candidate for look in self.looks]
        prior = covariance_of(resemblances(self.measured, self.measured))
        number = {each: n for n, each in enumerate({look.round: None for look in self.looks})}
        rounds = np.array([number[look.round] for look in self.looks])
        same_round = (rounds[:, None] == rounds[None, :]).astype(float)
        values = clipped_values(self.looks)
        self.noise, plain_noise = find_noises(WIDE**2 * prior, same_round, values)
        errors = self.noise**2 * np.eye(len(rounds)) + plain_noise**2 * same_round
        self.root = np.linalg.cholesky(prior + errors)
        self.weights = np.linalg.solve(self.root.T, np.linalg.solve(self.root, values))

    def expect(self, candidates: Sequence[Candidate]) -> Outlook:
        """Return what is expected of candidates."""
        prior = covariance_of(resemblances(candidates, candidates))
        if not self.looks:
            return Outlook(candidates, np.zeros(len(candidates)), prior)
        shared = covariance_of(resemblances(candidates, self.measured))
        part = np.linalg.solve(self.root, shared.T)
        return Outlook(candidates, shared @ self.weights, prior - part.T @ part)

    def means_of(self, candidates: Sequence[Candidate]) -> Matrix:
        """Return the means alone of what is expected of candidates, of many of them."""
        if not self.looks:
            return np.zeros(len(candidates))
        shared = covariance_of(resemblances(candidates, self.measured))
        found: Matrix = shared @ self.weights
        return found


class Resemblances(NamedTuple):
    """What pairs of candidates have in common: the model, numbers of choices and of pairs of them,
    and whether they are the same."""

    model: Matrix
    choices: Matrix
    pairs: Matrix
    same: Matrix


def resemblances(first: Sequence[Candidate], second: Sequence[Candidate]) -> Resemblances:
    """Return what candidates have in common. The plain run of the first model, of which all values
    are ratios, has nothing in common with any."""
    names: dict[tuple[int, str], int] = {}
    has, models, sizes = [], [], []
    for side in (first, second):
        pairs = [
            (row, names.setdefault((each.model, name), len(names)))
            for row, each in enumerate(side)
            for name in each.choices
        ]
        has.append((len(side), np.array(pairs, dtype=int).reshape(-1, 2)))
        models.append(np.array([each.model for each in side]))
        sizes.append(np.array([len(each.choices) for each in side]))
    tables = []
    for count, places in has:
        table = np.zeros((count, len(names)))
        table[places[:, 0], places[:, 1]] = 1.0
        tables.append(table)
    shared = tables[0] @ tables[1].T
    model = models[0][:, None] == models[1][None, :]
    same = model & (shared == sizes[0][:, None]) & (shared == sizes[1][None, :]) & (shared > 0)
    return Resemblances(
        (model & (models[0] > 0)[:, None]).astype(float),
        shared,
        shared * (shared - 1) / 2,
        same.astype(float),
    )


def covariance_of(parts: Resemblances) -> Matrix:
    """Return the covariances of candidates before anything is measured."""
    found: Matrix = (
        MODEL_SCALE**2 * parts.model
        + CHOICE_SCALE**2 * parts.choices
        + PAIR_SCALE**2 * parts.pairs
        + OWN_SCALE**2 * parts.same
    )
    return found


def find_noises(prior: Matrix, same_round: Matrix, values: Matrix) -> tuple[float, float]:
    """Return the likeliest deviations of processes, and of the plain run's, near to the usual."""
    first = slice(None, LOOKS_FOR_NOISE)
    prior, same_round, values = prior[first, first], same_round[first, first], values[first]
    found = (-math.inf, USUAL_NOISE, PLAIN_NOISES[0])
    usual = NOISES.index(USUAL_NOISE)
    for step, noise in enumerate(NOISES):
        for more, plain_noise in enumerate(PLAIN_NOISES):
            if plain_noise >= noise:
                errors = noise**2 * np.eye(len(values)) + plain_noise**2 * same_round
                likelihood = likelihood_of(values, prior + errors)
                likelihood -= STEP_AWAY * (abs(step - usual) + more)
                found = max(found, (likelihood, noise, plain_noise))
    return found[1:]


def likelihood_of(values: Matrix, covariance: Matrix) -> float:
    """Return the logarithm of the likelihood of normal values, up to a constant."""
    root = np.linalg.cholesky(covariance)
    scaled = np.linalg.solve(root, values)
    return float(-(scaled @ scaled) / 2 - np.log(np.diag(root)).sum())


def choose_looks(looks: Sequence[Look]) -> list[Look]:
    """Return the looks that are taken into account: where there are many, those of single choices
    and of the fastest candidates."""
    if len(looks) <= MOST_LOOKS:
        return [*looks]
    ordered = sorted(looks, key=lambda look: (len(look.candidate.choices) > 1, look.value))
    chosen = {id(look) for look in ordered[:MOST_LOOKS]}
    return [look for look in looks if id(look) in chosen]


def clipped_values(looks: Sequence[Look]) -> Matrix:
    """Return the values of looks, none far above that of its model's plain run."""
    plain: dict[int, list[float]] = {}
    for look in looks:
        if not look.candidate.choices:
            plain.setdefault(look.candidate.model, []).append(look.value)
    most = {model: math.fsum(it) / len(it) + MOST_VALUE for model, it in plain.items()}
    most.setdefault(BASELINE.model, MOST_VALUE)
    return np.array(
        [
            min(look.value, most.get(look.candidate.model, math.inf))
            if look.candidate.choices
            else look.value
            for look in looks
        ]
    )
