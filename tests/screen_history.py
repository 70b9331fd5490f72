"""A history to look through, and a person's hands on its screen."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import records
from screen_driving import Seen

from screens.history import History
from screens.widgets.row_window import RowWindow
from storage import runs, series
from storage.database import Connection, transaction

HOSTILE = "[bold red]x[/] \x1b[31m \u202eevil 日本 @click=app.quit"
WAITS = "echo ready; while [ ! -e gate ]; do sleep 0.05; done"


def add(conn: Connection, number: int, **given: object) -> None:
    """An ended run as one might be, unless something else is given."""
    it: dict[str, object] = {
        "workload": ("train", "exec", "tracin")[number % 3],
        "label": f"{('umls', 'nations', 'wn18rr')[number % 7 % 3]} go {number}",
        "profile": "t4" if number % 2 else "",
        "state": "failed" if number % 5 == 0 else "succeeded",
        "peak": None if number % 11 == 0 else float(number * 7 % 1000),
        "took": float(number * 13 % 500),
        "mrr": (number * 37 % 1000) / 1000,
        **given,
    }
    at = time.time() - 10_000 + number
    records.add(
        conn,
        number,
        workload=str(it["workload"]),
        label=str(it["label"]),
        profile=str(it["profile"]) or None,
        submitted_at=at,
        job={"exec": {"command": ["true"]}},
    )
    conn.execute("UPDATE run SET started_at = ?, peak_host_mib = ? WHERE id = ?", (at, it["peak"], number))
    series.append(conn, number, [series.Point("mrr", 1, it["mrr"], at)])  # type: ignore[arg-type]
    runs.end(
        conn,
        number,
        state=str(it["state"]),
        reason="exit code 3" if it["state"] == "failed" else None,
        exit_code=0,
        ended_at=at + it["took"],  # type: ignore[operator]
    )


def fill(conn: Connection, count: int) -> None:
    with transaction(conn):
        for number in range(1, count + 1):
            add(conn, number)


async def opened(seen: Seen) -> None:
    await seen.until_shows("RECENT")
    await seen.press("h")
    await seen.until(lambda: "RUN▼" in seen.text or "RUNv" in seen.text, "the history")


def window(seen: Seen) -> RowWindow:
    return seen.app.screen.query_one("#body", RowWindow)


def listed(seen: Seen) -> list[str]:
    """The lines of the list, without its pane."""
    region = seen.app.screen.query_one("#body").region
    return seen.lines()[region.y : region.bottom]


def shown(seen: Seen) -> list[int]:
    """The numbers of the runs in sight, from the top."""
    words = [line.replace("●", " ").split() for line in listed(seen)]
    return [int(word[0]) for word in words if word and word[0].isdigit()]


@contextmanager
def busy(seen: Seen) -> Iterator[None]:
    """The disk answers nothing meanwhile."""
    screen = seen.app.screen
    assert isinstance(screen, History)
    with screen._reader._one_at_a_time:
        yield


async def until_settled(seen: Seen) -> None:
    """Whatever was asked has been answered."""
    screen = seen.app.screen
    assert isinstance(screen, History)
    await seen.until(lambda: not screen._reading, "an answer")
    await seen.wait(0.02)


async def answered(seen: Seen, *keys: str) -> None:
    """Once what these keys ask for has been answered."""
    await seen.press(*keys)
    await until_settled(seen)


async def fill_in(seen: Seen, text: str) -> None:
    entry = seen.app.screen.query_one("Input")
    entry.value = text  # type: ignore[attr-defined]
    await seen.press("enter")
