"""A run that reports thousands of metric names is shown within bounds, and every page says what it leaves out."""

from __future__ import annotations

import sys
from pathlib import Path

from driving import Console

_REPORTS = """
import json, os
with open(os.environ["KGOPS_EVENTS"], "a") as file:
    for i in range(30_000):
        file.write(json.dumps({"event": "metric", "name": f"m{i:05}", "value": i}) + "\\n")
"""


def test_thirty_thousand_names_leave_a_record_that_can_be_read(run_cli: Console, tmp_path: Path) -> None:
    done = run_cli("run", "exec", "--", sys.executable, "-c", _REPORTS)
    assert done.code == 0
    assert "'m01000' and later ones are in no curve" in done.err
    shown = run_cli("show", "1").out
    assert len(shown.splitlines()) < 300
    assert "more curves: kgops show 1 --json has all" in shown
    assert len(run_cli("show", "1", "--json").json()["series"]) <= 1_004
    assert run_cli("report", "1", "--output", tmp_path / "run.html").code == 0
    assert "more curves are not in this page" in (tmp_path / "run.html").read_text()
