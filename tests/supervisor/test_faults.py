"""Disks that fill, homes that cannot be written, databases that are locked, and text that means harm:
a clear message, the right exit code, and nothing lost."""

import shlex
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from disks import Disk, console_on_disk, small_disk
from driving import QUICK, Console, all_of, end_all_of, files_of_runs, is_clear, patience, wait_for
from records import add

from kgops.supervisor import processes
from storage import attempts, series
from storage.database import open_reader, open_writer
from storage.errors import DatabaseFull


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Disk, Console]]:
    """A console whose home is on a small disk, with one run that succeeded."""
    with console_on_disk(tmp_path) as (disk, console):
        assert console("run", "exec", "--label", "first", "--", "sh", "-c", "echo hello").code == 0
        wait_for(lambda: not all_of(console.home), "its supervisor to leave")
        yield disk, console


def test_full_disk_refuses_a_launch_and_leaves_nothing_half_made(small: tuple[Disk, Console]) -> None:
    disk, on_disk = small
    before = files_of_runs(on_disk)
    disk.fill()
    refused = on_disk("run", "exec", "--", "true")
    assert refused.code == 1
    assert is_clear(refused.err), refused.err
    assert "space" in refused.err
    listed = on_disk("runs", "--json")
    assert (listed.code, [run["label"] for run in listed.json()]) == (0, ["first"]), listed.err
    assert on_disk("logs", "1").out == "hello\n"
    disk.free()
    assert on_disk("run", "exec", "--label", "second", "--", "true").code == 0
    assert [run["label"] for run in on_disk("runs", "--json").json()] == ["second", "first"]
    assert len(files_of_runs(on_disk)) == len(before) + 1
    assert list((on_disk.home / "pending").iterdir()) == []


@pytest.mark.parametrize("supervisor_dies", [False, True], ids=["", "and its supervisor dies"])
def test_end_on_a_full_disk_is_not_lost(small: tuple[Disk, Console], supervisor_dies: bool) -> None:
    disk, on_disk = small
    point = """echo '{"event": "metric", "name": "loss", "value": 0.5, "step": 1}' >> $KGOPS_EVENTS"""
    script = f"{point}; while [ ! -e gate ]; do sleep 0.05; done; exit 7"
    number = on_disk.detach("sh", "-c", script)
    wait_for(lambda: on_disk.show(number)["series"] or None, "the first point")
    disk.fill()
    (on_disk.cwd / "gate").touch()
    gone = [who for who in all_of(on_disk.home) if not processes.is_supervisor(who.pid)]
    wait_for(lambda: not any(who.is_alive() for who in gone), "the worker to end")
    wait_for(
        lambda: (
            b"exit code 7" in (on_disk.folder(number) / "outcome.slot").read_bytes()
            or b"again" in (on_disk.folder(number) / "supervisor.log").read_bytes()
            or not all_of(on_disk.home)
        ),
        "the supervisor to decide",
    )
    if supervisor_dies:
        end_all_of(on_disk.home)
        looked = on_disk.must("runs")
        assert "Traceback" not in looked.err
    disk.free()
    if supervisor_dies:
        assert on_disk("runs").code == 0
    run = on_disk.ended(number)
    assert (run.state, run.exit_code, run.reason) == ("failed", 7, "exit code 7")
    assert [(s["name"], s["n"]) for s in on_disk.show(number)["series"] if s["name"] == "loss"] == [
        ("loss", 1)
    ]


def test_full_disk_in_the_middle_of_a_large_batch_is_told_as_such(tmp_path: Path) -> None:
    points = [series.Point("loss", float(i), 0.5, 0.0) for i in range(400_000)]
    with small_disk(tmp_path / "disk") as disk, closing(open_writer(disk.path / "kgops.db")) as conn:
        add(conn, 1)
        with pytest.raises(DatabaseFull):
            attempts.write_batch(conn, 1, 1, attempts.Batch(points=points), attempts.Offsets(9, 9))
        assert not conn.in_transaction
        assert attempts.offsets(conn, 1) == attempts.Offsets(0, 0)
        assert series.of_run(conn, 1) == []


