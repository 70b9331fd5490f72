"""While others work, runs come and end and what one looks at stays in sight; leaving leaves nothing open."""

from __future__ import annotations

from pathlib import Path

from driving import Console
from screen_driving import open_screens
from screen_history import (
    WAITS,
    add,
    fill,
    keys,
    opened,
    shown,
    until_settled,
    window,
)

from kgops.present.listing import Listing, strictly
from storage.database import Connection, transaction


async def test_runs_that_come_and_end_show_while_one_looks_and_the_cursor_stays(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "first", "--", "true").code == 0
    going = run_cli.detach("sh", "-c", WAITS, flags=("--label", "second"))
    run_cli.running(going)
    async with open_screens(run_cli.home, (80, 24)) as seen:
        await opened(seen)
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
    async with open_screens(home, (80, 24)) as seen:
        await opened(seen)
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
        await seen.press("g")
        await until_settled(seen)
        assert shown(seen)[0] == 910


async def test_however_many_a_filter_shows_the_last_of_them_is_reached_by_key_and_wheel(
    home: Path, conn: Connection
) -> None:
    fill(conn, 400)
    async with open_screens(home, (80, 24)) as seen:
        await opened(seen)
        await until_settled(seen)
        counts = set()
        for text in ("state:failed", "go 77", "go 7", "nosuch", "mrr>0.5", ""):
            expected = Listing(conn)
            expected.show(strictly(text))
            count = len(expected.numbers)
            counts.add(count)
            await seen.press("slash", "ctrl+u")
            await keys(seen, text)
            await seen.press("enter")
            await until_settled(seen)
            body = window(seen)
            assert body.max_scroll_y == max(count - body.size.height, 0)
            await seen.press("G")
            await until_settled(seen)
            assert shown(seen) == list(expected.numbers)[-body.size.height :]
        assert {0, 4, 80, 400} < counts


async def test_keys_that_change_runs_mean_here_what_they_mean_elsewhere(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "ended", "--", "sh", "-c", "exit 3").code == 1
    going = run_cli.detach("sh", "-c", WAITS, flags=("--label", "going"))
    run_cli.running(going)
    async with open_screens(run_cli.home, (140, 30)) as seen:
        await opened(seen)
        await seen.until_shows("2 runs")
        await seen.press("s")
        await seen.until_shows("y yes")
        await seen.press("y")
        await seen.until_shows("■")
        await seen.press("down", "t")
        await seen.until_shows("tags of run 1: word")
        await keys(seen, "paper")
        await seen.press("enter")
        await seen.until(lambda: "paper" in "".join(seen.lines()[4:]), "the tag")
        await seen.press("enter")
        await seen.until_shows("1 exec ended", "Record")
        await seen.press("h")  # the one it was opened from, as it was
        await seen.until_shows("submitted", "2 runs")
        assert window(seen).key == 1
        await seen.press("escape")
        await seen.until_shows("RECENT")


async def test_leaving_while_something_is_looked_up_leaves_nothing_open(home: Path, conn: Connection) -> None:
    fill(conn, 300)
    async with open_screens(home, (80, 24)) as seen:
        await seen.until_shows("RECENT")
        for _ in range(5):
            await seen.press("h", "greater_than_sign", "escape")
        await seen.press("h", "slash", "a", "b", "q", "escape", "escape")
        await seen.until_shows("RECENT")
