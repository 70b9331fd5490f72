"""What was measured has bars and the command that repeats it; other machines' is shown on asking."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from screen_benchmarks import (
    HOST,
    THERE,
    add_claims,
    add_matrix,
    add_own,
    detail_text,
    go_to,
    key_of,
    opened,
    ran,
)
from screen_driving import Seen, look

from kgops.experiments.summary import rows
from screens.benchmarks import Benchmarks
from screens.widgets.lines import Lines
from storage import benches
from storage.benches import Pair
from storage.database import Connection


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_every_variant_has_its_verdict_and_its_ratio(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    number = add_claims(conn)
    bench = benches.get(conn, number)
    assert bench is not None
    variants = rows(conn, bench)[1:]

    async def story(seen: Seen) -> None:
        await opened(seen)
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

    look(home, story, size)


def test_the_key_that_copies_takes_the_command_that_repeats_what_the_cursor_is_on(
    home: Path, conn: Connection
) -> None:
    add_own(conn)
    add_claims(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "claims b")
        await seen.press("y")
        await seen.until_shows("sent to the terminal: kgops bench claims --quick --only b")
        assert seen.app.clipboard == "kgops bench claims --quick --only b"

    look(home, story, (100, 40))


def test_what_others_measured_is_shown_on_asking_and_says_what_differs(home: Path, conn: Connection) -> None:
    add_claims(conn, THERE)
    ours = add_claims(conn)
    add_own(conn, THERE)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows(f"1 on {HOST} · 2 on other machines")
        assert key_of(THERE) not in seen.text
        body = seen.app.screen.query_one("#body", Lines)
        await go_to(seen, "claims b")
        assert body.key == ours
        await seen.press("M")
        await seen.until_shows("3 on all machines", key_of(THERE), "benchmarks.console")
        assert body.key == ours  # the cursor stays where it was
        await go_to(seen, "benchmarks.console")
        assert "! measured on another machine or version: packages.torch: 2.10.0 and 2.13.0" in detail_text(
            seen
        )
        await seen.press("M")
        await seen.until_shows("1 on")
        await go_to(seen, "claims b")
        assert "another machine" not in detail_text(seen)

    look(home, story)


def test_the_first_row_says_which_options_pay(home: Path, conn: Connection) -> None:
    add_claims(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("Which options pay here", "WHICH OPTIONS PAY on AMD EPYC, 2 cores (CPU)")
        told = detail_text(seen)
        assert "→ changes results" in told and "→ not measured: GPU" in told and "TRACIN GUIDE" in told
        assert all(len(line) <= 120 for line in seen.lines())

    look(home, story)


def test_a_matrix_shows_its_curves_over_what_was_varied_by_number(home: Path, conn: Connection) -> None:
    add_matrix(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
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
        await seen.press("tab", "end")
        await seen.until_shows("unsteady.")

    look(home, story, (80, 24))


def test_a_benchmark_that_goes_on_is_followed(home: Path, conn: Connection) -> None:
    number = add_matrix(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "nations.toml")
        await seen.until_shows("28 of 35 pairs")
        rng = random.Random(1)
        base, other = ran(rng, 1.0, 400.0, {}), ran(rng, 0.5, 500.0, {})
        pair = Pair(9, "batch_size=256 precision=fp32", 1, 2, base, other, 0.0, (), time.time())
        benches.add_pair(conn, number, pair)
        await seen.until_shows("29 of 35 pairs")
        benches.end(conn, number, time.time())
        await seen.until_gone("unfinished")

    look(home, story, (100, 40))


def test_before_anything_was_measured_it_says_what_to_run_first(home: Path) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("No benchmarks yet", "kgops bench claims --quick")
        await seen.press("M", "y", "slash", "x", "enter", "down")
        await seen.until_shows("No benchmarks yet")

    look(home, story, (80, 24))


def test_in_a_home_without_a_database_too(kgops_home: Path) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("No benchmarks yet")

    look(kgops_home, story, (80, 24))


def test_b_opens_it_from_other_screens_and_comes_back_to_the_one_below(home: Path, conn: Connection) -> None:
    add_claims(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        first = seen.app.screen
        await seen.press("escape", "f")
        await seen.until_shows("profiles  your own options override")
        await opened(seen)
        assert seen.app.screen is not first
        depth = len(seen.app.screen_stack)
        await seen.press("b")
        assert len(seen.app.screen_stack) == depth
        await seen.press("question_mark")
        await seen.until_shows("KEYS HERE", "Include other machines and versions.")
        await seen.press("escape", "escape")
        await seen.until_shows("profiles  your own options override")

    look(home, story)


def test_a_terminal_without_unicode_gets_bars_all_the_same(home: Path, conn: Connection) -> None:
    add_claims(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "claims b")
        await seen.until_shows("##|", "1x")
        assert seen.text.isascii() and "??" not in seen.text

    look(home, story, (120, 40), unicode=False)


def test_a_damaged_database_is_named_with_what_to_do(home: Path) -> None:
    (home / "kgops.db").write_bytes(b"no database at all " * 500)

    async def story(seen: Seen) -> None:
        await seen.until_shows("is damaged")
        await opened(seen)
        await seen.until_shows("is damaged", "doctor --rebuild")
        await seen.press("M", "down", "y")
        await seen.press("escape")
        await seen.until(lambda: not isinstance(seen.app.screen, Benchmarks), "the dashboard")

    look(home, story, (300, 30))
