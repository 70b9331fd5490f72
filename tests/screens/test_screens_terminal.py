"""A real terminal: opened by `kgops` alone, resized, lost with a run going, opened again; silent when nothing moves."""

import os
import re
import signal
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import Console, Terminal, patience, wait_for

Open = Callable[..., Terminal]
WAITS = "echo ready; while [ ! -e gate ]; do sleep 0.05; done"


def settled(terminal: Terminal, quiet_s: float = 1.2) -> None:
    """Until nothing has been sent for a while."""
    size, since = -1, time.monotonic()
    begun = since
    while time.monotonic() - since < quiet_s:
        assert time.monotonic() < begun + patience(), "it never falls silent"
        terminal.read(0.1)
        if len(terminal.seen) != size:
            size, since = len(terminal.seen), time.monotonic()


def away_and_back(terminal: Terminal, shown: bytes) -> None:
    """Ctrl-Z, and what a shell's `fg` does."""
    terminal.type(b"\x1a")
    terminal.wait_for_text(b"\x1b[?1049l")
    stat = Path(f"/proc/{terminal.child.pid}/stat")
    wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it to be stopped")
    terminal.seen = b""
    os.kill(terminal.child.pid, signal.SIGCONT)
    terminal.wait_for_text(shown)


def test_kgops_alone_on_a_terminal_opens_the_screens_which_can_be_suspended_and_left(
    run_cli: Console, open_terminal: Open
) -> None:
    run_cli("run", "exec", "--label", "here it is", "--", "true")
    terminal = open_terminal()
    terminal.wait_for_text(b"here it is")
    away_and_back(terminal, b"here it is")
    terminal.type(b"q")
    assert terminal.wait() == 0
    assert b"\x1b[?1049l" in terminal.seen  # the shell's screen is back
    assert b"Traceback" not in terminal.seen


def test_without_a_terminal_it_prints_its_help_and_tui_says_what_it_needs(run_cli: Console) -> None:
    assert run_cli().out == run_cli("--help").out
    done = run_cli("tui")
    assert done.code == 2
    assert "the dashboard needs a terminal" in done.err


def test_a_run_outlives_the_screens_and_is_there_when_they_open_again(
    run_cli: Console, open_terminal: Open
) -> None:
    run_cli.running(run_cli.detach("sh", "-c", WAITS, flags=("--label", "long one")))
    first = open_terminal("tui")
    first.wait_for_text(b"long one")
    os.kill(first.child.pid, signal.SIGKILL)
    first.wait()
    assert run_cli.running(1).state == "running"
    second = open_terminal("tui")
    second.wait_for_text(b"1 running")
    second.hang_up()
    second.wait()
    (run_cli.cwd / "gate").touch()
    assert run_cli.ended(1).state == "succeeded"
    third = open_terminal("tui")
    third.wait_for_text("✓".encode())
    third.type(b"q")
    assert third.wait() == 0


def test_nothing_is_sent_while_nothing_changes(run_cli: Console, open_terminal: Open) -> None:
    run_cli("run", "exec", "--", "true")
    terminal = open_terminal("tui")
    terminal.wait_for_text(b"RECENT")
    settled(terminal)
    before = len(terminal.seen)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        terminal.read(0.1)
    assert terminal.seen[before:] == b""


def test_a_page_is_painted_once_when_it_opens(run_cli: Console, open_terminal: Open) -> None:
    run_cli("run", "exec", "--", "true")
    terminal = open_terminal("tui")
    terminal.wait_for_text(b"RECENT")
    for keys, on_it in ((b"h", b"filter:"), (b"\r", b"Record")):
        settled(terminal)
        terminal.seen = b""
        terminal.type(keys)
        terminal.wait_for_text(on_it)
        settled(terminal)
        assert terminal.seen.count(on_it) == 1


def test_labels_cannot_send_escapes_to_the_terminal(run_cli: Console, open_terminal: Open) -> None:
    run_cli("run", "exec", "--label", "x\x1b]0;owned\x07y [bold]z", "--", "true")
    terminal = open_terminal("tui")
    terminal.wait_for_text(b"[bold]z")
    assert b"\x1b]0;owned" not in terminal.seen
    terminal.type(b"\r")
    terminal.wait_for_text(b"Record")
    assert b"\x1b]0;owned" not in terminal.seen


# The kernel may give a signal to any thread; here never to the main one.
ELSEWHERE = """
import signal, sys, threading, time
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT, signal.SIGWINCH})
from kgops.__main__ import main
sys.argv = ["kgops", "tui"]
main()
"""


