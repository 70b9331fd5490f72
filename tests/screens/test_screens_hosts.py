"""The hosts screen over real SSH: GPUs and runs of every host, and nothing waits for one that does not answer."""

from __future__ import annotations

import getpass
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from driving import Terminal, wait_for
from nvml_standin import Machine, t4
from screen_driving import Seen, look
from screen_picture import picture
from ssh_server import Lab, needs_ssh
from terminal_cells import shows

from kgops.hosts.mirror import HostState, Mirror, Reach
from kgops.hosts.protocol import PROTOCOL
from kgops.supervisor import locks
from kgops.supervisor.run_folder import RunFolder
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


def point_at(seen: Seen, host: str, run: int) -> None:
    seen.app.screen.query_one("#body", Lines).point_at(("run", host, run))


def test_enter_opens_a_run_where_it_is_with_curves_and_a_log_that_is_followed(lab: Lab) -> None:
    lab.add("lab1")
    there, flag = lab.there("lab1"), lab.folder / "on"
    patterns = ("--metric-regex", r"loss (?P<loss>[0-9.]+) step (?P<step>[0-9]+)")
    number = there.detach(
        sys.executable, "-c", WRITES, str(flag), flags=("--label", "far", "--tag", "paper", *patterns)
    )
    there.running(number)

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "far")
        point_at(seen, "lab1", number)
        await seen.press("enter")
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

    look(lab.console.home, story)


def test_earlier_lines_of_a_long_log_come_when_scrolled_to_the_top(lab: Lab) -> None:
    lab.add("lab1")
    done = lab.there("lab1")("run", "exec", "--label", "long", "--", "seq", "-f", "line %.0f", "200000")
    assert done.code == 0, done.err

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "long")
        point_at(seen, "lab1", 1)
        await seen.press("enter")
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

    look(lab.console.home, story)


def test_page_of_a_run_turns_grey_with_its_age_when_its_host_is_silent(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgops.hosts.watch._SILENT_S", 3.0)
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sh", "-c", "echo hello; sleep 1000", flags=("--label", "long"))
    there.running(number)

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "long")
        point_at(seen, "lab1", number)
        await seen.press("enter")
        await seen.until_shows("hello", "ARTIFACTS")
        stopped = lab.feeds("lab1")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        await seen.until_shows("does not answer, as of", "hello")
        shown = picture(seen.app)
        tones = shown.split("~~~")[1].splitlines()[2:-2]
        assert not set("".join(tones)) & set("tsabgw"), shown
        await seen.press("end", "home")
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        await seen.press("R")
        await seen.until_gone("does not answer")

    look(lab.console.home, story)


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
def test_a_host_that_lies_about_a_run_is_named_and_shows_nothing(lab: Lab, said: str) -> None:
    feed = '{"type": "picture", "run": {"3": {"label": "odd", "state": "running"}}}'
    lab.add(
        "lab1",
        program=f"""#!/bin/sh
echo '{{"type": "hello", "protocol": {PROTOCOL}, "kgops": "0.1.0"}}'
case "$*" in *--run*) echo '{said}{chr(10)}{{"type": "shown"}}';; *) echo '{feed}';; esac
exec sleep 1000
""",
    )

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "odd")
        point_at(seen, "lab1", 3)
        await seen.press("enter")
        await seen.until_shows("what it says of the run cannot be read")
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


def test_enter_on_a_gpu_lists_its_processes_with_their_users(lab: Lab) -> None:
    lab.add("lab1", ONE)

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "7,000/14,909")
        seen.app.screen.query_one("#body", Lines).point_at(("gpu", "lab1", "0"))
        await seen.press("enter")
        await seen.until_shows("user", "command")
        (listed,) = (line.split() for line in seen.lines() if f" {os.getpid()} " in line)
        assert listed[1:3] == [getpass.getuser(), "6,900"]
        await seen.press("enter")
        await seen.until_gone("command")

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


def test_a_failed_run_is_resumed_where_it_is(lab: Lab) -> None:
    lab.add("lab1")
    there, flag = lab.there("lab1"), lab.folder / "flag"
    assert there("run", "exec", "--label", "again", "--", "sh", "-c", f"test -e {flag}").code == 1
    flag.touch()

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer", "failed")
        point_at(seen, "lab1", 1)
        await seen.press("r")
        await seen.until_shows("resume run lab1:1 (again)?")
        await seen.press("y")
        await seen.until_shows("resumed run lab1:1")
        await seen.until_shows("succeeded")

    look(lab.console.home, story)


def test_states_that_nobody_vouches_for_are_said_to_be_maybe_outdated(lab: Lab) -> None:
    lab.add("lab1")
    there = lab.there("lab1")
    number = there.detach("sleep", "1000", flags=("--label", "long"))
    there.running(number)
    os.kill(there.show(number)["attempt"][0]["supervisor_pid"], signal.SIGKILL)
    lock = RunFolder(there.folder(number)).supervisor_lock
    wait_for(lambda: not locks.is_held(lock) or None, "the supervisor's end")
    checked = lab.kgops("hosts", "check")
    assert "states of runs may be outdated" in checked.out

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("states of runs may be outdated", "? running")
        await seen.press("R")
        await seen.until_gone("may be outdated")
        await seen.until_shows("› running")

    look(lab.console.home, story)


def test_a_host_whose_lines_are_late_shows_the_age_of_its_data(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("screens.hosts_page._LATE_S", 1.0)
    monkeypatch.setattr("screens.hosts._AGES_EVERY_S", 0.2)
    lab.add("lab1", ONE)

    async def story(seen: Seen) -> None:
        await seen.press("H")
        await seen.until_shows("1 of 1 answer")
        await seen.until(lambda: "ago" in seen.row_of("lab1"), "the age of what is shown")
        assert seen.row_of("lab1").startswith("lab1  as of ")
        lab.standins["lab1"].show(Machine((replace(t4("GPU-a"), utilization=88),)))
        await seen.until_shows(" 88 ")

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


@pytest.mark.parametrize(("oom_attempts", "sign"), [(0, "✓"), (1, "▼")])
def test_sign_of_a_run_is_the_one_of_dashboard_and_history(oom_attempts: int, sign: str) -> None:
    add_run = {"workload": "train", "state": "succeeded", "label": "x", "oom_attempts": oom_attempts}
    mirror = Mirror()
    mirror.read(json.dumps({"type": "hello", "protocol": PROTOCOL, "kgops": "0.1.0"}).encode())
    mirror.read(
        json.dumps({"type": "picture", **_picture(random.Random(24)), "run": {"4": add_run}}).encode()
    )
    state = HostState("lab1", "lab1", "live", heard_at=1e9, tables=mirror.tables)
    (row,) = (row for row in HostsPage().rows([state], 120, 1e9) if row.key == ("run", "lab1", 4))
    assert f"{sign} succeeded" in "".join(piece.text for piece in row.pieces)
