"""Marks stay whatever is shown; what is marked is tagged, deleted or written together."""

import csv
import json
from pathlib import Path

import pytest
from driving import Console
from screen_driving import open_screens
from screen_history import WAITS, answered, fill, fill_in, opened, shown

from kgops.present.listing import Listing, strictly
from storage import reports
from storage.database import Connection


async def test_marks_stay_whatever_is_shown(home: Path, conn: Connection) -> None:
    fill(conn, 20)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await seen.press("space", "down", "space", shows="2 marked")
        assert [line for line in seen.lines() if line.startswith("●")] == [
            line for line in seen.lines() if line.startswith(("●     20", "●     18"))
        ]
        await answered(seen, "slash", *"state:failed", "enter")
        await seen.press("asterisk", shows="5 marked")  # 20 is a failed one
        await seen.press("greater_than_sign", "asterisk", shows="1 marked")
        await seen.press("slash", "ctrl+u", "enter", shows="20 runs")
        assert [line.split()[1] for line in seen.lines() if line.startswith("●")] == ["18"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_before_a_deletion_runs_that_the_filter_hides_are_counted(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    fill(conn, 20)
    async with open_screens(home, size, first=opened) as seen:
        await seen.press("space", "space", "space", shows="3 marked")
        await answered(seen, "slash", *"state:failed", "enter")
        here = len({20, 19, 18} & set(shown(seen)))
        assert here < 2
        await seen.press("d", shows=(f"{3 - here} of them not shown here", "y yes"))
        await seen.press("n", gone="not shown here")


async def test_deleting_asks_once_and_leaves_what_goes_on(run_cli: Console) -> None:
    for _ in range(3):
        assert run_cli("run", "exec", "--", "true").code == 0
    folders = {number: run_cli.folder(number) for number in (1, 2, 3)}
    going = run_cli.going("sh", "-c", WAITS)
    async with open_screens(run_cli.home, first=opened) as seen:
        await seen.until_shows("4 runs")
        await seen.press("space", "space", "space", shows="3 marked")
        await seen.press("d", shows="delete 2 runs and their folders (1 unfinished is kept)? This cannot be")
        await seen.press("escape", shows=("4 runs", "spc mark"))
        assert all(folder.exists() for folder in folders.values())
        await seen.press("d", shows="This cannot be undone")
        await seen.press("y", shows="2 runs deleted")
        await seen.until_shows("1 marked", "2 runs")
        assert [folder.exists() for folder in folders.values()] == [True, False, False]
        assert shown(seen) == [4, 1]
        await seen.press("asterisk", "asterisk", "G", "d")
        await seen.until_shows("delete run 1 and its folder? This cannot be undone")
        await seen.press("y")
        await seen.until(lambda: 1 not in shown(seen), "run 1 to go")
        assert shown(seen) == [4]
        await seen.press("d", shows="stop unfinished runs first")
    assert run_cli.running(going)


async def test_marked_runs_are_tagged_together_or_not_at_all(home: Path, conn: Connection) -> None:
    fill(conn, 30)
    async with open_screens(home, (130, 30), first=opened) as seen:
        await seen.press("slash", *"state:failed", "enter", shows="6 of 30 runs")
        await seen.press("asterisk", "t", shows="tags of the 6 marked runs")
        await seen.press(*"paper old", "enter", shows="changed the tags of 6 runs")
        await seen.press("t", *"-old", "enter")
        await seen.until(lambda: "old" not in reports.tags(conn, 5), "a tag to go")
        tagged = [number for number in range(1, 31) if reports.tags(conn, number)]
        assert tagged == [5, 10, 15, 20, 25, 30]
        assert {tag for number in tagged for tag in reports.tags(conn, number)} == {"paper"}
        await seen.press("t", shows="tags of the 6 marked runs")
        await fill_in(seen, "fine " + "x" * 999)
        await seen.until_shows("is not a valid tag")
        assert reports.tags(conn, 5) == ["paper"]


@pytest.mark.parametrize("ending", ["csv", "json"])
async def test_what_is_shown_or_marked_is_written_to_a_new_file(
    home: Path, conn: Connection, tmp_path: Path, ending: str
) -> None:
    fill(conn, 700)
    path = tmp_path / f"out.{ending}"

    def numbers() -> list[int]:
        if ending == "json":
            return [row["id"] for row in json.loads(path.read_text())]
        with path.open(newline="") as file:
            return [int(row["id"]) for row in csv.DictReader(file)]

    async with open_screens(home, (150, 30), first=opened) as seen:
        await answered(seen, "slash", *"mrr>0.2", "enter", "greater_than_sign", "greater_than_sign")
        await seen.press("w", shows=(" shown runs to which", f".{ending}"))
        await fill_in(seen, str(path))
        await seen.until_shows(f"written to {path}")
        by_hand = Listing(conn)
        by_hand.show(strictly("mrr>0.2"))
        assert sorted(numbers()) == sorted(by_hand.numbers)
        assert "mrr" in path.read_text()
        await seen.press("w", shows="shown runs to which")
        await fill_in(seen, str(path))
        await seen.until_shows("already exists")
        path.unlink()
        await seen.press("space", "space", "w", shows="write the 2 marked runs")
        await fill_in(seen, str(path))
        await seen.until_shows("2 runs written to")
        assert len(numbers()) == 2


@pytest.mark.parametrize("ending", ["csv", "json"])
async def test_marks_of_runs_deleted_elsewhere_are_forgotten(run_cli: Console, ending: str) -> None:
    for _ in range(4):
        run_cli("run", "exec", "--", "true")
    path = run_cli.cwd / f"out.{ending}"
    async with open_screens(run_cli.home, (150, 30), first=opened) as seen:
        await seen.until_shows("4 runs")
        await seen.press("space", "space", "space", shows="3 marked")
        assert run_cli("delete", "4", "--yes").code == 0
        await seen.until_shows("2 marked", "3 runs")
        await seen.press("p", shows="paused")
        assert run_cli("delete", "3", "--yes").code == 0
        await seen.press("w", shows="write the 2 marked runs")
        await fill_in(seen, str(path))
        await seen.until_shows("1 run written to")
        await seen.press("p", shows=("1 marked", "2 runs"))
        await seen.press("equals_sign", shows="mark 2 to 8 runs")
    assert path.read_text().count("succeeded") == 1