def test_screens_hear_that_they_are_back_and_resized_whichever_thread_the_kernel_tells(
    run_cli: Console, open_terminal: Open
) -> None:
    sizeless = ["env", "-u", "COLUMNS", "-u", "LINES", sys.executable, "-P", "-c", ELSEWHERE]
    terminal = open_terminal(argv=sizeless)
    terminal.wait_for_text(b"No runs yet")
    for _ in range(3):
        settled(terminal)
        away_and_back(terminal, b"No runs yet")
    settled(terminal)
    terminal.seen = b""
    termios.tcsetwinsize(terminal.master, (20, 60))
    os.kill(terminal.child.pid, signal.SIGWINCH)
    terminal.wait_for_text(b"No runs yet")
    terminal.type(b"q")
    assert terminal.wait() == 0


def test_screens_whose_terminal_is_lost_end_though_nobody_tells_them(
    run_cli: Console, open_terminal: Open
) -> None:
    """As where SIGHUP is ignored."""
    deaf = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *run_cli.argv("tui")]
    terminal = open_terminal(argv=deaf)
    terminal.wait_for_text(b"No runs yet")
    terminal.hang_up()
    terminal.wait()


MANY_COLOURS = re.compile(rb"\x1b\[[0-9;]*(?:38|48);[25];")
ANY_COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
CURVE = (
    'for i in 1 5 2 7 3; do echo \'{"event":"metric","name":"loss","value":\'$i\',"step":\'$i\'}\' >> $KGOPS_EVENTS;'
    f" done; {WAITS}"
)


def screens_on(run_cli: Console, open_terminal: Open, *variables: str) -> bytes:
    """What the dashboard, a run, the help and the palette send to a terminal of those variables."""
    unset = [word for name in ("COLORTERM", "NO_COLOR", "TERM") for word in ("-u", name)]
    terminal = open_terminal(argv=["env", *unset, *variables, *run_cli.argv("tui")])
    terminal.wait_for_text(b"RUNNING")
    terminal.wait_for_text(b"RECENT")
    for keys, text in ((b"\r", b"Record"), (b"?", b"KEYS HERE"), (b"\x1b", b"Record"), (b":", b"Search")):
        terminal.type(keys)
        terminal.wait_for_text(text)
        settled(terminal, 0.3)
    return terminal.seen


@pytest.mark.parametrize(
    ("variables", "has_colours", "is_ascii"),
    [
        (["TERM=linux"], True, True),
        (["TERM=vt100"], True, True),
        (["TERM=xterm"], True, False),
        (["TERM=xterm-256color", "NO_COLOR=1"], False, False),
        (["TERM=xterm-256color", "KGOPS_ASCII=1", "NO_COLOR=1"], False, True),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_each_terminal_gets_only_what_it_shows(
    run_cli: Console, open_terminal: Open, variables: list[str], has_colours: bool, is_ascii: bool
) -> None:
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")
    run_cli.running(run_cli.detach("sh", "-c", CURVE))
    seen = screens_on(run_cli, open_terminal, *variables)
    assert not MANY_COLOURS.search(seen)
    assert bool(ANY_COLOUR.search(seen)) == has_colours
    assert b"\x1b[7m" in seen or b";7m" in seen, "the cursor is to be seen"
    if "TERM=xterm" in variables:
        assert not re.search("[\u2801-\u28ff]", seen.decode()), "braille"
    if is_ascii:
        assert seen.isascii()
    failed = seen[: seen.index(b"exit code 3")].rpartition(b"\x1b[")[2]
    assert not re.match(rb"2m|[0-9;]*;2m", failed), "an error is dimmed"


def test_a_terminal_of_many_colours_gets_them_and_filled_curves(
    run_cli: Console, open_terminal: Open
) -> None:
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")
    number = run_cli.going("sh", "-c", CURVE)
    wait_for(
        lambda: [one["n"] for one in run_cli.show(number)["series"] if one["name"] == "loss"] == [5],
        "its curve",
    )
    seen = screens_on(run_cli, open_terminal, "TERM=xterm-256color")
    assert MANY_COLOURS.search(seen)
    assert re.search("[▁▂▃▄▅▆]", seen.decode())


def test_a_terminal_whose_encoding_is_not_utf_8_gets_ascii(run_cli: Console, open_terminal: Open) -> None:
    run_cli("run", "exec", "--label", "日本 ▇ café", "--", "true")
    environment = run_cli.environment({"PYTHONIOENCODING": "ascii"})
    terminal = open_terminal("tui", environment=environment)
    terminal.wait_for_text(b"???? # caf?")
    assert terminal.seen.isascii()
    assert b"\\u" not in terminal.seen
