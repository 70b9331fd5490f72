"""A database of each release opens, migrates and reads; one of a newer release is left alone."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from driving import patience
from records import FIXTURES, add
from sqlite_utils import Database

from kgops.jobs.files import write_json
from kgops.jobs.job import read_job
from kgops.supervisor.plan_file import Plan, as_table, read_plan
from kgops.supervisor.run_folder import RunFolder
from storage import attempts, benches, influences, measurements, reports, run_list, runs, series
from storage.database import (
    SCHEMA_VERSION,
    integrity_problems,
    open_reader,
    open_writer,
)
from storage.errors import DatabaseDamaged, DatabaseMissing, DatabaseNewer
from storage.migrations import migrations


def schema_of(conn: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = conn.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return sorted(
        (kind, name, " ".join(sql.replace("IF NOT EXISTS ", "").split())) for kind, name, sql in rows
    )


@pytest.fixture
def of_schema_001(tmp_path: Path) -> Path:
    """A database with rows as the first release wrote it."""
    path = tmp_path / "old.db"
    conn = sqlite3.connect(path, isolation_level=None)
    conn.executescript((FIXTURES / "schema-001.sql").read_text())
    conn.close()
    return path


def test_database_of_the_first_release_opens_migrates_and_reads(of_schema_001: Path) -> None:
    conn = open_writer(of_schema_001)
    assert conn.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    assert integrity_problems(conn) == []
    first = runs.get(conn, 1)
    assert first is not None
    assert (first.state, first.attempts, first.reserved_mib, first.metric) == ("succeeded", 2, 4096, "loss")
    assert first.label == "first 'quoted' \"label\" – naïve 測試; DROP TABLE run;--"
    assert [run.id for run in run_list.page(conn)] == [5, 4, 3, 2, 1]
    assert [run.id for run in run_list.page(conn, run_list.Filter(words="aspirin paper"))] == [1]
    assert [a.outcome for a in attempts.of_run(conn, 1)] == ["out_of_memory", "succeeded"]
    assert len(series.points(conn, 1, "loss")) == 70
    assert series.curve(conn, 1, "loss", at_most=10)[0].n == 63
    assert reports.metrics(conn, 1) == {"hits@10": 0.5, "mrr": 0.31}
    assert reports.tags(conn, 1) == ["baseline", "paper"]
    assert [e.kind for e in reports.events(conn, 1)] == ["note", "log", "step_down"]
    assert len(influences.of_test(conn, 1, 0)) == 2
    assert measurements.named(conn, "train_step")[0].fingerprint == {"cpu": "x"}
    assert attempts.offsets(conn, 1) == attempts.Offsets(1234, 567)
    assert runs.spec(conn, 2).job["exec"] == {"command": ["echo", "2"]}
    assert runs.next_number(conn) == 7  # run 6 was deleted
    add(conn, runs.next_number(conn))
    assert [run.id for run in runs.in_states(conn, runs.WAITING)] == [5, 7]
    conn.close()


def test_migrated_database_has_the_schema_of_a_fresh_one(of_schema_001: Path, empty_database: Path) -> None:
    conn, fresh = open_writer(of_schema_001), open_writer(empty_database)
    assert schema_of(conn) == schema_of(fresh)
    conn.close()
    fresh.close()


OLD_JOB = {
    "workload": "train",
    "card": {"gpu": "0", "exclusive": False},
    "levers": {"precision": "fp16", "batch_size": 64},
    "train": {"dataset": "nations"},
}
OLD_PLAN = {
    "number": 1,
    "gpu": "0",
    "rungs": [{}, {"batch_size": 32}],
    "ladder": [
        {
            "kind": "approximate",
            "reason": "smaller",
            "changes": [{"lever": "batch_size", "before": 64, "after": 32, "kind": "approximate"}],
            "settings": {"batch_size": 32},
        }
    ],
    "choices": [{"lever": "precision", "requested": "fp16", "effective": "fp32", "chosen_by": "person"}],
    "forecast": {
        "on_card": False,
        "on": "a CPU",
        "predicted_mib": 1.0,
        "budget": {"parts_mib": {"weights": 1.0}},
    },
}
OLD_MACHINE = {"machine": {"host": "a", "processor": "x"}, "cards": [{"uuid": "GPU-1", "name": "T4"}]}


def of_schema_004(path: Path) -> None:
    """A database as 0.1.0 wrote it, with its names in columns and in JSON."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("BEGIN")
    migrations.apply(Database(conn), stop_before="005_words")
    conn.execute("PRAGMA user_version = 4")
    conn.execute(
        "INSERT INTO run (id, workload, label, state, folder, submitted_at, gpu, card, peak_card_mib)"
        " VALUES (1, 'train', 'old', 'succeeded', '0001-old', 1.0, '0', 'GPU-1', 512.0)"
    )
    spec = (json.dumps(one) for one in (OLD_JOB, OLD_PLAN, {"cards": OLD_MACHINE["cards"]}))
    conn.execute("INSERT INTO run_spec VALUES (1, ?, ?, ?)", tuple(spec))
    conn.execute("INSERT INTO lever VALUES (1, 1, 'precision', 'numeric', 'fp16', 'fp32', 'a CPU', 'person')")
    conn.execute("INSERT INTO figure VALUES (1, 'mrr', 0.5)")
    conn.execute("INSERT INTO card VALUES ('GPU-1', 'T4')")
    conn.execute("INSERT INTO traced VALUES (1, 0, 'h', 'r', 't', 9, NULL)")
    body = json.dumps({"settings": {"card": 3}, "rung": OLD_PLAN["ladder"][0]})  # type: ignore[index]
    conn.execute(
        "INSERT INTO event (run, attempt, at, kind, body) VALUES (1, 1, 1.0, 'step_down', ?)", (body,)
    )
    conn.execute("INSERT INTO fingerprint VALUES ('0123456789ab', ?)", (json.dumps(OLD_MACHINE),))
    conn.execute("INSERT INTO bench VALUES (1, 'b', '{}', 'k', 'kgops bench', '0123456789ab', 1.0, 2.0)")
    option = {"asked": "fp16", "effective": "fp32", "why": None}
    told = json.dumps({"levers": {"precision": option}, "figures": {"card": 1.0}})
    conn.execute("INSERT INTO pair VALUES (1, 1, 'v', 1, 1, ?, ?, NULL, '[]', 1.0)", (told, told))
    conn.execute(
        "INSERT INTO measurement (name, subject, value, n, unit, command, fingerprint, at)"
        " VALUES ('step', 's', 1.0, 1, 's', 'c', '0123456789ab', 1.0)"
    )
    conn.execute("COMMIT")
    conn.close()


