"""After a power cut every run that was accepted is there, in a true state, with the points that were in the record.

A few cuts; `make power-cut` tries hundreds.
"""

from __future__ import annotations

from pathlib import Path

from power_cut import judge_all, moments, record


def test_power_cuts_take_back_nothing_that_was_told(tmp_path: Path) -> None:
    recorded = record(tmp_path)
    cuts = moments(recorded, 6)
    wrong = {cut: faults for cut, faults in judge_all(recorded, cuts, tmp_path) if faults}
    assert wrong == {}
