"""Ends that would be lies: a result that belongs to another run, a kill for memory that hit somebody else."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from driving import Console, all_of, is_clear

from kgops.supervisor.attempt_end import Observations, _was_killed
from kgops.supervisor.gate import Exit

_COPY = 'cp -r "$KGOPS_HOME"/runs/0001-*/results/. "$KGOPS_RUN_FOLDER/results/"; '


@pytest.mark.parametrize(
    ("then", "state", "reason"),
    [("exit 1", "failed", "exit code 1"), ("kill -SEGV $$", "failed", "crashed: SIGSEGV")],
)
def test_manifest_that_was_copied_in_makes_no_success(
    run_cli: Console, then: str, state: str, reason: str
) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    ended = run_cli("run", "exec", "--json", "--", "sh", "-c", _COPY + then).json()
    assert (ended["state"], ended["reason"]) == (state, reason)


def test_training_without_its_own_result_failed_whatever_lies_there(run_cli: Console, tmp_path: Path) -> None:
    """A worker that ends well and writes nothing, in a folder with the result of a run before it."""
    train = ("run", "train", "--dataset", "nations", "--num-epochs", "1", "--embedding-dim", "8", "--json")
    first = run_cli(*train).json()
    assert first["state"] == "succeeded"
    folder = run_cli.folder(first["id"])
    stale = json.loads((folder / "results" / "manifest.json").read_text())
    spoiling = tmp_path / "spoiled"
    spoiling.mkdir()
    (spoiling / "sitecustomize.py").write_text(
        textwrap.dedent(
            f"""
            import os, pathlib, shutil, sys
            if "kgops.maths.train.worker" in " ".join(sys.orig_argv):
                shutil.copytree({str(folder / "results")!r}, os.environ["KGOPS_RUN_FOLDER"] + "/results",
                                dirs_exist_ok=True)
                os._exit(0)
            """
        )
    )
    second = run_cli(*train, env={"PYTHONPATH": f"{spoiling}:{Path(__file__).parents[2]}"}).json()
    copied = json.loads((run_cli.folder(second["id"]) / "results" / "manifest.json").read_text())
    assert copied == stale
    assert (second["state"], second["reason"]) == (
        "failed",
        "the result manifest is of another run or attempt",
    )


_CODE_1 = Exit(code=1, signal=None, at=0.0, peak_mib=None, asked_to_stop=False)


@pytest.mark.parametrize(
    ("left", "seen", "log", "killed"),
    [
        (_CODE_1, Observations(), b"ValueError: no", False),
        (_CODE_1, Observations(), b"DataLoader worker (pid 7) is killed by signal: Killed.", True),
        (_CODE_1, Observations(), b"subprocess.CalledProcessError: died with <Signals.SIGKILL: 9>.", True),
        (_CODE_1, Observations(), b"bash: line 1:  4711 Killed                  python x.py", True),
        (_CODE_1, Observations(), b"the chain of command was Killedoom", False),
        (_CODE_1, Observations(orphan_killed=True), b"", True),
        (Exit(137, None, 0.0, None, False), Observations(), b"", True),
        (Exit(None, signal.SIGKILL, 0.0, None, False), Observations(), b"", True),
        (Exit(None, signal.SIGSEGV, 0.0, None, False), Observations(), b"", False),
        (Exit(0, None, 0.0, None, False), Observations(), b"a child was Killed by SIGKILL", False),
        (None, Observations(gate_signal=signal.SIGKILL), b"", True),
        (None, Observations(), b"", False),
    ],
)
def test_only_a_sigkill_within_the_tree_can_be_the_kernels(
    left: Exit | None, seen: Observations, log: bytes, killed: bool
) -> None:
    assert _was_killed(left, seen, log) is killed


GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A memory cgroup of 60 MB, of either version; skipped where this user may not make one."""
    one, two = GROUPS / "memory" / f"kgops-test-{os.getpid()}", GROUPS / f"kgops-test-{os.getpid()}"
    group, limit = (one, "memory.limit_in_bytes") if one.parent.is_dir() else (two, "memory.max")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cannot make a memory cgroup here: {error}")
    try:
        (group / limit).write_text("60000000")
    except OSError as error:
        group.rmdir()
        pytest.skip(f"cannot limit a memory cgroup here: {error}")
    yield group
    group.rmdir()


