"""A fast-run cache that the engine wrote, and ones made by hand."""

from __future__ import annotations

from pathlib import Path

from lar.engines.caches import Algorithm, Difference, Operator, compare_choices
from lar.engines.megengine.algorithms import choices_in
from lar.engines.megengine.cache import (
    AlgorithmCache,
    algorithm_of,
    blob_bytes,
    number_bytes,
    operators_of,
    pick_entry,
    read_cache,
)
from tests.engines.megengine.programs import MODELS, REPOSITORY

REAL_FILE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"
REAL = REAL_FILE.read_bytes()
MODEL = MODELS / "digits_cnn.mge"
EMPTY_FILE = number_bytes(0)


def algorithm(name: str, seconds: str = "1.5e-05", workspace: int = 64) -> Algorithm:
    """An algorithm as the engine writes it."""
    blob = number_bytes(1) + number_bytes(3) + number_bytes(0) + blob_bytes(name.encode())
    return algorithm_of(blob, f":1;{seconds};{workspace}:\0".encode())


def cache_with(**entries: str) -> AlgorithmCache:
    """A cache with an entry for each key, which has the named algorithm."""
    category = "profile:plat=cpu:MatrixMulv5DEFAULT"
    return {(category, key.encode()): (algorithm(name),) for key, name in entries.items()}


def choose_algorithm(cache: AlgorithmCache, operator: str, algorithm: str) -> AlgorithmCache:
    """The cache with another choice for one operator."""
    return {**cache, **pick_entry(cache, operator, algorithm)}


def compare_caches(first: AlgorithmCache, second: AlgorithmCache) -> Difference:
    """The difference of two caches."""
    return compare_choices(operators_of(first), operators_of(second))


def candidates(operator: Operator) -> list[Algorithm]:
    """The winograd algorithms of an operator."""
    return [each for each in operator.algorithms if each.winograd]


def convolutions(cache: AlgorithmCache) -> list[Operator]:
    return [each for each in operators_of(cache) if "Conv" in each.name]


def choices_of(cache: AlgorithmCache) -> dict[bytes, str]:
    return {each.place[1]: each.chosen.name for each in operators_of(cache)}


def names_in(log: str) -> set[tuple[str, str]]:
    """The operators in the engine's log, with the algorithms that it has chosen."""
    return {(choice.operator, choice.algorithm) for choice in choices_in(log)}


def names_of(operators: list[Operator]) -> set[tuple[str, str]]:
    return {(operator.name, operator.chosen.name) for operator in operators}


def operators_in(path: Path) -> list[Operator]:
    return operators_of(read_cache(path))
