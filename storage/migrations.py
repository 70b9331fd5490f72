"""The schema, as numbered migrations. Append only: a migration that has been released never changes.

sqlite-utils applies them. Importing it takes half a second, so only this file does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlite_utils import Database, Migrations

migrations = Migrations("kgops")
_BASELINE = Path(__file__).with_name("baseline.sql").read_text()


def migrate(path: Path, busy_timeout_s: float, version: int) -> None:
    """Brings the database at `path` to schema `version`, or leaves it as it was."""
    conn = sqlite3.connect(path, timeout=busy_timeout_s, isolation_level=None)
    try:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute("BEGIN IMMEDIATE")
        migrations.apply(Database(conn))
        conn.execute(f"PRAGMA user_version = {version}")
        conn.execute("COMMIT")
    finally:
        conn.close()


# The last of the eight migrations it replaces had this name: databases that they made have applied it.
@migrations(name="008_pauses")
def baseline(db: Database) -> None:
    for statement in _BASELINE.split(";\n"):
        db.conn.execute(statement)
