"""One table says what can be done: keys, footer, palette and help cannot disagree."""

import inspect

import pytest
from driving import Console
from screen_driving import open_screens
from textual.events import Key, Paste
from textual.widgets import Input

from kgops.present.drafts import Draft
from kgops.present.rows import Piece
from screens.actions import ACTIONS, EVERYWHERE, ScreenName, holding
from screens.app import KgopsApp
from screens.benchmarks import Benchmarks
from screens.chart import ChartScreen
from screens.compare import Compare
from screens.dashboard import Dashboard
from screens.explanation import Explanation
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
        method = getattr(kind, f"action_{does}", None)
        assert callable(method), place
        inspect.signature(method).bind(None)  # self alone: the palette gives no more


async def test_footer_help_and_palette_offer_what_holds_here(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")
    async with open_screens(run_cli.home, (100, 60), shows="RECENT") as seen:
        footer = seen.lines()[-1]
        assert "r resume" in footer
        assert "s stop" not in footer  # it has ended
        assert footer.rstrip().endswith("? help  q quit")
        run = run_cli.run(1)
        offered = list(holding("dashboard", run))
        await seen.press("question_mark", shows="KEYS HERE")
        rows = seen.app.screen.query_one("#body", Lines).rows  # long texts go on in the next row
        shown = " ".join("".join(piece.text for row in rows for piece in (*row.pieces, Piece(" "))).split())
        assert all(action.help in shown for action in offered)
        await seen.press("escape", gone="KEYS HERE")
        await seen.press("ctrl+p", shows="Resume a run that did not succeed. (r)")
        assert "Stop the run" not in seen.text


async def test_a_key_does_nothing_on_screens_where_it_is_not_offered(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "sh", "-c", "exit 3")
    async with open_screens(run_cli.home, (100, 40), shows="RECENT") as seen:
        await seen.press("f", shows="profiles  your own options override")
        await seen.press("h", "i", "t", "a", "r", "L", "slash")
        await seen.wait(0.5)
        assert seen.lines()[0].startswith("profiles")
        assert "tags of run" not in seen.text
        await seen.press("escape", shows="1 run in all")  # and none was started


async def test_a_second_click_on_a_run_opens_it_and_one_on_the_footer_is_the_key(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run_cli("run", "exec", "--", "true")
    async with open_screens(run_cli.home, (80, 24), shows="2 runs in all") as seen:
        lines = seen.lines()
        top = next(i for i, line in enumerate(lines) if line.startswith("HOST"))
        y = next(i for i, line in enumerate(lines) if line.startswith("1 exec")) - top
        await seen.pilot.click("#body", offset=(3, y))
        await seen.until(lambda: seen.cursor_is_on(1), "the cursor")
        await seen.wait(0.6)  # a double click would be something else
        await seen.pilot.click("#body", offset=(3, y))
        await seen.until_shows("Record")
        assert seen.lines()[0].startswith("1 exec")
        await seen.press("escape", shows="RECENT")
        await seen.pilot.click("#keys", offset=(seen.lines()[-1].index("help"), 0))
        await seen.until_shows("KEYS HERE")


async def test_a_mouse_over_a_heading_or_an_option_shows_what_it_means(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    async with open_screens(run_cli.home, (160, 50), shows="peak or reason") as seen:
        lines = seen.app.screen.query_one("#body", Lines)
        for text, meaning in (
            ("peak or reason", "highest memory, measured"),
            ("grad_clip", "Largest norm of the"),
        ):
            if text == "grad_clip":
                await seen.press("n", shows=(text, "kgops train"))
                lines = seen.app.screen.query_one("#body", Lines)
            for _ in range(20):  # what is read meanwhile moves the rows
                drawn = [lines.render_line(y).text for y in range(lines.size.height)]
                y = next(y for y, line in enumerate(drawn) if text in line)
                await seen.pilot.hover("#body", offset=(drawn[y].index(text), y))
                await seen.wait(0.5)  # a tooltip comes after a while
                if meaning in seen.text:
                    break
            assert meaning in seen.text


async def test_themes_take_turns_and_each_has_all_tones(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    async with open_screens(run_cli.home, (80, 24), shows="RECENT") as seen:
        seen_themes = []
        for _ in THEMES:
            await seen.press("c")
            seen_themes.append(seen.app.theme)
            background = seen.app.screen.styles.background.hex.lower()
            assert background == (seen.app.current_theme.background or "").lower()
        assert sorted(seen_themes) == sorted(THEMES)


async def test_a_note_keeps_pasted_lines_and_the_order_of_keys_that_come_in_one_piece(
    run_cli: Console,
) -> None:
    run_cli("run", "exec", "--", "true")
    async with open_screens(run_cli.home, shows="RECENT") as seen:
        await seen.press("m", shows="note on run 1")
        seen.app.screen.query_one(Input).post_message(Paste("the first\nthe second\r\nthe third"))
        await seen.until_shows("the third")
        await seen.press("enter", shows="added a note")
        await seen.press("m", shows="note on run 1")
        for key in ("a", "b", "backspace", "c", "home", "d", "enter"):
            seen.app.post_message(Key(key, key if len(key) == 1 else None))
        await seen.until(lambda: len(run_cli.show(1)["note"]) == 2, "the second note")
    assert [one["text"] for one in run_cli.show(1)["note"]] == ["the first\nthe second\nthe third", "dac"]


async def test_leaving_a_screen_at_once_breaks_nothing(run_cli: Console) -> None:
    run_cli("run", "exec", "--", "true")
    run = run_cli.row(1)
    async with open_screens(run_cli.home, (100, 40), shows="RECENT") as seen:
        plain = (RunScreen(run), NewRun(Draft()), Influences(None), Profiles(), Compare((1, 1)))
        for screen in (*plain, History(seen.app), Benchmarks(seen.app)):
            await seen.app.push_screen(screen)
            await seen.app.pop_screen()
        await seen.until_shows("RECENT")
