"""The session of a search: nothing recorded is lost, and it is valid for what it names alone."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.errors import LarError, UsageError
from lar.records.choices import OptionValue
from lar.records.tuning import Trial, TuneRequest
from lar.results.store import save
from lar.tuning import session as module
from lar.tuning.session import (
    Elsewhere,
    SessionFacts,
    find_place,
    open_session,
    read_facts,
    read_session,
)
from tests.conftest import REPOSITORY
from tests.results.made_results import make_result
from tests.tuning.made_sessions import (
    FAST,
    SLOW,
    make_facts,
    make_machine,
    make_request,
    make_trial,
    make_trials,
)

REQUEST, FACTS = make_request(), make_facts()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "net.tune")


def fill(place: str, trials: list[Trial], request: TuneRequest = REQUEST) -> None:
    with open_session(place, request, facts=FACTS) as session:
        for trial in trials:
            session.record(trial)


def trials_in(place: str) -> list[Trial]:
    with read_session(place) as session:
        return session.trials


def check_integrity(place: str) -> None:
    connection = sqlite3.connect(place)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_session_comes_back_whole(place: str) -> None:
    trials = make_trials()
    fill(place, trials)
    with open_session(place, facts=FACTS) as session:
        assert (session.request, session.facts, session.trials) == (REQUEST, FACTS, trials)
        assert session.spent_seconds == 11.0
        session.record(make_trial(4, {FAST: 0.005}))
        assert len(session.trials) == 4
        assert [opening.process for opening in session.openings] == [os.getpid()] * 2
        assert session.ending is None
        session.finish("settled")
        assert session.ending == "settled"
    assert [trial.number for trial in trials_in(place)] == [1, 2, 3, 4]


@settings(max_examples=12)
@given(
    times=st.lists(st.floats(0, 1e3, allow_nan=False), min_size=1, max_size=5),
    kinds=st.lists(st.sampled_from(["screen", "search", "race", "confirm"]), max_size=4),
    options=st.dictionaries(
        st.text(max_size=5),
        st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5)
        | st.lists(st.text(max_size=3)).map(tuple),
    ),
    budget=st.floats(0, 1e6),
    sizes=st.lists(st.integers(0, 5000), max_size=3),
)
def test_what_is_recorded_is_read(
    times: list[float],
    kinds: list[str],
    options: dict[str, OptionValue],
    budget: float,
    sizes: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("session")
    place, draw = str(folder / "a.tune"), random.Random(len(times))
    request = make_request(budget_seconds=budget, options=options)
    trials = [
        make_trial(number, {FAST: times[number % len(times)]}, kind)  # type: ignore[arg-type]
        for number, kind in enumerate(kinds)
    ]
    caches = {f"cache {number}": draw.randbytes(size) for number, size in enumerate(sizes)}
    for name, content in caches.items():
        (folder / name).write_bytes(content)
    with open_session(place, request, facts=FACTS) as session:
        for trial in trials:
            session.record(trial, {name: folder / name for name in caches})
    with open_session(place, facts=FACTS) as session:
        assert (session.request, session.trials) == (request, trials)
        assert session.cache_names == (tuple(caches) if trials else ())
        for name in session.cache_names:
            assert session.get_cache(name, folder / "back")
            assert (folder / "back").read_bytes() == caches[name]


def test_columns_can_be_queried_by_hand(place: str) -> None:
    fill(place, [make_trial(1, {FAST: 0.005, SLOW: 0.0})])
    connection = sqlite3.connect(place)
    query = "select candidate, options, status, samples, round(ratio, 3), problem from measurements"
    rows = connection.execute(query).fetchall()
    facts = connection.execute("select models, engines, machine, objective from session").fetchone()
    connection.close()
    both = "--multithread 2 --enable-nchw88"
    assert rows == [
        ("plain", "", "ok", 18, 1.0, ""),
        ("blocked + 2 threads", both, "ok", 18, 0.5, ""),
        ("2 threads", "--multithread 2", "crashed", 0, None, "it broke"),
    ]
    assert facts == ("net.mge", "fake 1.0", "a processor, 2 of 4 cores, 8 GiB", "latency")


# Caches


def test_a_cache_is_kept_in_parts_and_replaced(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 1000)
    cache, back = tmp_path / "cache", tmp_path / "back"
    content = bytes(1500) + random.Random(0).randbytes(2000)
    with open_session(place, REQUEST, facts=FACTS) as session:
        assert not session.get_cache("searched", back)
        cache.write_bytes(content)
        session.record(make_trial(1, {FAST: 0.01}), {"searched": cache})
        assert session.get_cache("searched", back)
        assert back.read_bytes() == content
        cache.write_bytes(b"a later search")
        session.record(make_trial(2, {FAST: 0.01}), {"searched": cache, "none": tmp_path / "no"})
        assert session.get_cache("searched", back)
        assert back.read_bytes() == b"a later search"
        assert session.cache_names == ("searched",)
    connection = sqlite3.connect(place)
    assert connection.execute("select name, trial, bytes from caches").fetchall() == [
        ("searched", 2, 14)
    ]
    assert connection.execute("select count(*) from cache_parts").fetchone() == (1,)
    connection.close()
    assert not list(tmp_path.glob("*.new"))


def test_a_cache_brings_the_file_that_belongs_to_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "companions_of", lambda path, request: (f"{path.name}.12.data",))
    made, used = tmp_path / "made", tmp_path / "used"
    made.mkdir()
    used.mkdir()
    (made / "cache").write_bytes(b"first")
    (made / "cache.12.data").write_bytes(b"second")
    with open_session(place, REQUEST, facts=FACTS) as session:
        session.record(make_trial(1, {FAST: 0.01}), {"searched": made / "cache"})
        assert session.get_cache("searched", used / "other name")
    assert {each.name: each.read_bytes() for each in used.iterdir()} == {
        "other name": b"first",
        "cache.12.data": b"second",
    }


def test_a_cache_that_cannot_be_written_leaves_no_part(place: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(random.Random(0).randbytes(100_000))
    with open_session(place, REQUEST, facts=FACTS) as session:
        session.record(make_trial(1, {FAST: 0.01}), {"searched": cache})
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        try:
            with pytest.raises(LarError, match="back: cannot be written"):
                session.get_cache("searched", tmp_path / "back")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert sorted(os.listdir(tmp_path)) == ["cache", "net.tune"]


# Kills and full disks


# Forks a process that records trials, each with a cache, kills it a little later, and looks what is
# there; again and again. Every fourth kills itself when half of a trial stands in the file. Prints
# what was acknowledged, what is there, and whether a trial was cut.
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from lar.tuning.session import TuningSession, open_session, read_session
from tests.tuning.made_sessions import FAST, make_facts, make_request, make_trial

place, cache, draw = sys.argv[1], Path(sys.argv[2]), random.Random(1)

insert = TuningSession._insert

def insert_and_end(session, table, row, conflict=""):
    number = insert(session, table, row, conflict)
    if table == "cache_parts":
        os.kill(os.getpid(), signal.SIGKILL)
    return number

def record(writer, is_own_end):
    with open_session(place, make_request(), facts=make_facts()) as session:
        session._connection.execute("pragma cache_size = 1")  # writes into the file early
        os.write(writer, b"o")
        for number in range(len(session.trials) + 1, 1000):
            session.record(make_trial(number, {FAST: 0.005}), {"searched": cache})
            os.write(writer, b".")
            if is_own_end:  # before it commits the next one
                TuningSession._insert = insert_and_end

known = 0
for each in range(20):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        record(writer, each % 4 == 0)
    os.close(writer)
    os.read(reader, 1)  # it has begun
    if each % 4:
        time.sleep(draw.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    said = known + len(os.read(reader, 1000))
    os.close(reader)
    was_cut = os.path.exists(f"{place}-journal")
    with read_session(place) as session:
        known = len(session.trials)
    print(said, known, int(was_cut))
"""


