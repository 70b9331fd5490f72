"""Any number of runs is looked through without waiting: narrowed while one types, sorted, marked, written, deleted."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from driving import Console
from screen_driving import Seen, look

from kgops.cli.output import width_of
from kgops.runs.listing import Listing
from kgops.settings import Home
from screens.history import History
from screens.history_browsing import Asked, Browser
from screens.history_page import FIRST, completions
from screens.widgets.window import Window
from storage import reports, runs, series
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
    runs.add(
        conn,
        number=number,
        workload=str(it["workload"]),
        label=str(it["label"]),
        profile=str(it["profile"]) or None,
        state="queued",
        folder=f"{number:04d}",
        submitted_at=at,
        gpu=None,
        reserved_mib=None,
        exclusive=False,
        predicted_mib=None,
        spec=runs.RunSpec({"exec": {"command": ["true"]}}, {}, {}),
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
    await seen.until_shows("LATELY")
    await seen.press("h")
    await seen.until_shows("RUN▼" if seen.app._plain is None else "RUNv")


def window(seen: Seen) -> Window:
    return seen.app.screen.query_one("#body", Window)


def shown(seen: Seen) -> list[int]:
    """The numbers of the runs in sight, from the top."""
    words = [line.replace("●", " ").split() for line in seen.lines()[3:-1]]
    return [int(word[0]) for word in words if word and word[0].isdigit()]


@contextmanager
def busy(seen: Seen) -> Iterator[None]:
    """The disk answers nothing meanwhile."""
    screen = seen.app.screen
    assert isinstance(screen, History)
    with screen._browser._one_at_a_time:
        yield


async def until_settled(seen: Seen) -> None:
    """Whatever was asked has been answered."""
    screen = seen.app.screen
    assert isinstance(screen, History)
    await seen.until(lambda: not screen._looking, "an answer")
    await seen.wait(0.02)


async def keys(seen: Seen, text: str) -> None:
    named = {" ": "space", "-": "minus", ":": "colon", ">": "greater_than_sign", "<": "less_than_sign"}
    named |= {".": "full_stop", '"': "quotation_mark", "*": "asterisk", "=": "equals_sign"}
    await seen.press(*(named.get(char, char) for char in text))


# --- looking ---


def test_before_the_first_run_it_says_what_to_do_first(kgops_home: Path) -> None:
    async def story(seen: Seen) -> None:
        await seen.press("h")
        await seen.until_shows("No runs yet.", "chooses what to run", "kgops run")
        await seen.press("slash", "a", "escape", "space", "d", "w", "equals_sign", "greater_than_sign")
        assert not kgops_home.exists()  # looking makes nothing
        await seen.press("escape")
        await seen.until_shows("CARDS")

    look(kgops_home, story, (80, 24))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 100)])
def test_any_run_of_many_is_reached_and_no_line_stays_empty(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    fill(conn, 1500)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("1,500 runs")
        assert shown(seen)[:3] == [1500, 1499, 1498]
        page = len(shown(seen))
        for key, first in (("G", page), ("g", 1500), ("pagedown", 1500 - page + 1)):
            await seen.press(key)
            await until_settled(seen)
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

    look(home, story, size)


def test_only_rows_around_what_is_in_sight_are_read(home: Path, conn: Connection) -> None:
    fill(conn, 1500)
    browser = Browser(Home(home))
    for around in (0, 700, 1499):
        found = browser.look(Asked(around=around))
        assert len(found.numbers) == 1500
        assert len(found.runs) == 200
        assert found.numbers[around] in found.runs
    browser.close()
    assert browser.look(Asked()).numbers == ()


@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_labels_are_drawn_as_text_and_columns_fall_away_from_the_right(
    home: Path, conn: Connection, width: int
) -> None:
    with transaction(conn):
        add(conn, 1, label=HOSTILE)
        add(conn, 2, label="plain")
        reports.change_tags(conn, 2, add=["keep"], remove=[])

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("plain")
        assert not {"\x1b", "\u202e"} & set(seen.text)
        hostile, plain = (next(line for line in seen.lines() if name in line) for name in ("[bold", "plain"))
        if width >= 80:  # up to the minutes of a time
            assert width_of(hostile.partition(":")[0]) == width_of(plain.partition(":")[0])
        assert max(width_of(line) for line in seen.lines()) <= width
        heads = ["RUN▼", "workload", "label", "submitted", "took", "metric", "peak", "profile", "tags", "why"]
        head = next(line for line in seen.lines() if line.lstrip().startswith("RUN▼"))
        there = [name for name in heads if name in head]
        assert there == heads[: len(there)]
        assert len(there) == {50: 3, 80: 6, 120: 9, 200: 10}[width]
        assert ("keep" in seen.text) == (width >= 120)

    look(home, story, (width, 24))


def test_a_terminal_that_grows_or_shrinks_shows_as_many_rows_as_fit(home: Path, conn: Connection) -> None:
    fill(conn, 900)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("G")
        await until_settled(seen)
        for size in ((120, 60), (200, 120), (60, 12), (80, 24)):
            await seen.pilot.resize_terminal(*size)
            await until_settled(seen)
            assert len(seen.lines()) == size[1]
            assert shown(seen) == list(range(shown(seen)[0], 0, -1)) or window(seen).key in shown(seen)
            assert window(seen).key == 1
            assert all("go" in line for line in seen.lines()[5:-1])

    look(home, story, (80, 24))


def test_a_terminal_without_unicode_gets_ascii_alone(home: Path, conn: Connection) -> None:
    fill(conn, 3)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("space")
        await seen.until_shows("1 marked")
        assert seen.text.isascii()

    look(home, story, (80, 24), unicode=False)


def test_a_database_that_cannot_be_read_is_named_with_what_to_do(home: Path) -> None:
    (home / "kgops.db").write_bytes(b"no database at all " * 500)

    async def story(seen: Seen) -> None:
        await seen.until_shows("is damaged")
        await seen.press("h")
        await seen.until(lambda: isinstance(seen.app.screen, History), "the history")
        await seen.until_shows("is damaged", "doctor --rebuild")
        await seen.press("down", "space", "slash", "a", "enter", "greater_than_sign", "G", "d")
        await seen.until_shows("doctor --rebuild")
        await seen.press("escape")
        await seen.until(lambda: not isinstance(seen.app.screen, History), "the dashboard")

    look(home, story, (300, 30))


# --- the filter ---


def test_a_filter_narrows_while_it_is_typed_and_half_of_one_is_no_mistake(
    home: Path, conn: Connection
) -> None:
    fill(conn, 300)
    typed = "state:failed mrr>0.3 umls workload:tr"

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        for end in range(1, len(typed) + 1):
            await keys(seen, typed[end - 1])
            await until_settled(seen)
            by_hand = Listing(conn)
            reading = by_hand.type(typed[:end])
            assert not reading.troubles
            title = seen.lines()[0]
            assert by_hand.count == 300 or f"{by_hand.count} of 300 runs" in title, (typed[:end], title)
            assert shown(seen) == list(by_hand.numbers)[: len(shown(seen))]
        await seen.press("enter")
        await seen.until_shows(f"/ {typed}", "⏎ open")
        assert by_hand.count
        assert shown(seen)[0] == by_hand.numbers[0]

    look(home, story)


def test_of_keys_that_come_faster_than_answers_the_last_one_counts(home: Path, conn: Connection) -> None:
    fill(conn, 300)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        with busy(seen):
            await keys(seen, "state:failed mrr>0.5")  # nobody waits for what it finds
        by_hand = Listing(conn)
        by_hand.type("state:failed mrr>0.5")
        await seen.until_shows(f"{by_hand.count} of 300 runs")
        await until_settled(seen)
        assert f"{by_hand.count} of 300 runs" in seen.lines()[0]

    look(home, story)


def test_what_cannot_be_read_is_said_and_escape_takes_the_filter_before(home: Path, conn: Connection) -> None:
    fill(conn, 50)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        await keys(seen, "go 4")
        await seen.press("enter", "down", "down")
        await until_settled(seen)
        before, cursor = seen.text, window(seen).key
        await seen.press("slash")
        await keys(seen, " state:wrong")
        await seen.until_shows("there is no state 'wrong'", "states: queued")
        await keys(seen, " mmr>1")
        await seen.press("escape")
        await until_settled(seen)
        assert seen.text == before
        assert window(seen).key == cursor
        await seen.press("slash", "ctrl+u")
        await keys(seen, "state:wrong")
        await seen.press("enter")
        await seen.until_shows("left out: there is no state 'wrong'", "/ state:wrong")
        await seen.press("slash", "ctrl+u")
        await keys(seen, "mmr>1 ")
        await seen.until_shows("no run has a figure 'mmr'; did you mean 'mrr'?")

    look(home, story, (150, 30))


def test_where_nothing_is_like_the_filter_it_says_how_to_go_on(home: Path, conn: Connection) -> None:
    fill(conn, 5)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        await keys(seen, "nosuch")
        await seen.press("enter")
        await seen.until_shows("0 of 5 runs", "No run is like that.", "changes the filter")
        await seen.press("down", "G", "g", "space", "enter")  # there is nothing under the cursor
        assert "No run is like that." in seen.text

    look(home, story, (80, 24))


def test_runs_are_moved_through_while_the_filter_is_typed(home: Path, conn: Connection) -> None:
    fill(conn, 100)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        await keys(seen, "go")
        await until_settled(seen)
        await seen.press("down", "down")
        assert window(seen).key == 98
        await seen.press("enter", "enter")
        await seen.until_shows("98 tracin", "JOB")

    look(home, story, (80, 24))


def test_tab_completes_keys_states_and_figures(home: Path, conn: Connection) -> None:
    assert completions("mrr>0.3 wor", (), ()) == ["mrr>0.3 workload:"]
    assert completions("-ta", (), ()) == ["-tag:"]
    assert completions("test_m", ("test_mrr", "test_mean"), ()) == ["test_mrr", "test_mean"]
    assert completions("x -tag:pa", (), ("old", "paper")) == ["x -tag:paper"]
    fill(conn, 20)
    reports.change_tags(conn, 3, add=["keep"], remove=[])

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        await keys(seen, "tag:")
        await seen.press("tab")
        await seen.until_shows("tag:keep", "1 of 20 runs")
        await seen.press("ctrl+u")
        await keys(seen, "sta")
        await seen.press("tab")
        await keys(seen, "f")
        await seen.press("tab")
        await seen.until_shows("state:failed", "4 of 20 runs")
        await seen.press("ctrl+u", "p", "e", "tab", "tab")
        await seen.until_shows("peak:  peak_card:  peak_host:")

    look(home, story)


# --- the order ---


def test_runs_are_sorted_by_each_column_and_the_other_way_round(home: Path, conn: Connection) -> None:
    fill(conn, 60)

    async def story(seen: Seen) -> None:
        await opened(seen)
        for by in [name for name in FIRST if name != "id"]:
            await seen.press("greater_than_sign")
            for descending in (FIRST[by], not FIRST[by]):
                await until_settled(seen)
                expected = [run.id for run in runs.page(conn, sort=by, descending=descending)]
                assert shown(seen) == expected[: len(shown(seen))], (by, descending)
                await seen.press("u")
        await seen.press("greater_than_sign")
        await until_settled(seen)
        assert shown(seen)[0] == 60
        await seen.press("less_than_sign")
        await until_settled(seen)
        assert "why▲" in seen.text

    look(home, story, (200, 30))


@pytest.mark.parametrize("descending", [True, False])
def test_time_and_peak_are_sorted_by_what_the_rows_show_also_page_by_page(
    conn: Connection, descending: bool
) -> None:
    fill(conn, 60)
    took = {number: float(number * 13 % 500) for number in range(1, 61)}
    peak = {number: float(number * 7 % 1000) for number in range(1, 61) if number % 11}
    for by, values in (("time", took), ("peak", peak)):
        paged: list[int] = []
        while page := runs.page(
            conn, sort=by, descending=descending, limit=7, after=paged[-1] if paged else None
        ):
            paged += [run.id for run in page]
        assert sorted(paged) == list(range(1, 61))
        having = [values[number] for number in paged if number in values]
        assert having == pytest.approx(sorted(having, reverse=descending), abs=1e-4)
        assert set(paged[len(having) :]) == set(took) - set(values)  # what has nothing there comes last


def test_a_click_on_a_head_sorts_by_it(home: Path, conn: Connection) -> None:
    fill(conn, 60)

    async def story(seen: Seen) -> None:
        await opened(seen)
        head = seen.lines()[2]
        for descending in (True, False):
            await seen.pilot.click("#columns", offset=(head.index("took"), 0))
            await until_settled(seen)
            expected = [run.id for run in runs.page(conn, sort="time", descending=descending)]
            assert shown(seen) == expected[: len(shown(seen))]

    look(home, story, (80, 24))


def test_a_figure_is_sorted_by_when_it_is_named_and_stands_in_the_row(home: Path, conn: Connection) -> None:
    fill(conn, 60)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("z")
        await seen.until_shows("sort by which column or figure")
        await seen.press("m", "r", "tab", "enter")
        await seen.until_shows("mrr▼")
        await until_settled(seen)
        best = max(range(1, 61), key=lambda number: number * 37 % 1000)
        assert shown(seen)[0] == best
        assert f"{best * 37 % 1000 / 1000:.4f}" in seen.lines()[3]
        await seen.press("z")
        await keys(seen, "nosuch")
        await seen.press("enter")
        await seen.until_shows("cannot sort by 'nosuch'")
        await until_settled(seen)
        assert "mrr▼" in seen.text

    look(home, story, (80, 24))


# --- marks, and what is done to what is marked ---


def test_marks_stay_whatever_is_shown(home: Path, conn: Connection) -> None:
    fill(conn, 20)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("space", "down", "space")
        await seen.until_shows("2 marked")
        assert [line for line in seen.lines() if line.startswith("●")] == [
            line for line in seen.lines() if line.startswith(("●     20", "●     18"))
        ]
        await seen.press("slash")
        await keys(seen, "state:failed")
        await seen.press("enter")
        await until_settled(seen)
        await seen.press("asterisk")
        await seen.until_shows("5 marked")  # 20 is a failed one
        await seen.press("greater_than_sign", "asterisk")
        await seen.until_shows("1 marked")
        await seen.press("slash", "ctrl+u", "enter")
        await seen.until_shows("20 runs")
        assert [line.split()[1] for line in seen.lines() if line.startswith("●")] == ["18"]

    look(home, story, (80, 24))


def test_deleting_asks_once_and_leaves_what_goes_on(run_cli: Console) -> None:
    for _ in range(3):
        assert run_cli("run", "exec", "--", "true").code == 0
    folders = {number: run_cli.folder(number) for number in (1, 2, 3)}
    going = run_cli.detach("sh", "-c", WAITS)
    run_cli.running(going)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("4 runs")
        await seen.press("space", "space", "space")
        await seen.until_shows("3 marked")
        await seen.press("d")
        await seen.until_shows(
            "delete 2 runs with their folders, and leave 1 that has not ended? It cannot be"
        )
        await seen.press("enter")
        await seen.until_shows("4 runs", "spc mark")
        assert all(folder.exists() for folder in folders.values())
        await seen.press("d")
        await seen.until_shows("It cannot be undone")
        await seen.press("y")
        await seen.until_shows("2 runs deleted")
        await seen.until_shows("1 marked", "2 runs")
        assert [folder.exists() for folder in folders.values()] == [True, False, False]
        assert shown(seen) == [4, 1]
        await seen.press("asterisk", "asterisk", "G", "d")
        await seen.until_shows("delete run 1? It cannot be undone")
        await seen.press("y")
        await until_gone_from(seen, 1)
        assert shown(seen) == [4]
        await seen.press("d")
        await seen.until_shows("stop it first")

    look(run_cli.home, story)
    assert run_cli.running(going)


async def until_gone_from(seen: Seen, number: int) -> None:
    await seen.until(lambda: number not in shown(seen), f"run {number} to go")


def test_marked_runs_are_tagged_together_or_not_at_all(home: Path, conn: Connection) -> None:
    fill(conn, 30)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        await keys(seen, "state:failed")
        await seen.press("enter")
        await seen.until_shows("6 of 30 runs")
        await seen.press("asterisk", "t")
        await seen.until_shows("tags for the 6 marked runs")
        await keys(seen, "paper old")
        await seen.press("enter")
        await seen.until_shows("the tags of 6 runs are changed")
        await seen.press("t")
        await keys(seen, "-old")
        await seen.press("enter")
        await seen.until(lambda: "old" not in reports.tags(conn, 5), "a tag to go")
        tagged = [number for number in range(1, 31) if reports.tags(conn, number)]
        assert tagged == [5, 10, 15, 20, 25, 30]
        assert {tag for number in tagged for tag in reports.tags(conn, number)} == {"paper"}
        await seen.press("t")
        await seen.until_shows("tags for the 6 marked runs")
        await fill_in(seen, "fine " + "x" * 999)
        await seen.until_shows("is no tag")
        assert reports.tags(conn, 5) == ["paper"]

    look(home, story, (130, 30))


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_what_is_shown_or_marked_is_written_to_a_new_file(
    home: Path, conn: Connection, tmp_path: Path, ending: str
) -> None:
    fill(conn, 700)
    path = tmp_path / f"out.{ending}"

    def numbers() -> list[int]:
        if ending == "json":
            return [row["id"] for row in json.loads(path.read_text())]
        with path.open(newline="") as file:
            return [int(row["id"]) for row in csv.DictReader(file)]

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("slash")
        await keys(seen, "mrr>0.2")
        await seen.press("enter", "greater_than_sign", "greater_than_sign")
        await until_settled(seen)
        await seen.press("w")
        await seen.until_shows(" shown runs to which", f".{ending}")
        await fill_in(seen, str(path))
        await seen.until_shows(f"written to {path}")
        by_hand = Listing(conn)
        by_hand.type("mrr>0.2")
        assert sorted(numbers()) == sorted(by_hand.numbers)
        assert "mrr" in path.read_text()
        await seen.press("w")
        await seen.until_shows("shown runs to which")
        await fill_in(seen, str(path))
        await seen.until_shows("is there already")
        path.unlink()
        await seen.press("space", "space", "w")
        await seen.until_shows("write the 2 marked runs")
        await fill_in(seen, str(path))
        await seen.until_shows("2 runs written to")
        assert len(numbers()) == 2

    look(home, story, (150, 30))


async def fill_in(seen: Seen, text: str) -> None:
    entry = seen.app.screen.query_one("Input")
    entry.value = text  # type: ignore[attr-defined]
    await seen.press("enter")


# --- while others work ---


def test_runs_that_come_and_end_show_while_one_looks_and_the_cursor_stays(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "first", "--", "true").code == 0
    going = run_cli.detach("sh", "-c", WAITS, flags=("--label", "second"))
    run_cli.running(going)

    async def story(seen: Seen) -> None:
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

    look(run_cli.home, story, (80, 24))


def test_rows_that_were_scrolled_to_stay_in_sight_when_runs_come(home: Path, conn: Connection) -> None:
    fill(conn, 900)

    async def story(seen: Seen) -> None:
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

    look(home, story, (80, 24))


def test_however_many_a_filter_shows_the_last_of_them_is_reached_by_key_and_wheel(
    home: Path, conn: Connection
) -> None:
    fill(conn, 400)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await until_settled(seen)
        counts = set()
        for text in ("state:failed", "go 77", "go 7", "nosuch", "mrr>0.5", ""):
            expected = Listing(conn)
            expected.type(text)
            count = expected.count
            counts.add(count)
            await seen.press("slash", "ctrl+u")
            await keys(seen, text)
            await seen.press("enter")
            await until_settled(seen)
            body = window(seen)
            assert body.max_scroll_y == max(count - body.size.height, 0)
            assert body.allow_vertical_scroll == (count > body.size.height)
            await seen.press("G")
            await until_settled(seen)
            assert shown(seen) == list(expected.numbers)[-body.size.height :]
        assert {0, 4, 80, 400} < counts

    look(home, story, (80, 24))


def test_keys_that_change_runs_mean_here_what_they_mean_elsewhere(run_cli: Console) -> None:
    assert run_cli("run", "exec", "--label", "ended", "--", "sh", "-c", "exit 3").code == 1
    going = run_cli.detach("sh", "-c", WAITS, flags=("--label", "going"))
    run_cli.running(going)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("2 runs")
        await seen.press("s")
        await seen.until_shows("■")
        await seen.press("down", "t")
        await seen.until_shows("tags for run 1")
        await keys(seen, "paper")
        await seen.press("enter")
        await seen.until(lambda: "paper" in "".join(seen.lines()[4:]), "the tag")
        await seen.press("enter")
        await seen.until_shows("1 exec ended", "JOB")
        await seen.press("h")  # the one it was opened from, as it was
        await seen.until_shows("submitted", "2 runs")
        assert window(seen).key == 1
        await seen.press("escape")
        await seen.until_shows("LATELY")

    look(run_cli.home, story, (140, 30))


def test_leaving_while_something_is_looked_up_leaves_nothing_open(home: Path, conn: Connection) -> None:
    fill(conn, 300)

    async def story(seen: Seen) -> None:
        await seen.until_shows("LATELY")
        for _ in range(5):
            await seen.press("h", "greater_than_sign", "escape")
        await seen.press("h", "slash", "a", "b", "q", "escape", "escape")
        await seen.until_shows("LATELY")

    look(home, story, (80, 24))
