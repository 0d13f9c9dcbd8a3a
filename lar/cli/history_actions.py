"""The actions of `lar history`: for example, `lar history list` calls `list_results`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from lar.cli import gates
from lar.cli.report_files import open_reports, render
from lar.cli.results import write_table
from lar.cli.screen import say
from lar.errors import UsageError, count_of
from lar.files.report_file import OutputFile
from lar.options.paths import Place, refuse_clashes
from lar.options.table import OPTIONS
from lar.records.record import record_to_json
from lar.records.run import RunResult
from lar.reports.report import Report
from lar.reports.results_report import report_check, report_course, report_history
from lar.results import NamedResult, describe_options, facts_of, is_calm
from lar.results.reading import is_database, read_completed, split_name
from lar.results.side_by_side import Check, check_kind
from lar.results.store import Entry, Kind, Selection, Store, kind_of, open_store, row_of

MOST_RUNS = 100  # the most runs of each kind that a check reads

# Flags of `lar history check` that `lar run` does not have.
BEFORE_RUN = ("--baseline", "--runs", "--fail-if-slower", "--fail-if-unjudged")

# Facts that may differ between the runs that a check compares. The check prints the differences,
# since they may have caused a regression.
SOFTWARE: Mapping[str, Callable[[RunResult], str]] = {
    "engine": lambda it: f"{it.engine.name} {it.engine.version}" if it.engine else "",
    "lar": lambda it: it.lar_version,
    "Python": lambda it: it.machine.python if it.machine else "",
    "system": lambda it: it.machine.system if it.machine else "",
    "governor": lambda it: it.machine.governor if it.machine else "",
}

# Why a verdict may say little, and what to do.
STORE_MORE = "store several runs of each side"
DISTURBED = (
    "the machine was disturbed, and runs of one sitting (within ten minutes) do not show how much "
    "sittings differ; store runs of the baseline at several times, or compare with `lar bench`"
)
ONE_SITTING = (
    "each side has one sitting (runs within ten minutes). A change of the machine between the two "
    "would look like a change of the program: store runs of the baseline at several times"
)


def selection_of(arguments: argparse.Namespace) -> Selection:
    """Return the selection of results that the flags ask for."""
    keys = ("tag", "model", "engine", "machine", "options", "since", "before")
    return Selection(**{key: it for key in keys if (it := getattr(arguments, key)) is not None})


def print_report(report: Report, form: str) -> None:
    OutputFile("-", "--format").write(render(report, form, to_stdout=True))


def list_results(arguments: argparse.Namespace) -> int:
    """Print the list of stored results."""
    with open_store(arguments.store) as store:
        selection = selection_of(arguments)
        found = store.entries(selection)
    entries = found[-arguments.newest :]  # 0 keeps all entries
    left = len(found) - len(entries)
    notes = [f"({left} older: -n 0 shows all)"] if left else []
    if not entries and arguments.format == "text":
        is_chosen = selection != Selection()
        say(f"no result of {store.path} fits" if is_chosen else "no results", sys.stdout)
        return 0
    print_report(report_history(entries, notes), arguments.format)
    return 0


def show_results(arguments: argparse.Namespace) -> int:
    """Print results side by side, or write one result as JSON."""
    with open_store(arguments.store) as store:
        results = {number: store.result(number) for number in dict.fromkeys(arguments.ids)}
        tags = {entry.id: entry.tag for entry in store.entries(Selection(ids=tuple(results)))}
    if arguments.json is not None:
        if len(results) > 1:
            raise UsageError("takes one result", "give one number", flag="--json")
        with open_reports(vars(arguments), read=[store.path]) as files:
            (result,) = results.values()
            files.write(record_to_json(result) + b"\n", prints=False)
        return 0
    named = [
        NamedResult(f"#{number} {tags[number]}".strip(), result)
        for number, result in results.items()
    ]
    names = {each.name.partition(" ")[0].lstrip("#"): each.name for each in named}
    baseline = names.get(arguments.baseline.lstrip("#"), arguments.baseline)
    write_table(arguments, named, baseline, OutputFile("-", "--format"))
    return 0


def plot_results(arguments: argparse.Namespace) -> int:
    """Print how the times have changed; with --html, write a page with curves of the times."""
    with open_store(arguments.store) as store:
        report = report_course(store.entries(selection_of(arguments)))
    if not report.tables[0].rows:
        raise UsageError("no chosen result has latencies", "`lar history list` lists the results")
    with open_reports(vars(arguments), read=[store.path]) as files:
        files.write(report, prints=not files.files)
    if files.files and files.console is sys.stdout:
        say(f"wrote {arguments.html}", sys.stdout)
    return 0


def add_results(arguments: argparse.Namespace) -> int:
    """Store the results that files hold."""
    paths = [split_name(word)[1] for word in arguments.files] if arguments.tag is None else []
    if store_path := next((path for path in paths if path != "-" and is_database(path)), None):
        hint = "`lar history import` keeps the tags; --tag TAG replaces all of them"
        raise UsageError("is a store: its results would lose their tags", hint, subject=store_path)
    # The rows are made before the store is locked, one result at a time.
    results = read_completed(arguments.files, arguments.model, arguments.machine)
    return add_rows([row_of(it, arguments.tag or "") for it in results], arguments.store)


def export_results(arguments: argparse.Namespace) -> int:
    """Copy stored results into another store."""
    with open_store(arguments.store) as store:
        refuse_clashes([Place(arguments.output, "--output")], [store.path])
        return add_rows(store.rows(store.entries(selection_of(arguments))), arguments.output)


def import_results(arguments: argparse.Namespace) -> int:
    """Copy all results of other stores; copy nothing if one store is damaged."""
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(open_store(path)) for path in arguments.files]
        rows = [store.rows(store.entries()) for store in stores]  # refuses damaged ones
        return add_rows(chain.from_iterable(rows), arguments.store)


def add_rows(rows: Iterable[dict[str, object]], path: str | None) -> int:
    """Add rows to a store, and print how many of the rows are new."""
    with open_store(path, create=True) as store:
        added = [each.is_new for each in store.add_rows(rows)]
    left = f"; {added.count(False)} were there already" if False in added else ""
    say(f"stored {count_of(sum(added), 'result')} in {store.path}{left}", sys.stdout)
    return 0


def prune_results(arguments: argparse.Namespace) -> int:
    """Remove results, or only print which results would be removed.

    Raises:
        UsageError: no flag says which results to remove.
    """
    before = min(filter(None, (arguments.before, arguments.older_than)), default="")
    selection = replace(selection_of(arguments), ids=tuple(arguments.ids), before=before)
    if selection == Selection() and arguments.keep is None:
        raise UsageError(
            "no result is chosen for removal", "give --older-than, --keep, --tag or result numbers"
        )
    with open_store(arguments.store) as store:
        known = {entry.id for entry in store.entries(Selection(ids=selection.ids))}
        if missing := [number for number in selection.ids if number not in known]:
            store.result(missing[0])  # raises the error
        entries = older_of_kinds(store.entries(selection), arguments.keep or 0)
        total = len(store.entries())
        if arguments.yes:
            store.remove([entry.id for entry in entries])
            print(f"removed {len(entries)} of {count_of(total, 'result')}")
            return 0
    if entries:
        print_report(report_history(entries), "text")
    print(
        f"would remove {len(entries)} of {count_of(total, 'result')}"
        + ("; --yes does" if entries else "")
    )
    return 0


def older_of_kinds(entries: Sequence[Entry], keep: int) -> list[Entry]:
    """Return all entries except the newest `keep` entries of each kind of run.

    The oldest entry comes first.
    """
    left = Counter(entry.kind for entry in entries)
    older = []
    for entry in entries:
        if left[entry.kind] > keep:
            older.append(entry)
        left[entry.kind] -= 1
    return older


def check_results(arguments: argparse.Namespace) -> int:
    """Compare new runs with the runs of the baseline; return the exit code of the gate.

    Raises:
        UsageError: a flag is wrong, or the baseline has no run to compare a new run with.
    """
    for word in arguments.run_words or ():
        if (flag := word.partition("=")[0]) in BEFORE_RUN:
            problem = "stands after --run, but all words after --run are flags of the model"
            raise UsageError(problem, "put it before --run", flag=flag)
    if arguments.baseline is None:
        hint = "give the tag of the runs to compare with"
        raise UsageError("is required", hint, flag="--baseline")
    if arguments.run_words is not None and arguments.files:
        raise UsageError("--run and FILE cannot go together", "leave one out")
    is_stored = arguments.run_words is None and not arguments.files
    if is_stored and arguments.tag == arguments.baseline:
        raise UsageError(
            "is the baseline too", "give the tag of runs to check", flag=f"--tag: {arguments.tag}"
        )
    with open_store(arguments.store) as store:
        require_tag(store, arguments.baseline)
    # The store is closed while the model runs: others may write.
    made = None if arguments.run_words is None else run_model(arguments)
    with open_store(arguments.store) as store:
        if made is not None and arguments.tag:
            store.add([result for result in made if not result.failure], arguments.tag)
        new = new_results(arguments, store, made)
        checks, lost = check_new(store, new, arguments.baseline)
    failed = [it for _, it in new if it.status != "ok" or not it.samples.end_to_end]
    if not checks and not failed:
        raise UsageError(lost[0], "store a comparable run with the baseline's tag")
    notes = [note for each in checks for note in notes_of(each)]
    notes += [f"warning: {text}" for text in lost]
    if checks or arguments.format not in ("text", "markdown"):
        print_report(report_check(checks, arguments.baseline, notes), arguments.format)
    arguments.fail_if_slower = arguments.fail_if_slower or 0.0
    outcomes = [gates.Outcome(each.name, each.difference, reason=each.reason) for each in checks]
    outcomes += [
        gates.failed_run(f"the new run of {name_of_result(each)}", each) for each in failed
    ]
    return gates.close(arguments, outcomes, gates.stream_beside(arguments.format), lost)


def require_tag(store: Store, tag: str) -> None:
    """Refuse a tag that no stored result has.

    Raises:
        UsageError: no stored result has the tag. The hint lists the tags of the store.
    """
    if not store.entries(Selection(tag=tag)):
        tags = sorted({entry.tag for entry in store.entries() if entry.tag})
        hint = f"tags: {', '.join(tags)}" if tags else "`lar MODEL --save --tag TAG` stores a run"
        raise UsageError("no stored result has this tag", hint, flag="--baseline", subject=tag)


def new_results(
    arguments: argparse.Namespace, store: Store, made: Sequence[RunResult] | None
) -> list[tuple[int, RunResult]]:
    """Return the new runs with their numbers in the store, or with 0 if a run is not stored.

    Raises:
        UsageError: no new run is found.
    """
    if made is None and arguments.files:
        made = [*read_completed(arguments.files, arguments.model, arguments.machine)]
    if made is not None:
        return [(0, result) for result in made]
    tag, base = arguments.tag, arguments.baseline
    entries = store.entries(Selection(tag=tag or None))
    if not entries:
        hint = "give the tag of runs to check"
        raise UsageError("no stored result has this tag", hint, flag=f"--tag {tag}")
    newest = entries[-1]
    if newest.tag == base:
        raise UsageError(
            f"the newest stored run has the tag of the baseline, {base}",
            "give --tag NEW, run the model with --save, or give the file of a new result",
        )
    # Runs of one tag belong together.
    together = [each for each in entries if each.tag == newest.tag] if newest.tag else [newest]
    return [(each.id, store.result(each.id)) for each in together]


def check_new(
    store: Store, new: Sequence[tuple[int, RunResult]], baseline: str
) -> tuple[list[Check], list[str]]:
    """Return a check for each kind of new run, and the reasons for kinds without a check."""
    kinds: dict[Kind, list[RunResult]] = {}
    for _, result in new:
        if result.samples.end_to_end:
            kinds.setdefault(kind_of(result), []).append(result)
    numbers = {number for number, _ in new}
    stored = [
        entry
        for entry in store.entries()
        if entry.id not in numbers and entry.status == "ok" and entry.median_seconds
    ]
    tagged = [entry for entry in stored if entry.tag == baseline]
    comparable = {each.kind for each in tagged if not each.kind.unknown} & kinds.keys()
    checks, lost = list[Check](), list[str]()
    for kind, results in kinds.items():
        name = name_of_result(results[0])
        if kind not in comparable:
            lost.append(explain_missing(name, kind, tagged, baseline))
            continue
        others: dict[str, list[RunResult]] = {}
        for entry in [each for each in stored if each.kind == kind][-MOST_RUNS:]:
            if entry.tag not in ("", baseline):
                others.setdefault(entry.tag, []).append(store.result(entry.id))
        # Only the newest runs, to bound the time of a check.
        same = [each for each in tagged if each.kind == kind][-MOST_RUNS:]
        base = [store.result(each.id) for each in same]
        checks.append(check_kind(name, results, base, others, comparisons=len(comparable)))
    return checks, lost


def name_of_result(result: RunResult) -> str:
    facts = facts_of(result)
    return f"{facts['model'] or 'this run'} {describe_options(facts)}".strip()


def explain_missing(name: str, kind: Kind, tagged: Sequence[Entry], baseline: str) -> str:
    """Return why no run of the baseline is comparable with a new run.

    The reason says how the most similar run of the baseline differs from the new run.
    """
    if kind.unknown:
        return (
            f"the {kind.unknown} of {name} is not known, so nothing can be compared: give "
            f"--{kind.unknown}"
        )
    if not tagged:
        return f"no run of {baseline} has times"

    def differences(entry: Entry) -> list[str]:
        pairs = zip(Kind._fields, kind, entry.kind, strict=True)
        return [describe_change(*pair) for pair in pairs if pair[1] != pair[2]]

    nearest = min(tagged, key=lambda entry: len(differences(entry)))
    return (
        f"no run of {baseline} is comparable with {name}: the nearest, result {nearest.id}, "
        f"differs in {' and '.join(differences(nearest))}"
    )


def describe_change(field: str, here: str, there: str) -> str:
    """Return how two kinds of run differ in one field."""
    if field == "model":
        return f"the model's content ({here[:8] or 'unknown'}, not {there[:8] or 'unknown'})"
    return f"{field} ({here or 'none'}, not {there or 'none'})"


def notes_of(check: Check) -> Iterator[str]:
    """Yield notes on a check: changed software, runs left out, or why there is no verdict."""
    if changes := software_changes(check):
        yield f"note: {check.name}: {changes}"
    if check.left_out:
        yield (
            f"note: {check.name}: {count_of(check.left_out, 'run')} left out, since too few of the "
            "iterations were undisturbed"
        )
    if check.difference is None:
        return
    if check.verdict == "not judged":
        is_quiet = is_calm([*check.new, *check.baseline])
        yield f"warning: {check.name}: {STORE_MORE if is_quiet else DISTURBED}"
    elif check.unit == "runs":
        yield f"note: {check.name}: {ONE_SITTING}"


def software_changes(check: Check) -> str:
    """Return how the new runs and the baseline differ in software; empty if they do not differ."""
    parts = []
    for what, value_of in SOFTWARE.items():
        sides = (check.new, check.baseline)
        new, old = ({value_of(run.result) for run in side} - {""} for side in sides)
        if new and old and new != old:
            parts.append(f"{what} {', '.join(sorted(new))} (baseline {', '.join(sorted(old))})")
    return "; ".join(parts)


def run_model(arguments: argparse.Namespace) -> list[RunResult]:
    """Run a model several times, each time in a new process; stop after a failed run.

    Raises:
        UsageError: the run is refused.
        Interrupted: the user ended a run.
    """
    from lar.cli.arguments import parser_of
    from lar.records.run import RunContext
    from lar.running.plan import plan_run
    from lar.running.steps import make_run

    values = vars(parser_of("run").parse_args(arguments.run_words))
    for option in OPTIONS:
        if option.is_for_command_line and option.is_given(values):
            raise UsageError("cannot be used with --run", "leave it out", flag=option.flag)
    spec = plan_run(values["model"], values)
    results = []
    for number in range(1, arguments.runs + 1):
        result = make_run(spec, RunContext(overwrite=values["overwrite"]))
        if result.failure is not None and result.status == "interrupted":
            raise result.failure.to_error()
        results.append(result)
        if result.failure is not None:
            break
        say(f"lar: note: run {number} of {arguments.runs}")
    return results
