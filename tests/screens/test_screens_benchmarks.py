"""Benchmarks are found by words and sorted; each has its fastest configuration, its results over time, and those on
other machines, with bars and the command that repeats them."""

import random
import time
from pathlib import Path
from typing import cast

import dated_benchmarks
import pytest
from dated_benchmarks import FAST, SLOW
from screen_benchmarks import (
    HERE,
    add_claims,
    add_matrix,
    detail_text,
    go_to,
    opened,
    ran,
)
from screen_driving import Seen, open_screens

from kgops.experiments.summary import rows
from screens.benchmarks import Benchmarks
from storage import benches, runs
from storage.benches import Pair
from storage.database import Connection


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_every_variant_has_its_verdict_and_its_ratio(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    number = add_claims(conn)
    bench = benches.get(conn, number)
    assert bench is not None
    variants = rows(conn, bench)[1:]
    async with open_screens(home, size, first=opened) as seen:
        await go_to(seen, "claims b")
        told = " ".join(detail_text(seen).split())
        for one in variants:
            assert one.variant in told and one.verdict in told
            if one.speed is not None and one.speed.median < 100:
                r = one.speed
                assert f"{r.median:.2f}× ({r.low:.2f}–{r.high:.2f}) {r.n} " in told
        assert "against baseline: " in told and "Python 3.11.7, torch 2.13.0" in told
        assert all(len(line) <= size[0] for line in seen.lines())
        await seen.until_shows("measured here", "1×", "harmful", "│")


def _others(seen: Seen) -> list[str]:
    """The machines of the rows that were measured."""
    page = cast("Benchmarks", seen.app.screen)._page
    return [] if page is None else [one.series.device for one in page.rows.values() if one.series is not None]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_four_keys_say_what_is_fastest_on_a_t4(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    dated_benchmarks.add_all(conn)
    async with open_screens(home, size) as seen:
        await seen.press("b", "slash", "t", "4", shows=("1 of 2 benchmarks", "Fastest on Tesla T4: "))
        told = " ".join(detail_text(seen).split())
        assert f"Fastest on Tesla T4: {FAST}, 0.41 s (an epoch), 1.95× as fast as {SLOW}." in told
        row = next(line for line in seen.lines() if line.startswith("nations.tom"))
        assert f"{FAST} 0.41 s 13% slower Tesla T4" in " ".join(row.split())
        assert _others(seen) == ["Tesla T4"]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_three_keys_say_whether_it_became_slower(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    dated_benchmarks.add_all(conn)
    async with open_screens(home, size) as seen:
        await seen.press("b", shows=("2 benchmarks", "Tesla T4"))
        await seen.press("down", "down")
        await seen.until_shows("Against 2026-10-28, the time before: 13% slower.", "until now")
        assert "Against 2026-10-03, the first time: 14% slower." in seen.text
        for date, changes in {
            "2026-10-03": "first 14% slower 2.10.0",
            "2026-10-28": "within noise 13% slower 2.10.0",
            "2026-11-20": "13% slower now 2.13.0",
        }.items():
            line = next(line for line in seen.lines() if f"{date} " in line and "2.1" in line)
            assert changes in " ".join(line.split())


async def test_three_keys_put_two_machines_next_to_each_other(home: Path, conn: Connection) -> None:
    dated_benchmarks.add_all(conn)
    async with open_screens(home, (80, 24)) as seen:
        await seen.press("b", shows=("2 benchmarks", "Tesla T4"))
        await seen.press("down", "equals_sign")
        await seen.until_shows("Tesla T4 against NVIDIA A100-SXM4-40GB: 4.1× slower.", "2 against 1")
        line = next(line for line in seen.lines() if f"{SLOW} " in line and "3.2×" in line)
        assert "0.25 s 0.8 s 3.2× slower" in " ".join(line.split())
        await seen.press("equals_sign", shows="Fastest on NVIDIA A100-SXM4-40GB")


async def test_the_list_is_sorted_by_any_column(home: Path, conn: Connection) -> None:
    dated_benchmarks.add_all(conn)
    async with open_screens(home, first=opened) as seen:
        await seen.until_shows("measured▼")
        assert _others(seen) == ["NVIDIA A100-SXM4-40GB", "Tesla T4"]
        await seen.press("u", shows="measured▲")
        assert _others(seen) == ["Tesla T4", "NVIDIA A100-SXM4-40GB"]
        await seen.press("greater_than_sign", "greater_than_sign", "greater_than_sign", shows="time▲")
        assert _others(seen) == ["NVIDIA A100-SXM4-40GB", "Tesla T4"]


async def test_a_benchmark_is_started_and_stopped(home: Path, conn: Connection, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('workload = "exec"\n[exec]\ncommand = ["sleep", "{seconds}"]\n')
    command = "kgops bench matrix job.toml --vary seconds=600,601 --repeat 1"
    variants = [{"name": f"seconds={n}", "varied": {"seconds": n}} for n in (600, 601)]
    plan = {"variants": variants, "rounds": 1, "cwd": str(tmp_path)}
    benches.end(conn, benches.begin(conn, "matrix job.toml", plan, command, HERE, time.time()), time.time())
    async with open_screens(home, (120, 40), first=opened) as seen:
        await go_to(seen, "job.toml", "matrix job.toml")
        await seen.press("x", shows=(f"start {command}", "y yes"))
        await seen.press("y")
        await seen.until(lambda: runs.in_states(conn, ("running",)), "its first run")
        await seen.until_shows("a benchmark is running: s stops it")
        await seen.press("s", shows="asked benchmark 2 to stop, by its run 1; x continues it")
        await seen.until_shows("Error: run 1 was cancelled: the benchmark is not finished")
        await seen.until_gone("a benchmark is running")
        await seen.press("s", shows="no benchmark is running in this home")


async def test_a_matrix_shows_its_curves_over_what_was_varied_by_number(home: Path, conn: Connection) -> None:
    add_matrix(conn)
    async with open_screens(home, (80, 24), first=opened) as seen:
        await go_to(seen, "nations.toml")
        told = detail_text(seen)
        assert "! unfinished: 28 of 35 pairs" in told
        assert "SECONDS OVER BATCH_SIZE" in told and "SECONDS OVER PRECISION" not in told
        assert "A  precision=fp32" in told and "B  precision=bf16" in told
        chart = told.partition("SECONDS OVER")[2]
        assert any(0x2800 < ord(char) <= 0x28FF for char in chart)
        assert "128" in chart and "1,024" in chart
        assert "machine busy: other processes used 30% of the CPUs" in told
        assert "[b]no bf16" in told and "\x1b" not in told
        await seen.press("tab", "end", shows="unsteady.")


async def test_a_benchmark_that_goes_on_is_followed(home: Path, conn: Connection) -> None:
    number = add_matrix(conn)
    async with open_screens(home, (100, 40), first=opened) as seen:
        await go_to(seen, "nations.toml")
        await seen.until_shows("28 of 35 pairs")
        rng = random.Random(1)
        base, other = ran(rng, 1.0, 400.0, {}), ran(rng, 0.5, 500.0, {})
        pair = Pair(9, "batch_size=256 precision=fp32", 1, 2, base, other, 0.0, (), time.time())
        benches.add_pair(conn, number, pair)
        await seen.until_shows("29 of 35 pairs")
        benches.end(conn, number, time.time())
        await seen.until_gone("unfinished")


async def test_b_opens_it_anywhere_y_copies_a_command_and_escape_goes_to_the_screen_below(
    home: Path, conn: Connection
) -> None:
    add_claims(conn)
    async with open_screens(home, first=opened) as seen:
        first = seen.app.screen
        await seen.press("escape", "f", shows="profiles  your own options override")
        await opened(seen)
        assert seen.app.screen is not first
        await go_to(seen, "claims b")
        await seen.press("y", shows="sent to the terminal: kgops bench claims --quick --only b")
        assert seen.app.clipboard == "kgops bench claims --quick --only b"
        depth = len(seen.app.screen_stack)
        await seen.press("b")
        assert len(seen.app.screen_stack) == depth
        await seen.press("question_mark", shows=("KEYS HERE", "Start this benchmark here, asking first."))
        await seen.press("escape", "escape", shows="profiles  your own options override")
