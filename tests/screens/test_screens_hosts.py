"""Hosts over real SSH: their GPUs and runs, a new run and the page of one; nothing waits for one that is silent."""

import getpass
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from driving import Terminal, patience, wait_for
from nvml_standin import Machine, t4
from screen_driving import Seen, open_screens
from screen_picture import picture
from ssh_server import Lab, needs_ssh
from terminal_cells import shows
from test_screens_new_run import turn, write

from kgops.hosts.protocol import PROTOCOL
from kgops.hosts.run_mirror import LogCopy
from kgops.supervisor import locks
from kgops.supervisor.run_folder import RunFolder
from screens.host_run import HostRun
from screens.widgets.lines import Lines

pytestmark = needs_ssh

ONE = Machine((replace(t4("GPU-a", used_mib=7_000, processes=((os.getpid(), 6_900),)), utilization=37),))


async def test_gpus_stand_under_their_host_and_runs_carry_its_name(lab: Lab) -> None:
    for name in ("lab1", "lab2"):
        lab.add(name, ONE)("run", "exec", "--label", f"of {name}", "--", "true")
    async with open_screens(lab.console.home, shows="No runs yet") as seen:
        await seen.press("H", shows=("2 of 2 answer", "of lab1", "of lab2"))
        lines = seen.lines()
        of_gpus = [line.split()[0] for line in lines if line.startswith(("lab1", "lab2", "  0 Tesla T4"))]
        assert of_gpus[:4] == ["lab1", "0", "lab2", "0"]
        assert "7,000/14,909" in seen.text
        runs = [line.split()[:5] for line in lines if " of lab" in line]
        assert sorted(runs) == [[name, "1", "exec", "✓", "succeeded"] for name in ("lab1", "lab2")]
        await seen.press("escape", shows="No runs yet")


def point_at(seen: Seen, host: str, run: int) -> None:
    seen.app.screen.query_one("#body", Lines).point_at(("run", host, run))


async def test_a_run_is_stopped_and_repeated_where_it_is_after_a_question(lab: Lab) -> None:
    there = lab.add("lab1")
    number = there.going("sleep", "1000", flags=("--label", "long"))
    async with open_screens(lab.console.home) as seen:
        await seen.press("H", shows=("1 of 1 answer", "long", "running"))
        point_at(seen, "lab1", number)
        await seen.press("s", shows=f"stop run lab1:{number} (long)?")
        await seen.press("n", gone="(long)?")
        assert there.running(number)
        await seen.press("s", "y", shows=f"asked run lab1:{number} to stop")
        await seen.until_shows("cancelled")
        point_at(seen, "lab1", number)
        await seen.press("a", "y", shows=f"started run lab1:{number + 1} with the job of run lab1:{number}")
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
    lab.add("hangs", program="#!/bin/sh\nexec sleep 1000\n")
    lab.add("bare", program="#!/bin/sh\nexit 127\n")
    async with open_screens(lab.console.home) as seen:
        await seen.press("H", shows=("1 of 3 answer", "hangs  connecting …", "bare  does not answer: "))
        body = seen.app.screen.query_one("#body", Lines)
        tones = tones_of(body)
        assert "text" in tones
        for pid in lab.feeds("lab1"):
            os.kill(pid, signal.SIGSTOP)
        await seen.until_shows("lab1  does not answer, shown as of")
        tones = tones_of(body)
        assert tones == {"dim"}
        assert "7,000/14,909" in seen.text
        await seen.press("end", "home", "question_mark", shows=("KEYS HERE", "Try hosts that do not answer"))
        await seen.press("escape", "R", shows="1 of 3 answer")


async def test_enter_on_a_gpu_lists_its_processes_with_their_users(lab: Lab) -> None:
    lab.add("lab1", ONE)
    async with open_screens(lab.console.home) as seen:
        await seen.press("H", shows=("1 of 1 answer", "7,000/14,909"))
        seen.app.screen.query_one("#body", Lines).point_at(("gpu", "lab1", "0"))
        await seen.press("enter", shows=("user", "command"))
        (listed,) = (line.split() for line in seen.lines() if f" {os.getpid()} " in line)
        assert listed[1:3] == [getpass.getuser(), "6,900"]
        await seen.press("enter", gone="command")


