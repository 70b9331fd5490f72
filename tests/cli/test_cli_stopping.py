"""Runs that are stopped, with all they have started, go on again, wait for each other, and leave a run inside alone."""

import shlex
import signal
from pathlib import Path

import pytest
from driving import QUICK, Console, all_of, end_all_of, identity_in, wait_for

from kgops.supervisor import processes
from kgops.supervisor.processes import Identity

# --- stopping -------------------------------------------------------------------------------------


def test_stop_asks_first_and_a_worker_that_answers_is_cancelled_not_succeeded(run_cli: Console) -> None:
    script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    number = run_cli.detach("bash", "-c", script)
    log = run_cli.folder(number) / "worker.log"
    wait_for(lambda: b"ready" in log.read_bytes() if log.exists() else None, "the worker")
    done = run_cli("stop", str(number))
    assert (done.code, done.out) == (0, f"run {number}: cancelled\n")
    assert b"saved" in log.read_bytes()
    run = run_cli.row(number)
    assert (run.state, run.exit_code) == ("cancelled", 0)
    assert run_cli("run", "exec", "--", "true").code == 0  # nothing of it stands in the way


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def mark(name):
    with open(name + ".tmp", "w") as file:
        file.write(f"{os.getpid()}\\n")
    os.rename(name + ".tmp", name)
def child(name, *, own_session=False, close=False, orphan=False, forget=False):
    if os.fork():
        os.wait() if orphan else None
        return
    if own_session:
        os.setsid()
    if orphan and os.fork():
        os._exit(0)
    if close:
        os.closerange(3, 4096)
    if forget:
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", FORGETFUL, name], {})
    mark(name)
    time.sleep(300)
    os._exit(0)
FORGETFUL = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); f = open(sys.argv[1] + '.tmp', 'w');" \\
    "print(os.getpid(), file=f); f.close(); os.rename(sys.argv[1] + '.tmp', sys.argv[1]); time.sleep(300)"
