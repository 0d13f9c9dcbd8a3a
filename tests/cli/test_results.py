"""`lar results`: files in, a table out, in every form."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from lar.records.record import record_to_json
from lar.results.reading import distinguish, shorten, split_name
from lar.results.store import open_store
from tests.command_lines import ROOT, run_lar
from tests.results.made_results import make_result, make_runs

LOGS = ROOT / "tests" / "data" / "load_and_run"
MOBILENET = ("mobilenet_default", "mobilenet_nchw44", "mobilenet_nchw88")
FILES = tuple(f"{LOGS}/{name}.txt" for name in MOBILENET)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results: five plain ones, five that are slower with --fast-run."""
    folder = tmp_path_factory.mktemp("saved")
    runs = make_runs(5, 0.010, seed=1) + make_runs(5, 0.011, seed=2, fast_run=True)
    for number, result in enumerate(runs):
        (folder / f"{number}.json").write_bytes(record_to_json(result))
    return folder


def test_runs_are_pooled_by_facts(saved: Path) -> None:
    done = run_lar("results", *map(str, sorted(saved.iterdir())), "--by", "option,machine,model")
    assert done.returncode == 0
    header, plain, fast = done.stdout.splitlines()[-3:]
    assert header.split()[:3] == ["--fast-run", "runs", "samples"]
    assert plain.split()[-1] == "baseline"
    assert "slower (1.0" in fast


def test_the_runs_of_a_store_are_called_by_their_options_once(tmp_path: Path) -> None:
    place = str(tmp_path / "session.sqlite")
    flags: list[dict[str, bool]] = [{}, {"enable_nchw44": True}, {"fast_run": True}]
    with open_store(place, create=True) as store:
        for number, options in enumerate(flags):
            store.add(make_runs(3, 0.010, seed=number, **options))
    done = run_lar("results", place, env={"COLUMNS": "100"}, code=0)
    table = [line for line in done.stdout.splitlines() if "10.0" in line or "median" in line]
    assert [line.split("  ")[0] for line in table] == [
        "result",
        "plain",
        "--enable-nchw44",
        "--fast-run",
    ]
    assert table[0].split()[1:5] == ["runs", "samples", "latency", "median"]
    assert all(row.endswith(")") or "baseline" in row for row in table[1:])
    records = run_lar("results", place, "--format", "csv").stdout
    assert records.startswith("result,--enable-nchw44,--fast-run,")


def test_csv_has_every_figure_and_warnings_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "table.csv"
    done = run_lar("results", *FILES, "--format", "csv", "-o", str(out))
    assert (done.returncode, done.stdout) == (0, f"wrote {out}\n")
    assert done.stderr.startswith("lar: warning: a verdict needs several runs of each side")
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["result"] for row in rows] == [f"{name}.txt" for name in MOBILENET]
    assert [float(row["median_seconds"]) for row in rows] == pytest.approx(
        [0.008818, 0.013236, 0.004355]
    )
    assert rows[1]["--enable-nchw44"] == "yes"
    assert (rows[0]["verdict"], rows[1]["verdict"]) == ("baseline", "not judged")
    assert float(rows[0]["load_seconds"]) == pytest.approx(0.008634)


def test_markdown_html_and_json() -> None:
    markdown = run_lar("results", *FILES, "--format", "markdown").stdout
    assert "| result | --enable-nchw44 |" in markdown
    assert "- engine: megengine 1.13.0 load\\_and\\_run cpu\n" in markdown
    page = run_lar("results", *FILES, "--format", "html").stdout
    assert "<title>Results side by side</title>" in page
    assert "mobilenet_nchw88.txt" in page
    document = json.loads(run_lar("results", *FILES, "--format", "json").stdout)
    assert len(document["tables"][0]["rows"]) == 3
    assert document["tables"][0]["notes"]


def test_standard_input_is_a_file_too() -> None:
    text = record_to_json(make_result([0.01] * 9)).decode()
    done = run_lar("results", "-", "--format", "csv", input=text, code=0)
    assert "\n-,1,9,0,latency,0.01," in done.stdout


def test_paths_are_as_short_as_distinguishes_them() -> None:
    assert shorten(["x/a.json", "y/b.json"]) == ["a.json", "b.json"]
    assert shorten(["x/a.json", "y/a.json"]) == ["x/a.json", "y/a.json"]
    assert shorten(["1/x/a.json", "2/x/a.json"]) == ["1/x/a.json", "2/x/a.json"]
    assert shorten(["a.json", "x/a.json"]) == ["a.json", "x/a.json"]
    assert shorten(["./a.json", "a.json"]) == ["a.json", "a.json"]
    assert distinguish(["a", "a (2)", "a"]) == ["a", "a (2)", "a (3)"]


def test_a_name_stands_before_the_path(tmp_path: Path) -> None:
    assert split_name("phone=log.txt") == ("phone", "log.txt")
    assert split_name("log.txt") == ("", "log.txt")
    odd = tmp_path / "a=b.txt"
    odd.write_text("")
    assert split_name(str(odd)) == ("", str(odd))


def test_results_can_end_a_build(saved: Path, tmp_path: Path) -> None:
    files = [*map(str, sorted(saved.iterdir()))]
    words = ["results", *files, "--by", "option", "--fail-if-slower"]
    done = run_lar(*words, code=1)
    assert done.stdout.splitlines()[-1].startswith("result: slower: --fast-run by 1")
    done = run_lar(*words, "50", "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "result: passed: 1 slower\n")
    broken = tmp_path / "broken.json"
    broken.write_bytes(record_to_json(make_result()))
    done = run_lar("results", files[0], str(broken), "--fail-if-unjudged", code=4)
    assert "result: failed: broken.json: it broke" in done.stdout
    assert run_lar("results", *files[:2], "--fail-if-unjudged").returncode == 5
