"""The hosts screen over real SSH: GPUs and runs of every host, and nothing waits for one that does not answer."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from driving import Terminal, wait_for
from nvml_standin import Machine, t4
from screen_driving import Seen, look
from ssh_server import Lab, needs_ssh
from terminal_cells import shows

from kgops.hosts.mirror import HostState, Mirror, Reach
from kgops.hosts.protocol import PROTOCOL
from screens.hosts import Hosts
from screens.hosts_page import HostsPage
from screens.rows import Row
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


def test_rows_kept_from_the_last_draw_are_those_that_a_first_draw_gives() -> None:
    """Hosts that say something at random, vanish and return: whatever is kept, the page is the same."""
    rng = random.Random(24)
    mirrors = {name: Mirror() for name in ("lab1", "lab2", "lab3")}
    for mirror in mirrors.values():
        mirror.read(json.dumps({"type": "hello", "protocol": PROTOCOL, "kgops": "0.1.0"}).encode())
        mirror.read(json.dumps({"type": "picture", **_picture(rng)}).encode())
    reaches: dict[str, Reach] = dict.fromkeys(mirrors, "live")
    page = HostsPage()
    changed = 0
    before: list[Row] = []
    for turn in range(200):
        name = rng.choice(list(mirrors))
        what = rng.random()
        if what < 0.15:
            reaches[name] = "live" if reaches[name] != "live" else "unreachable"
        elif what < 0.3:
            mirrors[name].read(json.dumps({"type": "picture", **_picture(rng)}).encode())
        else:
            part = {
                table: dict(rng.sample(list(rows.items()), 1))
                for table, rows in _picture(rng).items()
                if rng.random() < 0.5
            }
            gone = {"run": [str(rng.randint(1, 6))]} if rng.random() < 0.2 else {}
            mirrors[name].read(json.dumps({"type": "change", "set": part, "drop": gone}).encode())
        states = [
            HostState(one, one, reaches[one], heard_at=1e9, tables=mirror.tables)
            for one, mirror in mirrors.items()
        ]
        width = rng.choice((80, 120, 120, 120))
        rows = page.rows(states, width, 1e9 + turn)
        assert rows == HostsPage().rows(states, width, 1e9 + turn)
        changed += rows != before
        before = rows
    assert changed > 150


def test_change_of_one_gpu_draws_its_row_alone() -> None:
    mirror, page = Mirror(), HostsPage()
    mirror.read(json.dumps({"type": "hello", "protocol": PROTOCOL, "kgops": "0.1.0"}).encode())
    mirror.read(json.dumps({"type": "picture", **_picture(random.Random(24))}).encode())

    def drawn() -> dict[object, Row]:
        state = HostState("lab1", "lab1", "live", heard_at=1e9, tables=mirror.tables)
        return {row.key: row for row in page.rows([state], 120, 1e9)}

    before = drawn()
    mirror.read(json.dumps({"type": "change", "set": {"gpu": {"1": {"memory_used_mib": 16_000}}}}).encode())
    after = drawn()
    assert after["gpu", "lab1", "0"] is before["gpu", "lab1", "0"]
    assert "16,000/" in "".join(piece.text for piece in after["gpu", "lab1", "1"].pieces)


def _picture(rng: random.Random) -> dict[str, dict[str, dict[str, object]]]:
    ended = {"state": "succeeded", "ended_at": 9e8 + rng.randint(0, 99), "metric": "test_mrr"}
    going = {"state": "running", "done": rng.randint(0, 9), "total": 10, "metric": "loss"}
    return {
        "host": {"host": {"problem": None}},
        "gpu": {
            str(i): {
                "name": "Tesla T4",
                "memory_used_mib": rng.randint(0, 15_000),
                "memory_total_mib": 15_360,
                "utilization_percent": rng.randint(0, 100),
            }
            for i in range(2)
        },
        "process": {"0/17": {"gpu": "0", "user": rng.choice(("ada", "bob")), "used_mib": 100.0}},
        "run": {
            str(i): {
                "workload": "train",
                "label": f"run {i}",
                "started_at": 8e8,
                "metric_value": rng.random(),
                **rng.choice((ended, going)),
            }
            for i in range(1, 7)
        },
    }
