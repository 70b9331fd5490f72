"""The history's screen on a terminal: from a key to what it shows, in a history as large as the one it is given."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kgops.bench.measure import Line
from kgops.bench.open_screen import LINES, Screen, screens
from kgops.runs.listing import Listing
from kgops.settings import Home
from storage.database import open_reader

__all__ = ["history_screen"]

_SHOWN_FROM = 5  # title, blank, filter, blank, heads
_PAGE = LINES - _SHOWN_FROM - 1


def history_screen(home: Home, typed: Sequence[str], rounds: int = 7) -> list[Line]:
    """Each opening in a process of its own, with all that it imports for the first time."""
    conn = open_reader(home.database)
    count = Listing(conn)
    count.show(())
    total = count.count
    opened: list[float] = []
    pages: list[float] = []
    keys: list[float] = []
    rss = 0.0
    for _ in range(rounds):
        with _dashboard(home) as screen:
            opened.append(_until(screen, b"h", f"{total - _PAGE + 1} ".encode()))
            rss = screen.rss_mb
    with _dashboard(home) as screen:
        _until(screen, b"h", f"{total - _PAGE + 1} ".encode())
        for i in range(2, 60):
            time.sleep(0.01 * (i % 7))
            pages.append(_until(screen, b"\x1b[6~", f"{total - (_PAGE - 1) * i} ".encode()))
        for _ in range(5):
            pages.append(_until(screen, b"G", b" 1 "))
            pages.append(_until(screen, b"g", f" {total} ".encode()))
        for text in typed:
            keys += _typed(screen, text, total, count)
    conn.close()
    return [
        Line("history_screen_open", f"screen of {total:,} runs: h, a first time", "ms", tuple(opened), 100),
        Line("history_screen_page", "the same: another page, or either end", "ms", tuple(pages), 50),
        Line("history_screen_page_max", "the same: slowest", "ms", tuple(pages), None, max(pages)),
        Line(
            "history_screen_key", "the same: a key of a filter, until its count shows", "ms", tuple(keys), 35
        ),
        Line("history_screen_key_p90", "the same: p90", "ms", tuple(keys), None, _p90(keys)),
        Line("history_screen_rss", "the same: memory", "MB", (rss,), 60),
    ]


@contextmanager
def _dashboard(home: Home) -> Iterator[Screen]:
    """Once it has its runs."""
    with screens(home) as screen:
        screen.until(b"LATELY")
        screen.read_for(0.5)
        yield screen


def _typed(screen: Screen, text: str, total: int, count: Listing) -> Iterator[float]:
    """Each key that changes how many runs are shown."""
    screen.press(b"/")
    screen.read_for(0.3)
    before = total
    for end in range(1, len(text) + 1):
        count.type(text[:end])
        if count.count != before:
            shown = f"{count.count:,} of {total:,}" if count.count != total else f"{total:,} run"
            yield _until(screen, text[end - 1].encode(), shown.encode())
            before = count.count
        else:
            screen.press(text[end - 1].encode())
        screen.read_for(0.1)
    screen.press(b"\x1b")
    screen.read_for(0.5)


def _until(screen: Screen, key: bytes, shown: bytes) -> float:
    screen.seen = b""
    begin = time.perf_counter()
    screen.press(key)
    screen.until(shown)
    return (time.perf_counter() - begin) * 1000


def _p90(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[8]