async def test_runs_that_ended_badly_there_are_an_alert_and_waiting_ones_say_for_what(lab: Lab) -> None:
    there = lab.add("lab1", ONE)
    for _ in range(2):
        assert there("run", "exec", "--label", "bad", "--", "sh", "-c", "exit 3").code == 1
    there.detach(
        "sleep", "1000", flags=("--label", "holds", "--gpu", "0", "--exclusive"), env=lab.driver("lab1")
    )
    number = there.detach("true", flags=("--label", "waits", "--gpu", "0"), env=lab.driver("lab1"))
    async with open_screens(lab.console.home, (124, 40)) as seen:
        await seen.press("H", shows=("! run 2: failed", "(and 1 more)", "waits  (waits for "))
        (row,) = (line for line in seen.lines() if line.split()[:2] == ["lab1", str(number)])
        assert "queued" in row


async def test_states_that_nobody_vouches_for_are_said_to_be_maybe_outdated(lab: Lab) -> None:
    there = lab.add("lab1")
    number = there.going("sleep", "1000", flags=("--label", "long"))
    os.kill(there.show(number)["attempt"][0]["supervisor_pid"], signal.SIGKILL)
    lock = RunFolder(there.folder(number)).supervisor_lock
    wait_for(lambda: not locks.is_held(lock) or None, "the supervisor's end")
    checked = lab.kgops("hosts", "check")
    assert "states of runs may be outdated" in checked.out
    async with open_screens(lab.console.home) as seen:
        await seen.press("H", shows=("states of runs may be outdated", "? running"))
        await seen.press("R", gone="may be outdated")
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


# --- runs there ---

WRITES = """
import os, sys, time
def say(value, step): print(f"loss {value} step {step}", flush=True)
say(4, 1), say(2, 2), say(1.5, 3)
print("said there\\n\\033[2Jescaped", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
say(0.25, 4)
print("said later", flush=True)
while not os.path.exists(sys.argv[1] + "2"): time.sleep(0.05)
"""


async def open_run(seen: Seen, number: int, label: str) -> None:
    await seen.press("H", shows=("1 of 1 answer", label))
    point_at(seen, "lab1", number)
    await seen.press("enter")


async def test_enter_opens_a_run_where_it_is_with_curves_and_a_log_that_is_followed(lab: Lab) -> None:
    there, flag = lab.add("lab1"), lab.folder / "on"
    patterns = ("--metric-regex", r"loss (?P<loss>[0-9.]+) step (?P<step>[0-9]+)")
    number = there.going(
        sys.executable, "-c", WRITES, str(flag), flags=("--label", "far", "--tag", "paper", *patterns)
    )
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, number, "far")
        await seen.until_shows(
            f"lab1:{number} exec far", "running", "CURVES", "loss", "said there", "�[2Jescaped"
        )
        assert "does not answer" not in seen.text
        assert "paper" in seen.text
        flag.touch()
        await seen.until_shows("said later", "0.2500")
        flag.with_name("on2").touch()
        await seen.until_shows("succeeded")
        await seen.press("escape", shows="1 of 1 answer")


async def test_page_that_is_left_while_a_line_of_its_log_comes_ends_in_peace(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, flag = lab.add("lab1"), lab.folder / "on"
    number = there.going(sys.executable, "-c", WRITES, str(flag), flags=("--label", "far"))
    add, inside, gate = LogCopy.add, threading.Event(), threading.Event()

    def slow(copy: LogCopy, *line: Any) -> None:
        if flag.exists():
            inside.set()
            assert gate.wait(patience())
        add(copy, *line)

    monkeypatch.setattr(LogCopy, "add", slow)
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, number, "far")
        await seen.until_shows("said there")
        page = seen.app.screen
        assert isinstance(page, HostRun) and page._watch is not None
        thread, copied = page._watch._thread, page.log_path.parent
        flag.touch()
        await seen.until(inside.is_set, "a line")
        await seen.press("escape")
        await seen.until(lambda: not page.is_attached, "another page")
        gate.set()
        await seen.until(
            lambda: not thread.is_alive() and not copied.exists(), "the end of the page's thread"
        )
        flag.with_name("on2").touch()
        await seen.until_shows("1 of 1 answer")


