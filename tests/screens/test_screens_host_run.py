"""A new run on a host, and the page of one: its curves and its log come from there, and what a host says is checked."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from typing import Any

import pytest
from driving import patience
from screen_driving import Seen, open_screens
from screen_picture import picture
from ssh_server import Lab, needs_ssh
from test_screens_hosts import point_at
from test_screens_new_run import turn, write

from kgops.hosts.protocol import PROTOCOL
from kgops.hosts.run_mirror import LogCopy
from screens.host_run import HostRun
from screens.widgets.lines import Lines

pytestmark = needs_ssh

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
    await seen.press("H")
    await seen.until_shows("1 of 1 answer", label)
    point_at(seen, "lab1", number)
    await seen.press("enter")


async def test_enter_opens_a_run_where_it_is_with_curves_and_a_log_that_is_followed(lab: Lab) -> None:
    lab.add("lab1")
    there, flag = lab.there("lab1"), lab.folder / "on"
    patterns = ("--metric-regex", r"loss (?P<loss>[0-9.]+) step (?P<step>[0-9]+)")
    number = there.detach(
        sys.executable, "-c", WRITES, str(flag), flags=("--label", "far", "--tag", "paper", *patterns)
    )
    there.running(number)
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
        await seen.press("escape")
        await seen.until_shows("1 of 1 answer")


async def test_page_that_is_left_while_a_line_of_its_log_comes_ends_in_peace(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.add("lab1")
    there, flag = lab.there("lab1"), lab.folder / "on"
    number = there.detach(sys.executable, "-c", WRITES, str(flag), flags=("--label", "far"))
    there.running(number)
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
    lab.add("lab1")
    done = lab.there("lab1")("run", "exec", "--label", "long", "--", "seq", "-f", "line %.0f", "200000")
    assert done.code == 0, done.err
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, 1, "long")
        await seen.until_shows("line 200000", "MiB of earlier lines")
        await seen.press("l", "slash", *"20000", "enter")
        await seen.until_shows("MiB of earlier lines: scroll to the top for them, not searched")
        await seen.press("slash", *["backspace"] * 5, "enter")
        await seen.until_gone(", not searched")
        for count in ("110,065 lines", "200,000 lines"):
            await seen.press("home")
            await seen.until_shows(count)
        await seen.press("home")
        await seen.until(lambda: "line 1" in [line.strip() for line in seen.lines()], "the first line")
        assert "earlier lines" not in seen.text
        await seen.press("end")
        await seen.until_shows("line 200000", "of 200,000 lines")


async def test_page_of_a_run_turns_grey_with_its_age_when_its_host_is_silent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.hosts.watch._SILENT_S", 3.0)
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sh", "-c", "echo hello; sleep 1000", flags=("--label", "long"))
    there.running(number)
    async with open_screens(lab.console.home) as seen:
        await open_run(seen, number, "long")
        await seen.until_shows("hello", "Record")
        await seen.press("shift+tab")
        await seen.until_shows("ARTIFACTS")
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
        await seen.press("R")
        await seen.until_gone("does not answer")


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
        await seen.press("escape")
        await seen.until_shows("1 of 1 answer")


async def test_n_on_the_hosts_screen_starts_a_job_on_the_host_under_the_cursor(lab: Lab) -> None:
    lab.add("lab1")
    lab.add("lab2")
    async with open_screens(lab.console.home, (160, 50)) as seen:
        await seen.press("H")
        await seen.until_shows("2 of 2 answer", "n new run")
        seen.app.screen.query_one("#body", Lines).point_at(("host", "lab2"))
        await seen.press("n")
        await seen.until_shows("lab2 plans it when it starts", "--host lab2")
        assert seen.row_of("where").split()[1] == "lab2"
        await seen.go_to("where")
        await seen.press("backspace")
        await seen.until_shows("to spare")
        assert "this machine" in seen.row_of("where")
        await turn(seen, "where", "lab2")
        await write(seen, "num_epochs", "1")
        await write(seen, "embedding_dim", "16")
        await seen.until_shows("--host lab2")
        await seen.press("y")
        await seen.until_shows("sent to the terminal: ")
        await seen.press("x")
        await seen.until_shows("start it on lab2?")
        await seen.press("y")
        await seen.until(lambda: isinstance(seen.app.screen, HostRun), "the run's screen")
        await seen.until_shows("lab2:1 ", "started run lab2:1")
        dry = lab.kgops(*shlex.split(seen.app.clipboard)[1:], "--dry-run", "--json")
        assert dry.code == 0, dry.err
    assert lab.there("lab2").ended(1).state == "succeeded"
    assert lab.there("lab1")("runs", "--json").json() == []
