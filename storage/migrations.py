"""The schema, as numbered migrations. Append only: a migration that has been released never changes.

sqlite-utils owns this file's work and is imported nowhere else on the common paths: beside numpy
and pandas its import costs half a second.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from sqlite_utils import Database, Migrations

from storage import old_words
from storage.released_schema import BENCHMARKS, MEASUREMENT, RUNS, SCORES, TRACED

migrations = Migrations("kgops")


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


@migrations(name="001_runs")
def runs_and_what_they_report(db: Database) -> None:
    for statement in RUNS:
        db.execute(statement)


@migrations(name="002_traced")
def test_triples_of_tracin_runs(db: Database) -> None:
    for statement in TRACED:
        db.execute(statement)


@migrations(name="003_scores")
def figures_by_the_names_people_use(db: Database) -> None:
    for statement in SCORES:
        db.execute(statement)
    _settle_all(db.conn)


def _settle_all(conn: sqlite3.Connection) -> None:
    """The scores of every run that had ended."""
    for (run,) in conn.execute(f"SELECT id FROM run WHERE state IN ({_ENDED})").fetchall():
        _settle(conn, run)


def _settle(conn: sqlite3.Connection, run: int) -> None:
    rows: dict[str, tuple[float | None, float | None, float | None, float | None]] = {}
    curves = conn.execute(
        "SELECT name, last_value, (SELECT min(min) FROM rollup WHERE series = series.id AND width = 4096),"
        " (SELECT max(max) FROM rollup WHERE series = series.id AND width = 4096) FROM series WHERE run = ?",
        (run,),
    )
    less = ("loss", "error", "rank", "seconds", "nll", "perplexity", "mse", "mae")
    for name, last, least, most in curves:
        rows[name] = (last, None, last, least if any(word in name for word in less) else most)
    for name, final in conn.execute("SELECT name, value FROM figure WHERE run = ?", (run,)):
        _, _, last, best = rows.get(name, (None, None, None, None))
        rows[name] = (final, final, last, best)
    for prefix in ("test_", "valid_"):
        for name in [name for name in rows if name.startswith(prefix)]:
            rows.setdefault(name.removeprefix(prefix), rows[name])
    conn.executemany(
        "INSERT INTO score (name, run, value, final, last, best) VALUES (?, ?, ?, ?, ?, ?)",
        [(name, run, *row) for name, row in rows.items()],
    )


_ENDED = "'succeeded', 'failed', 'out_of_memory', 'cancelled', 'interrupted'"


@migrations(name="004_benchmarks")
def pairs_of_runs_and_the_machines_of_figures(db: Database) -> None:
    conn = db.conn
    for statement in BENCHMARKS:
        conn.execute(statement)
    kept = "id, run, name, subject, against, value, low, high, n, unit, command, at"
    before = conn.execute(f"SELECT {kept}, fingerprint FROM measurement").fetchall()
    conn.execute("DROP TABLE measurement")
    for statement in MEASUREMENT:
        conn.execute(statement)
    for *row, body in before:
        machine = _keep_machine(conn, json.loads(body))
        conn.execute(
            f"INSERT INTO measurement ({kept}, fingerprint) VALUES ({', '.join('?' * 13)})", (*row, machine)
        )


def _keep_machine(conn: sqlite3.Connection, body: dict[str, Any]) -> str:
    """A fingerprint, kept once under its digest."""

    def without(table: Any, name: str) -> Any:
        return (
            {key: value for key, value in table.items() if key != name} if isinstance(table, dict) else table
        )

    cards = body.get("cards")
    told = {
        **body,
        "machine": without(body.get("machine"), "host"),
        "cards": [without(card, "uuid") for card in cards] if isinstance(cards, list) else cards,
    }
    key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    conn.execute(
        "INSERT INTO fingerprint (key, body) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (key, json.dumps(body, sort_keys=True)),
    )
    return key


@migrations(name="005_words")
def the_words_of_the_field(db: Database) -> None:
    conn = db.conn
    for statement in _WORDS:
        conn.execute(statement)
    for run, *texts in conn.execute("SELECT run, job, plan, environment FROM run_spec").fetchall():
        now = [_in_todays_words(text) for text in texts]
        conn.execute("UPDATE run_spec SET job = ?, plan = ?, environment = ? WHERE run = ?", (*now, run))
    for number, kind, body in conn.execute("SELECT id, kind, body FROM event").fetchall():
        kind, told = old_words.renamed_event(kind, json.loads(body))
        conn.execute("UPDATE event SET kind = ?, body = ? WHERE id = ?", (kind, json.dumps(told), number))
    for number, plan in conn.execute("SELECT id, plan FROM bench").fetchall():
        conn.execute("UPDATE bench SET plan = ? WHERE id = ?", (_in_todays_words(plan), number))
    for *key, baseline, measured in conn.execute(
        "SELECT bench, round, variant, baseline, measured FROM pair"
    ).fetchall():
        conn.execute(
            "UPDATE pair SET baseline = ?, measured = ? WHERE bench = ? AND round = ? AND variant = ?",
            (_in_todays_words(baseline), _in_todays_words(measured), *key),
        )
    _rename_machines(conn)


def _in_todays_words(text: str) -> str:
    return json.dumps(old_words.renamed(json.loads(text)))


def _rename_machines(conn: sqlite3.Connection) -> None:
    """A fingerprint's key is a digest of its body, which has other names now."""
    for old, text in conn.execute("SELECT key, body FROM fingerprint").fetchall():
        body = old_words.renamed(json.loads(text))
        key = old_words.machine_key(body)
        conn.execute(
            "INSERT INTO fingerprint (key, body) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET body = excluded.body",
            (key, json.dumps(body, sort_keys=True)),
        )
        for table in ("bench", "measurement"):
            conn.execute(f"UPDATE {table} SET fingerprint = ? WHERE fingerprint = ?", (key, old))
        if key != old:
            conn.execute("DELETE FROM fingerprint WHERE key = ?", (old,))


