"""One table says what can be done: keys, footer, palette and help cannot disagree."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from driving import Console
from screen_driving import Seen, look
from textual.binding import Binding
from textual.events import Key, Paste
from textual.geometry import Region
from textual.widgets import Input

from kgops.present.rows import Piece, text_row
from screens.actions import ACTIONS, EVERYWHERE, ScreenName, holding
from screens.app import FeedChanged, KgopsApp
from screens.benchmarks import Benchmarks
from screens.chart import ChartScreen
from screens.compare import Compare
from screens.dashboard import Dashboard
from screens.driver import begin
from screens.explanation import Explanation
from screens.feed_state import FeedState
from screens.gpu import GpuScreen
from screens.history import History
from screens.host_run import HostRun
from screens.hosts import Hosts
from screens.influences import Influences
from screens.new_run import NewRun
from screens.predictions import Predictions
from screens.profiles import Profiles
from screens.run import RunScreen
from screens.symbols import THEMES
from screens.widgets.choices import Choices
from screens.widgets.lines import Lines

SCREENS = (
    Dashboard,
    GpuScreen,
    RunScreen,
    ChartScreen,
    NewRun,
    Influences,
    Profiles,
    History,
    Compare,
    Benchmarks,
    Hosts,
    HostRun,
    Predictions,
    Explanation,
)


@pytest.mark.parametrize("place", sorted(EVERYWHERE))
def test_no_key_means_two_things_on_one_screen(place: ScreenName) -> None:
    keys = [key for action in ACTIONS if place in action.where for key in action.key.split(",")]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_action_can_be_carried_out(action: object) -> None:
    one = next(one for one in ACTIONS if one is action)
    who, _, does = one.does.partition(".")
    kinds = {kind.screen_name: kind for kind in SCREENS}
    assert set(kinds) == EVERYWHERE
    for place in one.where if who == "screen" else [None]:
        kind = kinds[place] if place is not None else KgopsApp
        assert callable(getattr(kind, f"action_{does}", None)), place


def test_keys_that_a_widget_hands_on_are_in_the_table() -> None:
    handed_on = {
        binding.action.partition("(")[0] for binding in Choices.BINDINGS if isinstance(binding, Binding)
    }
    assert handed_on
    assert handed_on <= {action.does for action in ACTIONS}


def test_footer_help_and_palette_offer_what_holds_here(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        footer = seen.lines()[-1]
        assert "r resume" in footer
        assert "s stop" not in footer  # it has ended
        assert footer.rstrip().endswith("? help  q quit")
        run = run_cli.run(1)
        offered = list(holding("dashboard", run))
        await seen.press("question_mark")
        await seen.until_shows("KEYS HERE")
        rows = seen.app.screen.query_one("#body", Lines).rows  # long texts go on in the next row
        shown = " ".join("".join(piece.text for row in rows for piece in (*row.pieces, Piece(" "))).split())
        assert all(action.help in shown for action in offered)
        await seen.press("escape")
        await seen.until_gone("KEYS HERE")
        await seen.press("ctrl+p")
        await seen.until_shows("Resume a run that did not succeed. (r)")
        assert "Stop the run" not in seen.text

    look(run_cli.home, story, (100, 60))


def test_a_key_does_nothing_on_screens_where_it_is_not_offered(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("f")
        await seen.until_shows("profiles  your own options override")
        await seen.press("h", "i", "t", "a", "r", "L", "slash")
        await seen.wait(0.5)
        assert seen.lines()[0].startswith("profiles")
        assert "tags of run" not in seen.text
        await seen.press("escape")
        await seen.until_shows("1 run in all")  # and none was started

    look(run_cli.home, story, (100, 40))


def test_a_click_on_the_footer_is_the_key(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        at = seen.lines()[-1].index("help")
        await seen.pilot.click("#keys", offset=(at, 0))
        await seen.until_shows("KEYS HERE")

    look(run_cli.home, story, (80, 24))


def test_the_help_of_a_run_names_the_keys_of_its_log(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("question_mark")
        await seen.until_shows("KEYS HERE")
        assert "IN THE LOG" not in seen.text
        await seen.press("escape", "enter")
        await seen.until_shows("JOB")
        await seen.press("question_mark")
        await seen.until_shows("IN THE LOG", "n N", "← →")

    look(run_cli.home, story, (100, 50))


def test_a_second_click_on_a_run_opens_it(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("2 runs in all")
        lines = seen.lines()
        top = next(i for i, line in enumerate(lines) if line.startswith("HOST"))
        y = next(i for i, line in enumerate(lines) if line.startswith("1 exec")) - top
        await seen.pilot.click("#body", offset=(3, y))
        await seen.until(lambda: seen.cursor_is_on(1), "the cursor")
        await seen.wait(0.6)  # a double click would be something else
        await seen.pilot.click("#body", offset=(3, y))
        await seen.until_shows("JOB")
        assert seen.lines()[0].startswith("1 exec")

    look(run_cli.home, story, (80, 24))


def test_themes_take_turns_and_each_has_all_tones(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        seen_themes = []
        for _ in THEMES:
            await seen.press("c")
            seen_themes.append(seen.app.theme)
            background = seen.app.screen.styles.background.hex.lower()
            assert background == (seen.app.current_theme.background or "").lower()
        assert sorted(seen_themes) == sorted(THEMES)

    look(run_cli.home, story, (80, 24))


def test_a_pasted_note_keeps_its_lines(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("m")
        await seen.until_shows("note on run 1")
        seen.app.screen.query_one(Input).post_message(Paste("the first\nthe second\r\nthe third"))
        await seen.until_shows("the third")
        await seen.press("enter")
        await seen.until_shows("added a note")
        assert run_cli.show(1)["note"][0]["text"] == "the first\nthe second\nthe third"

    look(run_cli.home, story)


def test_keys_that_come_in_one_piece_are_read_in_their_order(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("m")
        await seen.until_shows("note on run 1")
        for key in ("a", "b", "backspace", "c", "home", "d", "enter"):
            seen.app.post_message(Key(key, key if len(key) == 1 else None))
        await seen.until_shows("added a note")
        assert run_cli.show(1)["note"][0]["text"] == "dac"

    look(run_cli.home, story)


def test_a_run_has_one_sign_on_all_pages(run_cli: Console) -> None:
    oom = "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
    run_cli(
        "run", "exec", "--on-oom", "batch=64,32", "--", "sh", "-c", f"if [ {{batch}} = 64 ]; then {oom}; fi"
    )
    assert run_cli.show(1)["state"] == "succeeded", run_cli.show(1)

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        assert "▼" in seen.row_of("1 exec")
        await seen.press("h")
        await seen.until(
            lambda: any(line.lstrip().startswith("1 ▼") or "  1  ▼" in line for line in seen.lines()), "▼"
        )
        await seen.press("enter")
        await seen.until_shows("JOB")
        assert "▼ succeeded" in seen.lines()[0]
        await seen.press("colon")
        await seen.type("1")
        await seen.until_shows("exec, ▼ succeeded")

    look(run_cli.home, story)


def test_why_a_run_failed_takes_one_key_and_comparing_two_takes_five(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run_cli("run", "exec", "--", "sh", "-c", "echo no such file; exit 3")

    async def why(seen: Seen) -> None:
        await seen.until_shows("RECENT", "ALERTS")
        await seen.press("enter")
        await seen.until_shows("2 exec", "exit code 3", "no such file")

    async def compared(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("h")
        await seen.until_shows("2 runs")
        await seen.press("space", "down", "space", "equals_sign")
        await seen.until(lambda: isinstance(seen.app.screen, Compare), "the comparison")
        await seen.until_shows("A  2 exec", "B  1 exec")

    look(run_cli.home, why, (80, 24))
    look(run_cli.home, compared, (80, 24))


class Counted(Lines):
    repainted: ClassVar[list[Region]] = []

    def refresh(self, *regions: Region, **given: Any) -> Counted:
        self.repainted.extend(regions)
        return super().refresh(*regions, **given)


def test_a_list_says_how_much_is_below_and_repaints_no_more_than_that(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("enter")
        await seen.until_shows("JOB")
        body = seen.app.screen.query_one("#body", Lines)
        below = len(body.rows) - body.size.height
        assert below > 1
        last = seen.lines()[body.region.bottom - 1]
        assert last.endswith(("more", "↓"))
        await seen.press("G")
        await seen.until(lambda: "↓" not in seen.text, "the end")
        await seen.press("g")
        await seen.until(lambda: "↓" in seen.text, "the arrow")
        counted = Counted(id="counted", scrolls=True)
        await seen.app.screen.mount(counted)
        counted.show([text_row(str(number), 80) for number in range(50)])
        await seen.until(lambda: counted.size.height > 2 and counted.max_scroll_y > 0, "its lines")
        counted.repainted.clear()
        counted.show([*counted.rows, text_row("50", 80)])
        assert [(region.y, region.height) for region in counted.repainted] == [(counted.size.height - 1, 1)]

    look(run_cli.home, story, (80, 16))


@pytest.mark.parametrize("width", [60, 80])
def test_help_tells_of_signs_first_and_wraps_what_is_long(run_cli: Console, width: int) -> None:
    async def story(seen: Seen) -> None:
        await seen.until_shows("HOST")
        await seen.press("question_mark")
        await seen.until_shows("SIGNS", "KEYS HERE")
        assert seen.lines()[0] == "SIGNS"
        body = seen.app.screen.query_one("#body", Lines)
        texts = ["".join(piece.text for piece in row.pieces) for row in body.rows]
        assert max(map(len, texts)) <= width
        words = " ".join(" ".join(texts).split())
        for text in ("is predicted to need", "Go to a run, GPU, tag or saved filter, or act, by name."):
            assert text in words

    look(run_cli.home, story, (width, 24))


def test_jumping_is_named_in_every_footer(run_cli: Console) -> None:
    for width in (80, 120):

        async def story(seen: Seen) -> None:
            await seen.until_shows("HOST")
            for key in ("h", "b"):
                assert ": jump" in seen.lines()[-1]
                await seen.press(key)
            await seen.until_shows("benchmarks")
            await seen.until(lambda: ": jump" in seen.lines()[-1], "the footer")

        look(run_cli.home, story, (width, 24))


def test_leaving_a_screen_at_once_breaks_nothing(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run = run_cli.run(1)
    assert run is not None

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        plain = (RunScreen(run), NewRun(), Influences(None), Profiles(), Compare((1, 1)))
        for screen in (*plain, History(seen.app), Benchmarks(seen.app)):
            await seen.app.push_screen(screen)
            await seen.app.pop_screen()
        await seen.until_shows("RECENT")

    look(run_cli.home, story, (100, 40))


def test_a_look_that_comes_while_the_screens_are_taken_down_draws_nothing(home: Path) -> None:
    """Textual takes a screen's parts, then the screen; a look of another thread may come between."""
    came = []

    async def story(seen: Seen) -> None:
        app, prune = seen.app, seen.app._prune

        async def then_a_look(*nodes: Any, **how: Any) -> None:
            await prune(*nodes, **how)
            came.append([*app.screen_stack])
            app.on_feed_changed(FeedChanged(FeedState("dashboard")))

        app._prune = then_a_look  # type: ignore[assignment]

    look(home, story, (80, 24))
    assert [type(screen).__name__ for screen in came[0]] == ["Dashboard"]


def test_what_is_begun_instead_of_what_has_not_begun_yet_leaves_nothing_behind(home: Path) -> None:
    """A coroutine that nobody awaits is a warning, and warnings are errors."""
    done = []

    async def story(seen: Seen) -> None:
        async def work(number: int) -> None:
            done.append(number)

        for number in (1, 2):
            begin(seen.app.screen, partial(work, number), instead="the same")
        await seen.until(lambda: 2 in done, "the second")
        gc.collect()
        assert done == [2]

    look(home, story, (80, 24))


def test_the_way_back_of_a_key_is_no_entry_of_its_own(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")

    async def story(seen: Seen) -> None:
        await seen.until_shows("RECENT")
        await seen.press("enter")
        await seen.until_shows("JOB")
        for keys in (["question_mark"], ["colon", *"chart"]):
            await seen.press(*keys)
            await seen.until_shows("Mark the next chart; the left arrow goes back.")
            assert "Mark the chart before" not in seen.text
            await seen.press("escape")
            await seen.until_gone("Mark the next chart")

    look(run_cli.home, story, (120, 90))
