"""Choices of a search for the fastest settings, made of options: engines declare theirs so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from lar.engines.engine import Site
from lar.options import table
from lar.options.option import Option
from lar.records.tuning import Choice, Dimension, OptionValue

# Numbers of threads that the space `full` tries, besides all cores and half of them.
COUNTS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def threads_dimension(cores: Sequence[int], *, binds: bool = False) -> Dimension:
    """Return one thread and more, all bound to their cores too by an engine that `binds` them."""
    more = thread_choices(cores, ((table.MULTITHREAD, ""),), binds=binds)
    return Dimension(name="threads", choices=(set_to(table.CPU_DEFAULT, True, "1 thread"), *more))


def prepared_model(name: str, *depends: str) -> Dimension:
    """Return a cache of the prepared model, which depends on other dimensions: it gives the same
    results, and loads sooner and with less memory."""
    model = Choice(
        name=name,
        search={table.FAST_RUN.key: True},
        cache=table.FAST_RUN_ALGO_POLICY.key,
        cache_depends=depends,
        objectives=("memory",),
    )
    return Dimension(name="model", choices=(model,))


def precision_dimension(site: Site, needs: Mapping[str, Set[str]]) -> Dimension:
    """Return the types coarser than float32 of which the site's processor has one of the
    instruction sets that `needs` names."""
    names = [name for name, sets in needs.items() if sets & site.instruction_sets]
    choices = (set_to(table.PRECISION, name, name, allow="reduced-precision") for name in names)
    return Dimension(name="precision", choices=tuple(choices))


def set_to(option: Option[Any], value: OptionValue, name: str, **fields: Any) -> Choice:
    """Return the choice of a value of an option."""
    return Choice(name=name, options={option.key: value}, **fields)


def counts_for(cores: Sequence[int]) -> list[tuple[int, bool]]:
    """Return numbers of threads or copies, the most first, each with whether the full space alone
    has it: the quick one has as many as cores, and half as many."""
    most = len(cores)
    quick = {most, most // 2}
    counts = {count for count in (*COUNTS, *quick) if 2 <= count <= most}
    return [(count, count not in quick) for count in sorted(counts, reverse=True)]


def thread_choices(
    cores: Sequence[int], options: Sequence[tuple[Option[int], str]], *, binds: bool = True
) -> Iterator[Choice]:
    """Yield numbers of threads for each of some options, the most first, whose names end as given;
    then all threads bound to their cores, by an engine that `binds` them.

    The quick space has as many threads as cores, bound and not, and half as many.
    """
    most = len(cores)
    for count, for_full in counts_for(cores):
        for option, ending in options:
            yield set_to(option, count, f"{count} threads{ending}", for_full=for_full)
    if binds and most > 1:
        ids = ",".join(map(str, cores))
        bound: dict[str, OptionValue] = {
            table.MULTITHREAD.key: most,
            table.MULTI_THREAD_CORE_IDS.key: ids,
        }
        yield Choice(name=f"{most} bound threads", options=bound)


def copies_dimension(cores: Sequence[int]) -> Dimension:
    """Return numbers of copies of the model that run at once, which can raise the throughput."""
    fields = {"objectives": ("throughput",)}
    choices = (
        set_to(table.THREAD, count, f"{count} copies", for_full=for_full, **fields)
        for count, for_full in counts_for(cores)
    )
    return Dimension(name="copies", choices=tuple(choices))


def dimensions_in(
    folder: Path, site: Site, traits: Iterable[str] = (), **special: Iterable[Choice]
) -> tuple[Dimension, ...]:
    """Return what can matter at a site, by `dimensions.json` in an engine's folder, in the order in
    which candidates name it.

    `traits` are those of the model; `special` has the choices of dimensions that no table can hold.
    """
    rows = json.loads((folder / "dimensions.json").read_text())
    here = {*site.instruction_sets, site.device.partition(":")[0], *traits}
    return tuple(
        Dimension(name=name, choices=tuple(special[name]))
        if name in special
        else dimension_of(name, given, site, here)
        for name, given in rows.items()
    )


def dimension_of(name: str, given: Any, site: Site, here: Set[str]) -> Dimension:
    """Return a dimension with the choices given, or of what all engines have by that name."""
    if isinstance(given, list) and all(isinstance(row, dict) for row in given):
        return Dimension(name=name, choices=tuple(choices_of(given, here)))
    if name == "precision":
        # Elsewhere the engines take float32 for a type, and some do not say so.
        return precision_dimension(site, {kind: {*sets} for kind, sets in given.items()})
    if name == "model":
        return prepared_model(*given)
    dimension = threads_dimension if name == "threads" else copies_dimension
    return dimension(site.cores, **given)


def choices_of(rows: Iterable[dict[str, Any]], here: Set[str]) -> Iterator[Choice]:
    """Yield choices: those that have what they need, which is of each list of `needs` one of its
    instruction sets, kinds of devices or traits. Where none of `quick_with` is here, the full space
    alone has one."""
    for row in rows:
        needs, quick_with = row.pop("needs", ()), row.pop("quick_with", ())
        if quick_with:
            row["for_full"] = here.isdisjoint(quick_with)
        if not any(map(here.isdisjoint, needs)):
            yield Choice(**with_tuples({**row, "options": with_tuples(row.get("options", {}))}))


def with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(it) if isinstance(it, list) else it for key, it in row.items()}
