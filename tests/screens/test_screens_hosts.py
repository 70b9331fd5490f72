"""The hosts screen over real SSH: GPUs and runs of every host, and nothing waits for one that does not answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
from driving import Terminal
from nvml_standin import Machine, t4
from screen_driving import Seen, look
from ssh_server import Lab, needs_ssh

from screens.hosts import Hosts
from screens.widgets.lines import Lines

pytestmark = needs_ssh

ONE = Machine((replace(t4("GPU-a", used_mib=7_000, processes=((os.getpid(), 6_900),)), utilization=37),))
HANGS = "#!/bin/sh\nexec sleep 1000\n"
NO_KGOPS = "#!/bin/sh\nexit 127\n"


def test_gpus_stand_under_their_host_and_runs_carry_its_name(lab: Lab) -> None:
    for name in ("lab1", "lab2"):
        lab.add(name, ONE)
        lab.there(name)("run", "exec", "--label", f"of {name}", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("No runs yet")
        await seen.press("H")
        await seen.until_shows("2 of 2 answer", "of lab1", "of lab2")
        lines = seen.lines()
        of_gpus = [line.split()[0] for line in lines if line.startswith(("lab1", "lab2", "  0 T4"))]
        assert of_gpus[:4] == ["lab1", "0", "lab2", "0"]
        assert "7,000/14,909" in seen.text
        runs = [line.split()[:5] for line in lines if " of lab" in line]
        assert sorted(runs) == [[name, "1", "exec", "✓", "succeeded"] for name in ("lab1", "lab2")]
        await seen.press("escape")
        await seen.until_shows("No runs yet")

    look(lab.console.home, story)


def test_enter_opens_a_run_where_it_is_with_its_log(lab: Lab) -> None:
    lab.add("lab1")
    lab.there("lab1")("run", "exec", "--label", "far", "--", "printf", "said there\n\\033[2Jescaped\n")

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "far")
        seen.app.screen.query_one("#body", Lines).point_at(("run", "lab1", 1))
        await seen.press("enter")
        await seen.until_shows("lab1 · run 1", "as of", "LOG", "said there", "�[2Jescaped")
        await seen.press("escape")
        await seen.until_shows("1 of 1 answer")

    look(lab.console.home, story)


def test_a_run_is_stopped_and_repeated_where_it_is_after_a_question(lab: Lab) -> None:
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sleep", "1000", flags=("--label", "long"))
    there.running(number)

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "long", "running")
        seen.app.screen.query_one("#body", Lines).point_at(("run", "lab1", number))
        await seen.press("s")
        await seen.until_shows(f"stop run lab1:{number} (long)?")
        await seen.press("n")
        await seen.until_gone("(long)?")
        assert there.running(number)
        await seen.press("s", "y")
        await seen.until_shows(f"asked run lab1:{number} to stop")
        await seen.until_shows("cancelled")
        seen.app.screen.query_one("#body", Lines).point_at(("run", "lab1", number))
        await seen.press("a", "y")
        await seen.until_shows(f"started run lab1:{number + 1} with the job of run lab1:{number}")
        there.running(number + 1)

    look(lab.console.home, story)


def tones_of(body: Lines) -> set[str]:
    """Of the words about lab1's GPU."""
    (row,) = (row for row in body.rows if row.key == ("gpu", "lab1", "0"))
    return {piece.tone for piece in row.pieces if piece.text.strip()}


def test_a_host_that_stops_answering_is_grey_and_keys_work_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.hosts.watch._SILENT_S", 3.0)
    lab.add("lab1", ONE)
    lab.add("hangs", program=HANGS)
    lab.add("bare", program=NO_KGOPS)

    async def story(seen: Seen) -> None:
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

    look(lab.console.home, story)


def test_without_a_host_the_screen_says_how_to_name_one(lab: Lab) -> None:
    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("No host is named yet", "kgops hosts add lab1 user@host")
        assert isinstance(seen.app.screen, Hosts)

    look(lab.console.home, story)


def test_kgops_hosts_all_opens_the_screen_with_them(lab: Lab, open_terminal: Callable[..., Terminal]) -> None:
    lab.add("lab1", ONE)
    terminal = open_terminal("--hosts", "all")
    terminal.wait_for_text(b"1 of 1 answer")
    terminal.type(b"q")
    assert terminal.wait() == 0
    wrong = lab.kgops("--hosts", "lab7")
    assert wrong.code == 2
    assert "'lab7' is no host and no group; did you mean 'lab1'?" in wrong.err
