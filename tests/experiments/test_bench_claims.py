"""A page says which options pay here, from stored pairs; what was not measured has one word of why."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driving import Console

from kgops.cli import bench_claims
from kgops.experiments.claims import Measured, page
from kgops.experiments.documented import DOCUMENT_TABLES, OPTIONS, TABLES, comparisons
from kgops.maths.trials.variants import LIVE, SECONDS_OF, Untestable, leave_out_compile
from storage import benches
from storage.benches import Pair

CPU = {"machine": {"processor": "AMD EPYC", "cores": 2}, "gpus": []}
T4 = {"machine": {"processor": "AMD EPYC", "cores": 2}, "gpus": [{"name": "Tesla T4"}]}


def ran(seconds: float, mib: float, **metrics: float) -> dict[str, Any]:
    of = {"seconds_of": SECONDS_OF, "memory_of": LIVE, "trouble": None}
    return {**of, "seconds": seconds, "memory_mib": mib, "metrics": metrics}


def failed(why: str) -> dict[str, Any]:
    return {"trouble": why, "metrics": {}, "seconds": None, "memory_mib": None}


def put(
    conn: sqlite3.Connection,
    name: str,
    base: str,
    variants: dict[str, Any],
    machine: dict[str, Any] = CPU,
    **of_baseline: Any,
) -> int:
    """A benchmark with three rounds; its baseline takes a second and 100 MiB."""
    plan = {"variants": [{"name": one} for one in (base, *variants)], "rounds": 3}
    number = benches.begin(conn, f"claims {name}", plan, "kgops bench claims", machine, 1.0)
    baseline = {**ran(1.0, 100, loss=0.5, resident_mib=100.0), **of_baseline}
    for variant, measured in variants.items():
        for i in range(3):
            benches.add_pair(conn, number, Pair(i, variant, 1, 1, baseline, measured, 0.0, (), float(i)))
    benches.end(conn, number, 2.0)
    return number


def options(conn: sqlite3.Connection, letter: str) -> dict[str, Measured]:
    (table,) = (one for one in page(conn).tables if one.letter == letter)
    return {one.variant or one.name: one for one in table.options}


def documented(conn: sqlite3.Connection, title: str) -> list[Measured]:
    (found,) = (one for one in page(conn).documents if one.title.startswith(title))
    return [*found.rows]


def test_every_option_and_row_names_a_variant_that_is_measured_or_says_why_not() -> None:
    for letter in TABLES:
        measured = comparisons(letter, quick=True, data=None, gpu=False)
        variants = {name for one in measured for name in one.variants}
        rows = [row for table in DOCUMENT_TABLES if table.table == letter for row in table.rows]
        named = [(one.variant, one.why) for one in OPTIONS if one.table == letter]
        named += [(row.variant, row.why) for row in rows]
        assert all(bool(why) != (variant in variants) for variant, why in named)
        assert all(any(row.part in one.name for one in measured) for row in rows)
        assert {row.over for row in rows} - {""} <= variants


def test_each_option_has_an_answer_from_what_was_measured(conn: sqlite3.Connection) -> None:
    with pytest.raises(Untestable) as left_out:
        leave_out_compile()
    variants = {
        "baseline again": ran(1.0, 100, resident_mib=100.0),
        "+ bf16": ran(0.5, 100, score_error=0.002),
        "+ checkpointing": ran(1.5, 50, score_error=1e-7),
        "+ vmap": ran(0.5, 400, score_error=1e-7),
        "+ last layers": ran(0.5, 50, score_error=0.32, top_50_shared=0.88),
        "+ test caching": ran(1.0, 100, score_error=0.0),
        "+ fp16": failed("no CUDA device: their mixed precision is CUDA's"),
        "+ compile": failed(str(left_out.value)),
        "+ cleanup": failed("it failed: RuntimeError: something"),
    }
    put(conn, "b (quick): TracIn", "baseline", variants)
    found = options(conn, "b")
    assert {name: found[name].answer for name in variants if name in found} == {
        "+ bf16": "use",
        "+ checkpointing": "use if memory is short",
        "+ vmap": "use if memory allows",
        "+ last layers": "changes results",
        "+ test caching": "do not use",
        **dict.fromkeys(("+ fp16", "+ compile", "+ cleanup"), "not measured"),
    }
    assert found["+ last layers"].results == "scores ±32%, top 50 88%"
    words = {"+ fp16": "GPU", "+ compile": "quick", "+ cleanup": "failed", "kgops": "not yet"}
    assert {name: found[name].why for name in words} == words
    assert found["several GPUs"].why == "4 GPUs"
    # What to use comes first, what was not measured last.
    answers = [one.answer for one in found.values()]
    assert answers[:3] == ["use", "use if memory is short", "use if memory allows"]
    assert answers[-1] == "not measured"


def test_an_effect_no_larger_than_that_of_the_baseline_run_again_is_none(conn: sqlite3.Connection) -> None:
    put(conn, "a: x", "fp32", {"fp32 again": ran(1.25, 100), "+ bf16": ran(0.83, 100, loss=0.5)})
    assert options(conn, "a")["+ bf16"].answer == "do not use"
    assert "training 25%" in "\n".join(bench_claims.lines(page(conn), 120))


def test_a_loss_that_differs_by_more_than_rounding_changes_results(conn: sqlite3.Connection) -> None:
    put(conn, "d: x", "original", {"small model": ran(0.5, 50, loss=0.4)})
    small = options(conn, "d")["small model"]
    assert (small.answer, small.results) == ("changes results", "loss -20.0%")


def test_on_a_gpu_it_names_the_gpu_and_judges_cleanup_by_reserved_memory(conn: sqlite3.Connection) -> None:
    variants = {
        "fp32 again": ran(1.0, 100, resident_mib=100.0),
        "+ cleanup": ran(1.0, 100, loss=0.5, resident_mib=50.0),
    }
    put(conn, "a: x", "fp32", variants, T4, on_gpu=True)
    found = options(conn, "a")["+ cleanup"]
    assert found.memory is not None and found.memory.median == 2.0 and found.answer == "use"
    assert bench_claims.lines(page(conn), 120)[0] == "WHICH OPTIONS PAY on Tesla T4"


def test_the_documents_rows_stand_beside_their_measured_values(conn: sqlite3.Connection) -> None:
    put(conn, "d: x", "original", {"small, as documented": ran(0.5, 50), "full, as documented": ran(1.0, 80)})
    original, small, full, error = documented(conn, "Regression guide")
    assert (original.seconds, original.mib, original.speed) == (1.0, 100, None)
    assert small.speed is not None and small.speed.median == 2.0
    assert full.speed is not None and full.speed.median == 0.5  # over the small model, as in the document
    assert error.why == "unstated"
    for batch, entities, mib in ((256, "10,000", 60), (1024, "50,000", 20)):
        name = f"c: batch {batch} × {entities} entities"
        put(conn, name, "dense labels", {"their efficient loss": ran(1, mib)})
    memory = [row.mib or row.why for row in documented(conn, "Loss guide")]
    assert memory == [60, "not yet", "not yet", 20]
    assert options(conn, "c")["their efficient loss"].mib == 60


def test_a_full_benchmark_of_the_newest_machine_comes_before_a_quick_one(conn: sqlite3.Connection) -> None:
    put(conn, "a: x", "fp32", {"+ bf16": ran(0.1, 100)}, T4)
    full = put(conn, "a: x", "fp32", {"+ bf16": ran(0.5, 100)})
    put(conn, "a (quick): x", "fp32", {"+ bf16": ran(0.2, 100)})
    assert options(conn, "a")["+ bf16"].bench == full


def test_all_options_fit_one_screen_and_every_line_its_width(
    conn: sqlite3.Connection, run_cli: Console
) -> None:
    nothing = bench_claims.lines(page(conn), 120)
    assert any("kgops bench claims --quick" in line for line in nothing)
    for letter in TABLES:
        (first, *_) = comparisons(letter, quick=True, data=None, gpu=False)
        base, *others = first.variants
        long = ran(1 / 1234, 0.01, score_error=0.65, top_50_shared=0.06, loss=0.4)
        variants = {**dict.fromkeys(others, long), f"{base} again": ran(1.0, 100)}
        put(conn, first.name.removeprefix("claims "), base, variants)
    for width in (80, 120):
        lines = bench_claims.lines(page(conn), width)
        assert max(map(len, lines)) <= width
        assert all(any(line.startswith(one.name) for line in lines) for one in OPTIONS)
    assert len(lines[: next(i for i, line in enumerate(lines) if line.startswith("TRAINING GUIDE"))]) <= 40
    assert not any("…" in line for line in lines)
    shown = run_cli("bench", "show", "claims")
    assert shown.code == 0 and "→ changes results" in shown.out
    told = run_cli("bench", "show", "claims", "--json").json()
    assert {one["letter"] for one in told["tables"]} == {*TABLES} and told["machine"]


@pytest.mark.parametrize(
    ("table", "module", "words"),
    [
        pytest.param(
            *("a", "training", ["--entities", "200", "--dim", "32", "--steps", "2", "--batch-size", "32"]),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("b", "tracin", ["--entities", "200", "--dim", "32", "--triples", "24", "--training", "4"]),
            marks=pytest.mark.long,
        ),
        ("d", "regression", ["--size", "16", "--frames", "2", "--batch-size", "4", "--steps", "1"]),
        ("c", "training", ["--losses", "--entities", "500", "--batch-size", "16", "--steps", "1"]),
    ],
)
def test_the_groups_loops_run_with_every_option_that_can_be_tested(
    tmp_path: Path, table: str, module: str, words: list[str]
) -> None:
    (tmp_path / "results").mkdir()
    environment = {**os.environ, "KGOPS_RUN_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", f"kgops.maths.trials.{module}", *words, "--round", "1"]
    command += ["--trials", "1", "--repetitions", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads((tmp_path / "results" / "ways.json").read_text())
    comparison = comparisons(table, quick=True, data=None, gpu=False)[0]
    assert list(told) != [] and set(told) == set(comparison.variants)
    for name, parts in told.items():
        trouble = parts[0]["trouble"]
        assert trouble is None or "CUDA" in trouble or "--quick" in trouble, (name, trouble)
        assert trouble or (len(parts) == 3 and all(part["seconds"] > 0 for part in parts))
        if name.endswith(" again"):  # what is counted is the same each time
            assert parts[0]["memory_mib"] == told[name.removesuffix(" again")][0]["memory_mib"] > 0
    if module == "tracin":
        for exact in ("baseline", "+ checkpointing", "+ test caching", "+ vmap", "kgops"):
            assert told[exact][0]["metrics"]["score_error"] < 1e-4, exact
        assert told["+ last layers"][0]["metrics"]["score_error"] > 1e-3


def test_the_loss_is_compared_with_dense_labels_as_the_scripts_test_does() -> None:
    command = [sys.executable, "-P", "-m", "kgops.maths.trials.efficient_loss"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *compared, last = done.stdout.splitlines()
    assert len(compared) == 8 and last == "✓ All tests passed"
