"""What was measured can be compared and written out, and values of different machines are never mixed."""

import sqlite3
from typing import Any

import pytest
from driving import Console

from benchmarks.document import SECTIONS, written
from benchmarks.measure import Stored
from benchmarks.recipes import in_short
from kgops.experiments.fingerprint import describe, differences, fingerprint
from storage import benches
from storage.benches import Pair

HERE = {"machine": {"host": "a", "processor": "P", "cores": 2}, "gpus": None, "packages": {"torch": "2"}}
THERE = {**HERE, "packages": {"torch": "3"}}


def _held(conn: sqlite3.Connection, times: dict[str, list[float]], machine: dict[str, Any] = HERE) -> int:
    """A finished benchmark with these seconds, memory as the names say, the first being the baseline."""
    first, *others = times
    variants = [{"name": name, "varied": {"size": float(i + 1)}} for i, name in enumerate(times)]
    plan = {"variants": variants, "rounds": len(times[first]), "warm_all": True}
    number = benches.begin(conn, "matrix <j>.toml", plan, "kgops bench matrix j.toml", machine, 1.0)
    for name in others:
        for i, (a, b) in enumerate(zip(times[first], times[name], strict=True)):
            base, told = ({"seconds": s, "seconds_of": "an epoch", "trouble": None} for s in (a, b))
            base |= {"memory_mib": 100.0, "memory_of": "resident set"}
            told |= {"memory_mib": 50.0, "memory_of": "resident set"}
            benches.add_pair(conn, number, Pair(i, name, None, None, base, told, 0.0, (), float(i)))
    benches.end(conn, number, 2.0)
    return number


def test_two_benchmarks_agree_where_each_median_lies_in_the_quartiles_of_the_other(
    run_cli: Console, conn: sqlite3.Connection
) -> None:
    _held(conn, {"a": [1, 1, 1], "b & c": [0.48, 0.5, 0.52]})
    _held(conn, {"a": [2, 2, 2], "b & c": [0.97, 1.0, 1.03]})
    _held(conn, {"a": [1, 1, 1], "b & c": [0.3, 0.3, 0.3]}, THERE)
    same = run_cli("bench", "compare", "1", "2", "--json").json()
    assert same["row"][0]["speed_agrees"] is True and same["fingerprints_differ_in"] == []
    other = run_cli("bench", "compare", "1", "3", "--json").json()
    assert other["row"][0]["speed_agrees"] is False
    assert other["fingerprints_differ_in"] == ["packages.torch: 2 and 3"]
    # One number where quartiles would stand: less than a twentieth apart is the same.
    assert same["row"][0]["memory_agrees"] is True
    assert "may come from the machines" in run_cli("bench", "compare", "1", "3").out
    assert run_cli("bench", "compare", "1", "1").code == 2
    assert run_cli("bench", "show", "9").code == 2


def test_a_name_of_a_machine_or_a_gpu_changes_no_fingerprint_and_everything_else_does() -> None:
    key = benches.fingerprint_key
    assert key({**HERE, "machine": {**HERE["machine"], "host": "b"}}) == key(HERE)  # type: ignore[dict-item]
    assert key(THERE) != key(HERE)
    assert key({**HERE, "gpus": [{"name": "T4", "uuid": "x"}]}) == key(
        {**HERE, "gpus": [{"name": "T4", "uuid": "y"}]}
    )
    assert key({**HERE, "gpus": [{"name": "T4"}]}) != key({**HERE, "gpus": [{"name": "L4"}]})


def test_a_cpu_whose_instructions_were_limited_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
    for name in (*limits, "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    whole = fingerprint()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    limited = fingerprint()
    assert differences(whole, limited) == ["variables.ONEDNN_MAX_CPU_ISA: None and AVX2"]
    assert in_short(limited) == f"{in_short(whole)}, ONEDNN_MAX_CPU_ISA=AVX2"
    assert describe(limited).endswith("ONEDNN_MAX_CPU_ISA=AVX2")


def test_a_benchmark_is_written_out_as_json_and_markdown(run_cli: Console, conn: sqlite3.Connection) -> None:
    _held(conn, {"a": [1, 1, 1], "=b|c": [0.48, 0.5, 0.52]})
    told = run_cli("bench", "export", "1", "--to", "json").json()
    assert [pair["measured"]["seconds"] for pair in told["pair"]] == [0.48, 0.5, 0.52]
    assert told["fingerprint"] == HERE
    paper = run_cli("bench", "export", "1", "--to", "md").out
    assert "| =b\\|c | 0.5 s | 2.00× | 1.96–2.04 | 3 | 50 MiB | 2.00× (2.00–2.00) | effective |" in paper
    assert "`kgops bench matrix j.toml`" in paper and "torch 2" in paper


def _step(value: float, machine: dict[str, Any], at: float = 9.0, subject: str = "a step") -> Stored:
    return Stored("s", subject, value, 3, 4, 5, "ms", "benchmarks.screens", machine, at)


def test_the_document_has_each_metric_with_its_command_and_fingerprint() -> None:
    values = [_step(77, HERE, 8.5 - 60), _step(99, THERE, 8.5), _step(3.5, HERE, 9.0, "a step | of ours")]
    page = written(values)
    assert "| a step \\| of ours | 3.5 ms | 3 – 4 | 5 |" in page
    assert "| 99 ms |" not in page and "77 ms" not in page
    assert page.count("Fingerprint " + benches.fingerprint_key(HERE)) == 1
    assert "Command: `python -m benchmarks.screens" in page
    assert page.count("Not measured yet.") == len(SECTIONS) - 1


def test_what_this_home_has_not_measured_stays_as_the_document_has_it() -> None:
    first = written([_step(3.5, HERE)]) + "\n## By hand\n\nA table.\n"
    assert written([_step(3.5, HERE)], first) == first
    assert "3.5 ms" not in written([])
    assert written([], first) == first
    renewed = written([_step(4.5, THERE)], first)
    assert "4.5 ms" in renewed and "3.5 ms" not in renewed and "A table." in renewed
