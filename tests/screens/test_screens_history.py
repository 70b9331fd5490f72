"""Any run of any number of them is reached at any size, only what is in sight is read, and it stays while runs come."""

import threading
from pathlib import Path

import pytest
from driving import Console, patience
from screen_driving import open_screens
from screen_history import (
    HOSTILE,
    WAITS,
    add,
    answered,
    busy,
    fill,
    listed,
    opened,
    shown,
    until_settled,
    window,
)

from kgops.present.formats import width_of
from kgops.present.listing import Listing, strictly
from kgops.settings import Home
from screens.history import History
from screens.history_query import HistoryReader, Page, Query
from storage import reports
from storage.database import Connection, transaction


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 100)])
async def test_any_run_of_many_is_reached_and_no_line_stays_empty(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    fill(conn, 1500)
    async with open_screens(home, size, first=opened) as seen:
        await seen.until_shows("1,500 runs")
        assert shown(seen)[:3] == [1500, 1499, 1498]
        page = len(shown(seen))
        for key, first in (("G", page), ("g", 1500), ("pagedown", 1500 - page + 1)):
            await answered(seen, key)
            expected = list(range(first, first - page, -1))
            assert shown(seen) == expected
            assert all(f" go {number}" in seen.text for number in expected)
        await seen.press("g")
        with busy(seen):  # back at this end before the rows of the other were read
            await seen.press("G", "g")
        await until_settled(seen)
        assert shown(seen) == list(range(1500, 1500 - page, -1))
        assert all(f" go {number}" in seen.text for number in shown(seen))
        for _ in range(12):
            await seen.press("pagedown")
        await until_settled(seen)
        assert all(f"go {number}" in seen.text for number in shown(seen))


def test_only_rows_around_what_is_in_sight_are_read(home: Path, conn: Connection) -> None:
    fill(conn, 1500)
    browser = HistoryReader(Home(home))
    for around in (0, 700, 1499):
        found = browser.look(Query(around=around))
        assert len(found.numbers) == 1500
        assert len(found.runs) == 200
        assert found.numbers[around] in found.runs
    browser.close()
    assert browser.look(Query()).numbers == ()


@pytest.mark.parametrize("moved", ["while they are read", "before, while others are read"])
async def test_a_cursor_that_is_moved_while_rows_are_read_again_stays_there(
    home: Path, conn: Connection, monkeypatch: pytest.MonkeyPatch, moved: str
) -> None:
    fill(conn, 3)
    read, gate, begun = HistoryReader.look, threading.Event(), threading.Event()
    gate.set()
    reads = 0

    def slow(reader: HistoryReader, query: Query) -> Page:
        nonlocal reads
        reads += 1
        page = read(reader, query)
        begun.set()
        assert gate.wait(patience())
        return page

    monkeypatch.setattr(HistoryReader, "look", slow)
    async with open_screens(home) as seen:
        await seen.press("h")
        await seen.until(lambda: window(seen).key == 3, "run 3")
        screen = seen.app.screen
        assert isinstance(screen, History)
        await seen.until(lambda: not screen._reading and not screen._reload_pending, "the first rows")
        screen._reload_pending = True  # the feed's first state may come at any time
        gate.clear()
        before = reads
        if moved.startswith("before"):
            begun.clear()
            screen.request(around=1)
            await seen.until(begun.is_set, "another read")
        screen.reload()
        screen._reload_pending = True
        await seen.press("down")
        assert window(seen).key == 2
        gate.set()
        await seen.until(lambda: not screen._reading, "the rows")
        assert window(seen).key == 2
        wanted = 2 if moved.startswith("before") else 1
        assert reads - before == wanted, "whoever holds a key would see no rows for as long"


@pytest.mark.parametrize("width", [50, 80, 120, 200])
async def test_labels_are_drawn_as_text_and_columns_fall_away_from_the_right(
    home: Path, conn: Connection, width: int
) -> None:
    with transaction(conn):
        add(conn, 1, label=HOSTILE)
        add(conn, 2, label="plain")
        reports.change_tags(conn, 2, add=["keep"], remove=[])
    async with open_screens(home, (width, 24), first=opened) as seen:
        await seen.until_shows("plain")
        assert not {"\x1b", "\u202e"} & set(seen.text)
        hostile, plain = (
            next(line for line in seen.lines()[3:] if name in line) for name in ("[bold", "plain")
        )
        if width >= 80:  # up to the minutes of a time
            assert width_of(hostile.partition(":")[0]) == width_of(plain.partition(":")[0])
        assert max(width_of(line) for line in seen.lines()) <= width
        heads = [
            *("RUN▼", "workload", "label", "submitted", "took", "metric", "GPU MiB", "host MiB", "why"),
            *("profile", "tags"),
        ]
        head = next(line for line in seen.lines() if line.lstrip().startswith("RUN▼"))
        there = [name for name in heads if name in head]
        assert there == heads[: len(there)]
        assert len(there) == {50: 3, 80: 6, 120: 9, 200: 9}[width]
        await seen.until(lambda: ("keep" in seen.text) == (width >= 160), "tags in the pane")


async def test_memory_of_gpus_and_of_the_host_are_columns_that_a_click_sorts_by(
    home: Path, conn: Connection
) -> None:
    with transaction(conn):
        for number, gpu, host in ((1, 2_000.0, 9_000.0), (2, None, 5_000.0), (3, 3_000.0, 1_000.0)):
            add(conn, number, label="plain")
            conn.execute(
                "UPDATE run SET peak_gpu_mib = ?, peak_host_mib = ? WHERE id = ?", (gpu, host, number)
            )
    async with open_screens(home, first=opened) as seen:
        await seen.until_shows("GPU MiB", "host MiB")
        row = next(line for line in seen.lines() if "9,000" in line)
        assert row.split()[-2:] == ["2,000", "9,000"]
        head = next(line for line in seen.lines() if "GPU MiB" in line)
        for name, expected in (("GPU MiB", [3, 1, 2]), ("host MiB", [1, 2, 3]), ("host MiB", [3, 2, 1])):
            await seen.pilot.click("#columns", offset=(head.index(name), 0))
            await until_settled(seen)
            assert shown(seen) == expected


async def test_a_terminal_that_grows_or_shrinks_shows_as_many_rows_as_fit(
    home: Path, conn: Connection
) -> None:
    fill(conn, 900)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await answered(seen, "G")
        for size in ((120, 60), (200, 120), (60, 12), (80, 24)):
            await seen.pilot.resize_terminal(*size)
            await until_settled(seen)
            assert len(seen.lines()) == size[1]
            assert shown(seen) == list(range(shown(seen)[0], 0, -1)) or window(seen).key in shown(seen)
            assert window(seen).key == 1
            assert all("go" in line for line in listed(seen))


async def test_runs_that_come_and_end_show_while_one_looks_and_the_cursor_stays(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "first", "--", "true").code == 0
    run_cli.going("sh", "-c", WAITS, flags=("--label", "second"))
    async with open_screens(run_cli.home, (80, 24), first=opened) as seen:
        await seen.until_shows("2 runs", "running")
        await seen.press("down")
        assert window(seen).key == 1
        (run_cli.cwd / "gate").touch()
        await seen.until_gone("running")
        run_cli("run", "exec", "--label", "third", "--", "true")
        await seen.until_shows("3 runs", "third")
        assert shown(seen) == [3, 2, 1]
        assert window(seen).key == 1
        run_cli("delete", "1", "--yes")
        await seen.until_shows("2 runs")
        assert window(seen).key == 2


async def test_rows_that_were_scrolled_to_stay_in_sight_when_runs_come(home: Path, conn: Connection) -> None:
    fill(conn, 900)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await seen.until_shows("900 runs")
        window(seen).scroll_to(y=600, animate=False)  # as a wheel does: the cursor stays where it was
        await seen.until_shows("go 295")
        before = shown(seen)
        with transaction(conn):
            for number in range(901, 911):
                add(conn, number)
        await seen.until_shows("910 runs")
        await until_settled(seen)
        assert shown(seen) == before
        assert all(f"go {number}" in seen.text for number in before)
        await answered(seen, "g")
        assert shown(seen)[0] == 910


async def test_however_many_a_filter_shows_the_last_of_them_is_reached_by_key_and_wheel(
    home: Path, conn: Connection
) -> None:
    fill(conn, 400)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await until_settled(seen)
        counts = set()
        for text in ("state:failed", "go 77", "go 7", "nosuch", "mrr>0.5", ""):
            expected = Listing(conn)
            expected.show(strictly(text))
            count = len(expected.numbers)
            counts.add(count)
            await answered(seen, "slash", "ctrl+u", *text, "enter")
            body = window(seen)
            assert body.max_scroll_y == max(count - body.size.height, 0)
            await answered(seen, "G")
            assert shown(seen) == list(expected.numbers)[-body.size.height :]
        assert {0, 4, 80, 400} < counts


async def test_keys_that_change_runs_mean_here_what_they_mean_elsewhere(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "ended", "--", "sh", "-c", "exit 3").code == 1
    run_cli.going("sh", "-c", WAITS, flags=("--label", "going"))
    async with open_screens(run_cli.home, (140, 30), first=opened) as seen:
        await seen.until_shows("2 runs")
        await seen.press("s", shows="y yes")
        await seen.press("y", shows="■")
        await seen.press("down", "t", shows="tags of run 1: word")
        await seen.press(*"paper", "enter")
        await seen.until(lambda: "paper" in "".join(seen.lines()[4:]), "the tag")
        await seen.press("enter", shows=("1 exec ended", "Record"))
        await seen.press("h")  # the one it was opened from, as it was
        await seen.until_shows("submitted", "2 runs")
        assert window(seen).key == 1
        await seen.press("escape", shows="RECENT")


async def test_leaving_while_something_is_looked_up_leaves_nothing_open(home: Path, conn: Connection) -> None:
    fill(conn, 300)
    async with open_screens(home, (80, 24), shows="RECENT") as seen:
        for _ in range(5):
            await seen.press("h", "greater_than_sign", "escape")
        await seen.press("h", "slash", "a", "b", "q", "escape", "escape", shows="RECENT")