def test_names_of_0_1_0_become_todays_in_columns_and_in_json(tmp_path: Path) -> None:
    of_schema_004(tmp_path / "kgops.db")
    conn = open_writer(tmp_path / "kgops.db")
    run, spec = runs.get(conn, 1), runs.spec(conn, 1)
    assert run is not None
    assert (run.gpu_request, run.gpu, run.peak_gpu_mib) == ("0", "GPU-1", 512.0)
    assert read_job(spec.job, "the record").options == {"precision": "fp16", "batch_size": 64}
    assert spec.job["gpu"] == {"wanted": "0", "exclusive": False}
    assert spec.plan["gpu_request"] == "0" and spec.plan["attempt_settings"] == [{}, {"batch_size": 32}]
    (fallback,) = spec.plan["fallbacks"]
    assert (fallback["effect"], fallback["changes"][0]["option"]) == ("changes results", "batch_size")
    assert spec.plan["choices"][0]["applied"] == "fp32" and spec.plan["forecast"]["on_gpu"] is False
    assert spec.environment["gpus"][0]["uuid"] == "GPU-1"
    (option,) = reports.options(conn, 1)
    assert (option.effect, option.requested, option.applied) == ("rounding", "fp16", "fp32")
    assert reports.metrics(conn, 1) == {"mrr": 0.5}
    (event,) = reports.events(conn, 1)
    assert event.body["settings"] == {"card": 3}  # a person's own name stays
    assert event.body["fallback"]["effect"] == "changes results"
    assert [one.head for one in influences.tests_of(conn, 1)] == ["h"]
    (kept,) = measurements.named(conn, "step")
    assert kept.fingerprint["gpus"] == OLD_MACHINE["cards"]
    bench = benches.get(conn, 1)
    assert bench is not None and bench.fingerprint == kept.machine == measurements.fingerprint_key(
        kept.fingerprint
    )
    (pair,) = benches.pairs(conn, 1)
    precision = {"requested": "fp16", "applied": "fp32", "why": None}
    assert pair.baseline == {"options": {"precision": precision}, "metrics": {"card": 1.0}}
    assert len(conn.execute("SELECT key FROM fingerprint").fetchall()) == 1
    assert [found.id for found in run_list.page(conn, run_list.Filter(words="old"))] == []
    conn.close()


