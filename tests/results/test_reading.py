"""Result files of all kinds, and files that are none."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from lar.errors import UsageError
from lar.profiles.trace_file import encode_profile
from lar.records.bench import BenchResult, Turn, VariantResult
from lar.records.profile import Profile
from lar.records.record import record_to_json
from lar.records.run import Failure, RunResult, RunSpec, Samples
from lar.results import reading
from lar.results.reading import parts_in, read_results
from tests.refusals import refused
from tests.results.made_results import make_result

DATA = Path(__file__).resolve().parents[1] / "data"
V1 = (DATA / "result_v1.json").read_bytes()
LOG = (DATA / "load_and_run" / "mobilenet_default.txt").read_bytes()

TABLES = json.loads(Path(__file__).with_name("no_results.json").read_text())
DAMAGED = "is damaged, or of another version of lar"


def results_in(data: bytes, name: str) -> tuple[RunResult, ...]:
    return tuple(result for part in parts_in(data, name) for result in part.results)


def test_a_result_of_the_first_version_is_read() -> None:
    (result,) = read_results(str(DATA / "result_v1.json"))
    assert (result.spec.model, len(result.samples.end_to_end)) == ("models/one_operator.mge", 10)


def test_a_log_is_read() -> None:
    (result,) = results_in(LOG, "log")
    assert len(result.samples.end_to_end) == 10


def bench_of(*variants: VariantResult) -> bytes:
    return record_to_json(BenchResult(variants=variants, stopped="clear"))


def test_each_process_of_a_benchs_variant_is_a_run() -> None:
    spec = RunSpec(model="net.onnx", engine="fake", driver="fake")
    turns = tuple(
        Turn(round=number // 4, cycle=number % 4, began=0.1 * number, samples=times(number))
        for number in range(8)
    )
    odd_one = VariantResult(
        name="odd", status="refused", failure=Failure("no such option"), values={"model": "m"}
    )
    content = bench_of(VariantResult(name="plain", spec=spec, turns=turns), odd_one)
    plain, odd = parts_in(content, "bench.json")
    assert (plain.name, [run.samples.end_to_end for run in plain.results]) == (
        "plain",
        [(0.0, 1.0, 2.0, 3.0), (4.0, 5.0, 6.0, 7.0)],
    )
    (run,) = odd.results
    assert (run.status, run.spec.model, run.samples.end_to_end) == ("failed", "m", ())
    assert len(results_in(content, "bench.json")) == 3
    refused(r"bench\.json: was cut short", parts_in, content[:-3], "bench.json")
    with pytest.raises(UsageError, match=r"bench\.json: is damaged, or of another version"):
        parts_in(content.replace(b'"clear"', b'"odd"'), "bench.json")


def times(number: int) -> Samples:
    return Samples(end_to_end=(float(number),), host=(0.0,), device=(None,), queue_delay=(None,))


def test_a_mark_of_the_byte_order_is_no_content() -> None:
    assert results_in(b"\xef\xbb\xbf" + V1, "result") == results_in(V1, "result")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (V1[:1000], "was cut short"),
        (V1[:-3], "was cut short"),
        *(
            (V1.replace(b'"settings": {}', b'"settings": {"thread": ' + copies + b"}"), DAMAGED)
            for copies in (b"0", b"1025", b"9" * 30, b'"x"')
        ),
        (re.sub(rb'"end_to_end": \[[^]]*\]', b'"end_to_end": []', V1), DAMAGED),
        (b"{" + b'"a":{' * 100_000 + b"}" * 100_001, "is not JSON, or is damaged"),
        (b"\x00\xff\xfe", "is not a result that lar reads"),
        (LOG[:1500], "was cut short"),
        *((text.encode(), said) for text, said in TABLES["contents"]),
        *((V1.replace(old.encode(), new.encode()), it) for old, new, it in TABLES["changes"]),
    ],
)
def test_what_is_no_result_is_refused_in_a_line(content: bytes, problem: str) -> None:
    error = refused("", results_in, content, "a.json")
    assert error.message.startswith(f"a.json: {problem}")
    assert error.hint


def test_the_log_of_another_packages_engine_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Added:
        def prints_log(self, data: bytes) -> bool:
            return data.startswith(b"added")

        def read_log(self, data: bytes, name: str) -> tuple[RunResult, ...]:
            return tuple(make_result([float(word)]) for word in data.split()[1:])

    monkeypatch.setattr(reading, "all_engines", lambda: (Added(),))
    found = parts_in(b"added 1 2", "log")
    assert found == (("#1", (make_result([1.0]),)), ("#2", (make_result([2.0]),)))


def test_a_file_in_gzip_is_read_as_what_is_in_it() -> None:
    assert results_in(gzip.compress(V1), "a.json.gz") == results_in(V1, "a.json")
    problem = "a.json.gz: is damaged, or was cut short: "
    assert "--json FILE" in refused(problem, results_in, gzip.compress(V1)[:-30], "a.json.gz").hint


def test_a_profile_is_named_in_gzip_too() -> None:
    content = encode_profile(Profile())
    for each in (content, gzip.compress(content)):
        refused("is a profile, not a result", results_in, each, "p.json")


def test_a_result_has_more_than_its_format(tmp_path: Path) -> None:
    content = json.loads(V1) | {"added_later": 1}
    assert results_in(json.dumps(content).encode(), "later") == results_in(V1, "result")