child("plain")
child("session", own_session=True)
child("closed", own_session=True, close=True)
child("orphan", own_session=True, close=True, orphan=True)
child("forgetful", own_session=True, orphan=True, forget=True)
child("ghost", own_session=True, close=True, orphan=True, forget=True)
mark("parent")
time.sleep(300)
"""
MEMBERS = ("plain", "session", "closed", "orphan", "forgetful", "ghost", "parent")


@pytest.mark.parametrize("through_a_link", [False, True], ids=["", "home is a symbolic link"])
def test_stop_ends_the_whole_tree_after_the_grace(
    run_cli: Console, tmp_path: Path, through_a_link: bool
) -> None:
    if through_a_link:
        link = tmp_path / "link"
        link.symlink_to(run_cli.home)
        env = {"KGOPS_HOME": str(link)}
    else:
        env = {}
    number = run_cli.detach(*QUICK, FAMILY, flags=("--grace", "0.3"), env=env)
    family = {name: identity_in(run_cli.cwd / name) for name in MEMBERS}
    try:
        done = run_cli("stop", str(number), env=env)
        left = [name for name, who in family.items() if who.is_alive()]
    finally:
        for who in family.values():
            processes.send(who, signal.SIGKILL)
    assert left == []
    assert done.out == f"run {number}: cancelled\n"
    wait_for(lambda: not all_of(run_cli.home), "the supervisor to leave")


def test_whoever_survives_supervisor_gate_and_worker_is_ended(run_cli: Console) -> None:
    """All of these die at once, and nobody knows any more whose child the others were."""
    number = run_cli.detach(*QUICK, FAMILY, flags=("--grace", "0.3", "--attempts", "1"))
    family = {name: identity_in(run_cli.cwd / name) for name in MEMBERS}
    run_cli.running(number)
    try:
        kept = {family["ghost"], family["forgetful"]}
        end_all_of(run_cli.home, but=kept)
        assert all(who.is_alive() for who in kept)
        assert run_cli("runs").code == 0
        assert run_cli.ended(number).state == "interrupted"
        left = [name for name, who in family.items() if who.is_alive()]
    finally:
        for who in family.values():
            processes.send(who, signal.SIGKILL)
    assert left == []


def test_what_a_worker_leaves_running_ends_with_it(run_cli: Console) -> None:
    script = "setsid sleep 300 & echo $! > child; exit 0"
    number = run_cli.detach("sh", "-c", script)
    assert run_cli.ended(number).state == "succeeded"
    assert not Path(f"/proc/{(run_cli.cwd / 'child').read_text().strip()}").exists()


def test_grandchild_that_saves_its_work_gets_the_whole_grace(run_cli: Console) -> None:
    saving = "trap 'sleep 0.6; echo saved > saved; exit 0' TERM; echo > ready; while :; do sleep 0.05; done"
    (run_cli.cwd / "train.sh").write_text(saving)
    # Longer than this test may take: who is done sooner is not waited for.
    number = run_cli.detach("bash", "-c", "bash train.sh; echo over", flags=("--grace", "600"))
    wait_for((run_cli.cwd / "ready").exists, "the grandchild")
    assert run_cli("stop", str(number)).out == f"run {number}: cancelled\n"
    assert (run_cli.cwd / "saved").exists()


def test_second_stop_with_less_grace_is_heeded(run_cli: Console) -> None:
    number = run_cli.detach("bash", "-c", "trap '' TERM; echo > ready; while :; do sleep 0.05; done")
    wait_for((run_cli.cwd / "ready").exists, "the worker")
    assert run_cli("stop", str(number), "--no-wait").out == f"run {number}: asked to stop\n"
    wait_for((run_cli.folder(number) / "attempts/1/asked-to-stop").exists, "the first request to be seen")
    done = run_cli("stop", str(number), "--grace", "0.1")
    assert done.out == f"run {number}: cancelled\n"


def test_resume_makes_a_new_attempt_in_the_same_run(run_cli: Console) -> None:
    done = run_cli("run", "exec", "--", "sh", "-c", "echo attempt $KGOPS_ATTEMPT; [ $KGOPS_ATTEMPT = 2 ]")
    assert done.code == 1
    resumed = run_cli("resume", "1")
    assert (resumed.code, resumed.err) == (0, "attempt 2\n")
    shown = run_cli.show(1)
    assert (shown["state"], shown["attempts"]) == ("succeeded", 2)
    assert [a["outcome"] for a in shown["attempt"]] == ["failed", "succeeded"]
    refused = run_cli("resume", "1")
    assert (refused.code, "--again 1" in refused.err) == (2, True)


def test_worker_knows_that_its_run_was_forced_also_after_a_resume(run_cli: Console) -> None:
    inside = shlex.join(run_cli.argv("run", "exec", "--", "sh", "-c", "echo 2:$KGOPS_FORCE"))
    forced = run_cli(
        "run", "exec", "--force", "--", "sh", "-c", f"echo 1:$KGOPS_FORCE; {inside}; [ $KGOPS_ATTEMPT = 2 ]"
    )
    assert ("1:1\n" in forced.err, "2:\n" in forced.err) == (True, True), forced.err
    resumed = run_cli("resume", "1")
    assert (resumed.code, "1:1\n" in resumed.err) == (0, True)


def nested(run_cli: Console, after: str, *, flags: tuple[str, ...] = ()) -> tuple[int, int, Identity]:
    """Outer and inner number, and the inner worker. `after` is what the outer does when it has started it."""
    inner = run_cli.argv("run", "--detach", "exec", "--", "sh", "-c", "echo $$ > inner; exec sleep 300")
    outer = run_cli.detach("sh", "-c", f"{shlex.join(inner)} > number; {after}", flags=flags)
    worker = identity_in(run_cli.cwd / "inner")
    number = wait_for(lambda: (run_cli.cwd / "number").read_text().strip(), "the inner run's number")
    return outer, int(number), worker


@pytest.mark.parametrize("how", ["succeeds", "fails", "is stopped", "is killed"])
def test_end_of_the_outer_run_does_not_touch_the_inner_one(run_cli: Console, how: str) -> None:
    after = {"succeeds": "exit 0", "fails": "exit 3"}.get(how, "sleep 300")
    outer, inner, worker = nested(run_cli, after, flags=("--grace", "0.2"))
    run_cli.running(inner)
    supervisor = run_cli.supervisor(inner)
    if how == "is stopped":
        assert run_cli("stop", str(outer)).out == f"run {outer}: cancelled\n"
    if how == "is killed":
        gate = run_cli.show(outer)["attempt"][0]["worker_pid"]
        for pid in processes.children(gate):
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
    supervisor = run_cli.supervisor(inner)
    processes.send(supervisor, signal.SIGKILL)
    wait_for(lambda: not supervisor.is_alive(), "the inner supervisor to die")
    assert run_cli("stop", str(outer)).out == f"run {outer}: cancelled\n"
    assert worker.is_alive()
    wait_for(lambda: run_cli.show(inner)["attempt"][0]["adoptions"] == 1, "its adoption")
    assert worker.is_alive()
    assert run_cli("stop", str(inner)).out == f"run {inner}: cancelled\n"
