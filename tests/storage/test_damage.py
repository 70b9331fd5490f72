"""A damaged database: what is whole is shown, doctor names the rest, and no command ends in a traceback or hangs."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from damaging import __file__ as script
from driving import QUICK, Console, patience, wait_for

from kgops.supervisor import locks
from kgops.supervisor.run_folder import RunFolder
from storage.database import open_reader

# With KGOPS_DAMAGES=N, N of them, for instance 1000.
_DAMAGES = int(os.environ.get("KGOPS_DAMAGES", "30"))


def test_no_damage_of_a_byte_or_a_page_ends_in_a_traceback_or_hangs(tmp_path: Path) -> None:
    argv = [sys.executable, script, str(tmp_path), str(_DAMAGES)]
    done = subprocess.run(argv, capture_output=True, timeout=patience() * (1 + _DAMAGES // 100))
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-4000:]
    report = json.loads(done.stdout)
    assert report["faults"] == []
    assert report["ends"]["runs: shown"] > _DAMAGES // 2, report["ends"]


def _change(console: Console, *statements: str) -> None:
    conn = sqlite3.connect(console.home / "kgops.db", isolation_level=None)
    conn.execute("PRAGMA ignore_check_constraints = ON")
    for statement in statements:
        conn.execute(statement)
    conn.close()


def test_damaged_rows_are_shown_named_and_taken_again_from_folders(run_cli: Console) -> None:
    for label in ("one", "two", "three"):
        events = 'echo \'{"event": "metric", "name": "loss", "value": 2, "step": 1}\' > $KGOPS_EVENTS'
        assert run_cli("run", "exec", "--label", label, "--", "sh", "-c", events).code == 0
    assert run_cli("tag", "1", "keep").code == 0
    _change(
        run_cli,
        "UPDATE run SET label = cast(x'61ff62' AS TEXT) WHERE id = 1",
        "UPDATE run_spec SET plan = cast(x'7b22ff' AS TEXT) WHERE run = 2",
        "DELETE FROM run_spec WHERE run = 3",
        "UPDATE series SET name = cast(x'6cff73' AS TEXT) WHERE run = 3 AND name = 'loss'",
    )
    assert [run["label"] for run in run_cli("runs", "--json").json()] == ["three", "two", "a\ufffdb"]
    assert "l\ufffds" in run_cli("show", "3").out
    for args in (["show", "2"], ["stop", "2"], ["show", "3", "--json"], ["compare", "1", "2"]):
        done = run_cli(*args)
        assert (done.code, "Traceback" in done.err) == (0, False), done.err
    named = run_cli("doctor")
    assert named.code == 1
    assert "table run, row 1, column label: byte 1 of the text is damaged, and 3 others" in named.out
    assert "3 damaged runs repaired from their folders: 1, 2, 3" in run_cli("doctor", "--rebuild").out
    assert "damaged" not in run_cli("doctor").out
    run = run_cli.row(1)
    assert (run.label, run.state, run_cli("tag", "1").out) == ("one", "succeeded", "keep\n")
    assert "loss" in run_cli("show", "3").out


@pytest.mark.parametrize("harm", ["pages", "header"])
def test_a_run_is_stopped_by_its_folder_and_true_after_a_rebuild(run_cli: Console, harm: str) -> None:
    waits = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nopen('ready', 'w')\nsignal.pause()"
    worker = f"import signal, sys\n{waits}"
    number = run_cli.detach(*QUICK, worker)
    wait_for((run_cli.cwd / "ready").exists, "the worker")
    run_cli.running(number)
    folder = RunFolder(run_cli.folder(number))
    database = run_cli.home / "kgops.db"
    with database.open("r+b") as file:  # in place: the supervisor has it open
        file.seek(0 if harm == "header" else 4096)
        file.write(bytes(100 if harm == "header" else database.stat().st_size - 4096))
    database.with_name("kgops.db-wal").unlink(missing_ok=True)
    for args in (["runs"], ["show", "1"], ["doctor"]):
        done = run_cli(*args)
        assert (done.code, "Traceback" in done.err) == (1, False), done.err
        assert str(database) in done.out + done.err
    stopped = run_cli.must("stop", str(number))
    # "cancelled" where the supervisor had read enough of the database to decide the end.
    assert stopped.out in (f"run {number}: stopped\n", f"run {number}: cancelled\n")
    wait_for(lambda: not locks.is_held(folder.supervisor_lock), "the supervisor, which leaves")
    for path in run_cli.home.glob("kgops.db*"):
        path.rename(run_cli.cwd / path.name)
    assert f"1 runs restored: {number}" in run_cli("doctor", "--rebuild").out
    assert run_cli("runs").code == 0
    run = run_cli.row(number)
    assert (run.state, run.exit_code) == ("cancelled", 7)


def test_damaged_text_is_read_by_every_kind_of_fetch(home: Path, conn: sqlite3.Connection) -> None:
    conn.execute(
        "INSERT INTO gpu (uuid, name) VALUES ('a', 'T4'), ('b', cast(x'54ff' AS TEXT)), ('c', 'A100')"
    )
    expected = [("T4",), ("T\ufffd",), ("A100",)]
    for how in ("fetchall", "fetchone", "iterate"):
        reader = open_reader(home / "kgops.db")
        rows = reader.execute("SELECT name FROM gpu ORDER BY uuid")
        if how == "fetchall":
            assert rows.fetchall() == expected
        elif how == "fetchone":
            assert [rows.fetchone() for _ in range(4)] == [*expected, None]
        else:
            assert list(rows) == expected
        reader.close()
