"""Functions with which engines declare what a search for the fastest settings tries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from lar.options import table
from lar.options.option import Option
from lar.records.tuning import Choice, Dimension, OptionValue

# Numbers of threads that the space `full` tries, besides the number of cores and half of it.
COUNTS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class Site(NamedTuple):
    """The machine on which a search for the fastest settings runs.

    `cores` are the cores that may be used. `processor` is the processor's vendor, followed by its
    instruction sets. `environment` has the environment variables of the worker.
    """

    cores: tuple[int, ...]
    processor: str
    device: str = "cpu"
    environment: Mapping[str, str] = {}

    @property
    def instruction_sets(self) -> frozenset[str]:
        """The processor's instruction sets, with the names that Linux uses."""
        return frozenset(self.processor.split()[1:])


def threads_dimension(cores: Sequence[int], *, binds: bool = False) -> Dimension:
    """Return the dimension of the number of threads, from 1 to the number of cores.

    If the engine can bind threads (`binds`), a further choice has as many threads as cores, and
    binds each thread to one core.
    """
    more = thread_choices(cores, ((table.MULTITHREAD, ""),), binds=binds)
    return Dimension(name="threads", choices=(set_to(table.CPU_DEFAULT, True, "1 thread"), *more))


def prepared_model(name: str, *depends: str) -> Dimension:
    """Return the dimension with one choice: a cache file that holds the prepared model.

    Compared with a run without the cache, a run with the cache gives the same results, loads sooner
    and takes less memory. A cache can be reused as long as the choices in the dimensions `depends`
    do not change.
    """
    model = Choice(
        name=name,
        search={table.FAST_RUN.key: True},
        cache=table.FAST_RUN_ALGO_POLICY.key,
        cache_depends=depends,
        objectives=("memory",),
    )
    return Dimension(name="model", choices=(model,))


def precision_dimension(site: Site, needs: Mapping[str, Set[str]]) -> Dimension:
    """Return the dimension of the types with less precision than float32.

    The dimension has only types that the site's processor supports.

    For each type, `needs` has instruction sets, of which the processor must support at least one.
    """
    names = [name for name, sets in needs.items() if sets & site.instruction_sets]
    choices = (set_to(table.PRECISION, name, name, allow="reduced-precision") for name in names)
    return Dimension(name="precision", choices=tuple(choices))


def set_to(option: Option[Any], value: OptionValue, name: str, **fields: Any) -> Choice:
    """Return a choice that sets one option to a value."""
    return Choice(name=name, options={option.key: value}, **fields)


def counts_for(cores: Sequence[int]) -> list[tuple[int, bool]]:
    """Return numbers of threads or copies to try, the largest first.

    Each number comes with a flag, which is true if only the space `full` tries this number. The
    space `quick` tries the number of cores, and half the number of cores.
    """
    most = len(cores)
    quick = {most, most // 2}
    counts = {count for count in (*COUNTS, *quick) if 2 <= count <= most}
    return [(count, count not in quick) for count in sorted(counts, reverse=True)]


def thread_choices(
    cores: Sequence[int], options: Sequence[tuple[Option[int], str]], *, binds: bool = True
) -> Iterator[Choice]:
    """Yield a choice for each number of threads with each option; the largest number comes first.

    Each option comes with a text that is appended to the names of the option's choices. If the
    engine `binds` threads, the last choice has as many threads as cores, and binds each thread to
    one core. The space `quick` tries as many threads as cores, half as many threads, and the choice
    with bound threads.
    """
    most = len(cores)
    for count, for_full in counts_for(cores):
        for option, ending in options:
            yield set_to(option, count, f"{count} threads{ending}", for_full=for_full)
    if binds and most > 1:
        bound: dict[str, OptionValue] = {
            table.MULTITHREAD.key: most,
            table.MULTI_THREAD_CORE_IDS.key: ",".join(map(str, cores)),
        }
        yield Choice(name=f"{most} bound threads", options=bound)


def copies_dimension(cores: Sequence[int]) -> Dimension:
    """Return the dimension whose choices say how many copies of the model run at once.

    Several copies may raise the throughput.
    """
    fields = {"objectives": ("throughput",)}
    choices = (
        set_to(table.THREAD, count, f"{count} copies", for_full=for_full, **fields)
        for count, for_full in counts_for(cores)
    )
    return Dimension(name="copies", choices=tuple(choices))


def dimensions_in(
    folder: Path, site: Site, traits: Iterable[str] = (), **special: Iterable[Choice]
) -> tuple[Dimension, ...]:
    """Return the dimensions in an engine's `dimensions.json` that can matter on a machine.

    The name of a candidate (a set of choices) lists the choices in the order of these dimensions.
    `traits` are properties of the model that choices may need. `special` has the choices of the
    dimensions that `dimensions.json` cannot describe.
    """
    here = {*site.instruction_sets, site.device.partition(":")[0], *traits}
    return tuple(
        Dimension(name=name, choices=tuple(special[name]))
        if name in special
        else dimension_of(name, given, site, here)
        for name, given in json.loads((folder / "dimensions.json").read_text()).items()
    )


def dimension_of(name: str, given: Any, site: Site, here: Set[str]) -> Dimension:
    """Return the dimension that an entry in an engine's `dimensions.json` describes."""
    if isinstance(given, list) and all(isinstance(row, dict) for row in given):
        return Dimension(name=name, choices=tuple(choices_of(given, here)))
    if name == "precision":
        # On other processors the engines compute in float32 instead, some without a message.
        return precision_dimension(site, {kind: {*sets} for kind, sets in given.items()})
    if name == "model":
        return prepared_model(*given)
    return (threads_dimension if name == "threads" else copies_dimension)(site.cores, **given)


def choices_of(rows: Iterable[dict[str, Any]], here: Set[str]) -> Iterator[Choice]:
    """Yield the choices in a table whose needs are met on this machine.

    Each need is a list of instruction sets, kinds of devices or traits of the model. A need is met
    if `here` contains at least one element of this list. If a choice has a list `quick_with`, and
    `here` has no element of this list, only the space `full` tries the choice.
    """
    for row in rows:
        needs, quick_with = row.pop("needs", ()), row.pop("quick_with", ())
        if quick_with:
            row["for_full"] = here.isdisjoint(quick_with)
        if not any(map(here.isdisjoint, needs)):
            yield Choice(**with_tuples({**row, "options": with_tuples(row.get("options", {}))}))


def with_tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(it) if isinstance(it, list) else it for key, it in row.items()}
