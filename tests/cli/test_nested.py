"""A run started inside a run is a run of its own: whatever happens to the outer one does not touch it."""

from __future__ import annotations

import shlex
import signal

import pytest
from driving import Console, all_of, identity_in, wait_for

from kgops.supervisor import processes
from kgops.supervisor.processes import Identity
from storage import attempts
from storage.database import open_reader


def nested(run_cli: Console, after: str, *, flags: tuple[str, ...] = ()) -> tuple[int, int, Identity]:
    """Outer and inner number, and the inner worker. `after` is what the outer does when it has started it."""
    inner = run_cli.argv("run", "--detach", "exec", "--", "sh", "-c", "echo $$ > inner; exec sleep 300")
    outer = run_cli.detach("sh", "-c", f"{shlex.join(inner)} > number; {after}", flags=flags)
    worker = identity_in(run_cli.cwd / "inner")
    number = wait_for(lambda: (run_cli.cwd / "number").read_text().strip(), "the inner run's number")
    return outer, int(number), worker


def supervisor_of(run_cli: Console, number: int) -> Identity:
    conn = open_reader(run_cli.home / "kgops.db")
    (attempt,) = attempts.of_run(conn, number)
    conn.close()
    assert attempt.adoptions == 0
    who = processes.identify(attempt.supervisor_pid or 0)
    assert who is not None, f"run {number} has no supervisor"
    return who


@pytest.mark.parametrize("how", ["succeeds", "fails", "is stopped", "is killed"])
def test_end_of_the_outer_run_does_not_touch_the_inner_one(run_cli: Console, how: str) -> None:
    after = {"succeeds": "exit 0", "fails": "exit 3"}.get(how, "sleep 300")
    outer, inner, worker = nested(run_cli, after, flags=("--grace", "0.2"))
    run_cli.running(inner)
    supervisor = supervisor_of(run_cli, inner)
    if how == "is stopped":
        assert run_cli("stop", str(outer)).out == f"run {outer}: cancelled\n"
    if how == "is killed":
        conn = open_reader(run_cli.home / "kgops.db")
        (attempt,) = attempts.of_run(conn, outer)
        conn.close()
        for pid in processes.children(attempt.worker_pid or 0):
            who = processes.identify(pid)
            assert who is not None
            processes.send(who, signal.SIGKILL)
    ended = run_cli.ended(outer)
    wanted = {
        "succeeds": "succeeded",
        "fails": "failed",
        "is stopped": "cancelled",
        "is killed": "interrupted",
    }
    assert ended.state == wanted[how]
    wait_for(lambda: len(all_of(run_cli.home)) == 3, "only inner supervisor, gate and worker to be left")
    assert supervisor.is_alive()
    assert worker.is_alive()
    assert run_cli("stop", str(inner)).out == f"run {inner}: cancelled\n"
    wait_for(lambda: not all_of(run_cli.home), "everybody to leave")


def test_inner_worker_whose_supervisor_was_killed_survives_the_outer_run(run_cli: Console) -> None:
    outer, inner, worker = nested(run_cli, "sleep 300", flags=("--grace", "0.2"))
    run_cli.running(inner)
    supervisor = supervisor_of(run_cli, inner)
    processes.send(supervisor, signal.SIGKILL)
    wait_for(lambda: not supervisor.is_alive(), "the inner supervisor to die")
    assert run_cli("stop", str(outer)).out == f"run {outer}: cancelled\n"
    assert worker.is_alive()
    wait_for(lambda: run_cli.show(inner)["attempt"][0]["adoptions"] == 1, "its adoption")
    assert worker.is_alive()
    assert run_cli("stop", str(inner)).out == f"run {inner}: cancelled\n"
