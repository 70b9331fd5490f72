"""The terminal really goes away, and Ctrl-C asks before it does anything."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Console, Terminal, all_of, patience, wait_for

from kgops.supervisor import processes

Open = Callable[..., Terminal]
SCRIPT = "echo ready; while [ ! -e gate ]; do sleep 0.05; done; echo over"
COMMAND = ("run", "exec", "--", "sh", "-c", SCRIPT)


def terminal_of(pid: int) -> int:
    """Device number of the process's controlling terminal; 0 where it has none, or is over."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4])
    except OSError:
        return 0


def test_run_outlives_the_terminal_it_was_started_from(run_cli: Console, open_terminal: Open) -> None:
    terminal = open_terminal(*COMMAND)
    terminal.wait_for_text(b"ready")
    assert terminal_of(terminal.child.pid) != 0  # it was a real one
    mine = [who for who in all_of(run_cli.home) if who.pid != terminal.child.pid]
    assert {terminal_of(who.pid) for who in mine} == {0}
    terminal.hang_up()
    assert terminal.wait() == -signal.SIGHUP
    supervisors = [who for who in mine if processes.is_supervisor(who.pid)]  # and the gate, its copy
    assert len(supervisors) == 2
    (run_cli.cwd / "gate").touch()
    run = run_cli.ended(1)
    assert (run.state, run.exit_code) == ("succeeded", 0)
    assert run_cli("logs", "1").out == "ready\nover\n"


def test_detached_run_outlives_its_terminal_too(run_cli: Console, open_terminal: Open) -> None:
    terminal = open_terminal("run", "exec", "--detach", "--", "sh", "-c", SCRIPT)
    assert terminal.wait() == 0
    terminal.hang_up()
    run_cli.running(1)
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(1).state == "succeeded"


@pytest.fixture
def asked(open_terminal: Open) -> Terminal:
    """At the question that Ctrl-C leads to."""
    terminal = open_terminal(*COMMAND)
    terminal.wait_for_text(b"ready")
    terminal.type(b"\x03")
    terminal.wait_for_text(b"Detach from the run (d), or stop it (s)? [d] ")
    return terminal


@pytest.mark.parametrize("answer", [b"d\r", b"\r", b"\x03"], ids=["d", "Enter", "Ctrl-C again"])
def test_ctrl_c_can_detach(run_cli: Console, asked: Terminal, answer: bytes) -> None:
    asked.type(answer)
    assert asked.wait() == 0
    assert b"`kgops logs -f 1` follows it" in asked.seen
    assert b"Traceback" not in asked.seen
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(1).state == "succeeded"


def test_ctrl_c_can_stop(run_cli: Console, asked: Terminal) -> None:
    asked.type(b"s\r")
    assert asked.wait() == 130
    assert b"run 1 cancelled" in asked.seen
    assert asked.seen.count(b"Detach from the run") == 1
    assert run_cli.ended(1).state == "cancelled"


def test_hang_up_at_the_question_leaves_the_run_going(run_cli: Console, asked: Terminal) -> None:
    asked.hang_up()
    asked.wait()
    run_cli.running(1)
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(1).state == "succeeded"


def followed(run_cli: Console) -> subprocess.Popen[bytes]:
    """A console without a terminal, whose worker is ready."""
    console = run_cli.start(*COMMAND)
    logs = run_cli.home / "runs"
    wait_for(lambda: any(b"ready" in path.read_bytes() for path in logs.glob("*/worker.log")), "the worker")
    return console


def test_interrupt_without_a_terminal_stops_the_run(run_cli: Console) -> None:
    console = followed(run_cli)
    console.send_signal(signal.SIGINT)
    out, err = console.communicate(timeout=patience())
    assert console.returncode == 130, err
    assert b"run 1 cancelled" in out
    assert b"Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_killing_the_console_changes_nothing_for_the_run(run_cli: Console, number: signal.Signals) -> None:
    console = followed(run_cli)
    console.send_signal(number)
    console.communicate(timeout=patience())
    assert console.returncode == -number
    run_cli.running(1)
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(1).state == "succeeded"


def test_progress_is_shown_on_a_terminal_and_gone_at_the_end(run_cli: Console, open_terminal: Open) -> None:
    flags = ("--progress-regex", r"(\d+) of (\d+)", "--metric-regex", r"loss (?P<loss>\S+)")
    script = f"echo '3 of 7 loss 0.25'; {SCRIPT}"
    terminal = open_terminal("run", "exec", *flags, "--", "sh", "-c", script)
    terminal.wait_for_text(b"3/7")
    terminal.wait_for_text(b"loss 0.25")
    (run_cli.cwd / "gate").touch()
    assert terminal.wait() == 0
    assert b"\x1b[?25h" in terminal.seen.rpartition(b"\x1b[?25l")[2]  # the cursor is back


def test_question_before_deleting_is_asked_on_a_terminal(run_cli: Console, open_terminal: Open) -> None:
    assert run_cli("run", "exec", "--", "true").code == 0
    for answer, code in ((b"n\r", 130), (b"y\r", 0)):
        terminal = open_terminal("delete", "1")
        terminal.wait_for_text(b"[y/N]")
        assert any((run_cli.home / "runs").glob("0001-*"))
        terminal.type(answer)
        assert terminal.wait() == code
    assert list((run_cli.home / "runs").iterdir()) == []