def test_kills_lose_no_trial_and_leave_no_half(place: str, tmp_path: Path) -> None:
    content, cache = random.Random(0).randbytes(30_000), tmp_path / "cache"
    cache.write_bytes(content)
    killer = start_python(KILLER, place, str(cache))
    rounds = [[*map(int, line.split())] for line in killer.communicate(timeout=60)[0].splitlines()]
    assert (killer.returncode, len(rounds)) == (0, 20)
    # The last may be recorded without having been said.
    assert all(said <= found <= said + 1 for said, found, _ in rounds)
    assert all(was_cut and said == found for said, found, was_cut in rounds[::4])
    trials = trials_in(place)
    assert trials == [make_trial(number, {FAST: 0.005}) for number in range(1, len(trials) + 1)]
    assert len(trials) >= 5
    check_integrity(place)
    with open_session(place, facts=FACTS) as session:
        assert session.get_cache("searched", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


def test_a_full_disk_loses_nothing_that_was_recorded(place: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(random.Random(0).randbytes(100_000))
    trials = make_trials()
    fill(place, trials)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_session(place, facts=FACTS) as session:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(place) + 4096, limit[1]))
        try:
            with pytest.raises(LarError) as error:
                session.record(make_trial(4, {FAST: 0.005}), {"searched": cache})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert error.value.exit_code == 4
        assert error.value.message.startswith(f"{place}: cannot be written: ")
        assert error.value.hint == (
            f"make room on the disk, then go on with `lar tune --resume {place}`"
        )
        assert session.trials == trials
        assert not session.cache_names
        session.record(make_trial(4, {FAST: 0.005}), {"searched": cache})  # there is room again
    assert len(trials_in(place)) == 4
    check_integrity(place)