async def test_earlier_lines_of_a_long_log_come_when_scrolled_to_the_top(lab: Lab) -> None:
    lab.add("lab1").must("run", "exec", "--label", "long", "--", "seq", "-f", "line %.0f", "200000")
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, 1, "long")
        await seen.until_shows("line 200000", "MiB of earlier lines")
        await seen.press("l", "slash", *"20000", "enter")
        await seen.until_shows("MiB of earlier lines: scroll to the top for them, not searched")
        await seen.press("slash", *["backspace"] * 5, "enter", gone=", not searched")
        for count in ("110,065 lines", "200,000 lines"):
            await seen.press("home", shows=count)
        await seen.press("home")
        await seen.until(lambda: "line 1" in [line.strip() for line in seen.lines()], "the first line")
        assert "earlier lines" not in seen.text
        await seen.press("end", shows=("line 200000", "of 200,000 lines"))


async def test_page_of_a_run_turns_grey_with_its_age_when_its_host_is_silent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.hosts.watch._SILENT_S", 3.0)
    there = lab.add("lab1")
    number = there.going("sh", "-c", "echo hello; sleep 1000", flags=("--label", "long"))
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, number, "long")
        await seen.until_shows("hello", "Record")
        await seen.press("shift+tab", shows="ARTIFACTS")
        stopped = lab.feeds("lab1")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        await seen.until_shows("does not answer, as of", "ARTIFACTS")
        shown = picture(seen.app)
        tones = shown.split("~~~")[1].splitlines()[2:-2]
        assert not set("".join(tones)) & set("tsabgw"), shown
        await seen.press("end", "home")
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        await seen.press("R", gone="does not answer")


@pytest.mark.parametrize(
    "said",
    (
        '{"type": "part", "name": "run", "value": {"id": "x"}}',
        '{"type": "curves", "curves": [{"name": "a", "from": 0, "n": 1, "last": 1, "buckets": [[1, 2]]}]}',
        '{"type": "log", "at": -5, "base64": "AAAA"}',
        '{"type": "log", "at": 0, "base64": "?"}',
        '{"type": "shown", "log_begins": 0, "log_ends": 0}',
        '{"type": "curves"}',
    ),
)
async def test_a_host_that_lies_about_a_run_is_named_and_shows_nothing(lab: Lab, said: str) -> None:
    feed = '{"type": "picture", "run": {"3": {"label": "odd", "state": "running"}}}'
    lab.add(
        "lab1",
        program=f"""#!/bin/sh
echo '{{"type": "hello", "protocol": {PROTOCOL}, "kgops": "0.1.0"}}'
case "$*" in *--run*) echo '{said}{chr(10)}{{"type": "shown"}}';; *) echo '{feed}';; esac
exec sleep 1000
""",
    )
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, 3, "odd")
        await seen.until_shows("what it says of the run cannot be read")
        await seen.press("escape", shows="1 of 1 answer")


async def test_n_on_the_hosts_screen_starts_a_job_on_the_host_under_the_cursor(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2")
    async with open_screens(lab.console.home, (160, 50)) as seen:
        await seen.press("H", shows=("2 of 2 answer", "n new run"))
        seen.app.screen.query_one("#body", Lines).point_at(("host", "lab2"))
        await seen.press("n", shows=("lab2 plans it when it starts", "--host lab2"))
        assert seen.row_of("where").split()[1] == "lab2"
        await seen.go_to("where")
        await seen.press("backspace", shows="to spare")
        assert "this machine" in seen.row_of("where")
        await turn(seen, "where", "lab2")
        await write(seen, "num_epochs", "1")
        await write(seen, "embedding_dim", "16")
        await seen.until_shows("--host lab2")
        await seen.press("y", shows="sent to the terminal: ")
        await seen.press("x", shows="start it on lab2?")
        await seen.press("y")
        await seen.until(lambda: isinstance(seen.app.screen, HostRun), "the run's screen")
        await seen.until_shows("lab2:1 ", "started run lab2:1")
        lab.must(*shlex.split(seen.app.clipboard)[1:], "--dry-run", "--json")
    assert lab.there("lab2").ended(1).state == "succeeded"
    assert lab.there("lab1")("runs", "--json").json() == []
