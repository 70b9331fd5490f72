"""What is sent to a terminal is what it does not show yet, and leaves on it what a whole repaint would."""

from __future__ import annotations

import random

import pytest
from driving import Console
from rich.console import Console as RichConsole
from rich.segment import Segment
from rich.style import Style
from terminal_cells import Cells
from test_screens_terminal import Open, settled
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region, Size
from textual.strip import Strip

from screens.painting import Terminal

SIZE = Size(40, 6)
CONSOLE = RichConsole(color_system="256", force_terminal=True)
BACK = "on #121212"
STYLES = [
    Style.parse(f"{words} {BACK}") for words in ("white", "bold red", "dim #808080", "reverse", "underline")
]
STYLES += [Style.parse("white on #303030"), Style()]
WORDS = ("run", " ", "     ", "▇▇░", "loss 0.25", "          ", "⣀⣤⣶", "✓")


def strip_of(chance: random.Random, width: int) -> Strip:
    segments = [Segment(chance.choice(WORDS), chance.choice(STYLES)) for _ in range(chance.randint(0, 9))]
    return Strip(segments).adjust_cell_length(width, STYLES[0])


def whole(strips: list[Strip]) -> LayoutUpdate:
    return LayoutUpdate([[strip] for strip in strips], Region(0, 0, *SIZE))


def fresh(strips: list[Strip]) -> list[list[object]]:
    """The cells of a terminal that gets every piece in full, as Textual sends them."""
    cells = Cells(*SIZE)
    for y, strip in enumerate(strips):
        cells.feed(f"\x1b[{y + 1};1H" + strip.render(CONSOLE))
    return [list(line) for line in cells.lines]


@pytest.mark.parametrize("name", ["xterm-256color", "screen"])
def test_after_any_updates_it_shows_what_a_whole_repaint_would(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", name)
    monkeypatch.delenv("TMUX", raising=False)
    for seed in range(60):
        chance = random.Random(seed)
        terminal, cells = Terminal(), Cells(*SIZE, in_colour=name != "screen")
        strips: list[Strip] = []
        for turn in range(12):
            if turn == 0 or chance.random() < 0.4:
                kept = strips if chance.random() < 0.5 else []
                strips = [
                    kept[y] if kept and chance.random() < 0.7 else strip_of(chance, SIZE.width)
                    for y in range(SIZE.height)
                ]
                sent = terminal.paint(whole(strips), SIZE, CONSOLE)
            else:
                y, left = chance.randrange(SIZE.height), chance.randrange(SIZE.width - 1)
                right = chance.randint(left + 1, SIZE.width)
                part = strip_of(chance, right - left)
                strips[y] = Strip.join([strips[y].crop(0, left), part, strips[y].crop(right)])
                chops = [{0: strip} for strip in strips]
                update = ChopsUpdate(chops, [(y, left, right)], [[SIZE.width]] * SIZE.height)
                sent = terminal.paint(update, SIZE, CONSOLE)
            if chance.random() < 0.1:
                terminal.forget()
            cells.feed(sent)
            assert [list(line) for line in cells.lines] == fresh(strips), (seed, turn)


def test_opening_and_walking_the_screens_sends_few_bytes(run_cli: Console, open_terminal: Open) -> None:
    for n in range(6):
        run_cli("run", "exec", "--label", f"number {n}", "--", "true")
    terminal = open_terminal("tui")
    terminal.wait_for_text(b"number 0")
    settled(terminal)
    assert len(terminal.seen) < 6_000
    for keys in (b"h", b"\x1b", b"j", b"\r", b"\x1b", b"?", b"\x1b"):
        before = len(terminal.seen)
        terminal.type(keys)
        settled(terminal)
        assert len(terminal.seen) - before < 6_000, keys


def test_drawing_the_whole_screen_again_changes_nothing_on_it(run_cli: Console, open_terminal: Open) -> None:
    run_cli("run", "exec", "--label", "here it is", "--", "true")
    terminal = open_terminal("tui")
    terminal.wait_for_text(b"here it is")
    for keys in (b"h", b"\x1b", b"\r", b"?", b"\x1b[6~", b"\x1b", b"c"):
        terminal.type(keys)
        settled(terminal, 0.5)
    cells = Cells(120, 30)
    cells.feed(terminal.seen.decode())
    shown = [list(line) for line in cells.lines]
    terminal.seen = b""
    terminal.type(b"\x0c")
    terminal.wait_for_text(b"here it is")
    settled(terminal, 0.5)
    cells.feed(terminal.seen.decode())
    assert cells.lines == shown
