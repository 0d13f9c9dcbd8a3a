"""Searches for the fastest settings of another machine: its space, its rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lar.engines.listener import Listener
from lar.farm import executor
from lar.farm.farm import Farm, Follow, Killed, Lost
from lar.farm.runs import failed_result, make_on_farm
from lar.farm.sending import Sending
from lar.records.run import MachineFacts, RunContext, RunResult, RunSpec
from lar.records.tuning import TuneRequest
from lar.tuning.player import Entrant, Keep, RoundOrder, Show


@dataclass
class FarmPlayer:
    """Plays rounds on the workers that have a label, whose machines are all alike.

    The processes of a round are on one machine. If its worker is lost, finished processes are kept;
    if there are none, another worker plays the round again.
    """

    farm: Farm
    label: str
    machine: MachineFacts

    def workers(self) -> tuple[str, ...]:
        """Return the workers that have the label and such a machine."""
        return self.farm.alike(self.label, self.machine)

    def search(self, spec: RunSpec, listener: Listener) -> RunResult:
        """Have an engine fill the cache that a spec names."""
        return make_on_farm(self.farm, self.workers(), spec, RunContext(), listener)

    def play(self, order: RoundOrder, show: Show, keep: Keep) -> None:
        """Play a round, and keep the result of each process when it has ended.

        Raises:
            UsageError: a file cannot be read, or no worker has the label.
            LarError: the scheduler, or the worker, cannot be used.
        """
        sending, follower = Sending(), RoundFollower(show, keep)
        sent = replace(
            order,
            entrants=tuple(send_entrant(sending, each) for each in order.entrants),
            names=sending.rewrite_names(order.names),
        )
        try:
            takers = follower.takers
            self.farm.play(sending, executor.play_round, sent, on=self.workers(), follow=takers)
            follower.finish()
        except CutShort:
            return
        except Killed as error:
            first, *others = order.entrants
            if len(others) > 1:
                # Which of them kills the workers? A later round measures those that are left out.
                half = (first, *others[: len(others) // 2])
                self.play(replace(order, entrants=half), show, keep)
            else:
                # Not the plain run kills them, unless it is alone.
                keep(len(others), failed_result(order.entrants[-1].spec, error))
        except Lost:
            if not follower.has_kept:
                raise


class CutShort(Exception):
    """A worker was lost after results of its round were kept: the round is not played again."""


@dataclass
class RoundFollower:
    """Shows how far a round is, and keeps the results of processes that have ended."""

    show: Show
    keep: Keep
    waiting: list[tuple[int, RunResult]] = field(default_factory=list)
    has_kept: bool = False

    @property
    def takers(self) -> Follow:
        """The functions for what is said during a round."""
        return {"began": self.begin, "show": self.show, "ended": self.take}

    def begin(self) -> None:
        """Begin, or begin again if a worker was lost.

        Raises:
            CutShort: results are kept.
        """
        self.waiting = []
        if self.has_kept:
            raise CutShort

    def take(self, place: int, result: RunResult) -> None:
        """Keep a result; that of a successful plain run waits for another one.

        Alone it is of no use: if the worker is lost, the round begins again on another machine.
        """
        self.waiting.append((place, result))
        if self.has_kept or place or result.status != "ok":
            self.has_kept = True
            self.finish()

    def finish(self) -> None:
        """Keep the results that wait."""
        for each in self.waiting:
            self.keep(*each)
        self.waiting = []


def send_entrant(sending: Sending, entrant: Entrant) -> Entrant:
    """Return a candidate with places on the worker."""
    spec = sending.rewrite_spec(entrant.spec)
    return replace(entrant, spec=spec, like_baseline=sending.add_inputs(entrant.like_baseline))


def request_on_farm(
    farm: Farm,
    label: str,
    models: Sequence[str],
    options: Mapping[str, Any],
    asked: TuneRequest,
    engines: Sequence[str] = (),
) -> tuple[TuneRequest, MachineFacts, dict[str, str]]:
    """Return the request of a search with what can be tried on a worker that has the label.

    The facts about its machine and the versions of its engines come with it.

    Raises:
        UsageError: a model or an option cannot be used, or no worker has the label.
        LarError: the scheduler, or the worker, cannot be used.
    """
    sending = Sending()
    sent = [sending.add_with_weights(model) for model in models]
    if asked.extent not in ("quick", "full"):
        asked = replace(asked, extent=sending.add(asked.extent, "--space"))
    given = sending.rewrite_settings(options)
    return farm.play(sending, executor.make_space, sent, given, asked, engines, on=label)
