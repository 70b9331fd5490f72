"""Kill anything at any moment: after the next command every run is in one true state, and nothing is missing."""

import pytest
from chaos import run_chaos
from mutants import MUTANTS

# Which kill uncovers which fault. It falls where the fault shows: see WAITS in mutants.py.
_UNCOVERED_BY = {
    "claim_without_lock": "console",
    "no_supervisor_means_dead_worker": "supervisor",
    "state_guessed_from_the_pid": "pid reuse",
    "result_outside_the_transaction": "supervisor",
    "offset_outside_the_transaction": "supervisor",
    "tree_is_not_reaped": "worker",
    "success_by_guess": "run",
    "folder_is_no_record": "launcher",
}

# All settles, and the record is wrong: a slow command must not be taken for the fault.
_SEEN_IN_THE_END = {"offset_outside_the_transaction", "success_by_guess"}


def test_after_any_kill_no_run_is_lost_and_no_state_is_a_lie() -> None:
    report = run_chaos(kills=40, seed=20261121, limit_s=1100)
    print("\n".join(report.lines()))
    assert report.wrong == []
    assert report.killed >= 40
    assert report.adoptions > 0, "no orphaned worker was adopted: the kills did not reach what they should"


@pytest.mark.long
@pytest.mark.parametrize("fault", sorted(MUTANTS))
def test_the_kills_notice_a_supervisor_with(fault: str) -> None:
    report = run_chaos(
        kills=1,
        seed=7,
        fault=fault,
        kinds=(_UNCOVERED_BY[fault],),
        patience_s=30 if fault in _SEEN_IN_THE_END else 4,
        limit_s=1100,
        unit_s=0.1,
        keep=False,
    )
    assert report.wrong, f"{report.killed} kill did not uncover it"
