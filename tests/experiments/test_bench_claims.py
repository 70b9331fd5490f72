"""Claims stand beside measurements with a verdict each, and what cannot be tested here says why."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from driving import patience

from benchmarks import document
from kgops.cli import claims_page
from kgops.cli.bench_compare import agree
from kgops.errors import KgopsError
from kgops.experiments.advice import HEADS
from kgops.experiments.claim_verdicts import comparisons, rulings
from kgops.experiments.claims import TABLES, judge, shipped
from kgops.experiments.comparison import Context, PairedComparison, run_comparison
from kgops.experiments.summary import rows
from kgops.jobs.job import read_job
from kgops.settings import Home
from kgops.trials.variants import LIVE, SECONDS_OF, Untestable, leave_out_compile
from storage import benches, measurements
from storage.benches import Pair

ROOT = Path(__file__).parents[2]
QUANTITIES = ("score_error", "rank_agreement", "reduction", "labels_share", "loss_difference")


def _told(seconds: float, mib: float, **metrics: float) -> dict[str, Any]:
    of = {"seconds_of": SECONDS_OF, "memory_of": LIVE, "trouble": None}
    return {**of, "seconds": seconds, "memory_mib": mib, "metrics": metrics}


def _bench(
    conn: sqlite3.Connection, table: str, base: dict[str, Any], others: dict[str, Any]
) -> benches.Bench:
    plan = {"variants": [{"name": name} for name in ("base", *others)], "rounds": 3, "warm_all": True}
    number = benches.begin(
        conn, f"claims {table} (quick): x", plan, "kgops bench claims", {"machine": {}}, 1.0
    )
    for name, told in others.items():
        for i in range(3):
            benches.add_pair(conn, number, Pair(i, name, 1, 1, base, told, 0.0, (), float(i)))
    found = benches.get(conn, number)
    assert found is not None
    return found


def test_every_claim_of_a_table_is_held_against_a_row_that_is_measured() -> None:
    claimed = [one for one in shipped() if one.table]
    measured = {
        table: {n for c in comparisons(table, quick=True, data=None) for n in c.variants} for table in TABLES
    }
    for one in claimed:
        assert {one.variant, one.over or one.variant} <= measured[one.table], one.name
        assert one.quantity in ("speed", "memory", "impossible", *QUANTITIES), one.name
    assert len(claimed) > 30


def test_each_claim_is_judged_by_what_was_measured(conn: sqlite3.Connection) -> None:
    others = {
        "+ checkpointing": _told(1.22, 70),
        "+ test caching": _told(1.0, 100),
        "+ fp16": {"trouble": "no CUDA device", "metrics": {}, "seconds": None},
        "+ last layers": _told(0.1, 90, score_error=0.3, rank_agreement=0.9),
        "+ vmap": _told(0.5, 400, score_error=1e-7, rank_agreement=1.0),
        "+ filtering": _told(0.01, 100, score_error=0.6, rank_agreement=0.1, reduction=140.0),
        "all that is exact": _told(0.02, 400),
        "+ bf16": _told(0.8, 99, score_error=0.004, rank_agreement=0.99),
    }
    found = judge(conn, _bench(conn, "b", _told(1.0, 100), others), shipped())
    verdicts = {one.claimed.name: one for one in found if one.claimed}
    assert verdicts["tracin.checkpoint.memory"].verdict == "smaller"
    assert verdicts["tracin.checkpoint.speed"].verdict == "confirmed"
    assert verdicts["analysis.claimed.cache"].verdict == "no effect"
    assert verdicts["analysis.cache.cumulative"].verdict == "confirmed"
    assert verdicts["analysis.cache.factor"].verdict == "refuted"
    assert verdicts["tracin.fp16.speed"].verdict == "cannot be tested here"
    assert verdicts["tracin.fp16.memory"].why == "no CUDA device"
    assert not verdicts["tracin.fp16.speed"].applied
    assert verdicts["tracin.lastlayers.accuracy"].verdict == "confirmed"
    assert verdicts["tracin.lastlayers.accuracy"].quality["score_error"] == 0.3
    assert verdicts["analysis.vectorized.pykeen"].verdict == "refuted"
    assert verdicts["analysis.claimed.vectorized"].verdict == "smaller"
    assert verdicts["analysis.claimed.total"].verdict == "confirmed"
    assert verdicts["analysis.claimed.total"].why == "more than claimed"
    assert verdicts["analysis.filter.reduction"].measured == "140 times fewer triples"
    assert {one.variant: one.verdict for one in found if one.claimed is None} == {"+ bf16": "effective"}


@pytest.mark.parametrize(
    ("reduction", "verdict"),
    [
        (1600.0, "cannot be tested here"),
        (25.0, "cannot be tested here"),
        (12.0, "confirmed"),
        (8.0, "confirmed"),
    ],
)
def test_a_claim_about_a_case_is_judged_only_near_that_case(
    conn: sqlite3.Connection, reduction: float, verdict: str
) -> None:
    others = {"+ filtering": _told(1 / 11, 100, reduction=reduction)}
    found = judge(conn, _bench(conn, "b", _told(1.0, 100), others), shipped())
    (speed,) = [one for one in found if one.claimed and one.claimed.name == "analysis.filter.speed"]
    assert speed.verdict == verdict
    if verdict != "confirmed":
        assert speed.why == f"here {reduction:,.0f} times fewer triples, in the claim 10"


def test_what_quick_leaves_out_is_not_measured_yet_on_every_page(conn: sqlite3.Connection) -> None:
    with pytest.raises(Untestable) as left_out:
        leave_out_compile()
    trouble: dict[str, Any] = {"trouble": str(left_out.value), "metrics": {}, "seconds": None}
    without: dict[str, Any] = {"trouble": "no CUDA device: theirs is CUDA's", "metrics": {}, "seconds": None}
    others = {"+ compile": trouble, "+ fp16": without, "+ test caching": _told(1.0, 100)}
    bench = _bench(conn, "b", _told(1.0, 100), others)
    conn.execute("UPDATE bench SET ended_at = 2.0")
    verdicts = {one.variant: one.verdict for one in judge(conn, bench, shipped())}
    verdicts_of_rows = {row.variant: row.verdict for row in rows(conn, bench)[1:]}
    for found in (verdicts, verdicts_of_rows):
        assert (found["+ compile"], found["+ fp16"]) == ("not measured yet", "cannot be tested here")
    of_claims = {one.claim.name: one.verdict for one in rulings(conn)}
    assert of_claims["analysis.compile.range"] == "not measured yet"
    assert of_claims["tracin.fp16.speed"] == "cannot be tested here"
    page = document.written(conn)
    to_do = page.partition("### What to do")[2].partition("###")[0]
    assert "- **Not measured yet.**\n  - torch.compile: --quick" in to_do
    assert "- **Cannot be tested here.**\n  - FP16: no CUDA" in to_do
    assert not [line for line in page.splitlines() if "cannot be tested here**" in line and "--quick" in line]


def test_a_cost_beyond_what_was_claimed_is_larger(conn: sqlite3.Connection) -> None:
    for seconds, verdict in ((1.05, "smaller"), (1.22, "confirmed"), (1.6, "larger")):
        bench = _bench(conn, "a", _told(1, 1), {"+ checkpointing": _told(seconds, 0.9)})
        by_name = {one.claimed.name: one.verdict for one in judge(conn, bench, shipped()) if one.claimed}
        assert by_name["train.checkpoint.speed"] == verdict


def test_claims_that_contradict_each_other_do_not_both_hold(conn: sqlite3.Connection) -> None:
    for mib, verdicts in ((0.4, ("confirmed", "refuted")), (0.99, ("no effect", "confirmed"))):
        bench = _bench(conn, "a", _told(1, 1), {"+ checkpointing": _told(1.2, mib)})
        found = {one.claimed.name: one.verdict for one in judge(conn, bench, shipped()) if one.claimed}
        names = ("train.checkpoint.memory", "train.checkpoint.memory.minimal")
        assert tuple(found[name] for name in names) == verdicts


def test_a_claim_over_another_variant_is_judged_against_that_one(conn: sqlite3.Connection) -> None:
    others = {"+ checkpointing + compile": _told(0.9, 50), "small model": _told(0.3, 40)}
    found = judge(conn, _bench(conn, "d", _told(1.0, 100), others), shipped())
    by_name = {one.claimed.name: one for one in found if one.claimed}
    assert by_name["regress.bench.full.speedup"].verdict == "harmful"
    assert by_name["regress.compare.full.memory"].verdict == "confirmed"
    assert by_name["regress.bench.full.speedup"].speed is not None


def test_the_whole_step_is_what_the_labels_are_judged_by(conn: sqlite3.Connection) -> None:
    others = {"their efficient loss": _told(1, 60, labels_mib=0.001)}
    found = judge(conn, _bench(conn, "c", _told(1, 100, labels_mib=20.0), others), shipped())
    assert {one.claimed.name: one.verdict for one in found if one.claimed} == {
        "loss.cause": "refuted",
        "loss.reduction": "smaller",
        "loss.batch.pykeen": "confirmed",
    }


def test_a_page_of_claims_says_every_verdict_whole_however_narrow_the_terminal(
    conn: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {
        "+ checkpointing": {**_told(2.0, 100, loss=0.5), "remark": "one " * 60},
        "+ fp16": {"trouble": "no CUDA device: " + "two " * 60, "metrics": {}, "seconds": None},
    }
    bench = _bench(conn, "b", _told(1.0, 100, loss=0.25), others)
    for width in (80, 100, 120):
        monkeypatch.setattr(claims_page, "columns", lambda width=width: width)
        lines = claims_page.page(conn, bench)
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        for word in (
            "no effect",
            "larger",
            "cannot be tested here",
            "claimed: FP16: 2x faster",
            "loss +0.25",
        ):
            assert word in text
        assert " ".join(text.split()).count("one " * 60) == 1  # not with each claim on the option
        assert "two " * 59 + "two" in " ".join(text.split())


def test_claims_are_kept_with_their_source_and_written_anew_not_twice(conn: sqlite3.Connection) -> None:
    for _ in range(2):
        measurements.keep_claims(conn, [one.claim for one in shipped()])
    kept = conn.execute("SELECT name, said_by, source, text, low, high, unit FROM claim")
    assert sorted(kept) == sorted(astuple(one.claim) for one in shipped())


VARIANTS = """
import json, os, pathlib, sys, time
sys.path.insert(0, {root!r})
import torch
from kgops.trials.interleaved import run_trials
from kgops.trials.variants import TrialResult, Untestable

