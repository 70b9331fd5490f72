"""Versions of the schema: this one is created once, a newer or older one is refused and left alone."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from driving import patience
from records import FIXTURES, add

from storage import reports, runs
from storage.database import SCHEMA_VERSION, integrity_problems, open_writer
from storage.errors import DatabaseDamaged
from storage.migrations import migrate


def test_database_of_the_migrations_that_the_baseline_replaced_can_be_migrated(home: Path) -> None:
    path = home / "kgops.db"
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('kgops', '007_requested')")
    migrate(path, 5.0, SCHEMA_VERSION + 1)
    assert conn.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION + 1,)
    conn.close()


def test_six_processes_create_the_database_together(tmp_path: Path) -> None:
    database, gate = tmp_path / "kgops.db", tmp_path / "gate"
    code = (
        "import os, sys, time\nfrom pathlib import Path\nimport sqlite_utils\n"
        "from storage import runs\nfrom storage.database import open_writer, transaction\n"
        f"print('ready', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.001)\n"
        f"conn = open_writer(Path({str(database)!r}))\n"
        "with transaction(conn):\n"
        "    n = runs.next_number(conn)\n"
        "    run = runs.Run(id=n, workload='exec', label='x', state='queued', folder=str(n), submitted_at=0.0)\n"
        "    runs.add(conn, run, runs.RunSpec({}, {}, {}))\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=FIXTURES.parent.parent,
        )
        for _ in range(6)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        gate.touch()
        for child in children:
            _, err = child.communicate(timeout=patience())
            assert child.returncode == 0, err
    finally:
        for child in children:
            child.kill()
            child.communicate()
    conn = open_writer(database)
    assert [run.id for run in runs.in_states(conn, runs.WAITING)] == [1, 2, 3, 4, 5, 6]
    assert integrity_problems(conn) == []
    conn.close()


def test_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kgops.db"
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE influence (something_else)")  # in the way of the migration's last tables
    conn.commit()
    conn.close()
    with pytest.raises(DatabaseDamaged, match="influence"):
        open_writer(path)
    conn = sqlite3.connect(path)
    assert {row[0] for row in conn.execute("SELECT name FROM sqlite_master")} <= {
        "influence",
        "_sqlite_migrations",
    }
    assert conn.execute("PRAGMA user_version").fetchone() == (0,)
    conn.close()


def test_summary_is_readable_by_plain_sqlite(home: Path, conn: sqlite3.Connection) -> None:
    add(conn, 1, submitted_at=1763692801.0, state="succeeded")
    reports.change_tags(conn, 1, add=["baseline", "paper"], remove=[])
    plain = sqlite3.connect(f"{(home / 'kgops.db').as_uri()}?mode=ro", uri=True)
    plain.row_factory = sqlite3.Row
    (row,) = plain.execute("SELECT * FROM run_summary")
    plain.close()
    assert (row["id"], row["state"], row["tags"]) == (1, "succeeded", "baseline paper")
    assert row["submitted"] == "2025-11-21 02:40:01"
