"""Kill anything at any moment: after the next command every run is in one true state, and nothing is missing."""

from __future__ import annotations

import pytest
from chaos import run_chaos
from mutants import MUTANTS

# Which kills uncover which fault, and how many at the most: a fault no kill uncovered would pass unseen.
_UNCOVERED_BY = {
    "claim_without_lock": (("console", "supervisor"), 4),
    "no_supervisor_means_dead_worker": (("supervisor",), 20),
    "state_guessed_from_the_pid": (("pid reuse",), 6),
    "result_outside_the_transaction": (("everything", "supervisor", "run"), 30),
    "offset_outside_the_transaction": (("supervisor",), 12),
    "tree_is_not_reaped": (("worker",), 10),
    "success_by_guess": (("gate",), 8),
    "folder_is_no_record": (("launcher",), 2),
}


@pytest.mark.slow
def test_after_any_kill_no_run_is_lost_and_no_state_is_a_lie() -> None:
    report = run_chaos(kills=40, seed=20261121, limit_s=1100)
    print("\n".join(report.lines()))
    assert report.wrong == []
    assert report.killed >= 40
    assert report.adoptions > 0, "no orphaned worker was adopted: the kills did not reach what they should"


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(MUTANTS))
def test_the_kills_notice_a_supervisor_with(fault: str) -> None:
    kinds, kills = _UNCOVERED_BY[fault]
    report = run_chaos(
        kills=kills, seed=7, fault=fault, kinds=kinds, patience_s=4, limit_s=1100, unit_s=0.1, keep=False
    )
    assert report.wrong, f"{report.killed} kills did not uncover it"