def takes(seconds, mib):
    held = []
    def fill():  # before the clock is read: how long the kernel takes to give memory is not steady
        held.append(torch.ones(int(mib * 2**18)))
    def work(repetition):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
    def variant(trial):
        held.clear()
        measured = trial.measure(work, fill)
        return TrialResult(measured.seconds, measured.resident_mib, {{"loss": seconds}})
    return variant

def cannot(trial):
    raise Untestable("no such GPU")

def dies(trial):
    os._exit(3)

def fails(trial):
    raise ValueError("what it says")

run_trials({{"first": takes(0.1, 30), "same": takes(0.1, 30), "slow": takes(0.2, 60), "cannot": cannot, "dies": dies,
            "fails": fails}}, int(sys.argv[1]), trials=int(sys.argv[2]))
"""


LOCKSTEP = """
import os, sys, time
sys.path.insert(0, {root!r})
from kgops.trials.interleaved import run_trials
from kgops.trials.variants import TrialResult

def variant(name, dies_in=None):
    def work(repetition):
        if repetition == dies_in:
            os._exit(5)
        begun = time.monotonic_ns()
        time.sleep(0.002)
        os.write(1, f"{{name}} {{repetition}} {{begun}} {{time.monotonic_ns()}}\\n".encode())
    def trial_of(trial):
        measured = trial.measure(work)
        return TrialResult(measured.each(2), measured.resident_mib)
    return trial_of

