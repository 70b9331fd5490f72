"""`kgops gpus --watch` prints what changed, on a terminal and into a pipe."""

from __future__ import annotations

import json
import re
import signal
import termios
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from driving import Console, Terminal, patience
from nvml_standin import Machine, StandIn, t4

from kgops.present.formats import width_of


@pytest.fixture
def watching(run_cli: Console, standin: StandIn) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*variables: str, flags: tuple[str, ...] = ("--watch",)) -> Terminal:
        environment = run_cli.environment(standin.environment() | {"KGOPS_HOME": str(run_cli.home)})
        command = ["env", *variables, *run_cli.argv("gpus", *flags)]
        opened.append(Terminal(command, environment, run_cli.cwd))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_watching_prints_the_page_again_when_it_changes_until_ctrl_c(
    watching: Callable[..., Terminal], standin: StandIn
) -> None:
    gpus = (t4("GPU-a", used_mib=111), t4("GPU-b", used_mib=222))
    standin.show(Machine(gpus))
    terminal = watching()
    terminal.wait_for_text(b"222")
    standin.show(Machine((gpus[0], replace(gpus[1], used_mib=333))))
    terminal.wait_for_text(b"333")
    drawn = len(terminal.seen)
    termios.tcsetwinsize(terminal.master, (4, 60))
    standin.show(Machine(gpus))
    terminal.wait_for_text(b"more lines")
    plain = re.sub(rb"\x1b\[[\d;?]*[a-zA-Z]", b"", terminal.seen[drawn:]).decode().splitlines()
    assert max(map(width_of, plain)) <= 60
    terminal.type(b"\x03")
    assert terminal.wait() == 0
    assert b"Traceback" not in terminal.seen


def test_on_a_terminal_the_last_line_names_the_flag_that_watches(
    watching: Callable[..., Terminal], standin: StandIn
) -> None:
    standin.show(Machine((t4(),)))
    terminal = watching(flags=())
    assert terminal.wait() == 0
    assert terminal.seen.endswith(b"--watch updates this every second\r\n")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_watching_into_a_pipe_prints_each_reading_at_once(
    run_cli: Console, standin: StandIn, flags: tuple[str, ...]
) -> None:
    standin.show(Machine((t4(used_mib=111),)))
    child = run_cli.start("gpus", "--watch", *flags, env=standin.environment())
    assert child.stdout is not None
    read = [child.stdout.readline() for _ in range(2 if flags else 6)]
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=patience())
    assert child.returncode == 0, err
    assert b"\x1b" not in b"".join(read) + out
    if flags:
        assert json.loads(read[1])["gpu"][0]["memory_used_mib"] == 111
    else:
        assert sum(b" Tesla T4 " in line for line in read) == 2 and read[0] == read[3]