def test_read_only_home_can_still_be_read(small: tuple[Disk, Console]) -> None:
    disk, on_disk = small
    on_disk.going("sleep", "300")
    end_all_of(on_disk.home)
    disk.remount("ro")
    for args in (
        ["runs"],
        ["runs", "--json"],
        ["show", "1"],
        ["show", "last"],
        ["logs", "1"],
        ["tag", "1"],
        ["note", "1"],
    ):
        done = on_disk.must(*args)
        assert "Traceback" not in done.err
    assert on_disk("logs", "1").out == "hello\n"
    assert "may be outdated" in on_disk("runs").err
    for args in (["run", "exec", "--", "true"], ["tag", "1", "x"], ["delete", "1", "--yes"], ["stop", "1"]):
        refused = on_disk(*args)
        assert refused.code == 1, args
        assert is_clear(refused.err), refused.err
        assert "Read-only file system" in refused.err
    disk.remount("rw")
    assert {run["state"] for run in on_disk("runs", "--json").json()} == {"succeeded", "interrupted"}


# --- the database ---------------------------------------------------------------------------------


def test_locked_database_blocks_no_worker_and_loses_nothing(run_cli: Console, tmp_path: Path) -> None:
    worker = (
        "import json, os, time\n"
        "while not os.path.exists('gate'): time.sleep(0.01)\n"
        "with open(os.environ['KGOPS_EVENTS'], 'a', buffering=1) as file:\n"
        "    for i in range(200):\n"
        "        print(json.dumps({'event': 'metric', 'name': 'loss', 'value': i, 'step': i}), file=file)\n"
        "        time.sleep(0.003)\n"
        "open('done', 'w').close()\n"
    )
    number = run_cli.going(*QUICK, worker)
    locker = open_writer(run_cli.home / "kgops.db")
    locker.execute("BEGIN EXCLUSIVE")
    (tmp_path / "gate").touch()
    waiting = run_cli.start("run", "exec", "--detach", "--", "true")
    wait_for((tmp_path / "done").exists, "the worker, which waits for nobody")
    time.sleep(0.5)  # no proof: only so that the end of the run falls into the lock too
    assert run_cli("runs").code == 0  # readers do not wait
    locker.execute("ROLLBACK")
    locker.close()
    out, err = waiting.communicate(timeout=patience())
    assert (waiting.returncode, out) == (0, b"2\n"), err
    assert run_cli.ended(number).state == "succeeded"
    assert run_cli.ended(2).state == "succeeded"
    conn = open_reader(run_cli.home / "kgops.db")
    assert [p.value for p in series.points(conn, number, "loss")] == list(range(200))
    conn.close()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("PRAGMA user_version = 99", ["was written by a newer kgops (schema 99", "upgrade kgops"]),
        ("PRAGMA user_version = 7", ["has schema 7", "kgops export", "kgops import"]),
        (None, ["is damaged"]),
    ],
    ids=["newer", "older", "damaged"],
)
def test_database_that_is_not_ours_to_use_is_refused(
    run_cli: Console, harm: str | None, said: list[str]
) -> None:
    database = run_cli.home / "kgops.db"
    if harm is None:
        database.write_bytes(b"this is no database" * 1000)
    else:
        conn = sqlite3.connect(database)
        conn.execute(harm)
        conn.close()
    before = database.read_bytes()
    for args in (["runs"], ["runs", "--json"], ["show", "1"], ["run", "exec", "--", "true"], ["logs", "1"]):
        done = run_cli(*args)
        assert (done.code, done.out) == (1, ""), args
        assert is_clear(done.err), done.err
        assert all(text in done.err for text in [str(database), *said]), done.err
    assert database.read_bytes() == before


def test_working_folder_that_was_removed_is_named(run_cli: Console, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    argv = shlex.join(run_cli.argv("run", "exec", "--", "true"))
    done = subprocess.run(
        ["sh", "-c", f"rmdir {shlex.quote(str(lost))}; exec {argv}"],
        env=run_cli.environment(),
        capture_output=True,
        text=True,
        cwd=lost,
    )
    assert done.returncode == 2, done.stderr
    assert is_clear(done.stderr), done.stderr
