"""The wall clock is set while runs go on: nothing that counts seconds goes by it, and no run ends before it began."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from driving import QUICK, wait_for
from preloading import PreloadedConsole, preloaded

HOUR_S = 3600
UNTIL_GATE = "while [ ! -e gate ]; do sleep 0.05; done"
Set = Callable[[float], None]


@pytest.fixture
def clock(home: Path, tmp_path: Path) -> Iterator[tuple[PreloadedConsole, Set]]:
    """A console, and what sets the clock of all its processes by so many seconds from the true time."""
    with preloaded(home, tmp_path, "shifted_clock", file="CLOCK_FILE") as made:
        yield made


@pytest.mark.parametrize("set_by_s", [-2 * HOUR_S, 2 * HOUR_S], ids=["back", "forward"])
def test_run_takes_no_longer_for_a_clock_that_is_set(
    clock: tuple[PreloadedConsole, Set], set_by_s: float
) -> None:
    console, set_clock = clock
    number = console.going("sh", "-c", UNTIL_GATE)
    set_clock(set_by_s)
    (console.cwd / "gate").touch()
    run = console.ended(number)
    assert run.started_at is not None and run.ended_at is not None
    assert 0 <= run.ended_at - run.started_at < HOUR_S
    (attempt,) = console.show(number)["attempt"]
    assert 0 <= attempt["ended_at"] - attempt["started_at"] < HOUR_S


@pytest.mark.parametrize("set_by_s", [-1000 * HOUR_S, 1000 * HOUR_S], ids=["back", "forward"])
def test_grace_of_a_stop_is_seconds_whatever_the_clock_says(
    clock: tuple[PreloadedConsole, Set], set_by_s: float
) -> None:
    console, set_clock = clock
    deaf = "trap '' TERM; touch deaf; while :; do sleep 0.05; done"
    killed = console.detach("sh", "-c", deaf)
    wait_for((console.cwd / "deaf").exists, "a worker that ignores SIGTERM")
    assert console("stop", "--no-wait", "--grace", "1", str(killed)).code == 0
    set_clock(set_by_s)
    assert console.ended(killed).state == "cancelled"
    spared = console.detach(*QUICK, PATIENT)
    wait_for((console.cwd / "ready").exists, "a worker that takes its time")
    assert console("stop", "--no-wait", "--grace", "40", str(spared)).code == 0
    wait_for((console.cwd / "asked").exists, "SIGTERM")
    set_clock(-set_by_s)
    (console.cwd / "gate").touch()
    ended = console.ended(spared)
    assert (ended.state, (console.cwd / "saved").exists()) == ("cancelled", True)


PATIENT = """
import os, signal, time
def save(*_):
    open("asked", "w").close()
    while not os.path.exists("gate"): time.sleep(0.02)
    time.sleep(1.5)
    open("saved", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
open("ready", "w").close()
while True: time.sleep(0.05)
"""


def test_runs_keep_their_order_when_the_clock_is_set_back(clock: tuple[PreloadedConsole, Set]) -> None:
    console, set_clock = clock
    console.detach("sh", "-c", UNTIL_GATE)
    console.running(1)
    set_clock(-400 * 24 * HOUR_S)
    for label in ("waits first", "waits second"):
        console.detach("sh", "-c", f"echo '{label}' >> order", flags=("--exclusive", "--label", label))
    (console.cwd / "gate").touch()
    for number in (1, 2, 3):
        console.ended(number)
    assert (console.cwd / "order").read_text() == "waits first\nwaits second\n"
    assert [run["id"] for run in console("runs", "--json").json()] == [3, 2, 1]
    listed = console("runs", "--since", "1d", "--sort", "time")
    assert (listed.code, "Traceback" in listed.err) == (0, False)
