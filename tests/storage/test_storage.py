"""The record: what goes in comes out, once, in order, whatever happens between; and the versions of its schema."""

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from driving import patience
from records import FIXTURES, ODD, add, everything

from storage import attempts, influences, reports, runs, series
from storage.attempts import Attempt
from storage.database import (
    SCHEMA_VERSION,
    changed_since,
    integrity_problems,
    open_reader,
    open_writer,
    transaction,
)
from storage.errors import DatabaseBusy, DatabaseDamaged, DatabaseReadOnly, RunGone
from storage.migrations import migrate

# --- round trips ----------------------------------------------------------------------------------


def test_what_a_run_reports_comes_back_as_it_was_given(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    option = reports.Option(1, ODD, "exact", ODD, None, None, "profile")
    artifact = reports.Artifact("results/" + ODD, "model", "ab" * 32, 5, 7.5)
    events: list[tuple[float, str, dict[str, Any]]] = [
        (1.5, "note", {"text": ODD}),
        (2.5, "log", {"deep": [{}]}),
    ]
    points = [series.Point(ODD, 1.0, None, 3.5), series.Point(ODD, 0.5, -1e308, 3.6)]
    progress = attempts.Progress("train", 1.0, 2.0, "epoch", 0.25, 9.0)
    batch = attempts.Batch(points, events, [option], [artifact], progress, ("loss", 0.5))
    attempts.write_batch(conn, 1, 1, batch, attempts.Offsets(10, 20))
    assert attempts.offsets(conn, 1) == attempts.Offsets(10, 20)
    assert series.points(conn, 1, ODD) == points
    assert series.of_run(conn, 1) == [series.Series(ODD, 2, 0.5, -1e308, 3.6)]
    assert reports.events(conn, 1) == [reports.Event(1, at, kind, body) for at, kind, body in events]
    assert reports.events(conn, 1, kinds=("log",)) == [reports.Event(1, 2.5, "log", {"deep": [{}]})]
    assert reports.options(conn, 1) == [option]
    assert reports.artifacts(conn, 1) == [artifact]
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.phase, run.done, run.total, run.unit, run.rate, run.reported_at) == (
        *("train", 1, 2, "epoch"),
        0.25,
        9,
    )
    assert (run.metric, run.metric_value) == ("loss", 0.5)


def test_newest_word_on_a_option_an_artifact_or_an_influence_replaces_the_older(
    conn: sqlite3.Connection,
) -> None:
    add(conn, 1)
    for word in ("old", "new"):
        option = reports.Option(1, "precision", "rounding", word, word, None, None)
        artifact = reports.Artifact("results/a", word, None, None, 1.0)
        attempts.write_batch(
            conn, 1, 1, attempts.Batch(options=[option], artifacts=[artifact]), attempts.Offsets()
        )
        found = (influences.Influence(0, 1, "a", word, "b", 0.5),)
        influences.add(conn, 1, [influences.TestTriple(0, "a", word, "c", found=found, names={"a": word})])
        reports.record_result(conn, 1, [], {"mrr": 0.25 if word == "old" else 0.5})
    assert [one.requested for one in reports.options(conn, 1)] == ["new"]
    assert [one.kind for one in reports.artifacts(conn, 1)] == ["new"]
    assert [one.relation for one in influences.of_test(conn, 1, 0)] == ["new"]
    assert [one.relation for one in influences.tests_of(conn, 1)] == ["new"]
    assert influences.names(conn, 1) == {"a": "new"}
    assert reports.metrics(conn, 1) == {"mrr": 0.5}


