"""Claims stand beside measurements with a verdict each, and what cannot be tested here says why."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from kgops.cli import claims_page
from kgops.experiments.claim_verdicts import comparisons, rulings
from kgops.experiments.claims import TABLES, judge, shipped
from kgops.experiments.summary import rows
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
