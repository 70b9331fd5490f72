"""A signal reaches the process that was meant, or nobody; by the hundred they reach no end but the true one."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from chaos_report import actors
from driving import Console, patience, wait_for

from kgops.settings import Home
from kgops.supervisor import processes
from kgops.supervisor.processes import Identity
from kgops.supervisor.run_folder import RunFolder


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "300"])
    yield child
    child.kill()
    child.wait()


def identity(child: subprocess.Popen[bytes]) -> Identity:
    who = processes.identify(child.pid)
    assert who is not None
    return who


@pytest.mark.parametrize("change", [{"started": 1}, {"boot": "another"}])
def test_a_process_that_is_not_the_one_meant_gets_no_signal(
    stranger: subprocess.Popen[bytes], change: dict[str, int | str]
) -> None:
    meant = replace(identity(stranger), **change)  # type: ignore[arg-type]
    assert not meant.is_alive()
    assert not processes.send(meant, signal.SIGKILL)
    assert identity(stranger).is_alive()


def test_the_one_that_is_meant_gets_it_and_afterwards_nobody_does(stranger: subprocess.Popen[bytes]) -> None:
    meant = identity(stranger)
    assert processes.send(meant, signal.SIGKILL)
    assert stranger.wait() == -signal.SIGKILL
    assert not processes.send(meant, signal.SIGKILL)


STUBBORN = "trap '' INT TERM HUP; while [ ! -e gate ]; do sleep 0.05; done; exit 5"
OFTEN = 300


# Presses Ctrl-C where the test wants it: at one of the moments that Python tells its auditors of.
PRESSING = """
import os, signal, sys
event, word = sys.argv[1:3]
def press(name, args):
    if name == event and word in str(args):
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(press)
sys.argv[:3] = ["kgops"]
from kgops.__main__ import main
main()
"""


def pressing(console: Console, event: str, word: str, *args: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", PRESSING, event, word, *args]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(argv, env=console.environment(), cwd=console.cwd, **pipes)  # type: ignore[call-overload]
    console.started.append(child)
    return child  # type: ignore[no-any-return]


def test_second_ctrl_c_does_not_undo_the_first(run_cli: Console) -> None:
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    # The second comes while the request of the first is being written.
    console = pressing(
        run_cli, "open", "/0001-exec-x/stop", "run", "exec", "--label", "x", "--", "sh", "-c", script
    )
    assert console.stderr is not None
    assert console.stderr.readline() == b"ready\n"  # it follows the run
    console.send_signal(signal.SIGINT)
    out, err = console.communicate(timeout=patience())
    assert (console.returncode, b"run 1 cancelled" in out) == (130, True), (out, err)
    assert run_cli.ended(1).state == "cancelled"


@pytest.mark.parametrize("part", ["supervisor", "gate"])
def test_signals_by_the_hundred_reach_no_end_but_the_true_one(
    run_cli: Console, tmp_path: Path, part: str
) -> None:
    number = run_cli.going("sh", "-c", STUBBORN)
    folder = RunFolder(run_cli.folder(number))
    wait_for(folder.attempt(1).begun.exists, "the worker to have begun")
    (hit,) = actors(Home(run_cli.home), folder, number)[part]
    for _ in range(OFTEN):
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCONT):
            assert processes.send(hit, one)
    (tmp_path / "gate").touch()
    ended = run_cli.ended(number)
    assert (ended.state, ended.reason) == ("failed", "exit code 5")