def test_attempts_name_the_worker_that_began_close_once_and_keep_the_larger_peak(
    conn: sqlite3.Connection,
) -> None:
    add(conn, 1)
    assert runs.claim(conn, 1, gpu="GPU-1")
    assert not runs.claim(conn, 1, gpu="GPU-2")
    identity: dict[str, Any] = {"boot_id": "b", "worker_pid": 7, "worker_started": 8, "supervisor_pid": 9}
    for started, never_began in ((5.0, {"worker_pid": 6}), (6.0, {})):
        who = {**identity, **never_began}
        began = Attempt(1, 1, settings={"n": 1}, gpu="GPU-1", started_at=started, **who)
        attempts.begin(conn, began)
    attempts.note_peaks(conn, 1, 1, gpu_mib=None, host_mib=3.0, cpu_s=1.0)
    attempts.note_peaks(conn, 1, 1, gpu_mib=None, host_mib=2.0, cpu_s=None)
    attempts.adopt(conn, 1, 1, 10)
    for outcome in ("failed", "succeeded"):
        attempts.close(conn, 1, 1, outcome=outcome, reason="r", exit_code=1, signal=None, ended_at=9.0)
    (found,) = attempts.of_run(conn, 1)
    assert (found.started_at, found.worker_pid, found.outcome, found.settings) == (6.0, 7, "failed", {"n": 1})
    assert (found.peak_host_mib, found.peak_gpu_mib, found.cpu_s) == (3.0, None, 1.0)
    assert (found.adoptions, found.supervisor_pid) == (1, 10)
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.state, run.attempts, run.started_at, run.peak_host_mib, run.peak_gpu_mib) == (
        "running",
        1,
        5.0,
        3.0,
        None,
    )


# --- exactly once ---------------------------------------------------------------------------------


def test_rows_and_offset_commit_together_or_not_at_all(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    good = attempts.Batch(
        points=[series.Point("loss", 1.0, 0.5, 1.0)], events=[(1.0, "note", {})], metric=("loss", 0.5)
    )
    attempts.write_batch(conn, 1, 1, good, attempts.Offsets(10, 20))
    before = everything(conn)
    nonsense = reports.Option(1, "x", "neither exact nor numeric", None, None, None, None)
    with pytest.raises(sqlite3.IntegrityError):
        attempts.write_batch(
            conn, 1, 1, attempts.Batch(good.points, good.events, [nonsense]), attempts.Offsets(99, 99)
        )
    with pytest.raises(RuntimeError, match="killed"), transaction(conn):
        attempts.write_batch(conn, 1, 1, good, attempts.Offsets(99, 99))
        raise RuntimeError("killed between rows and commit")
    assert not conn.in_transaction
    assert everything(conn) == before


def test_process_killed_in_a_transaction_leaves_nothing_of_it(home: Path, conn: sqlite3.Connection) -> None:
    add(conn, 1)
    before = everything(conn)
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom storage import attempts, series\n"
        "from storage.database import open_writer, transaction\n"
        f"conn = open_writer(Path({str(home / 'kgops.db')!r}))\n"
        "batch = attempts.Batch(points=[series.Point('loss', float(i), 0.5, 0.0) for i in range(20_000)])\n"
        "with transaction(conn):\n"
        "    attempts.write_batch(conn, 1, 1, batch, attempts.Offsets(9, 9))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=FIXTURES.parent.parent).returncode == -9
    assert everything(conn) == before
    assert integrity_problems(conn) == []


def test_second_writer_waits_then_says_who_is_in_the_way(home: Path, conn: sqlite3.Connection) -> None:
    other = open_writer(home / "kgops.db", busy_timeout_s=0.05)
    conn.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy) as caught:
        add(other, 1)
    assert caught.value.hint
    assert not other.in_transaction
    conn.execute("ROLLBACK")
    add(other, 1)
    other.close()
    assert runs.count(conn) == 1


def test_reader_cannot_write_and_sees_every_commit_of_others(home: Path, conn: sqlite3.Connection) -> None:
    reader = open_reader(home / "kgops.db")
    with pytest.raises(DatabaseReadOnly):
        add(reader, 1)
    changed, seen = changed_since(reader, None)
    assert changed
    assert changed_since(reader, seen) == (False, seen)
    add(conn, 1)
    changed, _ = changed_since(reader, seen)
    assert changed
    assert runs.count(reader) == 1
    reader.close()


