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
from kgops.experiments.calculated_claims import CALCULATIONS
from kgops.experiments.claim_register import REASONS, Documented, register
from kgops.experiments.claim_verdicts import CHECKED, Ruling, on_value, rulings
from kgops.experiments.claims import TABLES, Judged
from kgops.experiments.claims_overview import as_tables, overview
from kgops.experiments.predicted_claims import ASSUMED, PREDICTED
from kgops.experiments.trial_result import Spread
from kgops.experiments.verdicts import NO_VERDICT, Noise, Verdict
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
        assert (one.found and one.basis != "none") or (one.why and one.basis == "none"), name
        assert (one.basis == "none") == (one.verdict in NO_VERDICT), name
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


PREDICTIONS = [one for one in register().values() if one.reckon and one.reckon[0] in PREDICTED]


@pytest.mark.parametrize("workload", ["train", "tracin"])
def test_a_prediction_is_made_for_the_entities_that_the_claim_names(workload: str) -> None:
    sizes = {"precision": "fp16", "batch_size": 512, "gpu": "t4"}
    texts = [
        PREDICTED["predicted_fits"](workload, {**sizes, "entities": n}).text
        for n in (14_541, 50_000, 5_000_000)
    ]
    needs = [int(text.split()[1].replace(",", "")) for text in texts]
    assert needs[0] < needs[1] < needs[2]
    assert ["14,541" in texts[0], "50,000" in texts[1], "5,000,000" in texts[2]] == [True] * 3
    ratios = [
        PREDICTED["predicted_less"](
            *(workload, {**sizes, "precision": "fp32", "entities": n}, {**sizes, "entities": n})
        ).text
        for n in (14_541, 50_000)
    ]
    assert ratios[0] != ratios[1]


def test_every_size_that_can_be_stated_or_assumed_changes_what_is_predicted() -> None:
    for workload, ranges in ASSUMED.items():
        first = {name: ends[0] for name, ends in ranges.items()}
        for name, ends in ranges.items():
            found = {
                PREDICTED["predicted_fits"](
                    *(workload, {"batch_size": 1, "precision": "fp32", **first, name: one})
                ).text.partition(" MiB at ")[0]
                for one in ends
            }
            assert len(found) == len(ends), (workload, name)


@pytest.mark.parametrize("claim", PREDICTIONS, ids=[one.name for one in PREDICTIONS])
def test_a_prediction_says_what_it_assumes(claim: Documented, conn: sqlite3.Connection) -> None:
    name, workload, *sizes = claim.reckon
    text = PREDICTED[name](workload, *sizes).text
    for size, ends in ASSUMED[workload].items():
        stated = {size in one for one in sizes}
        assert len(stated) == 1, size  # of both sides of a ratio, or of neither
        if stated == {False} and len(ends) > 1:
            end = f"{ends[-1]:,}" if isinstance(ends[-1], int) else "A100 40 GB"
            assert end in text.partition("assumed: ")[2], size
    ruling = _by_name(conn)[claim.name]
    assert text in (ruling.found or ruling.why)


def test_like_claims_that_need_a_gpu_are_treated_alike(conn: sqlite3.Connection) -> None:
    found = _by_name(conn)
    for one in register().values():
        if one.unit == "×" and "memory" in one.name and one.reason is not None:
            assert one.reason not in (REASONS["cuda"], REASONS["room"]), one.name  # a ratio is predicted
        if one.kind != "measured" and " fits" in one.says and one.reason is not None:
            assert one.name == "tracin.fp16.before", one.name  # of their own code
    by_prediction = ("tracin.fp16.memory", "train.fp16.memory", "loss.fp16.memory", "regress.amp.memory")
    assert {found[name].basis for name in by_prediction} == {"prediction"}
    # Whether it fits depends on the resolution as much as the amount does.
    for name in ("regress.full.fits", "regress.full.batch", "regress.small.batch", "regress.full.memory"):
        assert found[name].verdict == "cannot be tested here", name
    assert "at 512 x 512 pixels" in found["regress.full.fits"].why
    assert found["tracin.combined.batch"].verdict == found["loss.batch.512"].verdict == "confirmed"
    assert "assumed: 10,000 to 100,000 entities" in found["loss.batch.512"].found
    assert "50,000 to 100,000 entities" in found["loss.batch.1024"].found


