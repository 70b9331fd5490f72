"""Alerts stay until somebody acknowledges them, open what they are about, and come before notes."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from driving import Console, Terminal
from nvml_standin import Machine, StandIn, t4
from records import add
from screen_driving import Seen, open_screens, shown_after

from kgops.present.overview import ended_while_away, live_alerts, recorded_alerts
from kgops.present.wording import notification
from kgops.supervisor.alerts import Alert
from screens.widgets.lines import Lines
from storage import alerts, runs
from storage.database import Connection


def ended(conn: Connection, number: int, state: str = "succeeded", reason: str | None = None) -> None:
    add(conn, number, folder=f"{number:04d}-exec", submitted_at=float(number))
    runs.end(conn, number, state=state, reason=reason, exit_code=1, ended_at=float(number))


async def test_a_failed_run_is_an_alert_however_many_ended_since(conn: Connection, home: Path) -> None:
    ended(conn, 1, "failed", "exit code 3")
    for number in range(2, 30):
        ended(conn, number)
    async with open_screens(home, shows="! run 1  failed: exit code 3") as seen:
        assert seen.app.screen.query_one("#body").key == ("alert", "failed:run 1:0")  # type: ignore[attr-defined]
        await seen.press("enter")  # one key says why
        await seen.until_shows("1 exec", "✗ failed")
        await seen.press("escape", shows="ALERTS")
        await seen.press("A", gone="run 1  failed")
    assert recorded_alerts(conn) == ()


def test_a_resumed_run_that_fails_again_is_a_new_alert(conn: Connection) -> None:
    ended(conn, 1, "failed", "first")
    (alert,) = recorded_alerts(conn)
    alerts.acknowledge(conn, [alert.name])
    assert recorded_alerts(conn) == ()
    conn.execute("UPDATE run SET attempts = 2, reason = 'second' WHERE id = 1")
    assert [one.text for one in recorded_alerts(conn)] == ["failed: second"]


async def test_all_alerts_can_be_acknowledged_after_a_question(conn: Connection, home: Path) -> None:
    ended(conn, 1, "failed")
    ended(conn, 2, "out_of_memory")
    ended(conn, 3)
    async with open_screens(home, shows=("ALERTS", "RECENT")) as seen:
        await seen.press("end", "A", shows="acknowledge all 2 alerts?")
        await seen.press("n", shows="ALERTS")
        await seen.press("A", "y", gone="ALERTS")


@pytest.mark.parametrize(("height", "shown"), [(24, 3), (40, 6)])
async def test_alerts_beyond_the_first_are_reached(
    conn: Connection, home: Path, height: int, shown: int
) -> None:
    for number in range(1, 11):
        ended(conn, number, "failed", f"exit code {number}")

    def listed(seen: Seen) -> int:
        body = seen.app.screen.query_one("#body", Lines)
        return sum(isinstance(row.key, tuple) and row.key[0] == "alert" for row in body.rows)

    async with open_screens(home, (80, height), shows=f"and {10 - shown} more: Enter shows all") as seen:
        assert listed(seen) == shown
        await seen.press(*["down"] * shown, "enter")
        await seen.until(lambda: listed(seen) == 10, "all alerts")
        await seen.press("enter")
        await seen.until(lambda: listed(seen) == shown, "the first alerts")


@pytest.mark.parametrize("key", [b"h", b"f", b"\r"], ids=["history", "profiles", "run"])
def test_alerts_are_notified_of_from_every_screen(
    run_cli: Console, key: bytes, open_terminal: Callable[..., Terminal]
) -> None:
    run_cli("run", "exec", "--", "true")
    shown = {b"h": b"submitted", b"f": b"a100", b"\r": b"Record"}[key]
    command = ["env", "-u", "TMUX", "KGOPS_NOTIFY=osc9", *run_cli.argv("tui")]
    terminal = open_terminal(argv=command)
    terminal.wait_for_text(b"RECENT")
    terminal.type(key)
    terminal.wait_for_text(shown)
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")
    terminal.wait_for_text(b"\x1b]9;kgops: run 2: failed: exit code 3\x07")
    terminal.type(b"\x1b")
    terminal.wait_for_text(b"ALERTS")
    terminal.read(0.5)
    assert terminal.seen.count(b"\x1b]9;") == 1


async def test_what_ended_while_nobody_looked_is_told_on_opening(conn: Connection, home: Path) -> None:
    ended(conn, 1)
    assert ended_while_away(conn) is None
    conn.execute("INSERT INTO acknowledged VALUES ('console left', 1.5)")
    ended(conn, 2)
    ended(conn, 3)
    ended(conn, 4, "out_of_memory")
    async with open_screens(home, shows="while you were away: 2 finished, 1 out of memory"):
        pass
    assert ended_while_away(conn) is None  # the console was left again


def running(rate: float | None, reported_at: float) -> runs.Run:
    return runs.Run(
        id=7, state="running", rate=rate, reported_at=reported_at, done=3.0, total=10.0, label="x", attempts=1
    )


def test_no_progress_for_five_usual_steps_is_an_alert(tmp_path: Path) -> None:
    from kgops.settings import Home

    home, now = Home(tmp_path), time.time()
    slow = running(1 / 100, now - 501)  # 100 s a step
    assert [one.kind for one in live_alerts(home, [slow], (), now)] == ["no progress"]
    assert live_alerts(home, [running(1 / 100, now - 499)], (), now) == ()
    assert live_alerts(home, [running(50.0, now - 5)], (), now) == ()  # a fast run that writes a checkpoint
    assert live_alerts(home, [running(None, now - 3600)], (), now) == ()  # its usual step is unknown


def test_a_gpu_that_others_fill_or_that_is_hot_is_an_alert_and_opens(
    run_cli: Console, standin: StandIn
) -> None:
    full = replace(t4("GPU-a", used_mib=14_800, processes=((os.getpid(), 14_700),)), temperature=88)
    standin.show(Machine((t4("GPU-b"), full)))
    lines = standin.ask(shown_after, run_cli.home, ((), ("ALERTS",)))
    told = [line for line in lines if line.startswith("! ")]
    assert any("GPU 1 is hot" in line for line in told)
    assert any("GPU 1 is filled by other users" in line for line in told)
    assert not any("GPU 0" in line for line in told)


def test_a_notification_is_one_escape_sequence_whatever_the_run_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    alert = Alert("failed", "failed:run 7:1", "evil \x1b]0;x\x07 \n end", running(None, 0.0))
    shown = notification(alert)
    assert shown.startswith("\x1b]9;kgops: run 7: evil") and shown.endswith("\x07")
    assert not any(char < " " for char in shown[2:-1])
    monkeypatch.setenv("TMUX", "/tmp/tmux")
    assert notification(alert).startswith("\x1bPtmux;\x1b\x1b]9;")
