"""A search that is killed again and again finds what an undisturbed one finds.

`tests/tuning/test_session.py` kills processes that record trials; here the search is killed, and
what is measured is computed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lar.records.bench import OutputDifference
from lar.records.choices import Choice, Dimension
from lar.records.tuning import (
    BASELINE,
    Candidate,
    ModelSpace,
    Trial,
    TrialRow,
    TuneRequest,
    TuneResult,
)
from lar.running.side_runs import MakeOn
from lar.tuning.campaign import Campaign
from lar.tuning.player import Keep, LocalPlayer, Show, TrialOrder, keep_nothing
from lar.tuning.session import TuningSession, open_session, read_facts, read_session
from tests.conftest import WriteScript
from tests.tuning.made_sessions import make_facts, make_row

FACTS = make_facts()
FACTORS = {"nchw44": 0.8, "nchw32": 0.1, "2 threads": 0.6, "3 threads": 1.2, "fast-run": 0.7}
DIMENSIONS = (
    Dimension(
        name="layout",
        choices=tuple(
            Choice(name=name, options={f"enable_{name}": True})
            for name in ("nchw44", "nchw32", "nchw88")
        ),
    ),
    Dimension(
        name="threads",
        choices=tuple(
            Choice(name=f"{count} threads", options={"multithread": count}) for count in (2, 3)
        ),
    ),
    Dimension(
        name="algorithms",
        choices=(
            Choice(
                name="fast-run",
                search={"fast_run": True},
                cache="fast_run_algo_policy",
                cache_depends=("layout",),
            ),
        ),
    ),
)


class Killed(BaseException):
    """The end of a process, as far as the search knows it."""


class ComputedPlayer:
    """Plays trials by computing them, or is killed, as `draw` has it; counts those that end."""

    make_on: MakeOn | None = None

    def __init__(self, draw: random.Random | None = None) -> None:
        self.draw = draw
        self.ended: Counter[int] = Counter()

    def play(self, order: TrialOrder, show: Show, keep: Keep = keep_nothing) -> Trial:
        """Play a trial, unless it is killed."""
        if self.draw is not None and self.draw.random() < 0.7:
            raise Killed
        rows = []
        for entrant in order.entrants:
            noise = random.Random(f"{order.number} {entrant.name}").gauss(1.0, 0.002)
            seconds = 0.01 * noise
            for name in entrant.candidate.choices:
                seconds *= FACTORS.get(name, 0.0)
            if order.kind == "search":
                assert entrant.spec is not None
                file = Path(str(entrant.spec.settings["fast_run_algo_policy"]))
                file.write_text(f"cache of {entrant.cache}")
            row = make_row(entrant.candidate, seconds, number=order.number, cache=entrant.cache)
            wrong = "nchw32" in entrant.candidate.choices
            found = OutputDifference(agreement="different" if wrong else "equal")
            rows.append(replace(row, output_difference=found) if row.turns else row)
        self.ended[order.number] += 1
        return Trial(
            number=order.number,
            kind=order.kind,
            rows=tuple(rows),
            began=order.began,
            seconds=1.5,
            machine=FACTS.machine,
        )


def search(place: str, request: TuneRequest, player: ComputedPlayer, folder: Path) -> TuneResult:
    folder.mkdir(exist_ok=True)
    with open_session(place, request, facts=FACTS) as session:
        return Campaign(session, player, folder).run()


def test_a_search_that_is_killed_20_times_finds_the_same(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is done between two trials takes time of the budget: here it takes none.
    monkeypatch.setattr("lar.tuning.campaign.time", SimpleNamespace(monotonic=lambda: 0.0))
    model = write_script()
    space = ModelSpace(model=model, engine="fake", dimensions=DIMENSIONS)
    request = TuneRequest(spaces=(space,), tolerance=0.01)
    undisturbed = search(str(tmp_path / "a.tune"), request, ComputedPlayer(), tmp_path / "a")
    assert undisturbed.ending == "settled"
    assert undisturbed.winner
    assert undisturbed.winner.name == "nchw44 + 2 threads + fast-run"
    draw, kills, place = random.Random(0), 0, str(tmp_path / "b.tune")
    insert = TuningSession._insert

    def insert_or_die(
        session: TuningSession, table: str, row: dict[str, object], conflict: str = ""
    ) -> int:
        number = insert(session, table, row, conflict)
        if kills < 20 and table in ("measurements", "cache_parts") and draw.random() < 0.3:
            cut.add(len(session.trials))
            raise Killed
        return number

    monkeypatch.setattr(TuningSession, "_insert", insert_or_die)
    ended: Counter[int] = Counter()
    cut: set[int] = set()
    while True:
        player = ComputedPlayer(draw if kills < 20 else None)
        try:
            killed = search(place, request, player, tmp_path / f"b{kills}")
            break
        except Killed:
            kills += 1
        finally:
            ended += player.ended
    assert kills == 20
    assert killed.trials == undisturbed.trials
    assert killed.ranking == undisturbed.ranking
    assert killed.contributions == undisturbed.contributions
    # Only what was not recorded any more is measured again.
    assert {number for number, count in ended.items() if count > 1} <= cut
    with read_session(place) as session, read_session(str(tmp_path / "a.tune")) as other:
        assert session.cache_names == other.cache_names != ()
        for name in session.cache_names:
            assert session.get_cache(name, tmp_path / "cache")
            assert (tmp_path / "cache").read_text() == f"cache of {name}"


def test_candidates_whose_processes_have_ended_are_not_repeated(
    write_script: WriteScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = [
        {"when": {"enable_nchw44": True}, "factor": 0.8},
        {"when": {"multithread": 2}, "fault": {"at": "start", "do": "abort"}},
    ]
    model = write_script(times=[[0.01, 0.001, None]], effects=effects)
    space = ModelSpace(model=model, engine="fake", dimensions=DIMENSIONS[:2])
    request, place = TuneRequest(spaces=(space,), tolerance=0.01), str(tmp_path / "net.tune")
    facts = read_facts(request)
    play, kept = LocalPlayer.play, list[list[Candidate]]()

    def play_cut(player: LocalPlayer, order: TrialOrder, show: Show, keep: Keep) -> Trial:
        own = list[Candidate]()
        kept.append(own)

        def keep_or_die(place: int, row: TrialRow, seconds: float) -> None:
            keep(place, row, seconds)
            own.append(row.candidate)
            if len(own) == 3:
                raise Killed

        return play(player, order, show, keep_or_die)

    monkeypatch.setattr(LocalPlayer, "play", play_cut)
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            pytest.raises(Killed),
            open_session(place, request, facts=facts) as session,
        ):
            Campaign(session, LocalPlayer(folder), folder).run()
    measured = [each for own in kept for each in own if each != BASELINE]
    assert len(measured) == len({*measured}) == 4
    with open_session(place, request, facts=facts) as session:
        [trial], cut = session.trials, session.take_cut()
        assert cut
        assert {row.candidate for row in (*trial.rows, *cut.rows)} == {BASELINE, *measured}
        fates = {row.candidate: row.status for row in (*trial.rows, *cut.rows)}
        assert fates[Candidate(choices=("2 threads",))] == "crashed"
        # Of a trial that is recorded whole no part is left.
        session.record(cut)
        assert session.take_cut() is None