# --- ends -----------------------------------------------------------------------------------------


def test_end_is_written_once(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    assert runs.end(conn, 1, state="failed", reason="first", exit_code=1, ended_at=5.0)
    assert not runs.end(conn, 1, state="succeeded", reason="second", exit_code=0, ended_at=6.0)
    run = runs.get(conn, 1)
    assert run is not None
    assert (run.state, run.reason, run.exit_code, run.ended_at) == ("failed", "first", 1, 5.0)
    with pytest.raises(ValueError, match="is not an end"):
        runs.end(conn, 1, state="running", reason=None, exit_code=None, ended_at=7.0)


def test_only_an_ended_run_that_did_not_succeed_is_opened_again(conn: sqlite3.Connection) -> None:
    for number, state in enumerate(runs.ENDED, start=1):
        add(conn, number)
        assert not runs.reopen(conn, number)
        runs.end(conn, number, state=state, reason="r", exit_code=1, ended_at=5.0)
        assert runs.reopen(conn, number) == (state != "succeeded")
        run = runs.get(conn, number)
        assert run is not None
        if state != "succeeded":
            assert (run.state, run.reason, run.exit_code, run.ended_at) == ("queued", None, None, None)


def test_deleted_run_leaves_no_row_and_its_number_is_never_given_again(conn: sqlite3.Connection) -> None:
    add(conn, 1)
    empty = everything(conn)
    add(conn, 2)
    attempts.begin(conn, Attempt(2, 1, boot_id="b", worker_pid=1, worker_started=1, started_at=1.0))
    option, artifact = (
        reports.Option(1, "x", "exact", *(None,) * 4),
        reports.Artifact("a", "b", None, None, 1.0),
    )
    points = [series.Point("loss", float(i), 1.0, 1.0) for i in range(100)]
    attempts.write_batch(
        conn, 2, 1, attempts.Batch(points, [(1.0, "note", {})], [option], [artifact]), attempts.Offsets(1, 1)
    )
    reports.record_result(conn, 2, [], {"mrr": 0.5})
    reports.change_tags(conn, 2, add=["t"], remove=[])
    reports.add_note(conn, 2, 1.0, "n")
    found = (influences.Influence(0, 1, "a", "r", "b", 0.5),)
    influences.add(conn, 2, [influences.TestTriple(0, "a", "r", "c", found=found, names={"a": "A"})])
    assert not runs.delete(conn, 2)  # it has not ended
    runs.end(conn, 2, state="failed", reason=None, exit_code=1, ended_at=5.0)
    assert runs.delete(conn, 2)
    assert not runs.delete(conn, 2)
    left = everything(conn)
    for name in ("sqlite_sequence", *(name for name in empty if name.startswith("run_text_"))):
        left.pop(name), empty.pop(name)
    assert left == empty
    assert runs.next_number(conn) == 3
    assert integrity_problems(conn) == []


def test_columns_of_the_dataclasses_are_those_of_the_tables(conn: sqlite3.Connection) -> None:
    for table, columns in (("run", runs.COLUMNS), ("attempt", attempts.COLUMNS)):
        assert [row[1] for row in conn.execute(f"PRAGMA table_info({table})")] == list(columns)
    add(conn, 1)
    run = runs.get(conn, 1)
    assert run is not None
    columns = tuple(row[0] for row in conn.execute("SELECT * FROM run").description)
    assert tuple(runs.as_table(run))[: len(columns)] == columns


def test_notes_and_tags_of_a_run_deleted_meanwhile_say_so(conn: sqlite3.Connection) -> None:
    with pytest.raises(RunGone, match="run 77 has just been deleted"):
        reports.add_note(conn, 77, 5.0, "x")
    for added, removed in ((["x"], []), ([], ["x"])):
        with pytest.raises(RunGone, match="run 77 has just been deleted"):
            reports.change_tags(conn, 77, add=added, remove=removed)


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