def test_what_was_merely_not_run_is_not_called_untestable(conn: sqlite3.Connection, run_cli: Console) -> None:
    found = _by_name(conn)
    assert found["analysis.compile.first"].verdict == "not measured yet"
    for name, one in found.items():
        if one.verdict == "cannot be tested here":
            assert not re.search(r"--quick|kgops bench|yet", one.why), name
        if one.claim.check is not None:
            assert one.verdict == "not measured yet", name
            assert one.why == "kgops bench claims --only e measures it"
    listed = run_cli("bench", "show", "claims", "--all").out
    assert "  not measured yet  " in listed and "not yet" not in listed
    data = {one["name"]: one for one in run_cli("bench", "show", "claims", "--json").json()["claim"]}
    assert data["analysis.compile.first"]["verdict"] == "not measured yet"
    assert {one["by"] for one in data.values() if one["verdict"] in NO_VERDICT} == {"none"}


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
    names = [found[1] for line in listed if (found := re.match(r"  [a-z]+(?: [a-z]+)*  +(\S+): ", line))]
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
        (0.98, 1.33, "use", "no effect on speed (0.98×), 1.33 times less memory"),
        (1.60, 1.001, "use", "1.60 times as fast, the same memory"),
        (1.60, 0.90, "trade", "1.60 times as fast, 1.11 times the memory"),
    ],
)
def test_an_option_that_costs_at_the_median_is_not_advised_as_free(
    speed: float, less_memory: float, category: str, words: str
) -> None:
    judged = _judged(Spread(speed, speed, speed, 40), Spread(less_memory, less_memory, less_memory, 40))
    (one,) = advice([judged], "fp32", {"speed": 0.16, "memory": 0.0})
    assert (one.category, one.text) == (category, words)


def _judged(speed: Spread | None, memory: Spread | None = None, **changes: Any) -> Judged:
    fields: dict[str, Any] = {
        "variant": "+ checkpointing",
        "claimed": None,
        "measured": "",
        "ratio": None,
        "n": 40,
        "resident": None,
        "quality": {},
        "applied": True,
        "verdict": "effective",
        "why": "",
    }
    return Judged(**{**fields, "speed": speed, "memory": memory, **changes})


def _same(value: float) -> Spread:
    return Spread(value, value, value, 40)


def test_what_has_no_effect_is_not_advised_as_a_speed_up() -> None:
    noise: Noise = {"speed": 0.15, "memory": 0.05}
    (bf16,) = advice([_judged(Spread(1.08, 1.03, 1.22, 40), _same(1.17))], "fp32", noise)
    assert (bf16.category, bf16.text) == ("use", "no effect on speed (1.08×), 1.17 times less memory")
    (slower,) = advice([_judged(Spread(0.88, 0.78, 0.97, 40), _same(1.17))], "fp32", noise)
    assert slower.category == "trade" and slower.text.startswith("0.88 times as fast, within the noise")
    (neither,) = advice([_judged(_same(1.1), _same(1.0))], "fp32", noise)
    assert neither.category == "leave" and "times as fast" not in neither.text


def test_what_the_machine_was_too_noisy_for_is_not_called_no_gain() -> None:
    noise: Noise = {"speed": 0.05, "memory": 0.05}
    (one,) = advice([_judged(Spread(1.0, 0.5, 2.5, 40), _same(1.0))], "fp32", noise)
    assert (one.category, one.text) == ("untested", "speed unclear (0.50× to 2.50×), the same memory")
    left_out = _judged(None, verdict="not measured yet", why="--quick leaves it out")
    assert advice([left_out], "fp32", noise)[0].category == "unmeasured"


def test_a_larger_process_is_a_cost_beyond_the_control_and_is_explained() -> None:
    noise: Noise = {"speed": 0.05, "memory": 0.05}
    ours = _judged(_same(28.7), _same(1.87), resident=_same(0.48))
    control = _judged(_same(1.0), _same(1.0), variant="fp32 again", resident=_same(0.99))
    (one,) = advice([control, ours], "fp32", noise)
    assert one.category == "trade"
    assert "2.08 times the resident memory, which counts library code" in one.text
    unsteady = _judged(_same(1.0), _same(1.0), variant="fp32 again", resident=Spread(1.0, 0.4, 2.5, 4))
    assert advice([unsteady, ours], "fp32", noise)[0].category == "use"


@pytest.mark.parametrize(
    ("quality", "category"),
    [
        ({"loss_difference": 8e-5, "loss_change": 1.3e-4}, "use"),
        ({"loss_difference": -0.09, "loss_change": -0.15}, "changes"),
        ({"loss_difference": 0.09, "loss_change": 0.15}, "changes"),
        ({"score_error": 0.002}, "use"),
        ({"score_error": 0.3}, "changes"),
    ],
)
def test_an_option_that_changes_scores_or_loss_is_not_free(quality: dict[str, float], category: str) -> None:
    (one,) = advice(
        [_judged(_same(2.0), _same(2.0), quality=quality)], "fp32", {"speed": 0.05, "memory": 0.05}
    )
    assert one.category == category
    assert ("loss 15% " in one.text) == (abs(quality.get("loss_change", 0)) > 0.01)