def test_a_kernel_oom_kill_is_told_from_other_kills_and_the_fallbacks_steps_down(
    run_cli: Console, small_group: Path
) -> None:
    script = f"echo $$ > {small_group}/cgroup.procs; exec {sys.executable} -c 'x = bytearray({{mib}} << 20)'"
    told = run_cli("run", "exec", "--json", "--on-oom", "mib=400,10", "--", "sh", "-c", script)
    run = told.json()
    assert run["state"] == "succeeded"
    assert [attempt["outcome"] for attempt in run["attempt"]] == ["out_of_memory", "succeeded"]
    assert "the kernel killed the worker" in run["attempt"][0]["reason"]


def test_failing_command_is_no_out_of_memory_beside_a_kill_of_another(
    run_cli: Console, small_group: Path
) -> None:
    """Somebody else on the machine is killed for memory while an ordinary command fails."""
    eat = f"echo $$ > {small_group}/cgroup.procs; exec {sys.executable} -c 'x = bytearray(400 << 20)'"
    # In a session of its own, and nobody's descendant: not of the run's tree.
    other = run_cli.detach(
        "sh", "-c", f"while [ ! -e eat ]; do sleep 0.05; done; {eat}", flags=("--attempts", "1")
    )
    failing = run_cli.detach("sh", "-c", "touch eat; sleep 2; exit 3", flags=("--attempts", "1"))
    run_cli.ended(other)  # by the kernel, in a group of its own
    ended = run_cli.ended(failing)
    assert (ended.state, ended.reason) == ("failed", "exit code 3")


def test_a_run_whose_folder_is_away_for_a_moment_goes_on(run_cli: Console, tmp_path: Path) -> None:
    number = run_cli.going("sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done")
    folder, away = run_cli.folder(number), tmp_path / "away"
    folder.rename(away)
    listed = run_cli("runs", "--json")
    assert [run["state"] for run in listed.json()] == ["running"]
    assert f"its folder is gone: runs/{folder.name}" in listed.err
    away.rename(folder)
    (tmp_path / "go").touch()
    assert run_cli.ended(number).state == "succeeded"


def test_a_run_whose_folder_was_removed_can_be_stopped(run_cli: Console) -> None:
    number = run_cli.going("sleep", "300")
    waiting = run_cli.detach("true", flags=("--exclusive",))
    for one in (number, waiting):
        shutil.rmtree(run_cli.folder(one))
    assert "stop it first" in run_cli("delete", str(number), "--yes").err
    stopped = run_cli("stop", str(number), str(waiting))
    assert stopped.out.splitlines() == [f"run {number}: cancelled", f"run {waiting}: cancelled"]
    assert not all_of(run_cli.home)
    assert run_cli("delete", str(number), str(waiting), "--yes").code == 0
    assert run_cli("runs", "--json").json() == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("ulimit -t 1; while :; do :; done", "stopped by its CPU time limit (ulimit -t)"),
        ("ulimit -S -t 1; while :; do :; done", "stopped by its CPU time limit (ulimit -t)"),
        (
            "ulimit -f 1; exec dd if=/dev/zero of=large bs=1M count=1",
            "wrote a file larger than its limit (ulimit -f)",
        ),
        ("echo OSError: [Errno 27] File too large; exit 1", "wrote a file larger than its limit (ulimit -f)"),
        ("kill -KILL $$", "killed by SIGKILL, which kgops did not send (out of host memory?)"),
    ],
    ids=["hard CPU limit", "soft CPU limit", "file size", "a worker's own error", "another SIGKILL"],
)
def test_limit_of_a_shell_that_ended_a_worker_is_named(run_cli: Console, script: str, reason: str) -> None:
    done = run_cli("run", "exec", "--attempts", "1", "--json", "--", "sh", "-c", script)
    assert done.json()["reason"] == reason, done.err


def test_file_size_limit_too_small_for_the_database_is_named(run_cli: Console) -> None:
    argv = shlex.join(run_cli.argv("run", "exec", "--", "true"))
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 100; exec {argv}"], env=run_cli.environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert is_clear(done.stderr), done.stderr
    assert "(ulimit -f)" in done.stderr
