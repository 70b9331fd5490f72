"""Runs are narrowed while one types, by every key as fast as they come, and sorted by any column or metric."""

from pathlib import Path

import pytest
from driving import Console
from screen_driving import open_screens
from screen_history import add, answered, busy, fill, opened, shown, until_settled, window

from kgops.present.listing import Listing, strictly
from screens.history import History
from screens.history_page import FIRST, completions, sorts
from screens.widgets.lines import Lines
from storage import filters, reports, run_list
from storage.database import Connection


async def test_a_filter_narrows_while_it_is_typed_and_half_of_one_is_no_mistake(
    home: Path, conn: Connection
) -> None:
    fill(conn, 300)
    typed = "state:failed mrr>0.3 umls workload:tr"
    async with open_screens(home, first=opened) as seen:
        await seen.press("slash")
        for end in range(1, len(typed) + 1):
            await answered(seen, *typed[end - 1])
            by_hand = Listing(conn)
            reading = filters.read(typed[:end], typing=True)
            assert not reading.troubles
            by_hand.show(reading.terms)
            title = seen.lines()[0]
            assert len(by_hand.numbers) == 300 or f"{len(by_hand.numbers)} of 300 runs" in title, (
                typed[:end],
                title,
            )
            assert shown(seen) == list(by_hand.numbers)[: len(shown(seen))]
        await seen.press("enter", shows=(f"/ {typed}", "⏎ open"))
        assert len(by_hand.numbers)
        assert shown(seen)[0] == by_hand.numbers[0]


async def test_of_keys_that_come_faster_than_answers_the_last_one_counts(
    home: Path, conn: Connection
) -> None:
    fill(conn, 300)
    async with open_screens(home, first=opened) as seen:
        await seen.press("slash")
        with busy(seen):
            await seen.press(*"state:failed mrr>0.5")  # nobody waits for what it finds
        by_hand = Listing(conn)
        by_hand.show(strictly("state:failed mrr>0.5"))
        await seen.until_shows(f"{len(by_hand.numbers)} of 300 runs")
        await until_settled(seen)
        assert f"{len(by_hand.numbers)} of 300 runs" in seen.lines()[0]


async def test_what_cannot_be_read_is_said_and_escape_takes_the_filter_before(
    home: Path, conn: Connection
) -> None:
    fill(conn, 50)
    async with open_screens(home, (150, 30), first=opened) as seen:
        await answered(seen, "slash", *"go 4", "enter", "down", "down")
        before, cursor = seen.text, window(seen).key
        await seen.press("slash", *" state:wrong", shows=("there is no state 'wrong'", "states: queued"))
        await answered(seen, *" mmr>1", "escape")
        assert seen.text == before
        assert window(seen).key == cursor
        await seen.press("slash", "ctrl+u", *"state:wrong")
        await seen.press("enter", shows=("ignored: there is no state 'wrong'", "/ state:wrong"))
        await answered(seen, "down")
        assert "/ state:wrong  ignored: there is no state 'wrong'" in seen.text
        await seen.press("asterisk", shows="nothing is marked. ignored: there is no state 'wrong'")
        assert "50 marked" not in seen.text
        await seen.press("slash", "ctrl+u", *"mmr>1 ", shows="no run has a metric 'mmr'; did you mean 'mrr'?")


async def test_where_nothing_is_like_the_filter_it_says_how_to_go_on(home: Path, conn: Connection) -> None:
    fill(conn, 5)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await seen.press("slash", *"nosuch")
        await seen.press("enter", shows=("0 of 5 runs", "No run matches the filter.", "edit the filter"))
        await seen.press("down", "G", "g", "space", "enter")  # there is nothing under the cursor
        assert "No run matches the filter." in seen.text


async def test_runs_are_moved_through_while_the_filter_is_typed(home: Path, conn: Connection) -> None:
    fill(conn, 100)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await answered(seen, "slash", *"go")
        await seen.press("down", "down")
        assert window(seen).key == 98
        await seen.press("enter", "enter", shows=("98 tracin", "Record"))


async def test_tab_completes_keys_states_and_metrics(home: Path, conn: Connection) -> None:
    assert completions("mrr>0.3 wor", (), ()) == ["mrr>0.3 workload:"]
    assert completions("-ta", (), ()) == ["-tag:"]
    assert completions("test_m", ("test_mrr", "test_mean"), ()) == ["test_mrr", "test_mean"]
    assert completions("x -tag:pa", (), ("old", "paper")) == ["x -tag:paper"]
    fill(conn, 20)
    reports.change_tags(conn, 3, add=["keep"], remove=[])
    async with open_screens(home, first=opened) as seen:
        await seen.press("slash", *"tag:", "tab", shows=("tag:keep", "1 of 20 runs"))
        await seen.press("ctrl+u", *"sta", "tab", "f", "tab", shows=("state:failed", "4 of 20 runs"))
        await seen.press("ctrl+u", "p", "e", "tab", "tab", shows="peak_gpu:  peak_host:")


# --- the order ---