@migrations(name="006_alerts")
def alerts_that_were_acknowledged(db: Database) -> None:
    db.conn.execute(
        "CREATE TABLE acknowledged (alert TEXT PRIMARY KEY, at REAL NOT NULL) STRICT, WITHOUT ROWID"
    )
    # Failures of the years before are known: they raise no alert.
    db.conn.execute(
        "INSERT INTO acknowledged (alert, at)"
        " SELECT 'quiet before', max(ended_at) FROM run HAVING max(ended_at) IS NOT NULL"
    )


@migrations(name="007_requested")
def options_of_pairs_are_requested(db: Database) -> None:
    conn = db.conn
    for *key, baseline, measured in conn.execute(
        "SELECT bench, round, variant, baseline, measured FROM pair"
    ).fetchall():
        conn.execute(
            "UPDATE pair SET baseline = ?, measured = ? WHERE bench = ? AND round = ? AND variant = ?",
            (_with_requested(baseline), _with_requested(measured), *key),
        )


@migrations(name="008_pauses")
def seconds_are_those_of_the_attempts(db: Database) -> None:
    db.conn.execute("DROP VIEW run_summary")
    db.conn.execute(
        """
        CREATE VIEW run_summary AS
        SELECT run.id, workload, label, profile, state, reason, attempts,
               datetime(submitted_at, 'unixepoch') AS submitted,
               datetime(started_at, 'unixepoch') AS started,
               datetime(ended_at, 'unixepoch') AS ended,
               round(coalesce(
                   (SELECT sum(coalesce(attempt.ended_at, (julianday('now') - 2440587.5) * 86400) - attempt.started_at)
                    FROM attempt WHERE attempt.run = run.id),
                   coalesce(ended_at, (julianday('now') - 2440587.5) * 86400) - started_at), 1) AS seconds,
               exit_code, peak_host_mib, peak_gpu_mib, predicted_mib, metric, metric_value,
               (SELECT group_concat(tag, ' ') FROM tag WHERE tag.run = run.id) AS tags,
               folder
        FROM run
        """
    )


def _with_requested(text: str) -> str:
    return json.dumps(old_words.renamed_trial(json.loads(text)))


_WORDS = (
    "DROP VIEW run_summary",
    "ALTER TABLE run RENAME COLUMN gpu TO gpu_request",
    "ALTER TABLE run RENAME COLUMN card TO gpu",
    "ALTER TABLE run RENAME COLUMN peak_card_mib TO peak_gpu_mib",
    "ALTER TABLE attempt RENAME COLUMN card TO gpu",
    "ALTER TABLE attempt RENAME COLUMN peak_card_mib TO peak_gpu_mib",
    "ALTER TABLE figure RENAME TO metric",
    "ALTER TABLE card RENAME TO gpu",
    "ALTER TABLE traced RENAME TO test_triple",
    """
    CREATE TABLE option (
        run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
        attempt INTEGER NOT NULL,
        name TEXT NOT NULL,
        effect TEXT NOT NULL CHECK (effect IN ('exact', 'rounding', 'changes results')),
        requested TEXT,
        applied TEXT,
        reason TEXT,
        chosen_by TEXT,
        PRIMARY KEY (run, attempt, name)
    ) STRICT, WITHOUT ROWID
    """,
    """
    INSERT INTO option (run, attempt, name, effect, requested, applied, reason, chosen_by)
    SELECT run, attempt, name,
           CASE kind WHEN 'numeric' THEN 'rounding' WHEN 'approximate' THEN 'changes results' ELSE kind END,
           requested, effective, reason, chosen_by
    FROM lever
    """,
    "DROP TABLE lever",
    """
    CREATE VIEW run_summary AS
    SELECT run.id, workload, label, profile, state, reason, attempts,
           datetime(submitted_at, 'unixepoch') AS submitted,
           datetime(started_at, 'unixepoch') AS started,
           datetime(ended_at, 'unixepoch') AS ended,
           round(coalesce(ended_at, (julianday('now') - 2440587.5) * 86400) - started_at, 1) AS seconds,
           exit_code, peak_host_mib, peak_gpu_mib, predicted_mib, metric, metric_value,
           (SELECT group_concat(tag, ' ') FROM tag WHERE tag.run = run.id) AS tags,
           folder
    FROM run
    """,
)