def test_a_disk_that_is_full_from_the_start_is_named(place: str) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(LarError, match="cannot be written") as error:
            fill(place, [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert error.value.exit_code == 4
    fill(place, make_trials())  # there is room again


def test_a_power_cut_is_provided_for(place: str) -> None:
    """The folder is synchronised as well, so that the journal does not come back."""
    with open_session(place, REQUEST, facts=FACTS) as session:
        modes = [session._row(f"pragma {name}")[0] for name in ("synchronous", "journal_mode")]
    assert modes == [3, "delete"]


def test_an_interrupt_in_the_middle_of_a_trial_records_nothing_of_it(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with open_session(place, REQUEST, facts=FACTS) as session:
        with monkeypatch.context() as patch:
            patch.setattr(module, "measurements_of", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.record(make_trial(1, {FAST: 0.005}))
        assert not session.trials
        session.record(make_trial(1, {FAST: 0.005}))
    assert len(trials_in(place)) == 1


# One process at a time


def start_python(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


HOLDER = """
import sys
from lar.tuning.session import open_session
from tests.tuning.made_sessions import make_facts
with open_session(sys.argv[1], facts=make_facts()):
    print("opened", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_a_killed_one_does_not_matter(place: str) -> None:
    fill(place, make_trials())
    holder = start_python(HOLDER, place)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "opened\n"
    began = time.monotonic()
    with pytest.raises(UsageError) as error, open_session(place, facts=FACTS):
        pass
    assert time.monotonic() - began < 5
    assert error.value.message.startswith(
        f"{place}: another process searches with this session (process {holder.pid}, since 20"
    )
    assert len(trials_in(place)) == 3  # to look at it is allowed
    holder.kill()
    holder.communicate()
    with open_session(place, facts=FACTS) as session:
        assert len(session.trials) == 3


def test_the_same_process_has_a_session_once(place: str) -> None:
    with open_session(place, REQUEST, facts=FACTS) as session:
        with (
            pytest.raises(UsageError, match="another process searches with this session"),
            open_session(place, facts=FACTS),
        ):
            pass
        session.record(make_trial(1, {FAST: 0.005}))
    assert len(trials_in(place)) == 1


def test_a_trial_that_another_has_recorded_is_not_replaced(place: str) -> None:
    fill(place, make_trials())
    with open_session(place, facts=FACTS) as session:
        with pytest.raises(LarError, match="has a trial 2 already"):
            session.record(make_trial(2, {SLOW: 0.5}))
        assert session.trials == make_trials()
    assert trials_in(place) == make_trials()


# What it is valid for


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (make_facts(processor="another"), "here: the processor is another, not a processor"),
        (make_facts(sha256="b" * 64), "net.mge has SHA-256 bbbbbbbbbbbb, not aaaaaaaaaaaa"),
        (make_facts(engines={"fake": "2.0"}), "here: the version of fake is 2.0, not 1.0"),
        (replace(FACTS, lar_version="0.0"), "here: the version of lar is 0.0, not "),
        (
            replace(FACTS, machine=replace(make_machine(cores=8), memory_bytes=4 << 30)),
            "the number of cores is 2 of 8, not 2 of 4; the memory is 4 GiB, not 8 GiB",
        ),
        (replace(FACTS, inputs=FACTS.models), "the number of its inputs is 1, not 0"),
        (
            make_facts(sha256="b" * 64, model="other.mge"),
            "is a session of net.mge, not of other.mge",
        ),
    ],
)
def test_it_is_refused_where_it_is_not_valid(facts: SessionFacts, problem: str, place: str) -> None:
    fill(place, make_trials())
    before = Path(place).read_bytes()
    for request in (None, REQUEST):
        with (
            pytest.raises(UsageError, match=problem) as error,
            open_session(place, request, facts=facts),
        ):
            pass
        assert (error.value.exit_code, error.value.subject) == (2, place)
        assert "\n" not in error.value.message
    assert Path(place).read_bytes() == before


def test_what_is_not_known_does_not_make_it_invalid(place: str) -> None:
    fill(place, [])
    slightly_less = replace(FACTS.machine, memory_bytes=(8 << 30) - (1 << 20))
    with open_session(place, facts=replace(FACTS, machine=slightly_less, engines={"fake": ""})):
        pass


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"objective": "memory"}, "was begun with --objective latency, not memory"),
        ({"tolerance": 0.1}, "was begun with --tolerance of its own, not 0.1"),
        ({"allowed": ("engine-fixes",)}, "was begun with --allow nothing, not engine-fixes"),
        ({"spaces": REQUEST.spaces * 2}, "was begun with 1 model, not 2"),
        (
            {"spaces": make_request(options={"batch_size": 2}).spaces},
            "no options, not --batch-size 2",
        ),
        (
            {"spaces": (replace(REQUEST.spaces[0], dimensions=()),)},
            "was begun with another space",
        ),
        (
            {"spaces": (replace(REQUEST.spaces[0], dimensions=()),), "extent": "full"},
            "was begun with --space quick, not --space full",
        ),
    ],
)
def test_another_request_is_refused(change: dict[str, object], problem: str, place: str) -> None:
    fill(place, make_trials())
    other = replace(REQUEST, **change)  # type: ignore[arg-type]
    with (
        pytest.raises(UsageError, match=problem) as error,
        open_session(place, other, facts=FACTS),
    ):
        pass
    assert f"`lar tune --resume {place}` goes on with that" in error.value.hint


def test_the_same_request_goes_on_with_another_budget(place: str) -> None:
    fill(place, make_trials())
    with open_session(
        place, replace(REQUEST, budget_seconds=240.0, seed=7), facts=FACTS
    ) as session:
        assert session.request == replace(REQUEST, budget_seconds=240.0)
        assert len(session.trials) == 3
    with open_session(place, budget_seconds=300.0, facts=FACTS) as session:
        assert session.request.budget_seconds == 300.0
    with open_session(place, facts=FACTS) as session:
        assert session.request.budget_seconds == 300.0


def test_trials_of_two_machines_or_versions_are_never_mixed(place: str) -> None:
    trial = make_trial(1, {FAST: 0.005})
    with open_session(place, REQUEST, facts=FACTS) as session:
        with pytest.raises(LarError, match="trial 1 was measured on another machine"):
            session.record(replace(trial, machine=make_machine("another")))
        session.record(trial)
        rows = [replace(row, engine=replace(row.engine, version="2.0")) for row in trial.rows]  # type: ignore[type-var]
        with pytest.raises(LarError, match=r"measured with fake 2\.0, and those before with 1\.0"):
            session.record(replace(trial, number=2, rows=tuple(rows)))
        assert session.trials == [trial]


def test_facts_are_read_of_this_machine(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.mge").write_bytes(b"a model")
    Path("image.npy").write_bytes(b"pixels")
    request = make_request("net.mge", options={"input": ("data:image.npy",)})
    facts = read_facts(request)
    assert [each.path for each in (*facts.models, *facts.inputs)] == ["net.mge", "image.npy"]
    assert facts.folder == str(tmp_path)
    with open_session(place, request):
        pass
    with open_session(place):
        pass
    Path("image.npy").write_bytes(b"others")
    with (
        pytest.raises(UsageError, match=r"not valid here: image\.npy has SHA-256"),
        open_session(place),
    ):
        pass
    Path("image.npy").write_bytes(b"pixels")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with (
        pytest.raises(UsageError, match=r"its file net\.mge is not here") as error,
        open_session(place),
    ):
        pass
    assert error.value.hint == f"the session was begun in {tmp_path}: resume it there"


def test_inputs_are_known_by_their_content(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays from Python stand in other files each time."""
    monkeypatch.chdir(tmp_path)
    Path("net.mge").write_bytes(b"a model")
    for name, content in (("a", b"pixels"), ("b", b"pixels"), ("c", b"others")):
        Path(name).mkdir()
        Path(name, "0.npy").write_bytes(content)
    first, same, other = (
        make_request("net.mge", options={"input": (f"data:{tmp_path}/{name}/0.npy",)})
        for name in "abc"
    )
    with open_session(place, first):
        pass
    with open_session(place, same) as session:
        assert session.request == same
    with pytest.raises(UsageError, match="was begun with --input"), open_session(place, other):
        pass


def test_candidates_may_be_measured_elsewhere(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.mge").write_bytes(b"a model")
    request, board = make_request("net.mge"), Elsewhere(make_machine("a board"), {"fake": "3.0"})
    facts = read_facts(request, board)
    assert (facts.machine.processor, facts.engines) == ("a board", {"fake": "3.0"})
    with open_session(place, request, elsewhere=board) as session:
        session.record(replace(make_trial(1, {FAST: 0.01}), machine=board.machine))
    with open_session(place, elsewhere=board) as session:
        assert len(session.trials) == 1
    problem = "is not valid here: the processor is .*, not a board"
    with pytest.raises(UsageError, match=problem), open_session(place):
        pass


def test_a_session_has_a_place_of_its_own(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = find_place(REQUEST, FACTS, folder)
    assert first == str(tmp_path / "net.tune")
    fill(first, make_trials())
    assert find_place(REQUEST, FACTS, folder) == first
    other = replace(REQUEST, objective="memory")
    second = find_place(other, FACTS, folder)
    assert second == str(tmp_path / "net-2.tune")
    fill(second, [], other)
    assert find_place(REQUEST, make_facts(sha256="b" * 64), folder) == str(tmp_path / "net-3.tune")
    assert find_place(other, FACTS, folder) == second


# What is no session


def test_what_is_no_session_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    text, other, store = (tmp_path / name for name in ("text", "other.sqlite", "store.sqlite"))
    text.write_text("not a database, but long enough to be one" * 40)
    connection = sqlite3.connect(other)
    connection.execute("create table notes (text)")
    connection.commit()
    connection.close()
    save(make_result([0.01]), store=str(store))
    for path, problem in (
        (text, "is not a session of lar tune"),
        (other, "is a database, but not a session of lar tune"),
        (store, r"is a store of results \(lar history\), but not a session of lar tune"),
        (tmp_path, "is a folder; give a file name"),
        (tmp_path / "none" / "a.tune", "there is no such folder"),
    ):
        before = path.read_bytes() if path.is_file() else b""
        with (
            pytest.raises(UsageError, match=problem),
            open_session(str(path), REQUEST, facts=FACTS),
        ):
            pass
        assert (path.read_bytes() if path.is_file() else b"") == before
    assert sorted(os.listdir(tmp_path)) == ["other.sqlite", "store.sqlite", "text"]


def test_a_session_that_is_missing_is_made_by_a_request_alone(place: str) -> None:
    with pytest.raises(UsageError, match="there is no such session"), open_session(place):
        pass
    with pytest.raises(UsageError, match="there is no such session"), read_session(place):
        pass
    assert not os.path.exists(place)
    Path(place).touch()  # a maker was killed
    with (
        pytest.raises(UsageError, match="no search was begun in this session"),
        open_session(place),
    ):
        pass
    fill(place, make_trials())


def test_a_session_of_a_newer_schema_is_refused(place: str) -> None:
    fill(place, make_trials())
    connection = sqlite3.connect(place)
    connection.execute("pragma user_version = 99")
    connection.close()
    problem = "the session is of a newer lar: its schema is 99, and this lar knows 2"
    with pytest.raises(UsageError, match=problem), open_session(place, facts=FACTS):
        pass


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("update trials set trial = x'00' where number = 2", "its trial 2 is damaged, or of a"),
        ("update session set request = x'00'", "its request is damaged, or of a newer lar"),
        ("drop table trials", "the session is damaged: its table 'trials' is missing"),
        (
            "alter table trials rename column trial to other",
            "the session is damaged: its column 'trial' is missing",
        ),
    ],
)
def test_damaged_records_are_named(change: str, problem: str, place: str) -> None:
    fill(place, make_trials())
    connection = sqlite3.connect(place)
    connection.execute(change)
    connection.commit()
    connection.close()
    content = Path(place).read_bytes()
    with pytest.raises(UsageError, match=problem) as error, read_session(place):
        pass
    assert error.value.hint == "bring back a copy of it, or begin another"
    with pytest.raises(UsageError, match=problem), open_session(place, facts=FACTS):
        pass
    assert Path(place).read_bytes() == content


def test_a_damaged_file_is_named(place: str) -> None:
    fill(place, make_trials(20))
    content = bytearray(Path(place).read_bytes())
    content[4096 * 2 : 4096 * 12] = b"\xff" * (4096 * 10)
    Path(place).write_bytes(content)
    with pytest.raises(UsageError, match=r"damaged"), read_session(place):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_session_that_may_not_be_written_is_read(place: str) -> None:
    fill(place, make_trials())
    os.chmod(place, 0o444)
    assert len(trials_in(place)) == 3
    with pytest.raises(UsageError, match="cannot be written: permission denied"):
        fill(place, [])
