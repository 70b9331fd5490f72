"""Latency of the benchmarks screen on a terminal with a large database, from a key to the painted result."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.history_screen import Took, lines_of, until_shown
from benchmarks.measure import Line
from benchmarks.open_screen import Screen, screens
from kgops.settings import Home, make_home
from storage import measurements, metric_query
from storage.database import open_reader, open_writer, transaction
from storage.measurements import Measurement

__all__ = ["metrics_screen"]

_TYPED = ("memory store 2", "loss variant 3", "tracin paint", "page quick 1")
_NAMES = ("loss", "memory", "first paint", "page", "key", "tracin", "evaluation")
_KINDS, _AT_ONCE = 60, 5000
_OPEN = b"--store --quick"  # shows in the row of every benchmark
_ORDERED, _ORDERS = b"\xe2\x96", 4  # an arrow in the heading, up or down; columns to sort by


def metrics_screen(home: Home, count: int, rounds: int = 7) -> list[Line]:
    """Opens the screen in a new process each time, imports included."""
    fill(home, count)
    opened: list[Took] = []
    turned: list[Took] = []
    pages: list[Took] = []
    for _ in range(rounds):
        with screens(home) as screen:
            opened.append(_opened(screen))
            turned.append(until_shown(screen, b"F", b"of variant"))
    with screens(home) as screen:
        _opened(screen)
        until_shown(screen, b"F", b"of variant")
        screen.read_for(1.0)
        for i in range(60):
            screen.read_for(0.01 * (i % 7))
            pages.append(until_shown(screen, b"\x1b[6~", b"of variant"))
        for key in b"GgGg":
            screen.read_for(0.3)
            pages.append(until_shown(screen, bytes([key]), b"of variant"))
        orders = [until_shown(screen, b">", _ORDERED) for _ in range(_ORDERS)]
        keys = list(_typed(home, screen))
        rss = screen.rss_mb
    called = "metrics_screen"
    return [
        *lines_of("open", f"screen of {count:,} values: b, a first time", opened, 100, screen=called),
        *lines_of("turn", "screen: from benchmarks to every value", turned, 100, screen=called),
        *lines_of("page", "screen: another page of values, or either end", pages, 50, screen=called),
        *lines_of("order", "screen: values in another order, a first time", orders, 100, screen=called),
        *lines_of("key", "screen: a key of a filter of values", keys, 35, screen=called),
        Line(f"{called}_rss", "screen: memory after all of these", "MB", (rss,), 60),
    ]


def fill(home: Home, count: int) -> None:
    """Writes values of this machine and, for a quarter of them, of another one."""
    make_home(home)
    rng = random.Random(1)
    machines: list[dict[str, Any]] = [{"machine": {"host": platform.node()}}, {"machine": {"cores": 1}}]
    conn = open_writer(home.database)
    with transaction(conn):
        for first in range(0, count, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, count))
            measurements.add_all(conn, [_metric(rng, i, count, machines[i % 4 == 0]) for i in numbers])
    conn.close()


def _metric(rng: random.Random, number: int, count: int, machine: dict[str, Any]) -> Measurement:
    kind, value = rng.randrange(_KINDS), rng.random() * 10
    name, command = f"bench.{_NAMES[kind % 7]}", f"kgops bench {_NAMES[kind % 7]} --store --quick {kind % 3}"
    subject, at = f"{_NAMES[kind % 5]} of variant {kind}", time.time() - (count - number) * 60
    return Measurement(name, subject, None, value, value, value, 5, "ms", command, machine, at)


def _opened(screen: Screen) -> Took:
    screen.until(b"No runs")
    screen.read_for(0.5)
    took = until_shown(screen, b"b", _OPEN)
    screen.read_for(1.0)
    return took


def _typed(home: Home, screen: Screen) -> Iterator[Took]:
    """Keys that change the number of shown values, until the screen shows the number."""
    conn = open_reader(home.database)
    known, machine = metric_query.known(conn), metric_query.newest_machine(conn, platform.node())
    conn.close()
    for text in _TYPED:
        screen.press(b"/")
        screen.read_for(0.5)
        before = len(metric_query.with_words(known, (), machine))
        for end in range(1, len(text) + 1):
            count = len(metric_query.with_words(known, text[:end].split(), machine))
            if count != before:
                yield until_shown(screen, text[end - 1].encode(), f"{count:,} on".encode())
            else:
                screen.press(text[end - 1].encode())
            before = count
            screen.read_for(0.1)
        screen.press(b"\x1b")
        screen.read_for(0.5)
