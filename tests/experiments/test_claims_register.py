"""Every claim of the documents is in the register, with its condition, and has a verdict or a reason."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from typing import Any, get_args

import pytest
from driving import Console

from kgops.experiments.advice import advice
from kgops.experiments.calculated_claims import CALCULATIONS, PREDICTED
from kgops.experiments.claim_register import Documented, register
from kgops.experiments.claim_verdicts import CHECKED, Ruling, on_value, rulings
from kgops.experiments.claims import TABLES, Judged
from kgops.experiments.claims_overview import as_tables, overview
from kgops.experiments.trial_result import Spread
from kgops.experiments.verdicts import Verdict
from storage import measurements
from storage.measurements import Claim, Measurement

OF_EACH = {"tracin": 39, "train": 35, "analysis": 46, "loss": 31, "regress": 54}


def _by_name(conn: sqlite3.Connection) -> dict[str, Ruling]:
    return {one.claim.name: one for one in rulings(conn)}


def _checked(conn: sqlite3.Connection, name: str, value: float) -> None:
    text = Measurement(
        CHECKED + name, f"found {value}", None, value, None, None, 1, "", "test", {"machine": {}}, time.time()
    )
    measurements.add(conn, text)


def test_each_document_has_all_of_its_claims() -> None:
    found = register().values()
    assert {document: sum(one.document == document for one in found) for document in OF_EACH} == OF_EACH
    for one in found:
        assert one.title and one.lines and one.says and one.condition and one.kind, one.name
        assert one.range == "no number" or one.low is not None or one.high is not None
        assert one.range == "no number" or one.unit, one.name
        assert set(one.against) <= register().keys() - {one.name}, one.name


def test_each_claim_is_judged_somehow_or_says_why_not() -> None:
    for one in register().values():
        ways = (one.table, one.check, one.reckon, one.documented, one.reason)
        assert any(ways), one.name
        assert not one.table or one.table in TABLES
        assert not one.reckon or one.reckon[0] in {**CALCULATIONS, **PREDICTED}, one.name
        assert (one.documented is None) == (one.source is None), one.name
        assert not (one.check and one.low is None and one.high is None and not one.bound), one.name


def test_before_anything_is_measured_each_has_a_verdict_or_a_reason(conn: sqlite3.Connection) -> None:
    found = _by_name(conn)
    assert len(found) == 205
    for name, one in found.items():
        assert one.verdict in get_args(Verdict)
        assert (one.found and one.basis != "none") or (one.why and one.basis in ("none", "pending")), name
        assert one.basis != "measured"


def test_arithmetic_confirms_what_holds_and_refutes_what_does_not(conn: sqlite3.Connection) -> None:
    found = _by_name(conn)
    expected = {
        "loss.labels.example": "confirmed",
        "loss.buffers.factor": "confirmed",
        "loss.table.256x50k.factor": "smaller",
        "loss.table.256x50k.new": "refuted",
        "regress.estimate.full.subtotal": "confirmed",
        "regress.estimate.full.total": "refuted",
        "regress.estimate.full.weights": "refuted",
        "regress.bench.full.headroom": "confirmed",
        "regress.compile.later": "refuted",
        "analysis.product": "confirmed",
    }
    assert {name: found[name].verdict for name in expected} == expected
    assert {found[name].basis for name in expected} == {"arithmetic"}
    assert "3.8 MiB" in found["regress.estimate.full.weights"].found
    assert found["tracin.fp16.tensorcores"].basis == "data sheet"
    assert found["loss.batch.1024"].basis == "prediction"


def test_a_claim_of_no_cuda_says_so_and_not_that_it_is_refuted(conn: sqlite3.Connection) -> None:
    found = _by_name(conn)
    for name in ("analysis.total.code", "tracin.cleanup.memory", "tracin.bench.lastlayers.speedup"):
        assert found[name].verdict == "cannot be tested here"
        assert "CUDA" in found[name].why


def test_a_check_judges_the_claim_it_was_made_for(conn: sqlite3.Connection) -> None:
    _checked(conn, "loss.abs", 3e-7)
    _checked(conn, "analysis.batch.speed", 1.01)
    found = _by_name(conn)
    assert found["loss.abs"].verdict == "refuted"
    assert found["analysis.batch.speed"].verdict == "confirmed"
    assert found["loss.tracin.speed"].verdict == "no effect"  # contradicts it, by the same value
    _checked(conn, "loss.abs", 3e-8)
    assert _by_name(conn)["loss.abs"].verdict == "confirmed"


def test_claims_kept_under_older_names_can_still_be_read(conn: sqlite3.Connection) -> None:
    older = Claim("b.fp16.speed", "TracIn guide", "issue 7", "FP16: 2x faster", 2.0, None, "×")
    measurements.keep_claims(conn, [older])
    measurements.keep_claims(conn, [one.claim for one in register().values()])
    kept = {row[0]: Claim(*row) for row in conn.execute(f"SELECT {', '.join(Claim.__slots__)} FROM claim")}
    assert kept["b.fp16.speed"] == older and len(kept) == 206


def test_a_value_beside_a_claim() -> None:
    def verdict(value: float, **changes: Any) -> str:
        fields: dict[str, Any] = {"low": 2.0, "high": 3.0, "unit": "×", "about": False, "against": ()}
        words = ("x", "loss", "loss guide", "1", "x", "x", "x")
        return on_value(Documented(*words, **{**fields, "bound": {}, **changes}), value)[0]

    assert [verdict(v) for v in (1.0, 1.5, 2.0, 9.0)] == ["no effect", "smaller", "confirmed", "confirmed"]
    assert [verdict(v, unit="GB") for v in (1.9, 2.5, 3.2)] == ["refuted", "confirmed", "refuted"]
    assert [verdict(v, low=7.8, high=7.8, unit="GB") for v in (7.76, 7.84, 7.86)] == [
        "confirmed",
        "confirmed",
        "refuted",
    ]
    assert verdict(3.2, unit="GB", about=True) == "confirmed"
    assert verdict(1.1e-7, low=None, high=1e-7, unit="") == "refuted"


def test_claims_that_contradict_each_other_stand_side_by_side(
    conn: sqlite3.Connection, run_cli: Console
) -> None:
    _checked(conn, "analysis.batch.speed", 1.01)
    done = run_cli("bench", "show", "claims", "loss.tracin.speed")
    assert done.code == 0, done.err
    page = " ".join(done.out.split())
    assert "no effect · loss.tracin.speed · TracIn with larger batches: 2-4x faster" in page
    assert (
        "but: batch size does not change the speed (TracIn analysis, line 88-89; analysis.batch.speed)"
        in page
    )


def test_json_has_all_claims_and_the_list_a_line_of_each(conn: sqlite3.Connection, run_cli: Console) -> None:
    done = run_cli("bench", "show", "claims", "--json")
    text = json.loads(done.out)["claim"]
    assert [one["name"] for one in text] == list(register())
    assert text == json.loads(json.dumps(as_tables(overview(conn))["claim"]))
    listed = run_cli("bench", "show", "claims", "--all").out.splitlines()
    names = [found[1] for line in listed if (found := re.match(r"  [a-z]+(?: [a-z]+)?  +(\S+): ", line))]
    assert names == [one.split(".", 1)[1] for one in register()]
    assert max(map(len, listed)) <= 120


@pytest.mark.parametrize(
    ("speed", "less_memory", "category", "words"),
    [
        (
            0.85,
            1.10,
            "trade",
            "0.85 times as fast, 1.10 times less memory",
        ),  # slower, though within the noise
        (0.98, 1.33, "use", "0.98 times as fast, 1.33 times less memory"),
        (1.60, 1.001, "use", "1.60 times as fast, the same memory"),
        (1.60, 0.90, "trade", "1.60 times as fast, 1.11 times the memory"),
    ],
)
def test_an_option_that_costs_at_the_median_is_not_advised_as_free(
    speed: float, less_memory: float, category: str, words: str
) -> None:
    judged = Judged(
        variant="+ checkpointing",
        claimed=None,
        measured="",
        ratio=None,
        n=40,
        speed=Spread(speed, speed, speed, 40),
        memory=Spread(less_memory, less_memory, less_memory, 40),
        resident=None,
        quality={},
        applied=True,
        verdict="effective",
        why="",
    )
    (one,) = advice([judged], "fp32", {"speed": 0.16, "memory": 0.0})
    assert (one.category, one.text) == (category, words)
