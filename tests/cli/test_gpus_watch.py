"""`kgops gpus --watch`: what changed is drawn again, on a terminal and into a pipe, and the terminal is given back."""

from __future__ import annotations

import json
import os
import re
import signal
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from driving import Console, Terminal, patience, wait_for
from nvml_standin import Machine, StandIn, t4

from kgops.present.formats import width_of


@pytest.fixture
def watching(run_cli: Console, standin: StandIn) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*variables: str) -> Terminal:
        environment = run_cli.environment(standin.environment() | {"KGOPS_HOME": str(run_cli.home)})
        command = ["env", *variables, *run_cli.argv("gpus", "--watch")]
        opened.append(Terminal(command, environment, run_cli.cwd))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_watching_draws_again_what_changed_and_nothing_else_until_ctrl_c(
    watching: Callable[..., Terminal], standin: StandIn
) -> None:
    gpus = (t4("GPU-a", used_mib=111), t4("GPU-b", used_mib=222))
    standin.show(Machine(gpus))
    terminal = watching()
    terminal.wait_for_text(b"222/")
    _read_until(terminal, standin, len(_readings(standin)) + 2)  # by then the whole of the first page is here
    drawn = len(terminal.seen)
    _read_until(terminal, standin, len(_readings(standin)) + 2)
    standing = (b"\x1b[2J", b"Tesla T4", b"util", b"111/")
    # The host's own use and the curves move with time; all else stands, and is not sent again.
    assert not [text for text in (*standing, b"222/") if text in terminal.seen[drawn:]]
    standin.show(Machine((gpus[0], replace(gpus[1], used_mib=333))))
    terminal.wait_for_text(b"333/")
    assert not [text for text in standing if text in terminal.seen[drawn:]]
    terminal.type(b"\x03")
    assert terminal.wait() == 0
    assert b"Traceback" not in terminal.seen
    assert terminal.seen.rstrip().endswith(b"\x1b[?25h")  # the cursor is back


def test_a_watch_follows_the_size_and_gives_the_terminal_back_at_sigterm(
    watching: Callable[..., Terminal], standin: StandIn
) -> None:
    standin.show(Machine((t4("GPU-a", used_mib=111), t4("GPU-b", used_mib=222))))
    terminal = watching()
    terminal.wait_for_text(b"222/")
    drawn = len(terminal.seen)
    termios.tcsetwinsize(terminal.master, (3, 60))
    terminal.wait_for_text(b"more lines")
    lines = re.split(rb"\x1b\[\d+;\d+H", terminal.seen[drawn:])
    plain = [re.sub(rb"\x1b\[[\d;?]*[a-zA-Z]", b"", line).decode() for line in lines]
    assert max(map(width_of, plain)) <= 60
    terminal.child.send_signal(signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM
    assert terminal.seen.rstrip().endswith(b"\x1b[?1049l\x1b[?25h")
    assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize(
    "variables", [("TERM=linux",), ("TERM=xterm-256color", "KGOPS_ASCII=1", "NO_COLOR=1")]
)
def test_a_watch_sends_a_terminal_only_what_it_shows(
    watching: Callable[..., Terminal], standin: StandIn, variables: tuple[str, ...]
) -> None:
    standin.show(Machine((t4("GPU-a", used_mib=9000, processes=((os.getpid(), 9000),)),)))
    terminal = watching(*variables)
    terminal.wait_for_text(b"9,000/14,909")
    terminal.wait_for_text(b"COMMAND")
    assert terminal.seen.isascii()
    coloured = re.search(rb"\x1b\[(?:\d+;)*[34]\d(?:;\d+)*m", terminal.seen)
    assert (coloured is None) == ("NO_COLOR=1" in variables)
    assert b"\x1b[1m" in terminal.seen


def _read_until(terminal: Terminal, standin: StandIn, readings: int) -> None:
    wait_for(lambda: (terminal.read(), len(_readings(standin)) >= readings)[1], "more readings")


def _readings(standin: StandIn) -> list[str]:
    return [call for call in standin.calls() if call.startswith("nvmlDeviceGetMemoryInfo_v2 0")]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_watching_into_a_pipe_gives_plain_lines_at_once(
    run_cli: Console, standin: StandIn, flags: tuple[str, ...]
) -> None:
    standin.show(Machine((t4(used_mib=111),)))
    child = run_cli.start("gpus", "--watch", *flags, env=standin.environment())
    assert child.stdout is not None
    first, second = child.stdout.readline(), child.stdout.readline()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=patience())
    assert child.returncode == 0, err
    assert b"\x1b" not in first + second + out
    if flags:
        assert json.loads(second)["gpu"][0]["memory_used_mib"] == 111
    else:
        assert re.fullmatch(rb"[\d-]+ [\d:]+  0  Tesla T4  111/15,360 MiB  0%  40\S+C  30/70 W\n", second)
