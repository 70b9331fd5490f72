"""Driving the screens as a person would: keys in, lines of text out, conditions with deadlines."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from driving import patience
from textual.pilot import Pilot
from textual.widgets import Input

from kgops.settings import Home
from screens.app import KgopsApp
from screens.widgets.boxes import has_panels
from screens.widgets.lines import Lines

_EDGES = re.compile(r"^(╭─ |╰─+╯|│ )| ?─*╮$| *│$")
_FIRST_EDGES = ("│", "╭", "╰")


def without_edges(line: str) -> str:
    """A line of a panel. A remark in a title is two blanks behind it, as where there are no panels."""
    if line[:1] not in _FIRST_EDGES:
        return line
    inner = _EDGES.sub("", line)
    return inner.replace(" ─ ", "  ") if line.startswith("╭") else inner


class Seen:
    """An open app: what it shows, and a person's hands."""

    def __init__(self, app: KgopsApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    def lines(self) -> list[str]:
        """What is on the screen, without the edges and margins of panels."""
        screen = self.app.screen
        drawn = [strip.text.rstrip() for strip in screen._compositor.render_strips()]
        if drawn and has_panels(*self.app.size):
            margin = "  " if any(one.draws_panels for one in screen.query(Lines)) else ""
            inner = [re.sub(rf"^{margin}(?=\S)", "", line) for line in drawn[2:-1]]
            drawn = [line.removeprefix(" ") for line in drawn[:2]] + inner + [drawn[-1].removeprefix(" ")]
        return [without_edges(line) for line in drawn]

    @property
    def text(self) -> str:
        return "\n".join(self.lines())

    def row_of(self, start: str) -> str:
        """The one line that begins so."""
        found = [line for line in self.lines() if line.startswith(start)]
        assert len(found) == 1, f"{len(found)} lines begin with {start!r}:\n{self.text}"
        return found[0]

    def cursor_is_on(self, run: int) -> bool:
        return self.app.screen.query_one("#body", Lines).key == run

    async def go_to(self, key: str) -> None:
        """The cursor on the row of this key."""
        body = self.app.screen.query_one("#body", Lines)
        await self.press("home")
        for _ in range(len(body.rows)):
            if body.key == key:
                return
            await self.press("down")
        raise AssertionError(f"there is no row {key}:\n{self.text}")

    async def press(self, *keys: str, shows: str | tuple[str, ...] = (), gone: str | None = None) -> None:
        """Until that is shown, or gone. A text is typed as keys of one character."""
        await self.pilot.press(*keys)
        await self.until_shows(*((shows,) if isinstance(shows, str) else shows))
        if gone is not None:
            await self.until_gone(gone)

    async def wait(self, seconds: float) -> None:
        await self.pilot.pause(seconds)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + patience(), f"waited in vain for {what}:\n{self.text}"
            await self.pilot.pause(0.02)

    async def until_shows(self, *texts: str) -> None:
        await self.until(lambda: all(text in self.text for text in texts), f"{texts}")

    async def until_typing(self, key: str | None = None) -> None:
        """In the row with this key."""
        await self.until(
            lambda: (
                isinstance(self.app.focused, Input)
                and key in (None, self.app.screen_stack[-2].query_one("#body", Lines).key)
            ),
            "a field to type in",
        )

    async def until_typed(self) -> None:
        await self.until(lambda: not isinstance(self.app.focused, Input), "the end of typing")

    async def until_gone(self, text: str) -> None:
        await self.until(lambda: text not in self.text, f"{text!r} to go")


@asynccontextmanager
async def open_screens(
    home: Path,
    size: tuple[int, int] = (120, 40),
    *,
    unicode: bool = True,
    shows: str | tuple[str, ...] = (),
    first: Callable[[Seen], Awaitable[object]] | None = None,
) -> AsyncIterator[Seen]:
    """The screens on this home, for a test that awaits what they show: that, and after `first` what it leads to."""
    app = KgopsApp(Home(home), unicode=unicode)
    async with app.run_test(size=size, tooltips=True) as pilot:
        seen = Seen(app, pilot)
        await seen.press(shows=shows)
        if first is not None:
            await first(seen)
        yield seen


def look(home: Path, story: Callable[[Seen], Awaitable[None]], size: tuple[int, int] = (120, 40)) -> None:
    """The same for whoever cannot await."""

    async def open_and_act() -> None:
        async with open_screens(home, size) as seen:
            await story(seen)

    asyncio.run(open_and_act())


Step = tuple[tuple[str, ...], tuple[str, ...]]  # keys, and what they make the screen show


def shown_after(home: str | Path, *steps: Step, size: tuple[int, int] = (120, 40)) -> list[str]:
    """The lines after those steps from the dashboard: for a child that sees other GPUs."""
    found: list[str] = []

    async def story(seen: Seen) -> None:
        for keys, texts in steps:
            await seen.press(*keys, shows=texts)
        found.extend(seen.lines())

    look(Path(home), story, size)
    return found
