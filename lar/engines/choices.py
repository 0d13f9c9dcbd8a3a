"""Choices of a search for the fastest settings, made of options: engines declare theirs so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from lar.engines.engine import Site
from lar.options import table
from lar.options.option import Option, Switch
from lar.records.choices import Choice, Dimension, OptionValue

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


def turn_on(option: Switch, **fields: Any) -> Choice:
    """Return the choice of a switch, with its flag as the name: `nchw44` for `--enable-nchw44`."""
    name = option.key.removeprefix("enable_").replace("_", "-")
    return Choice(name=name, options={option.key: True}, **fields)


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


def dimensions_in(folder: Path, site: Site) -> tuple[Dimension, ...]:
    """Return what can matter at a site, by `dimensions.json` in an engine's folder, in the order in
    which candidates name it: what the dimensions of some names take, the choices of others."""
    rows = json.loads((folder / "dimensions.json").read_text())
    return tuple(dimension_of(name, given, site) for name, given in rows.items())


def dimension_of(name: str, given: Any, site: Site) -> Dimension:
    if name == "precision":
        # Elsewhere the engines take float32 for a type, and some do not say so.
        return precision_dimension(site, {kind: {*sets} for kind, sets in given.items()})
    if name in ("threads", "copies"):
        return (threads_dimension if name == "threads" else copies_dimension)(site.cores)
    if name == "model":
        return prepared_model(*given)
    for each in given:
        lists = {key: it for key, it in each["options"].items() if isinstance(it, list)}
        each["options"] |= {key: tuple(it) for key, it in lists.items()}
    return Dimension(name=name, choices=tuple(Choice(**each) for each in given))