async def test_runs_are_sorted_by_each_column_and_the_other_way_round(home: Path, conn: Connection) -> None:
    fill(conn, 60)
    async with open_screens(home, (200, 30), first=opened) as seen:
        history = seen.app.screen
        assert isinstance(history, History)
        for by in [name for name in sorts(history.query_one("#columns", Lines).room) if name != "id"]:
            await seen.press("greater_than_sign")
            for descending in (FIRST[by], not FIRST[by]):
                await until_settled(seen)
                expected = [run.id for run in run_list.page(conn, sort=by, descending=descending)]
                assert shown(seen) == expected[: len(shown(seen))], (by, descending)
                await seen.press("u")
        await answered(seen, "greater_than_sign")
        assert shown(seen)[0] == 60
        await answered(seen, "less_than_sign")
        assert "why▲" in seen.text


@pytest.mark.parametrize("descending", [True, False])
def test_time_and_host_peak_are_sorted_by_what_the_rows_show_also_page_by_page(
    conn: Connection, descending: bool
) -> None:
    fill(conn, 60)
    took = {number: float(number * 13 % 500) for number in range(1, 61)}
    peak = {number: float(number * 7 % 1000) for number in range(1, 61) if number % 11}
    for by, values in (("time", took), ("peak_host", peak)):
        paged: list[int] = []
        while page := run_list.page(
            conn, sort=by, descending=descending, limit=7, after=paged[-1] if paged else None
        ):
            paged += [run.id for run in page]
        assert sorted(paged) == list(range(1, 61))
        having = [values[number] for number in paged if number in values]
        assert having == pytest.approx(sorted(having, reverse=descending), abs=1e-4)
        assert set(paged[len(having) :]) == set(took) - set(values)  # what has nothing there comes last


async def test_a_metric_is_sorted_by_when_it_is_named_and_stands_in_the_row(
    home: Path, conn: Connection
) -> None:
    fill(conn, 60)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await seen.press("z", shows="sort by which column or metric")
        await seen.press("m", "r", "tab", "enter", shows="mrr▼")
        await until_settled(seen)
        best = max(range(1, 61), key=lambda number: number * 37 % 1000)
        assert shown(seen)[0] == best
        assert f"{best * 37 % 1000 / 1000:.4f}" in seen.lines()[3]
        await seen.press("z", *"nosuch", "enter", shows="cannot sort by 'nosuch'")
        await until_settled(seen)
        assert "mrr▼" in seen.text
        await seen.press("z", *"peak")
        await seen.press("enter", shows="peak may be peak_gpu_mib, peak_host_mib: type one of them")
        assert "mrr▼" in seen.text
        await seen.press("z", *"took", "enter", shows="took▼")


async def test_six_keys_show_the_best_metric_of_the_week(home: Path, conn: Connection) -> None:
    for number, mrr in ((1, 0.1), (2, 0.5), (3, 0.9), (4, 0.3)):
        add(conn, number, mrr=mrr)
    conn.execute("UPDATE run SET submitted_at = submitted_at - 8 * 86400 WHERE id = 3")
    async with open_screens(home, (100, 40), shows="RECENT") as seen:
        await seen.press("h", "W", "z", shows=("sort by which column or metric?", "3 of 4 runs"))
        await seen.press("m", "r", "enter")
        await seen.until(lambda: shown(seen) == [2, 4, 1], "the week's runs, best first")
        await seen.press("W")
        await seen.until(lambda: shown(seen) == [3, 2, 4, 1], "all runs, best first")


async def test_the_last_filter_is_repeated_and_an_empty_one_drops_its_name(run_cli: Console) -> None:
    for label in ("here", "there"):
        run_cli("run", "exec", "--label", label, "--", "true")
    async with open_screens(run_cli.home, (100, 40), shows="RECENT") as seen:
        await seen.press("h", shows="2 runs")
        await seen.press("full_stop", shows="no filter was used yet")
        await seen.press("slash", *"label:there", "enter", shows="1 of 2 runs")
        await seen.press("F", shows="save label:there as")
        await seen.press(*"far", "enter", shows="saved as far")
        await seen.press("escape", "h", shows="2 runs")
        await seen.press("F", shows="drop the filter saved as")
        await seen.press(*"far", "enter", shows="far is dropped")
        await seen.press("full_stop", shows="1 of 2 runs")
    assert run_cli("runs", "--saved", "far").code == 2


async def test_the_filter_knows_the_column_by_its_head(home: Path, conn: Connection) -> None:
    fill(conn, 20)
    async with open_screens(home, (120, 60), first=opened) as seen:
        await seen.press("slash", *"nosuch>5", "enter")
        await seen.until(lambda: "no run has a metric 'nosuch'" in seen.lines()[-1], "what is wrong")
        await seen.press("slash", "ctrl+u", *"took>1m", "enter")
        assert "no run has a metric" not in seen.lines()[-1]
        await seen.until_shows(" of 20 runs")
        await until_settled(seen)
        by_time = Listing(conn)
        by_time.show(strictly("time>60"))
        assert 0 < len(by_time.numbers) < 20
        assert shown(seen) == list(by_time.numbers)
        assert "no run has a metric" not in seen.text