run_trials({{"a": variant("a"), "b": variant("b"), "dies": variant("dies", 2)}}, 1, trials=1, repetitions=4)
"""


def test_one_way_works_at_a_time_and_nobody_is_a_part_ahead_of_another(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    environment = {**os.environ, "KGOPS_RUN_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", LOCKSTEP.format(root=str(ROOT))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if len(line.split()) == 4 and ":" not in line]
    parts = sorted((int(begun), int(ended), name, int(part)) for name, part, begun, ended in lines)
    assert [part for *_, part in parts[:10]] == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
    assert all(ended <= begun for (_, ended, *_), (begun, *_) in pairwise(parts))
    told = json.loads((tmp_path / "results" / "ways.json").read_text())
    assert {name: len(found) for name, found in told.items()} == {"a": 4, "b": 4, "dies": 1}
    assert told["dies"][0]["trouble"] == "its process ended with 5"
    # A process has one peak of memory: told once, not as often as it was timed.
    assert [part["memory_mib"] is None for part in told["a"]] == [False, True, True, True]


def _comparison(rounds: int = 4, trials: int = 2) -> PairedComparison:
    code = VARIANTS.format(root=str(ROOT))
    job = read_job(
        {"workload": "exec", "exec": {"command": [sys.executable, "-c", code, "{round}", "{turns}"]}}, "test"
    )
    names = ("first", "same", "slow", "cannot", "dies", "fails")
    return PairedComparison("ways", dict.fromkeys(names, job), rounds, together=True, trials=trials)


def test_ways_run_trials_in_one_run_each_with_a_time_and_a_peak_of_its_own(
    home: Path, conn: sqlite3.Connection
) -> None:
    told: list[str] = []
    bench = run_comparison(Context(Home(home), conn, told.append), _comparison(), "test")
    pairs = benches.pairs(conn, bench.id)
    by = {
        name: [p for p in pairs if p.variant == name] for name in ("same", "slow", "cannot", "dies", "fails")
    }
    assert [len(found) for found in by.values()] == [4, 4, 1, 1, 1]
    assert all(1.5 < p.measured["seconds"] / p.baseline["seconds"] < 2.5 for p in by["slow"])
    assert {(p.baseline["memory_mib"], p.measured["memory_mib"]) for p in by["slow"]} == {(30.0, 60.0)}
    resident = [
        (p.baseline["metrics"]["resident_mib"], p.measured["metrics"]["resident_mib"]) for p in by["slow"]
    ]
    assert all(25 < before < 40 < after < 80 for before, after in resident)
    assert by["cannot"][0].measured["trouble"] == "no such GPU"
    assert by["dies"][0].measured["trouble"] == "its process ended with 3"
    assert by["fails"][0].measured["trouble"] == "it failed: ValueError: what it says"
    assert [p.variant_run for p in by["slow"]] == [1, 1, 2, 2]  # a run has two turns of each way
    assert len({p.measured["seconds"] for p in by["slow"]}) == 4  # every turn is timed by itself
    baseline = rows(conn, bench)[0]
    assert baseline.seconds is not None and baseline.seconds.n == 4


def test_the_same_contest_twice_says_the_same_and_another_does_not(
    home: Path, conn: sqlite3.Connection
) -> None:
    """Of steady work: each way works until it has used so much of a CPU, however busy that is."""
    context = Context(Home(home), conn, lambda _: None)
    first, second = (
        {row.variant: row for row in rows(conn, run_comparison(context, _comparison(trials=4), "test"))}
        for _ in "12"
    )
    for name in ("same", "slow"):
        for one, other in (
            (getattr(by[name], what) for by in (first, second)) for what in ("speed", "memory")
        ):
            assert one.n == other.n == 4
            assert agree(one, other), (name, one, other)
    assert agree(first["same"].speed, second["slow"].speed) is False
    assert agree(first["same"].memory, second["slow"].memory) is False
    assert agree(first["cannot"].speed, second["cannot"].speed) is None


def test_of_ways_that_took_turns_only_missing_pairs_are_added(home: Path, conn: sqlite3.Connection) -> None:
    context = Context(Home(home), conn, lambda _: None)
    bench = run_comparison(context, _comparison(2), "test")
    before = benches.pairs(conn, bench.id)
    with conn:
        conn.execute("UPDATE bench SET ended_at = NULL")
        conn.execute("DELETE FROM pair WHERE variant = 'same' AND round = 2")
    assert run_comparison(context, _comparison(2), "test").id == bench.id
    after = benches.pairs(conn, bench.id)
    gone = [p for p in before if (p.variant, p.round) == ("same", 2)]
    assert sorted(p.variant for p in after) == sorted(p.variant for p in before)
    assert [p for p in after if p in before] == [p for p in before if p not in gone] and len(gone) == 1


def test_a_command_that_says_nothing_ends_the_benchmark_with_its_run_named(
    home: Path, conn: sqlite3.Connection
) -> None:
    job = read_job({"workload": "exec", "exec": {"command": ["true"]}}, "test")
    comparison = PairedComparison("nothing", {"a": job, "b": job}, 3, together=True)
    with pytest.raises(KgopsError, match="no output") as caught:
        run_comparison(Context(Home(home), conn, lambda _: None), comparison, "test")
    assert "kgops logs 1" in (caught.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "module", "words"),
    [
        ("a", "training", ["--entities", "200", "--dim", "32", "--steps", "2", "--batch-size", "32"]),
        ("b", "tracin", ["--entities", "200", "--dim", "32", "--triples", "24", "--training", "4"]),
        ("d", "regression", ["--size", "16", "--frames", "2", "--batch-size", "2", "--steps", "1"]),
        ("c", "loss", ["--entities", "500", "--batch-size", "16", "--steps", "1"]),
    ],
)
def test_the_groups_loops_run_with_every_option_that_can_be_tested(
    tmp_path: Path, table: str, module: str, words: list[str]
) -> None:
    (tmp_path / "results").mkdir()
    environment = {**os.environ, "KGOPS_RUN_FOLDER": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-m", f"kgops.trials.{module}", *words, "--round", "1"]
    command += ["--trials", "1", "--repetitions", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads((tmp_path / "results" / "ways.json").read_text())
    (comparison,) = comparisons(table, quick=True, data=None)
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


@pytest.mark.parametrize(
    ("head", "claim", "is_kept"),
    [
        (HEADS["use"], "gradient checkpointing: 20 % slower | training guide", True),
        (HEADS["use"], " | ", True),
        ("Use: at no cost", " | ", False),
        (HEADS["use"], "gradient checkpointing: 20 % slower | TracIn guide", False),
        (HEADS["use"], "its cost: minimal | training guide", False),
    ],
)
def test_old_recommendations_stay_only_with_headings_and_claims_of_now(
    head: str, claim: str, is_kept: bool, conn: sqlite3.Connection
) -> None:
    option = "  - gradient checkpointing: 0.85 times as fast, 1.10 times less memory"
    before = f"### What to do\n\na (quick): x:\n\n- **{head}.**\n{option}\n\n### How verdicts are made\n\n"
    row = f"| + checkpointing | {claim} | 0.85× (0.77×–0.94×) | 40 | 0.85× | 1.10× | | **smaller** |"
    before += f"### a (quick): x\n\n| option | claim | document |\n|---|---|---|\n{row}\n\n### All\n"
    assert (option in document.written(conn, before)) is is_kept