def test_an_old_plan_file_and_an_old_job_file_are_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    plan = Plan(1, "train", "old", None, 1.0, [], "/", None, None, False, 1, 1.0, 1.0)
    table = {**as_table(plan), "rungs": [{}, {"batch_size": 2}], "ladder": [], "gpu": "0"}
    for name in ("attempt_settings", "fallbacks", "gpu_request"):
        del table[name]
    write_json(folder.plan, table)
    plan = read_plan(folder)
    assert (plan.attempt_settings, plan.gpu_request) == ([{}, {"batch_size": 2}], "0")
    old = {"workload": "train", "train": {"dataset": "nations"}, "levers": {"batch_size": 8}}
    job = read_job(old | {"card": {"gpu": "1"}}, "an old file")
    assert (job.options["batch_size"], job.gpu.wanted) == (8, "1")


def test_six_processes_create_the_database_together(tmp_path: Path) -> None:
    database, gate = tmp_path / "kgops.db", tmp_path / "gate"
    code = (
        "import os, sys, time\nfrom pathlib import Path\nimport sqlite_utils\n"
        "from storage import runs\nfrom storage.database import open_writer, transaction\n"
        f"print('ready', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.001)\n"
        f"conn = open_writer(Path({str(database)!r}))\n"
        "with transaction(conn):\n"
        "    n = runs.next_number(conn)\n"
        "    runs.add(conn, number=n, workload='exec', label='x', profile=None, state='queued', folder=str(n),\n"
        "             submitted_at=0.0, gpu_request=None, reserved_mib=None, exclusive=False, predicted_mib=None,\n"
        "             spec=runs.RunSpec({}, {}, {}))\n"
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


def test_database_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path, empty_database: Path) -> None:
    path = tmp_path / "kgops.db"
    path.write_bytes(empty_database.read_bytes())
    conn = sqlite3.connect(path)
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    conn.close()
    before = path.read_bytes()
    for opening in (open_writer, open_reader):
        with pytest.raises(DatabaseNewer, match=f"schema {SCHEMA_VERSION + 1}") as caught:
            opening(path)
        assert caught.value.exit_code == 1
        assert "upgrade kgops" in (caught.value.hint or "")
    assert path.read_bytes() == before


def test_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kgops.db"
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE claim (something_else)")  # in the way of the migration's last tables
    conn.commit()
    conn.close()
    with pytest.raises(DatabaseDamaged, match="claim"):
        open_writer(path)
    conn = sqlite3.connect(path)
    assert {row[0] for row in conn.execute("SELECT name FROM sqlite_master")} <= {
        "claim",
        "_sqlite_migrations",
    }
    assert conn.execute("PRAGMA user_version").fetchone() == (0,)
    conn.close()


def test_without_a_database_a_reader_says_so_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing):
        open_reader(tmp_path / "kgops.db")
    assert list(tmp_path.iterdir()) == []


def test_summary_is_readable_by_plain_sqlite(of_schema_001: Path) -> None:
    plain = sqlite3.connect(f"{of_schema_001.as_uri()}?mode=ro", uri=True)
    plain.row_factory = sqlite3.Row
    rows = [dict(row) for row in plain.execute("SELECT * FROM run_summary ORDER BY id")]
    plain.close()
    assert [(row["id"], row["state"]) for row in rows][:2] == [(1, "succeeded"), (2, "failed")]
    assert rows[0]["tags"] == "baseline paper"
    assert (rows[0]["submitted"], rows[0]["seconds"]) == ("2025-11-21 02:40:01", 15.0)
    assert json.loads(json.dumps(rows))
