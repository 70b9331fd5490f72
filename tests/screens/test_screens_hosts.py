"""The hosts screen over real SSH: GPUs and runs of every host, and nothing waits for one that does not answer."""

from __future__ import annotations

import getpass
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from driving import Terminal, wait_for
from nvml_standin import Machine, t4
from screen_driving import Seen, open_screens
from ssh_server import Lab, needs_ssh
from terminal_cells import shows

from kgops.supervisor import locks
from kgops.supervisor.run_folder import RunFolder
from screens.widgets.lines import Lines

pytestmark = needs_ssh

ONE = Machine((replace(t4("GPU-a", used_mib=7_000, processes=((os.getpid(), 6_900),)), utilization=37),))
HANGS = "#!/bin/sh\nexec sleep 1000\n"
NO_KGOPS = "#!/bin/sh\nexit 127\n"


async def test_gpus_stand_under_their_host_and_runs_carry_its_name(lab: Lab) -> None:
    for name in ("lab1", "lab2"):
        lab.add(name, ONE)
        lab.there(name)("run", "exec", "--label", f"of {name}", "--", "true")
    async with open_screens(lab.console.home) as seen:
        await seen.until_shows("No runs yet")
        await seen.press("H")
        await seen.until_shows("2 of 2 answer", "of lab1", "of lab2")
        lines = seen.lines()
        of_gpus = [line.split()[0] for line in lines if line.startswith(("lab1", "lab2", "  0 Tesla T4"))]
        assert of_gpus[:4] == ["lab1", "0", "lab2", "0"]
        assert "7,000/14,909" in seen.text
        runs = [line.split()[:5] for line in lines if " of lab" in line]
        assert sorted(runs) == [[name, "1", "exec", "✓", "succeeded"] for name in ("lab1", "lab2")]
        await seen.press("escape")
        await seen.until_shows("No runs yet")


def point_at(seen: Seen, host: str, run: int) -> None:
    seen.app.screen.query_one("#body", Lines).point_at(("run", host, run))


async def test_a_run_is_stopped_and_repeated_where_it_is_after_a_question(lab: Lab) -> None:
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sleep", "1000", flags=("--label", "long"))
    there.running(number)
    async with open_screens(lab.console.home) as seen:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "long", "running")
        point_at(seen, "lab1", number)
        await seen.press("s")
        await seen.until_shows(f"stop run lab1:{number} (long)?")
        await seen.press("n")
        await seen.until_gone("(long)?")
        assert there.running(number)
        await seen.press("s", "y")
        await seen.until_shows(f"asked run lab1:{number} to stop")
        await seen.until_shows("cancelled")
        point_at(seen, "lab1", number)
        await seen.press("a", "y")
        await seen.until_shows(f"started run lab1:{number + 1} with the job of run lab1:{number}")
        there.running(number + 1)


def tones_of(body: Lines) -> set[str]:
    """Of the words about lab1's GPU."""
    (row,) = (row for row in body.rows if row.key == ("gpu", "lab1", "0"))
    return {piece.tone for piece in row.pieces if piece.text.strip()} - {"edge"}


async def test_a_host_that_stops_answering_is_grey_and_keys_work_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.hosts.watch._SILENT_S", 3.0)
    lab.add("lab1", ONE)
    lab.add("hangs", program=HANGS)
    lab.add("bare", program=NO_KGOPS)
    async with open_screens(lab.console.home) as seen:
        await seen.press("H")
        await seen.until_shows("1 of 3 answer", "hangs  connecting …", "bare  does not answer: ")
        body = seen.app.screen.query_one("#body", Lines)
        tones = tones_of(body)
        assert "text" in tones
        for pid in lab.feeds("lab1"):
            os.kill(pid, signal.SIGSTOP)
        await seen.until_shows("lab1  does not answer, shown as of")
        tones = tones_of(body)
        assert tones == {"dim"}
        assert "7,000/14,909" in seen.text
        await seen.press("end", "home", "question_mark")
        await seen.until_shows("KEYS HERE", "Try hosts that do not answer")
        await seen.press("escape", "R")
        await seen.until_shows("1 of 3 answer")


async def test_enter_on_a_gpu_lists_its_processes_with_their_users(lab: Lab) -> None:
    lab.add("lab1", ONE)
    async with open_screens(lab.console.home) as seen:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "7,000/14,909")
        seen.app.screen.query_one("#body", Lines).point_at(("gpu", "lab1", "0"))
        await seen.press("enter")
        await seen.until_shows("user", "command")
        (listed,) = (line.split() for line in seen.lines() if f" {os.getpid()} " in line)
        assert listed[1:3] == [getpass.getuser(), "6,900"]
        await seen.press("enter")
        await seen.until_gone("command")


async def test_runs_that_ended_badly_there_are_an_alert_and_waiting_ones_say_for_what(lab: Lab) -> None:
    lab.add("lab1", ONE)
    there = lab.there("lab1")
    for _ in range(2):
        assert there("run", "exec", "--label", "bad", "--", "sh", "-c", "exit 3").code == 1
    there.detach(
        "sleep", "1000", flags=("--label", "holds", "--gpu", "0", "--exclusive"), env=lab.driver("lab1")
    )
    number = there.detach("true", flags=("--label", "waits", "--gpu", "0"), env=lab.driver("lab1"))
    async with open_screens(lab.console.home, (124, 40)) as seen:
        await seen.press("H")
        await seen.until_shows("! run 2: failed", "(and 1 more)", "waits  (waits for ")
        (row,) = (line for line in seen.lines() if line.split()[:2] == ["lab1", str(number)])
        assert "queued" in row


async def test_states_that_nobody_vouches_for_are_said_to_be_maybe_outdated(lab: Lab) -> None:
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sleep", "1000", flags=("--label", "long"))
    there.running(number)
    os.kill(there.show(number)["attempt"][0]["supervisor_pid"], signal.SIGKILL)
    lock = RunFolder(there.folder(number)).supervisor_lock
    wait_for(lambda: not locks.is_held(lock) or None, "the supervisor's end")
    checked = lab.kgops("hosts", "check")
    assert "states of runs may be outdated" in checked.out
    async with open_screens(lab.console.home) as seen:
        await seen.press("H")
        await seen.until_shows("states of runs may be outdated", "? running")
        await seen.press("R")
        await seen.until_gone("may be outdated")
        await seen.until_shows("› running")


def _is_there(terminal: Terminal, text: str) -> bool:
    return terminal.read() and shows(terminal.seen, text)


def test_kgops_hosts_all_opens_the_screen_with_them(lab: Lab, open_terminal: Callable[..., Terminal]) -> None:
    lab.add("lab1", ONE)
    terminal = open_terminal("--hosts", "all")
    for key, text in ((b"", "1 of 1 answer"), (b"\x1b", "No runs yet"), (b"H", "1 of 1 answer")):
        terminal.type(key)
        wait_for(partial(_is_there, terminal, text), text)
    terminal.type(b"q")
    assert terminal.wait() == 0
    wrong = lab.kgops("--hosts", "lab7")
    assert wrong.code == 2
    assert "'lab7' is no host and no group; did you mean 'lab1'?" in wrong.err
