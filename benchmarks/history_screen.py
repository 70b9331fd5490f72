"""Latency of the history screen on a terminal, from a key to the painted result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.measure import Line
from benchmarks.open_screen import LINES, Screen, screens
from kgops.settings import Home
from kgops.views.listing import Listing
from storage import filters
from storage.database import open_reader

__all__ = ["Took", "history_screen", "lines_of", "until_shown"]

_SHOWN_FROM = 5  # title, blank, filter, blank, heads
_PAGE = LINES - _SHOWN_FROM - 1


class Took(NamedTuple):
    """Time from a key to the painted result, and CPU time of all threads."""

    wall_ms: float
    cpu_ms: float


def history_screen(home: Home, typed: Sequence[str], rounds: int = 7) -> list[Line]:
    """Opens the screen in a new process each time, imports included."""
    conn = open_reader(home.database)
    count = Listing(conn)
    count.show(())
    total = count.count
    opened: list[Took] = []
    pages: list[Took] = []
    keys: list[Took] = []
    for _ in range(rounds):
        with _dashboard(home) as screen:
            opened.append(until_shown(screen, b"h", f"{total - _PAGE + 1} ".encode()))
    with _dashboard(home) as screen:
        until_shown(screen, b"h", f"{total - _PAGE + 1} ".encode())
        for i in range(2, 60):
            time.sleep(0.01 * (i % 7))
            pages.append(until_shown(screen, b"\x1b[6~", f"{total - (_PAGE - 1) * i} ".encode()))
        for _ in range(5):
            pages.append(until_shown(screen, b"G", b" 1 "))
            pages.append(until_shown(screen, b"g", f" {total} ".encode()))
        for text in typed:
            keys += _typed(screen, text, total, count)
        rss = screen.rss_mb
    conn.close()
    return [
        *lines_of("open", f"screen of {total:,} runs: h, a first time", opened, 100),
        *lines_of("page", "screen: another page, or either end", pages, 50),
        *lines_of("key", "screen: a key of a filter, until its count shows", keys, 35),
        Line("history_screen_rss", "screen: memory after all of these", "MB", (rss,), 60),
    ]


def lines_of(
    name: str, subject: str, took: Sequence[Took], target: float, *, screen: str = "history_screen"
) -> list[Line]:
    """Its median beside the target, its 90th percentile and its CPU."""
    wall = tuple(one.wall_ms for one in took)
    cpu = tuple(one.cpu_ms for one in took)
    p90 = statistics.quantiles(wall, n=10, method="inclusive")[8]
    return [
        Line(f"{screen}_{name}", subject, "ms", wall, target),
        Line(f"{screen}_{name}_p90", "the same: p90", "ms", wall, None, p90),
        Line(f"{screen}_{name}_cpu", "the same: CPU", "ms", cpu),
    ]


@contextmanager
def _dashboard(home: Home) -> Iterator[Screen]:
    """Waits until the screen shows its runs."""
    with screens(home) as screen:
        screen.until(b"RECENT")
        screen.read_for(0.5)
        yield screen


def _typed(screen: Screen, text: str, total: int, count: Listing) -> Iterator[Took]:
    """Keys that change the number of shown runs."""
    screen.press(b"/")
    screen.read_for(0.3)
    before = total
    for end in range(1, len(text) + 1):
        count.show(filters.read(text[:end], typing=True).terms)
        if count.count != before:
            shown = f"{count.count:,} of {total:,}" if count.count != total else f"{total:,} run"
            yield until_shown(screen, text[end - 1].encode(), shown.encode())
            before = count.count
        else:
            screen.press(text[end - 1].encode())
        screen.read_for(0.1)
    screen.press(b"\x1b")
    screen.read_for(0.5)


def until_shown(screen: Screen, key: bytes, shown: bytes) -> Took:
    """Presses the key and reads until the screen has sent that text."""
    screen.seen = b""
    cpu, begin = screen.cpu_s, time.perf_counter()
    screen.press(key)
    screen.until(shown)
    wall_ms = (time.perf_counter() - begin) * 1000
    return Took(wall_ms, (screen.cpu_s - cpu) * 1000)
