"""Beside a wide list stands the run under the cursor: what became of it, its main curve, options and log."""

import os
import pwd
import time
from pathlib import Path

import pytest
import records
from driving import Console
from nvml_standin import Machine, StandIn, cuda_build, t4
from screen_driving import Seen, look, open_screens

from screens.widgets.lines import Lines
from storage import reports, runs, series
from storage.database import Connection, transaction
from storage.reports import Option

WIDE = (160, 50)
WHY = "no checkpoint of epoch 37 is left in the run's folder; write one with --checkpoint-frequency"


def add(home: Path, conn: Connection, number: int, *, state: str = "succeeded") -> None:
    at = time.time() - 10_000 + number
    folder = f"{number:04d}-train"
    (home / "runs" / folder).mkdir(parents=True)
    (home / "runs" / folder / "worker.log").write_text(f"begun\nlast \x1b[31mline of {number}\n")
    job = {"workload": "train", "train": {"num_epochs": 7 + number}}
    label = f"a label of run {number} that is rather long"
    with transaction(conn):
        records.add(
            conn,
            number,
            workload="train",
            label=label,
            folder=folder,
            profile="t4",
            submitted_at=at,
            job=job,
            plan={"choices": []},
        )
        conn.execute("UPDATE run SET started_at = ? WHERE id = ?", (at, number))
        series.append(conn, number, [series.Point("loss", n, 1 / n + number, at + n) for n in range(1, 30)])
        chosen = Option(1, "precision", "rounding", "fp16", "fp16", None, "profile t4")
        changed = Option(1, "compile", "rounding", "default", "off", "capability 6.1 < 7.0", "profile t4")
        reports.write_options(conn, number, [chosen, changed])
        reason = None if state == "succeeded" else WHY
        runs.end(conn, number, state=state, reason=reason, exit_code=0, ended_at=at + 60)


def pane(seen: Seen) -> str:
    """Its own text, whatever is beside it."""
    lines = seen.app.screen.query_one("#pane", Lines)
    return (
        "\n".join("".join(piece.text for piece in row.pieces) for row in lines.rows) if lines.display else ""
    )


async def until_pane_shows(seen: Seen, *texts: str) -> None:
    await seen.until(lambda: all(text in pane(seen) for text in texts), f"{texts} in the pane")


async def test_from_160_columns_history_shows_the_run_under_the_cursor(home: Path, conn: Connection) -> None:
    add(home, conn, 1, state="failed")
    add(home, conn, 2)
    async with open_screens(home, WIDE, shows="RECENT") as seen:
        await seen.press("h")
        await until_pane_shows(seen, "2 train a label", "✓ succeeded", "loss", "num_epochs", "line of 2")
        assert "\x1b" not in seen.text
        assert seen.lines()[-1].endswith("? help  q quit")  # the pane leaves the footer free
        options = pane(seen).partition("OPTIONS that differ from profile t4")[2]
        assert "compile" in options  # it was not applied as the profile chose
        assert "precision" not in options
        assert max(map(len, seen.lines())) <= WIDE[0]
        await seen.press("down")
        await until_pane_shows(seen, "1 train a label", "✗ failed", "no checkpoint of epoch 37", "line of 1")
        assert "--checkpoint-frequency" in seen.text  # on as many lines as it takes
        assert "line of 2" not in seen.text
        assert "of run 2 that is" in seen.row_of("       2")  # labels have the room that is left


async def test_the_dashboard_has_the_pane_too_and_follows_a_resize(home: Path, conn: Connection) -> None:
    add(home, conn, 1)
    async with open_screens(home, WIDE, shows="RECENT") as seen:
        await until_pane_shows(seen, "1 train a label", "num_epochs", "line of 1")
        await seen.pilot.resize_terminal(120, 40)
        await seen.until_gone("line of 1")
        assert pane(seen) == ""
        await seen.pilot.resize_terminal(200, 60)
        await until_pane_shows(seen, "line of 1")
        assert "line of 1" in seen.text


def gpu_in_pane(home: str, pid: str) -> list[str]:
    found: list[str] = []

    async def story(seen: Seen) -> None:
        await seen.until_shows("0 Tesla T4")
        await seen.press("home")  # the cursor opens on a run where runs were read before GPUs
        await until_pane_shows(seen, "GPU 0 Tesla T4", "PROCESSES", pid)
        await seen.press("down")
        await until_pane_shows(seen, "GPU 1 Tesla T4", "no process uses this GPU")
        found.extend(seen.lines())

    look(Path(home), story, WIDE)
    return found


def test_the_pane_shows_the_gpu_under_the_cursor_and_the_list_all_processes(
    home: Path, conn: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(cuda_build(tmp_path / "build")))  # else an alert has the cursor
    add(home, conn, 1)
    me, mine = os.getpid(), pwd.getpwuid(os.getuid()).pw_name
    standin = StandIn(tmp_path)
    standin.show(Machine((t4("GPU-a", used_mib=7_000, processes=((me, 6_900),)), t4("GPU-b"))))
    lines = standin.ask(gpu_in_pane, str(home), str(me))
    (listed,) = (line.split() for line in lines if line.split()[:1] == [str(me)])
    assert listed[1:4] == ["0", mine, "6,900"]


async def test_the_log_in_the_pane_goes_on_with_the_run(run_cli: Console) -> None:
    waits = "while [ ! -e {} ]; do sleep 0.05; done;"
    script = f"echo first; {waits.format('gate')} echo second; {waits.format('end')}"
    run_cli.going("sh", "-c", script)
    async with open_screens(run_cli.home, WIDE, shows="RUNNING") as seen:
        await until_pane_shows(seen, "first", "running")
        (run_cli.cwd / "gate").touch()
        await until_pane_shows(seen, "first", "second")
        (run_cli.cwd / "end").touch()
        await until_pane_shows(seen, "✓ succeeded")
