"""Plans are measured by one command: memory predicted beside memory taken, each kind by itself, and planning's time."""

from __future__ import annotations

import sqlite3

import pytest

from benchmarks import plans
from benchmarks.estimate import Outcome
from storage import measurements


def _outcome(kind: str, predicted: int, measured: int = 1000) -> Outcome:
    return Outcome(kind, 1, predicted, measured, predicted, measured, "step", 500.0, "a setting", predicted)


def test_each_kind_is_told_with_its_error_and_how_far_it_was_too_low() -> None:
    outcomes = [_outcome("train", 1004), _outcome("train", 1100), _outcome("train", 1000)]
    lines = {line.name: line for line in plans.of_predictions(iter([*outcomes, _outcome("regress", 970)]))}
    assert lines["plans_train_error"].value == pytest.approx(0.4)
    assert lines["plans_train_error"].reached
    assert lines["plans_train_within"].value == pytest.approx(200 / 3)
    assert lines["plans_train_within"].reached is False  # two of three are no 95 %
    assert (lines["plans_train_under"].value, lines["plans_train_under"].reached) == (0, True)
    assert lines["plans_regress_under"].value == pytest.approx(3)
    assert lines["plans_regress_under"].reached is False
    assert lines["plans_regress_us"].values == (500.0,)


def test_settings_are_run_told_against_their_targets_and_kept(
    conn: sqlite3.Connection, capfd: pytest.CaptureFixture[str]
) -> None:
    code = plans.main(["--only", "regress", "--settings", "2", "--store"])
    told = capfd.readouterr()
    assert "regression: counted tensors, prediction error" in told.out and "≤ 1 %" in told.out
    assert "planning" not in told.out and "2 of 2: regress" in told.err
    assert code == ("MISSED" in told.out)
    (kept,) = measurements.named(conn, "plans_regress_error")
    assert kept.command == "python -m benchmarks.plans --only regress --settings 2 --store" and kept.n == 2


def test_planning_is_timed_for_every_workload_that_has_a_plan() -> None:
    lines = plans.of_planning(1)
    assert [line.name for line in lines] == ["plans_train_ms", "plans_pipeline_ms", "plans_regress_ms"]
    assert all(len(line.values) == len(plans.GPUS) and min(line.values) > 0 for line in lines)
