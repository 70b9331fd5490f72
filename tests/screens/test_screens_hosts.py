"""The hosts screen over real SSH: GPUs and runs of every host, and nothing waits for one that does not answer."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
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


def point_at(seen: Seen, host: str, run: int) -> None:
    seen.app.screen.query_one("#body", Lines).point_at(("run", host, run))


def test_a_run_is_stopped_and_repeated_where_it_is_after_a_question(lab: Lab) -> None:
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sleep", "1000", flags=("--label", "long"))
    there.running(number)

    async def story(seen: Seen) -> None:
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


def test_runs_that_ended_badly_there_are_an_alert_and_waiting_ones_say_for_what(lab: Lab) -> None:
    lab.add("lab1", ONE)
    there = lab.there("lab1")
    for _ in range(2):
        assert there("run", "exec", "--label", "bad", "--", "sh", "-c", "exit 3").code == 1
    there.detach(
        "sleep", "1000", flags=("--label", "holds", "--gpu", "0", "--exclusive"), env=lab.driver("lab1")
    )
    number = there.detach("true", flags=("--label", "waits", "--gpu", "0"), env=lab.driver("lab1"))

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("! run 2: failed", "(and 1 more)", "waits  (waits for ")
        (row,) = (line for line in seen.lines() if line.split()[:2] == ["lab1", str(number)])
        assert "queued" in row

    look(lab.console.home, story)


def test_marked_runs_of_two_hosts_are_compared_by_name(lab: Lab) -> None:
    for name in ("lab1", "lab2"):
        lab.add(name)
        assert lab.there(name)("run", "exec", "--label", f"of {name}", "--", "true").code == 0

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("2 of 2 answer", "of lab1", "of lab2")
        point_at(seen, "lab1", 1)
        await seen.press("space", "equals_sign")
        await seen.until_shows("mark 2 to 8 runs", "*lab1", "1 marked")
        point_at(seen, "lab2", 1)
        await seen.press("space", "equals_sign")
        await seen.until_shows(
            "compare  runs lab1:1, lab2:1", "A  lab1:1 exec  of lab1", "B  lab2:1 exec  of lab2"
        )
        await seen.press("escape")
        await seen.until_shows("2 marked", "*lab2")
        lab.there("lab2")("delete", "1", "--yes")
        await seen.until_shows("1 marked")

    look(lab.console.home, story)


def test_without_a_host_the_screen_says_how_to_name_one(lab: Lab) -> None:
    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("No host is named yet", "kgops hosts add lab1 user@host")
        assert isinstance(seen.app.screen, Hosts)

    look(lab.console.home, story)
