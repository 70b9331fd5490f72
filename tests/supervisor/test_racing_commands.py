"""Commands that meet: deletions, a resume, launches and whoever settles; and a supervisor that does not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from driving import Console, identity_in, is_clear, wait_for

from kgops.settings import Home
from kgops.supervisor import locks, pending, processes

_MANY = 6


def _together(console: Console, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    children = [console.start(*args) for args in commands]
    ended = [(child.communicate(), child.returncode) for child in children]
    return [(code, err.decode()) for (_, err), code in ended]


def test_concurrent_deletions_of_one_run_end_in_sentences(run_cli: Console) -> None:
    for _ in range(3):
        assert run_cli("run", "exec", "--json", "--", "true").code == 0
    ended = _together(run_cli, *[("delete", "1", "2", "--yes")] * _MANY)
    assert 0 in {code for code, _ in ended} or all(is_clear(err) for _, err in ended)
    for _, err in ended:
        assert "Traceback" not in err, err
    run_cli("delete", "1", "2", "--yes")
    assert [run["id"] for run in run_cli("runs", "--json").json()] == [3]
    assert [path.name[:4] for path in (run_cli.home / "runs").iterdir()] == ["0003"]
    assert not list((run_cli.home / "pending").iterdir())


def test_resume_beside_deletions_leaves_the_run_whole_or_gone(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "false").code == 1
    ended = _together(run_cli, *[("resume", "1"), ("delete", "1", "--yes")] * 3)
    for _, err in ended:
        assert "Traceback" not in err, err
    left = run_cli("runs", "--json").json()
    folders = list((run_cli.home / "runs").iterdir())
    assert len(left) == len(folders)
    if left:
        assert run_cli.ended(1).state == "failed"


def test_what_cannot_be_removed_keeps_its_run_and_is_named(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--", "sh", "-c", "touch $KGOPS_RUN_FOLDER/results/kept").code == 0
    kept = run_cli.folder(1) / "results" / "kept"
    if subprocess.run(["chattr", "+i", str(kept)], capture_output=True).returncode:
        pytest.skip("no file can be made immutable here")
    try:
        deleted = run_cli("delete", "1", "--yes")
        assert deleted.code == 1
        assert is_clear(deleted.err), deleted.err
        assert "results/kept: Operation not permitted" in deleted.err
        assert [run["id"] for run in run_cli("runs", "--json").json()] == [1]
        assert kept.exists()
    finally:
        subprocess.run(["chattr", "-i", str(kept)], check=True)
    assert run_cli("delete", "1", "--yes").code == 0
    assert not list((run_cli.home / "runs").iterdir())


def test_folders_that_a_worker_closed_are_deleted_too(run_cli: Console) -> None:
    script = "cd $KGOPS_RUN_FOLDER/results; mkdir -p a/b; touch a/b/c; chmod 0 a"
    assert run_cli("run", "exec", "--", "sh", "-c", script).code == 0
    assert run_cli("delete", "1", "--yes").code == 0
    assert not list((run_cli.home / "runs").iterdir())


def test_marker_taken_by_somebody_who_settles_is_made_again(home: Path) -> None:
    """The other one opened it before we locked it, holds the lock for a moment, and removes the file."""
    marker = home / "pending" / "0007-exec.new"
    taken = locks.take(marker)
    assert taken is not None
    released = threading.Event()

    def settle() -> None:
        marker.unlink()
        os.close(taken)
        released.set()

    later = threading.Timer(0.2, settle)
    later.start()
    with pending.announce(Home(home), "0007-exec", "launch"):
        assert released.is_set()
        assert locks.is_held(marker)
    later.join()
    assert not marker.exists()


def test_stopped_supervisor_is_woken_by_a_stop(run_cli: Console) -> None:
    number = run_cli.detach("sh", "-c", "echo $$ > pid; sleep 300")
    worker = identity_in(run_cli.cwd / "pid")
    run_cli.running(number)
    (supervisor,) = processes.holders(run_cli.folder(number) / "supervisor.lock")
    processes.send(supervisor, signal.SIGSTOP)
    wait_for(lambda: processes.is_stopped(supervisor.pid), "the supervisor to be stopped")
    stopped = run_cli("stop", str(number), "--grace", "0")
    assert (stopped.code, run_cli.show(number)["state"]) == (0, "cancelled"), stopped.err
    assert not worker.is_alive()


def test_pipes_of_a_worker_end_as_in_any_shell(run_cli: Console) -> None:
    """Python ignores SIGPIPE, and what it starts must not inherit that."""
    done = run_cli(
        "run", "exec", "--", "bash", "-c", "set -o pipefail; yes | head -n 1; echo ${PIPESTATUS[0]}"
    )
    assert "yes" not in run_cli("logs", "1").out
    assert run_cli("logs", "1").out.splitlines()[0] == "y"
    assert done.code == 0
