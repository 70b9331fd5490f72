"""A run's log on its screen: followed, searched, narrowed to what sounds bad; a million lines are no trouble."""

import os
from collections.abc import Callable

from driving import Console
from screen_driving import Seen, open_screens

from screens.run_log import RunLog
from screens.widgets.log_lines import LogLines

GATE = "while [ ! -e gate ]; do sleep 0.05; done; "
HEBREW = "\u05e9\u05dc\u05d5\u05dd"


def with_log(console: Console, text: str | bytes) -> None:
    """A run that has ended and left this log."""
    console.must("run", "exec", "--", "true")
    raw = text if isinstance(text, bytes) else text.encode()
    (console.folder(1) / "worker.log").write_bytes(raw)


async def open_log(seen: Seen) -> None:
    """Its run's page, with all the room for the log."""
    await seen.until(lambda: "RECENT" in seen.text or " running · " in seen.text, "runs")
    await seen.press("enter", shows="LOG")
    await seen.press("l")
    await seen.until(lambda: seen.app.screen.query_one(RunLog).has_class("alone"), "room")


async def search(seen: Seen, text: str) -> None:
    await seen.press("slash", shows="search the log for")
    await seen.press(*text, "enter", gone="search the log for")


def lines(seen: Seen) -> LogLines:
    return seen.app.screen.query_one(LogLines)


def marked(seen: Seen) -> object:
    """The line that somebody was brought to, if it is in sight."""
    log = lines(seen)
    keys = [log.rows[y].key for y in log.in_sight if log.rows[y].key is not None]
    return keys[0] if keys else None


async def test_it_shows_the_end_and_grows_with_the_run_until_somebody_goes_up(run_cli: Console) -> None:
    script = "seq -f 'line %.0f' 1000; " + GATE + "echo after the gate"
    run_cli.running(run_cli.detach("sh", "-c", script))
    async with open_screens(run_cli.home, (80, 24), first=open_log) as seen:
        await seen.until_shows("line 1000", "following, 1,000 lines")
        await seen.press("pageup", gone="line 1000\n")
        (run_cli.cwd / "gate").touch()
        run_cli.ended(1)
        await seen.until_shows("✓ succeeded", "of 1,001 lines")
        assert "after the gate" not in seen.text
        await seen.press("end", shows="after the gate")
        await seen.press("home", shows=("line 1\nline 2\n", "1 to "))


async def test_a_search_goes_to_the_nearest_hit_and_n_to_the_next_round_the_end(run_cli: Console) -> None:
    with_log(run_cli, "".join("The Needle\n" if i in (50, 70) else f"hay {i}\n" for i in range(200)))
    async with open_screens(run_cli.home, (80, 24), first=open_log) as seen:
        await seen.until_shows("hay 199")
        await search(seen, "needle")  # no capitals: none are told apart
        await seen.until(lambda: marked(seen) == 70, "the hit before the end")
        await seen.until_shows("] next  [ previous")
        await seen.press("left_square_bracket")
        await seen.until(lambda: marked(seen) == 50, "the one before")
        await seen.press("right_square_bracket")
        await seen.until(lambda: marked(seen) == 70, "the next")
        await seen.press("right_square_bracket")
        await seen.until(lambda: marked(seen) == 50, "the first again")
        await seen.until_shows("search continued at the")
        await search(seen, "needle in Needles")
        await seen.until_shows("no line contains needle in Needles")


async def test_a_pattern_between_slashes_is_one_and_a_broken_one_is_said_to_be_none(run_cli: Console) -> None:
    with_log(run_cli, "".join(f"loss 0.{i:03d}\n" for i in range(300)))
    async with open_screens(run_cli.home, (80, 24), first=open_log) as seen:
        await search(seen, "/0.1[0]5$/")
        await seen.until(lambda: marked(seen) == 105, "the line of the pattern")
        await search(seen, "/(/")
        await seen.until_shows("invalid pattern /(/")


async def test_from_the_errors_alone_back_to_all_lines_one_stands_where_the_error_is(
    run_cli: Console,
) -> None:
    some = [f"step {i}" for i in range(400)]
    some[100], some[300], some[350] = "UserWarning: slow", "ValueError: no", "error again"
    with_log(run_cli, "\n".join(some))
    async with open_screens(run_cli.home, (80, 24), first=open_log) as seen:
        await seen.until_shows("step 399")
        await seen.press("L")
        await seen.until_shows("only warnings and errors", "UserWarning: slow\nValueError: no\nerror again")
        await seen.press("L", shows=("only errors", "ValueError: no\nerror again"))
        await seen.until_gone("UserWarning")
        await seen.press("left_square_bracket", "left_square_bracket")
        await seen.until(lambda: marked(seen) == 300, "the first error")
        await seen.press("L", shows="step 299\nValueError: no\nstep 301")
        assert marked(seen) == 300
        await seen.press("left_square_bracket")  # without a search: what sounds bad
        await seen.until_shows("UserWarning: slow")
        assert marked(seen) == 100


async def test_nothing_in_a_log_is_markup_or_an_escape_and_wide_signs_keep_their_columns(
    run_cli: Console,
) -> None:
    odd: list[str | bytes] = [
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07 [bold]b[/bold] [@click=app.quit]x[/]",
        "日本語" * 40 + " end",
        f"{HEBREW} \u202eevil\u202c".encode(),
        b"\xff\xfe raw",
        b"10%\r50%\r99% done",
        b"x" * 300 + b" far right",
    ]
    with_log(run_cli, b"\n".join(o if isinstance(o, bytes) else o.encode() for o in odd) + b"\n")
    async with open_screens(run_cli.home, (80, 24), first=open_log) as seen:
        await seen.until_shows("[bold]b[/bold] [@click=app.quit]x[/]", HEBREW, "99% done")
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(seen.text)
        wide = seen.row_of("日本語")
        assert wide.endswith("…")
        assert len(wide) <= 41
        assert "far right" not in seen.text
        for _ in range(6):
            await seen.press("right")
        await seen.until_shows("far right")
        for _ in range(6):
            await seen.press("left")
        await seen.until_shows("99% done")


async def test_a_log_that_cannot_be_read_is_no_crash(run_cli: Console) -> None:
    with_log(run_cli, "x\n")
    log = run_cli.folder(1) / "worker.log"
    cases: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: None, "no output"),
        (lambda: log.symlink_to("/etc/hostname"), "the log cannot be read"),
        (lambda: os.mkfifo(log), "the log cannot be read"),  # whoever opens one waits for a writer
    )
    for put, told in cases:
        log.unlink(missing_ok=True)
        put()
        async with open_screens(run_cli.home, (80, 24), first=open_log) as seen:
            await seen.until_shows(told)
