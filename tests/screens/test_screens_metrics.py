"""Every metric that was ever kept is found by its words, sorted by any column, and told with all its times."""

from __future__ import annotations

from pathlib import Path

from screen_benchmarks import (
    HERE,
    HOST,
    THERE,
    add_claims,
    add_many,
    add_own,
    at,
    detail_text,
    key_of,
    opened,
    until_detail,
)
from screen_driving import Seen, look

from kgops.cli.output import amount
from kgops.experiments.summary import as_measurements
from screens.widgets.row_window import RowWindow
from storage import benches, measurements
from storage.database import Connection
from storage.measurements import MeasurementFilter


def test_a_filter_of_metrics_finds_what_the_command_finds(home: Path, conn: Connection) -> None:
    add_many(conn, 2_000)
    there = key_of(THERE)
    typed = ("memory", "only variant", "loss 3", f"on:{there[:6]} paint", "nothing like this")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("every metric", f"1,500 on {HOST}")
        for text in typed:
            words = tuple(word for word in text.split() if not word.startswith("on:"))
            wanted = MeasurementFilter(words, machine=there if "on:" in text else key_of(HERE))
            newest = measurements.page(conn, wanted, limit=1)
            await seen.press("slash", "ctrl+u")
            for char in text:
                await seen.press({" ": "space", ":": "colon"}.get(char, char))
            await seen.press("enter")
            whose = f"{there[:6]}…" if "on:" in text else HOST
            await seen.until_shows(f"{measurements.count(conn, wanted):,} on {whose}")
            assert (there in seen.text) == ("on:" in text)
            if newest:
                await until_detail(seen, newest[0].subject)
            else:
                await seen.until_shows("No benchmark of this machine matches the filter", "M  include")

    look(home, story)


def test_metrics_are_sorted_by_each_column_and_read_wherever_one_goes(home: Path, conn: Connection) -> None:
    add_many(conn, 3_000)
    wanted = MeasurementFilter(machine=key_of(HERE))
    by_value = measurements.page(conn, wanted, sort="value")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("every metric", "2,250 on")
        await seen.press("less_than_sign", "less_than_sign")  # measured, n, value
        await seen.until_shows("value▼")
        await seen.press("G")
        await seen.until_shows(amount(by_value[-1].value, "ms"))
        await seen.press("u")
        await seen.until_shows("value▲")
        await seen.until(lambda: at(seen) == 0, "the first row")
        await seen.until_shows(amount(by_value[-1].value, "ms"))
        seen.app.screen.query_one("#body", RowWindow).go(1_100)
        await seen.press("pagedown")
        assert 1_100 < at(seen) < 1_200
        await seen.until_shows(amount(by_value[-1 - at(seen)].value, "ms"))

    look(home, story)


def test_metrics_of_a_benchmark_say_what_they_are_of(home: Path, conn: Connection) -> None:
    add_claims(conn)
    bench = benches.newest(conn, limit=1)[0]
    measurements.replace_of_bench(conn, bench.id, as_measurements(conn, bench))

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("every metric", "27.4", "×")
        rows = [line.split() for line in seen.lines() if line.startswith("kgops ")]
        assert [row[1] for row in rows[:4]] == ["memory_mib", "seconds", "memory", "speed"]

    look(home, story, (80, 24))


def test_a_metric_shows_every_time_it_was_measured_here(home: Path, conn: Connection) -> None:
    add_own(conn, times=6)
    add_own(conn, THERE, times=3)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("18 on")
        await go_to_detail(seen, "first_paint")
        assert "6 MEASUREMENTS ON THIS MACHINE" in detail_text(seen)
        await seen.press("F")
        await seen.until_shows("BENCHMARK")

    look(home, story)


async def go_to_detail(seen: Seen, start: str) -> None:
    for _ in range(5):
        if detail_text(seen).startswith(start):
            return
        await seen.press("down")
        await seen.wait(0.1)
    await seen.until(lambda: detail_text(seen).startswith(start), start)
