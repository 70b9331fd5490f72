"""A database that is locked or damaged while commands wait for runs: they answer, and the folders have the ends."""

import os
import signal
import threading
from pathlib import Path

import pytest
from driving import Console, is_clear, patience, wait_for
from records import add

from kgops.settings import Home
from kgops.supervisor import pending, processes
from storage.database import open_writer

_STUBBORN = "trap '' TERM; echo > ready; while [ ! -e go ]; do sleep 0.05; done"


def test_following_a_run_whose_database_is_damaged_ends_with_a_sentence(run_cli: Console) -> None:
    following = run_cli.start("run", "exec", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    wait_for(lambda: (run := run_cli.run(1)) is not None and run.state == "running", "the run")
    with (run_cli.home / "kgops.db").open("r+b") as file:
        file.write(os.urandom(os.fstat(file.fileno()).st_size))
    (run_cli.cwd / "go").touch()
    _, err = following.communicate(timeout=patience())
    assert following.returncode == 1
    assert is_clear(err.decode()), err
    assert "is damaged" in err.decode()


def test_stop_answers_while_the_database_is_locked(run_cli: Console) -> None:
    number = run_cli.detach("sh", "-c", _STUBBORN, flags=("--exclusive",))
    wait_for((run_cli.cwd / "ready").exists, "the worker")
    run_cli.running(number)
    waiting = run_cli.detach("true")
    locker = open_writer(run_cli.home / "kgops.db")
    locker.execute("BEGIN IMMEDIATE")
    stopped = run_cli("stop", str(number), str(waiting), "--grace", "0")
    assert (stopped.code, stopped.out) == (0, f"run {number}: cancelled\nrun {waiting}: cancelled\n")
    assert f"run {number} has ended; only its folder says so" in stopped.err
    locker.execute("ROLLBACK")
    locker.close()
    assert run_cli("runs").code == 0
    assert {run_cli.ended(one).state for one in (number, waiting)} == {"cancelled"}


def test_stop_answers_when_the_supervisor_is_stopped_again_and_again(run_cli: Console) -> None:
    number = run_cli.detach("sh", "-c", _STUBBORN)
    wait_for((run_cli.cwd / "ready").exists, "the worker")
    supervisor = run_cli.supervisor(number)
    over = threading.Event()

    def stop_it() -> None:
        while not over.wait(0.005):
            processes.send(supervisor, signal.SIGSTOP)

    stopping = threading.Thread(target=stop_it)
    stopping.start()
    stopped = run_cli("stop", str(number), "--grace", "0")
    over.set()
    stopping.join()
    if stopped.code:  # else it was quicker between two signals
        assert is_clear(stopped.err), stopped.err
        assert f"PID {supervisor.pid}" in stopped.err
    processes.send(supervisor, signal.SIGCONT)
    assert run_cli.ended(number).state == "cancelled"


def test_launch_that_commits_meanwhile_is_not_called_lost(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer, listdir = open_writer(home / "kgops.db"), open_writer(home / "kgops.db"), os.listdir

    def launch_and_list(path: Path) -> list[str]:
        monkeypatch.undo()
        (home / "runs/0001-exec").mkdir()
        add(writer, 1)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", launch_and_list)
    assert pending.folders_past_the_record(Home(home), reader) == []
    (home / "runs/0007-exec").mkdir()
    assert pending.folders_past_the_record(Home(home), reader) == ["0007-exec"]
    reader.close()
    writer.close()
