"""Claims stand beside what was measured, with bars and the command that repeats them; other machines' on asking."""

from __future__ import annotations

import math
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from screen_driving import Seen, look

from kgops.cli.output import figure
from kgops.measured.claims import judge, shipped
from kgops.measured.pairs import Spread
from kgops.measured.summary import as_measurements
from screens.benchmarks import Benchmarks
from screens.widgets.lines import Lines
from screens.widgets.ratio import ratio_bar, scale_of
from screens.widgets.window import Window
from storage import benches, claims, figures, measurements
from storage.benches import Pair
from storage.database import Connection, transaction
from storage.measurements import Measurement, Wanted

HERE = {
    "python": "3.11.7",
    "packages": {"torch": "2.13.0"},
    "machine": {"host": platform.node(), "processor": "AMD EPYC", "cores": 2, "system": "Linux 6.8"},
    "cards": [],
    "git": {"commit": "798396031c", "changed": False},
}
THERE = {**HERE, "packages": {"torch": "2.10.0"}, "machine": {**HERE["machine"], "host": "gpu-7"}}  # type: ignore[dict-item]
CLAIMS_B: dict[str, Any] = {  # seconds, MiB, figures
    "baseline again": (1.04, 12.75, {"score_error": 1.1e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ cleanup": (30.0, 12.75, {"score_error": 1.1e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ fp16": "no CUDA device: their mixed precision is CUDA's",
    "+ bf16": (1.7, 25.0, {"score_error": 0.0028, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ last layers": (0.61, 11.0, {"score_error": 0.32, "rank_agreement": 0.917, "top_50_shared": 0.88}),
    "+ vmap": (1.03, 70.0, {"score_error": 1.8e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "+ filtering": (0.0007, 0.8, {"score_error": 0.65, "rank_agreement": -0.006, "top_50_shared": 0.06}),
    "all that is exact": (0.45, 70.0, {"score_error": 1.8e-07, "rank_agreement": 1.0, "top_50_shared": 1.0}),
    "kgops": (0.037, 23.6, {"score_error": 7.4e-08, "rank_agreement": 1.0, "top_50_shared": 1.0}),
}


def key_of(machine: dict[str, Any]) -> str:
    return measurements.fingerprint_key(machine)


def ran(rng: random.Random, seconds: float, mib: float, figures: dict[str, float]) -> dict[str, Any]:
    of = {
        "seconds_of": "processor time of one thread, loading left out",
        "memory_of": "resident set at its peak",
    }
    took = seconds * rng.uniform(0.97, 1.03)
    return {**of, "seconds": took, "memory_mib": mib, "figures": figures, "trouble": None, "took_s": took}


def add_claims(conn: Connection, machine: dict[str, Any] = HERE, at: float | None = None) -> int:
    """Table b, as `kgops bench claims --quick --only b` leaves it behind."""
    rng, began = random.Random(7), at or time.time() - 3600
    plan = {"variants": [{"name": name} for name in ("baseline", *CLAIMS_B)], "rounds": 3, "together": True}
    name, command = "claims b (quick): TracIn, one test triple", "kgops bench claims --quick --only b"
    number = benches.begin(conn, name, plan, command, machine, began)
    claims.keep(conn, [one.claim for one in shipped()])
    for i in range(3):
        base = ran(rng, 1.0, 12.75, {})
        for variant, told in CLAIMS_B.items():
            measured: dict[str, Any] = (
                {"trouble": told, "figures": {}, "seconds": None, "memory_mib": None}
                if isinstance(told, str)
                else ran(rng, *told)
            )
            benches.add_pair(conn, number, Pair(i, variant, 1, 2, base, measured, 0.02, (), began + i))
    benches.end(conn, number, began + 100)
    return number


def add_matrix(conn: Connection, sizes: tuple[int, ...] = (128, 256, 512, 1024)) -> int:
    """`kgops bench matrix` over batch sizes in two precisions."""
    rng, began = random.Random(8), time.time() - 1800
    settings = [
        {"batch_size": size, "precision": precision} for precision in ("fp32", "bf16") for size in sizes
    ]
    names = [f"batch_size={one['batch_size']} precision={one['precision']}" for one in settings]
    plan = {
        "variants": [
            {"name": name, "varied": setting} for name, setting in zip(names, settings, strict=True)
        ],
        "rounds": 5,
    }
    command = "kgops bench matrix nations.toml --vary batch_size=128,256,512,1024 --vary precision=fp32,bf16"
    number = benches.begin(conn, "nations.toml by batch_size, precision", plan, command, HERE, began)
    for i in range(4):
        base = ran(rng, 1.0, 400.0, {"test_mrr": 0.6})
        for name, setting in list(zip(names, settings, strict=True))[1:]:
            size, half = int(setting["batch_size"]), setting["precision"] == "bf16"
            seconds, mib = (0.3 + 90 / size) * (0.8 if half else 1.0), (300 + size / 2) * (0.7 if half else 1)
            measured = ran(rng, seconds, mib, {"test_mrr": 0.59 if half else 0.6})
            measured["levers"] = (
                {"precision": {"asked": "bf16", "effective": "fp32", "why": "[b]no bf16\x1b[31m[/b] here"}}
                if half and size == 128
                else {}
            )
            benches.add_pair(conn, number, Pair(i, name, 1, 2, base, measured, 0.3, (), began + i))
    return number


def add_own(conn: Connection, machine: dict[str, Any] = HERE, times: int = 6) -> None:
    """What `kgops bench console --store` keeps, several times."""
    rng = random.Random(9)
    subjects = (
        ("help", "kgops --help: CPU", "ms"),
        ("first_paint", "first paint: CPU", "ms"),
        ("rss", "memory", "MB"),
    )
    for i in range(times):
        at = time.time() - 86_400 * (times - i)
        kept = []
        for name, subject, unit in subjects:
            value = rng.uniform(40, 60)
            kept.append(
                Measurement(
                    name,
                    subject,
                    None,
                    value,
                    value - 2,
                    value + 3,
                    7,
                    unit,
                    "kgops.bench.console",
                    machine,
                    at,
                )
            )
        measurements.add_all(conn, kept)


def add_many(conn: Connection, count: int) -> None:
    """Figures as years of benchmarks leave them behind, a quarter of them of another machine."""
    rng = random.Random(1)
    keys = [measurements.keep_fingerprint(conn, one) for one in (HERE, HERE, HERE, THERE)]
    names = ("loss", "memory", "first paint", "page", "key", "tracin", "evaluation")
    rows = []
    for i in range(count):
        k = rng.randrange(60)
        command = f"kgops bench {names[k % 7]} --store --only {k % 3}"
        value = rng.random() * 10
        figures = value, value * 0.9, value * 1.1, 5, "ms", command, 1.7e9 + i, keys[i % 4]
        rows.append((f"bench.{names[k % 7]}", f"{names[k % 5]} of variant {k}", None, *figures))
    with transaction(conn):
        conn.executemany(
            "INSERT INTO measurement (name, subject, against, value, low, high, n, unit, command, at, fingerprint)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )


async def opened(seen: Seen) -> None:
    await seen.press("b")
    await seen.until(lambda: isinstance(seen.app.screen, Benchmarks), "the benchmarks")
    await seen.until(lambda: seen.app.screen.query_one("#body", Lines).rows, "what there is")


async def go_to(seen: Seen, start: str) -> None:
    """The cursor on the first row that begins so, and what is told of it."""
    body = seen.app.screen.query_one("#body", Lines)
    for _ in range(len(body.rows)):
        if "".join(piece.text for piece in body.rows[at(seen)].pieces).startswith(start):
            break
        await seen.press("down")
    else:
        raise AssertionError(f"no row begins with {start!r}:\n{seen.text}")
    await seen.until(lambda: said(seen).startswith(start), f"what is told of {start}")


def at(seen: Seen) -> int:
    return seen.app.screen.query_one("#body", Window).at


def said(seen: Seen) -> str:
    """All that is told of the row under the cursor, in sight or not."""
    rows = seen.app.screen.query_one("#detail", Lines).rows
    return "\n".join("".join(piece.text for piece in row.pieces) for row in rows)


async def until_said(seen: Seen, text: str) -> None:
    await seen.until(lambda: text in said(seen), f"{text!r} to be told")


def drawn(one: Spread | None, claim: float | None, width: int, among: Sequence[Spread] = ()) -> str:
    scale = scale_of((one, *among), (claim,), width)
    return "".join(piece.text for piece in ratio_bar(one, claim, scale, "good"))


# --- bars ---


def test_a_bar_is_filled_as_far_as_is_sure_and_shaded_to_the_upper_quartile() -> None:
    surely = drawn(Spread(3.0, 2.0, 3.9, 5), None, 61)
    line = surely.index("│")
    filled, shaded = surely.count("█"), surely.count("░")
    assert surely[line + 1 :].lstrip("█").lstrip("▏▎▍▌▋▊▉").startswith("░")
    assert filled / (filled + shaded) == pytest.approx(math.log(2.0) / math.log(3.9), abs=0.05)
    assert not surely[:line].strip()


def test_a_bar_to_the_left_is_worse_and_one_across_the_line_is_nothing_sure() -> None:
    worse, unsure = drawn(Spread(0.4, 0.3, 0.5, 5), None, 41), drawn(Spread(1.0, 0.8, 1.3, 5), None, 41)
    assert "█" in worse.partition("│")[0] and not worse.partition("│")[2].strip()
    assert "█" not in unsure
    left, _, right = unsure.partition("┃")
    assert left.endswith("░") and right.startswith("░")


def test_an_eighth_of_a_column_can_be_seen() -> None:
    width, among = 61, (Spread(1.5, 1 / 1.5, 1.5, 5),)
    seen = [drawn(Spread(low, low, low, 5), None, width, among) for low in (1.1, 1.102, 1.104, 1.106, 1.108)]
    assert len(set(seen)) > 2


def test_what_was_claimed_is_marked_and_what_lies_beyond_the_scale_says_so() -> None:
    near = drawn(Spread(1.2, 1.1, 1.3, 5), 2.0, 41)
    assert near.index("◆") > near.rindex("░")
    far = drawn(Spread(1452.0, 1449.0, 1459.0, 3), None, 41)
    assert far.endswith("›")
    assert drawn(None, 3.0, 41).count("◆") == 1
    assert drawn(Spread(0.001, 0.001, 0.001, 3), None, 41).startswith("‹")


@given(st.floats(1e-6, 1e6), st.floats(1, 3), st.floats(0.1, 1e5), st.integers(13, 120))
def test_a_bar_is_always_as_wide_as_its_column(low: float, spread: float, claim: float, width: int) -> None:
    one = Spread(low, low, low * spread, 5)
    assert len(drawn(one, claim, width)) == width
    assert len(drawn(None, None, width, (one,))) == width


# --- claims beside measurements ---


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_every_claim_stands_beside_what_was_measured_with_its_verdict(
    home: Path, conn: Connection, size: tuple[int, int]
) -> None:
    number = add_claims(conn)
    bench = benches.get(conn, number)
    assert bench is not None
    judged = judge(conn, bench, shipped())

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "claims b")
        told = " ".join(said(seen).split())
        for one in judged:
            assert one.variant in told
            if one.held is not None:
                of = {"speed": "speed: ", "cost": "speed: ", "memory": "memory: "}
                about = of.get(one.held.quantity, "") if one.ratio else ""
                words = f"{about}{one.verdict}; {one.held.claim.text} — {one.held.claim.said_by}"
                assert words in told, words
            if one.ratio is not None and one.ratio.median < 100:
                r = one.ratio
                assert f"{r.median:.2f}× ({r.low:.2f}–{r.high:.2f}) {r.n} " in told
        assert "against baseline: " in told and "Python 3.11.7, torch 2.13.0" in told
        assert all(len(line) <= size[0] for line in seen.lines())
        await seen.until_shows("measured here", "1×", "harmful", "◆", "│")

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
        await seen.until_shows("copied: kgops bench claims --quick --only b")
        assert seen.app.clipboard == "kgops bench claims --quick --only b"
        await go_to(seen, "claims d")
        assert "CLAIMED, AND NOT MEASURED HERE" in said(seen)
        await seen.press("y")
        await seen.until_shows("copied: kgops bench claims --quick --only d")

    look(home, story, (100, 40))


def test_what_others_measured_is_shown_on_asking_and_says_what_differs(home: Path, conn: Connection) -> None:
    add_claims(conn, THERE)
    ours = add_claims(conn)
    add_own(conn, THERE)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows(f"1 on {key_of(HERE)} · 2 elsewhere")
        assert key_of(THERE) not in seen.text
        body = seen.app.screen.query_one("#body", Lines)
        assert body.key == ours
        await seen.press("M")
        await seen.until_shows("3 all machines", key_of(THERE), "kgops.bench.console")
        assert body.key == ours  # the cursor stays where it was
        await go_to(seen, "kgops.bench.console")
        assert "! not of the machine looked at: packages.torch: 2.10.0 and 2.13.0" in said(seen)
        await seen.press("M")
        await seen.until_shows("1 on")
        await go_to(seen, "claims b")
        assert "not of the machine" not in said(seen)

    look(home, story)


def test_a_matrix_shows_its_curves_over_what_was_varied_by_number(home: Path, conn: Connection) -> None:
    add_matrix(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "nations.toml")
        told = said(seen)
        assert "! unfinished: 28 of 35 pairs" in told
        assert "SECONDS OVER BATCH_SIZE" in told and "SECONDS OVER PRECISION" not in told
        assert "A  precision=fp32" in told and "B  precision=bf16" in told
        chart = told.partition("SECONDS OVER")[2]
        assert any(0x2800 < ord(char) <= 0x28FF for char in chart)
        assert "128" in chart and "1,024" in chart
        assert "not quiet: others used 30% of the processors" in told
        assert "[b]no bf16" in told and "\x1b" not in told
        await seen.press("tab", "end")
        await seen.until_shows("it cannot be tested here.")

    look(home, story, (80, 24))


def test_a_benchmark_that_goes_on_is_followed(home: Path, conn: Connection) -> None:
    number = add_matrix(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("28 of 35 pairs")
        rng = random.Random(1)
        base, other = ran(rng, 1.0, 400.0, {}), ran(rng, 0.5, 500.0, {})
        pair = Pair(9, "batch_size=256 precision=fp32", 1, 2, base, other, 0.0, (), time.time())
        benches.add_pair(conn, number, pair)
        await seen.until_shows("29 of 35 pairs")
        benches.end(conn, number, time.time())
        await seen.until_gone("unfinished")

    look(home, story, (100, 40))


# --- figures one by one ---


def test_a_filter_of_figures_finds_what_the_command_finds(home: Path, conn: Connection) -> None:
    add_many(conn, 2_000)
    there = key_of(THERE)
    typed = ("memory", "only variant", "loss 3", f"on:{there[:6]} paint", "nothing like this")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("every figure", f"1,500 on {key_of(HERE)}")
        for text in typed:
            words = tuple(word for word in text.split() if not word.startswith("on:"))
            wanted = Wanted(words, machine=there if "on:" in text else key_of(HERE))
            newest = measurements.page(conn, wanted, limit=1)
            await seen.press("slash", "ctrl+u")
            for char in text:
                await seen.press({" ": "space", ":": "colon"}.get(char, char))
            await seen.press("enter")
            whose = f"{there[:6]}…" if "on:" in text else key_of(HERE)
            await seen.until_shows(f"{measurements.count(conn, wanted):,} on {whose}")
            assert (there in seen.text) == ("on:" in text)
            if newest:
                await until_said(seen, newest[0].subject)
            else:
                await seen.until_shows("Nothing like that was measured on this machine", "M  shows")

    look(home, story)


def test_figures_are_sorted_by_each_column_and_read_wherever_one_goes(home: Path, conn: Connection) -> None:
    add_many(conn, 3_000)
    wanted = Wanted(machine=key_of(HERE))
    by_value = measurements.page(conn, wanted, sort="value")

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("every figure", "2,250 on")
        await seen.press("less_than_sign", "less_than_sign")  # measured, n, value
        await seen.until_shows("value▼")
        await seen.press("G")
        await seen.until_shows(figure(by_value[-1].value, "ms"))
        await seen.press("u")
        await seen.until_shows("value▲")
        await seen.until(lambda: at(seen) == 0, "the first row")
        await seen.until_shows(figure(by_value[-1].value, "ms"))
        seen.app.screen.query_one("#body", Window).go(1_100)
        await seen.press("pagedown")
        assert 1_100 < at(seen) < 1_200
        await seen.until_shows(figure(by_value[-1 - at(seen)].value, "ms"))

    look(home, story)


def test_figures_of_a_benchmark_say_what_they_are_of(home: Path, conn: Connection) -> None:
    add_claims(conn)
    bench = benches.newest(conn, limit=1)[0]
    measurements.replace_of_bench(conn, bench.id, as_measurements(conn, bench))

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("every figure", "27.4", "×")
        rows = [line.split() for line in seen.lines() if line.startswith("kgops ")]
        assert [row[1] for row in rows[:4]] == ["memory_mib", "seconds", "memory", "speed"]

    look(home, story, (80, 24))


def test_a_figure_shows_every_time_it_was_measured_here(home: Path, conn: Connection) -> None:
    add_own(conn, times=6)
    add_own(conn, THERE, times=3)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.press("F")
        await seen.until_shows("18 on")
        await go_to_told(seen, "first_paint")
        assert "6 TIMES ON THIS MACHINE" in said(seen)
        await seen.press("F")
        await seen.until_shows("BENCHMARK")

    look(home, story)


async def go_to_told(seen: Seen, start: str) -> None:
    for _ in range(5):
        if said(seen).startswith(start):
            return
        await seen.press("down")
        await seen.wait(0.1)
    await seen.until(lambda: said(seen).startswith(start), start)


# --- the rest of what every screen promises ---


def test_before_anything_was_measured_it_says_what_to_run_first(home: Path) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("Nothing was measured yet", "kgops bench claims --quick")
        await seen.press("F", "M", "y", "slash", "x", "enter", "greater_than_sign", "down")
        await seen.until_shows("Nothing was measured yet")

    look(home, story, (80, 24))


def test_in_a_home_without_a_database_too(kgops_home: Path) -> None:
    async def story(seen: Seen) -> None:
        await opened(seen)
        await seen.until_shows("Nothing was measured yet")

    look(kgops_home, story, (80, 24))


def test_b_opens_it_from_other_screens_and_comes_back_to_the_one_below(home: Path, conn: Connection) -> None:
    add_claims(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        first = seen.app.screen
        await seen.press("escape", "f")
        await seen.until_shows("profiles  a value you give")
        await opened(seen)
        assert seen.app.screen is not first
        depth = len(seen.app.screen_stack)
        await seen.press("b")
        assert len(seen.app.screen_stack) == depth
        await seen.press("question_mark")
        await seen.until_shows("KEYS HERE", "Other machines and versions, too.", "Every figure one by one")
        await seen.press("escape", "escape")
        await seen.until_shows("profiles  a value you give")

    look(home, story)


def test_a_terminal_without_unicode_gets_bars_all_the_same(home: Path, conn: Connection) -> None:
    add_claims(conn)

    async def story(seen: Seen) -> None:
        await opened(seen)
        await go_to(seen, "claims b")
        await seen.until_shows("##|", "1x", " o")
        assert seen.text.isascii() and "??" not in seen.text

    look(home, story, (120, 40), unicode=False)


def test_a_damaged_database_is_named_with_what_to_do(home: Path) -> None:
    (home / "kgops.db").write_bytes(b"no database at all " * 500)

    async def story(seen: Seen) -> None:
        await seen.until_shows("is damaged")
        await opened(seen)
        await seen.until_shows("is damaged", "doctor --rebuild")
        await seen.press("F", "M", "down", "y")
        await seen.press("escape")
        await seen.until(lambda: not isinstance(seen.app.screen, Benchmarks), "the dashboard")

    look(home, story, (300, 30))


def test_figures_that_came_or_went_are_known_without_reading_all_again(conn: Connection) -> None:
    add_many(conn, 400)
    known = figures.known(conn)
    assert list(known.numbers) == list(range(1, 401))
    add_many(conn, 100)
    assert figures.known(conn, known).numbers is known.numbers and len(known.numbers) == 500
    conn.execute("DELETE FROM measurement WHERE id BETWEEN 100 AND 199")
    add_many(conn, 50)
    fresh = figures.known(conn, known)
    assert len(fresh.numbers) == measurements.count(conn) == 450
    assert set(figures.of_numbers(conn, range(90, 210))) == {*range(90, 100), *range(200, 210)}
    conn.execute("DELETE FROM measurement WHERE id > 500")
    add_own(conn, times=17)  # under the numbers of those that are gone
    fresh = figures.known(conn, fresh)
    assert len(fresh.numbers) == measurements.count(conn) == 451
    assert len(figures.having(fresh, ["rss"], None)) == 17
    words = figures.having(fresh, ["Loss"], key_of(THERE))
    assert len(words) == measurements.count(conn, Wanted(("loss",), machine=key_of(THERE)))


def test_what_came_last_is_found_at_once_and_the_rest_counted(conn: Connection) -> None:
    add_own(conn, times=2)
    add_many(conn, 1_000)
    late, everything = figures.late_batches(conn, among=300), figures.batches(conn, figures.known(conn))
    add_claims(conn)
    number = next(iter(benches.newest(conn, limit=1))).id
    kept = Measurement("speed", "+ fp16", "fp32", 2.0, 1.9, 2.1, 3, "×", "kgops bench claims", HERE, 1.0)
    measurements.replace_of_bench(conn, number, [replace(kept, bench=number)])
    assert figures.batches(conn, figures.known(conn)) == everything  # that one is a benchmark's
    by_hand = conn.execute(
        "SELECT command, fingerprint, max(at), count(*) FROM measurement WHERE bench IS NULL"
        " GROUP BY command, fingerprint"
    )
    assert sorted(everything) == sorted(map(tuple, by_hand))
    assert "kgops.bench.console" not in {one.command for one in late}
    assert sum(one.figures for one in everything) == 1_006
    assert {one[:2] for one in late} <= {one[:2] for one in everything}
