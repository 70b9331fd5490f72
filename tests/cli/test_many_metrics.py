"""A run that reports thousands of metric names is shown within bounds, and every page says what it leaves out."""

from __future__ import annotations

import sys
from pathlib import Path

from driving import Console

from storage import reports, series
from storage.database import open_writer, transaction

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


def test_pages_of_records_with_more_names_end(run_cli: Console, tmp_path: Path) -> None:
    """Imported ones, and those of kgops before it had a limit."""
    for _ in range(2):
        assert run_cli("run", "exec", "--", "true").code == 0
    conn = open_writer(run_cli.home / "kgops.db")
    names = ["loss", *(f"m{i:05}" for i in range(2_999))]
    with transaction(conn):
        for run in (1, 2):
            series.append(
                conn, run, [series.Point(name, step, run + step, 1e9) for name in names for step in (1, 2)]
            )
    reports.record_result(conn, 1, [], dict.fromkeys(names, 0.5) | {"test_mrr": 0.25})
    conn.close()
    shown = run_cli("show", "1").out
    assert "… and 2,801 more metrics" in shown and "… and 2,8" in shown.partition("CURVE")[2]
    assert "test_mrr" in shown and "loss" in shown.partition("CURVE")[2]  # what says how it went is there
    compared = run_cli("compare", "1", "2").out
    assert "… and 2,801 more metrics: --all shows them." in compared and "test_mrr" in compared
    assert "m02998" in run_cli("compare", "1", "2", "--all").out
    for words in (("report", "1"), ("compare", "1", "2", "--html")):
        page = tmp_path / f"{words[0]}.html"
        assert run_cli(*words, "--output", page).code == 0
        assert "more metrics are not in this page" in page.read_text()
