"""Runs of options that kgops no longer has: they are shown, and a repetition names what is unknown."""

from __future__ import annotations

import json
import sqlite3

from driving import Console

OLD = {
    1: {
        "workload": "tracin",
        "label": "old",
        "tracin": {"run": 1, "use_index": "ix", "score": "trak"},
        "options": {},
    },
    2: {
        "workload": "train",
        "label": "old",
        "train": {"dataset": "nations"},
        "options": {"devices": 2},
    },
}


def test_a_run_with_removed_options_is_shown_and_compared_but_not_repeated(run_cli: Console) -> None:
    for _ in OLD:
        assert run_cli("run", "exec", "--", "true").code == 0
    with sqlite3.connect(run_cli.home / "kgops.db") as conn:
        for number, job in OLD.items():
            conn.execute("UPDATE run_spec SET job = ? WHERE run = ?", (json.dumps(job), number))
            conn.execute("UPDATE run SET workload = ? WHERE id = ?", (job["workload"], number))
    for words in (
        ("show", "1"),
        ("show", "1", "--json"),
        ("show", "2"),
        ("compare", "1", "2"),
        ("report", "1"),
    ):
        done = run_cli(*words)
        assert done.code == 0, done.err
        assert "Traceback" not in done.err
    assert "use_index" in run_cli("compare", "1", "2").out
    again = run_cli("run", "--again", "1")
    assert again.code == 2
    assert "tracin.use_index" in again.err and "Traceback" not in again.err
